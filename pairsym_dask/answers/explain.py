"""Why an energy is what it is: biases, the pull of each seen item, and the pull of the censored pairs.

A user's traits solve P u_i = h_i, and h_i is a sum over the pairs seen and one term of all pairs censored, so that
u_i.v_j = v_j^T P^-1 h_i falls into one part a seen item and one for the censored pairs. P and h_i are taken at the
committed state. The committed u_i was solved against the items before their last update: the difference, which goes
to nothing as sweeps go on, is a part of its own, so that the parts add up to the energy whatever the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..store.commit import read_rows
from ..store.counts import Counts
from ..sweep.background import lambda_of
from .predict import Newcomers, Predictor, Symbols, energy_of_pairs, sigma_of
from .tags import SideTags


@dataclass(frozen=True, repr=False)
class Explanation:
    """An energy in parts, and what it comes to.

    `frame` has a row a part: part, item and count of the pair seen (where it is one), energy; its energies add up to
    `energy`, the posterior mean of u_i.v_j + b_i + b_j. `sigma` is p(shown | i, j), averaged over the posterior with
    standard deviation `sd` of the energy; `popularity` is E[psi_j]; p(j | i) is proportional to their product.
    Where the fit had tags, `tags` has a row a tag of the item and of the user: side, tag, weight, and the energy that
    it brings to the pair through the prior means (None is the level, which all have); what pairs have taught beside it
    is not among these.
    """

    user: Any
    item: Any
    frame: pd.DataFrame
    energy: float
    sd: float
    sigma: float
    popularity: float
    tags: pd.DataFrame | None = None

    def __repr__(self) -> str:
        shown = self.frame.assign(
            item=["" if item is None else str(item) for item in self.frame["item"]],
            count=["" if np.isnan(count) else f"{count:g}" for count in self.frame["count"]],
            energy=[f"{energy:+.3f}" for energy in self.frame["energy"]],
        )
        tags = ""
        if self.tags is not None and len(self.tags):
            named = self.tags[self.tags["tag"].notna()]
            pulls = [f"{tag} {energy:+.3f}" for tag, energy in zip(named["tag"], named["energy"], strict=True)]
            tags = f"\ntags pull: {', '.join(pulls[:10])}"
        return (
            f"why item {self.item!r} for user {self.user!r}\n{shown.to_string(index=False)}\n"
            f"energy {self.energy:+.3f} with sd {self.sd:.3f}: shown with probability {self.sigma:.4g}, "
            f"where selected; selected with popularity {self.popularity:.4g}{tags}"
        )


def explain(predictor: Predictor, user: int, item: int, n: int, tags: dict[str, SideTags]) -> Explanation:
    """The parts of the energy of one pair (positions), the n seen items that pull most by name."""
    commit, counts, settings = predictor.commit, predictor.counts, predictor.commit.settings
    items, me = predictor.items, predictor.users(np.array([user]))
    background = commit.sealed.read_array(commit.arrays["items/background"])  # t_j, none of an item that is new
    background = np.concatenate([background, np.zeros(len(items) - background.size)])
    seen, count = seen_of(counts, user)

    # The user's update (design of one pass): W_ij, P and h_i, in float64.
    censored = (
        settings.censored_ratio * counts.total * float(read_rows(commit, "users/background", np.array([user]))[0])
    )
    star = 2 * lambda_of(commit.scalar("xi_star")) * censored
    chosen, bias = _double(items.take(seen)), float(me.bias[0])
    mean, variance = energy_of_pairs(_double(me.take(np.zeros(seen.size, np.int64))), chosen)
    xi = np.sqrt(mean**2 + variance)
    two_lambda = 2 * np.array([lambda_of(x) for x in xi])
    weight = two_lambda * (count + censored * background[seen]) - star * background[seen]
    m = items.mean.astype(np.float64)
    daggers = background @ m, (background * items.bias) @ m  # sum t m and sum t b m
    precision = star * ((m * background[:, None]).T @ m) + (chosen.mean * weight[:, None]).T @ chosen.mean
    precision += np.diag(star * (background @ items.variance) + weight @ chosen.variance + settings.tau_u)
    # u_i.v_j = h_i.(P^-1 v_j)
    direction = np.linalg.solve(precision, m[item])
    pull = (count / 2 - weight * (chosen.bias + bias)) * (chosen.mean @ direction)
    unseen = -(censored / 2 * daggers[0] + star * (daggers[1] + bias * daggers[0])) @ direction
    taste = float(me.mean[0].astype(np.float64) @ m[item])

    mean, variance = energy_of_pairs(_double(me), _double(items.take(np.array([item]))))
    total = Total(
        float(mean[0]), float(np.sqrt(variance[0])), float(sigma_of(mean, variance)[0]),
        float(predictor.popularity[item]),
    )  # fmt: skip
    first = {"user bias": bias, "item bias": float(items.bias[item])}
    last = {"censored pairs": float(unseen)}
    if "users" in tags:  # h_i holds the prior mean times the precision that it pulls with
        (mean_of_tags,) = tags["users"].symbols(tags["users"].prior.rows[[user]]).mean.astype(np.float64)
        last["user tags"] = tags["users"].tau * float(mean_of_tags @ direction)
    last["not settled yet"] = taste - float(pull.sum()) - sum(last.values())
    who, what = predictor.label("users", user), predictor.label("items", item)
    found = explanation_of(counts, (who, what), n, (seen, count, pull), first, last, total)
    return replace(found, tags=tag_pulls(tags, who, what, me, items.take(np.array([item]))))


def explain_newcomer(predictor: Predictor, user: Newcomers, item: int, tags: dict[str, SideTags]) -> Explanation:
    """The parts of the energy of an item with a user who has tags and no pairs."""
    one = _double(predictor.items.take(np.array([item])))
    me = _double(user.symbols)
    mean, variance = energy_of_pairs(me, one)
    total = Total(
        float(mean[0]), float(np.sqrt(variance[0])), float(sigma_of(mean, variance)[0]),
        float(predictor.popularity[item]),
    )  # fmt: skip
    first = {"user bias": float(me.bias[0]), "item bias": float(one.bias[0])}
    last = {"user tags": float(me.mean[0] @ one.mean[0])}
    who, what, none = user.labels.tolist()[0], predictor.label("items", item), np.empty(0, np.int64)
    found = explanation_of(predictor.counts, (who, what), 1, (none, none, none), first, last, total)
    return replace(found, tags=tag_pulls(tags, who, what, me, one))


def tag_pulls(tags: dict[str, SideTags], user: Any, item: Any, me: Symbols, one: Symbols) -> pd.DataFrame | None:
    """What the tags of both symbols bring to their energy."""
    parts = [
        tags[side].pulls(label, its.mean[0].astype(np.float64))
        for side, label, its in (("items", item, me), ("users", user, one))
        if side in tags
    ]
    return pd.concat(parts, ignore_index=True) if parts else None


class Total(NamedTuple):
    """What the parts of an energy come to: see `Explanation`."""

    energy: float
    sd: float
    sigma: float
    popularity: float


def explanation_of(
    counts: Counts, pair: tuple[Any, Any], n: int, pulls: tuple[np.ndarray, np.ndarray, np.ndarray],
    first: dict[str, float], last: dict[str, float], total: Total,
) -> Explanation:  # fmt: skip
    """Parts by name, the seen items between them: `pulls` are their positions, counts and parts of the energy."""
    seen, count, pull = pulls
    most = np.lexsort((seen, -np.abs(pull)))
    named, rest = most[:n], most[n:]
    labels = counts.label_rows("items", seen[named])
    lines: list[tuple[str, Any, float, float]] = [
        *((name, None, np.nan, energy) for name, energy in first.items()),
        *(("seen item", label, count[k], pull[k]) for label, k in zip(labels.tolist(), named, strict=True)),
    ]
    if rest.size:
        lines.append((f"{rest.size} other seen items", None, count[rest].sum(), pull[rest].sum()))
    lines += [(name, None, np.nan, energy) for name, energy in last.items()]
    frame = pd.DataFrame(lines, columns=["part", "item", "count", "energy"])
    frame["item"] = pd.Series([line[1] for line in lines], dtype=object)
    return Explanation(*pair, frame, *total)


def seen_of(counts: Counts, user: int) -> tuple[np.ndarray, np.ndarray]:
    """Items of a user's pairs, and how often each was seen."""
    block, row = divmod(user, counts.cuts["users"].block)
    tile = counts.rows("users", block)
    mine = slice(*tile.indptr[row : row + 2])
    return tile.indices[mine].astype(np.int64), tile.counts[mine].astype(np.float64)


def _double(symbols: Symbols) -> Symbols:
    fields = symbols.mean, symbols.variance, symbols.bias, symbols.bias_variance
    return Symbols(*(array.astype(np.float64) for array in fields))
