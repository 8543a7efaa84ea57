"""Why an energy is what it is, from draws: in every draw the parts that its user's conditional mean falls into.

Given the items of a draw, a user's [u_i, b_i] is normal with mean P^-1 h_i. With Polya-Gamma weights and censored pairs
at their expectations, h_i is the prior's term, one of each seen item and one of all censored pairs; how far the draw
itself is from that mean is a part of its own, which averages out over draws. All parts are averaged over draws.
A user without pairs has the mean of the prior: what all users share, and what the user's tags add.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from ..store.commit import read_rows
from .draw_tags import centres_of, prior_of, pulls_over
from .draws import DrawPredictor, SymbolDraws
from .explain import Explanation, Total, explanation_of, seen_of
from .predict import Newcomers, labels_of
from .tags import SideTags


def explain(
    predictor: DrawPredictor, user: int, item: int, n: int, tags: dict[str, SideTags], more: Newcomers | None = None
) -> Explanation:
    """The parts of the energy of one pair (positions), the n seen items that pull most by name.

    `tags` are those of both sides; `more` is the item, where it has tags alone.
    """
    counts, wide = predictor.counts, predictor.wider(more)
    seen, count = seen_of(counts, user)
    parts = np.zeros(4)  # the prior's pull, that of tags and of the censored pairs, how far draws are from their mean
    pulls, bias, energies = np.zeros(seen.size), 0.0, np.empty(predictor.size)
    me = predictor.users(np.array([user]))
    for d, commit in enumerate(predictor.commits):
        items, size = predictor.items(d), commit.settings.factors + commit.settings.biases
        z = np.hstack([items.traits, np.ones((len(items.bias), 1))]).astype(np.float64)[:, :size]
        mine = np.append(me.traits[d, 0], me.bias[d, 0]).astype(np.float64)[:size]
        energy = z @ mine + items.bias
        prior = prior_of(commit, "users")
        chosen = read_rows(commit, "users/selection", np.array([user])).reshape(-1) / commit.selected("users").sum()
        rate = (1 + commit.settings.censored_ratio) * counts.total
        censored = rate * (chosen @ items.psi) * expit(-energy)  # E[n'_ij]
        weight = polya_gamma_mean(energy)
        shown = np.zeros(energy.size)
        shown[seen] = count
        square, right = prior.joint()
        precision = square[:size, :size] + (z * ((shown + censored) * weight)[:, None]).T @ z
        one = wide.items(d)
        target, its_bias = np.append(one.traits[item], 1.0).astype(np.float64)[:size], float(one.bias[item])
        direction = np.linalg.solve(precision, target)
        along = z @ direction
        # h = prior + sum (c - n') / 2 z - omega b_j z
        pull = count * (0.5 - weight[seen] * items.bias[seen]) * along[seen]
        unseen = float((censored * (-0.5 - weight * items.bias) * along).sum())
        taken, bias = float(right[:size] @ direction), bias + its_bias
        tagged = 0.0
        if "users" in tags:
            (centre,) = centres_of(commit, "users", tags["users"].prior.of_rows(user, user + 1))
            tagged = float((square @ centre)[:size] @ direction)
        pulls += pull
        energies[d] = mine @ target + its_bias
        apart = energies[d] - its_bias - taken - tagged - pull.sum() - unseen
        parts += [taken, tagged, unseen, apart]
    taken, tagged, unseen, apart = (parts / predictor.size).tolist()
    first = {"item bias": bias / predictor.size, "other users": taken}
    last = {"censored pairs": unseen, "draws about their mean": apart}
    if "users" in tags:
        last = {"user tags": tagged, **last}
    pair = counts.label_rows("users", np.array([user])).tolist()[0], _label(wide, item)
    found = explanation_of(
        counts, pair, n, (seen, count, pulls / predictor.size), first, last, _total(wide, me, item, energies)
    )
    return replace(found, tags=_tag_pulls(wide, tags, pair, me, item))


def explain_newcomer(
    predictor: DrawPredictor, user: Newcomers, item: int, tags: dict[str, SideTags], more: Newcomers | None = None
) -> Explanation:
    """The parts of the energy of an item (by position, or `more`) with a user who has tags and no pairs."""
    wide, me, users = predictor.wider(more), user.symbols, tags["users"]
    links, k = users.prior.scaled(users.find(user.labels)), predictor.commit.settings.factors
    parts, energies = np.zeros(4), np.empty(predictor.size)
    for d, commit in enumerate(predictor.commits):
        one, prior = wide.items(d), prior_of(commit, "users")
        target, bias = one.traits[item].astype(np.float64), float(one.bias[item])
        (centre,) = centres_of(commit, "users", links)
        shared, tagged = (
            float(traits @ target) + own * commit.settings.biases
            for traits, own in ((prior.mean, prior.bias_mean), (centre[:k], centre[k]))
        )
        energies[d] = me.traits[d, 0].astype(np.float64) @ target + me.bias[d, 0] + bias
        parts += [bias, shared, tagged, energies[d] - bias - shared - tagged]
    bias, shared, tagged, apart = (parts / predictor.size).tolist()
    first = {"item bias": bias, "other users": shared}
    last = {"user tags": tagged, "draws about their mean": apart}
    pair, none = (user.labels.tolist()[0], _label(wide, item)), np.empty(0, np.int64)
    total = _total(wide, me, item, energies)
    found = explanation_of(predictor.counts, pair, 1, (none, none, none), first, last, total)
    return replace(found, tags=_tag_pulls(wide, tags, pair, me, item))


def _label(predictor: DrawPredictor, item: int) -> Any:
    return labels_of(predictor.counts, "items", np.array([item]), predictor.more).tolist()[0]


def _total(predictor: DrawPredictor, me: SymbolDraws, item: int, energies: np.ndarray) -> Total:
    offered = [np.atleast_2d(predictor.offered(me, d))[0, item] for d in range(predictor.size)]
    return Total(float(energies.mean()), float(energies.std()), float(expit(energies).mean()), float(np.mean(offered)))


def _tag_pulls(
    predictor: DrawPredictor, tags: dict[str, SideTags], pair: tuple[Any, Any], me: SymbolDraws, item: int
) -> pd.DataFrame | None:
    """What the tags of both symbols bring to their energy, averaged over draws."""
    its = np.stack([predictor.items(d).traits[item] for d in range(predictor.size)])
    parts = [
        pulls_over(predictor.commits, tags[side].prior, label, traits.astype(np.float64))
        for side, label, traits in (("items", pair[1], me.traits[:, 0]), ("users", pair[0], its))
        if side in tags
    ]
    return pd.concat(parts, ignore_index=True) if parts else None


def polya_gamma_mean(energy: np.ndarray) -> np.ndarray:
    """Mean of a PolyaGamma(1, a) number, tanh(a / 2) / (2 a)."""
    small = np.abs(energy) < 1e-4
    safe = np.where(small, 1.0, energy)
    return np.asarray(np.where(small, 0.25, np.tanh(safe / 2) / (2 * safe)))
