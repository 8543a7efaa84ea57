"""Measures of held-out pairs and of the users' lists, from where the held-out items stand.

Scores that tie are taken in every order equally often, so HR, recall, NDCG, MAP, MRR and position are expectations
over those orders; R counts strictly smaller scores, as eq. (rank) does. R, percentile, HR, MRR and log-likelihood are
of pairs; recall, NDCG, MAP and novelty of lists, one a user, whose hits are all her held-out items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import digamma

from ..errors import InputError
from ..options import whole_number

OF_PAIRS = ("R", "mean_percentile", "hr", "mrr", "log_likelihood")
OF_LISTS = ("recall", "ndcg", "map", "novelty")
CUT = ("hr", "recall", "ndcg", "precision", "map", "novelty", "coverage")  # measures that depend on a list's length
REPLICATES = 1000  # of the bootstrap
_NOTHING = -(2**30)  # stands for log2 of 0


def check_cutoffs(n: Any) -> tuple[int, ...]:
    """One length of a list, or several, in rising order."""
    several = list(n) if isinstance(n, (list, tuple, range, np.ndarray)) else [n]
    checked = sorted(whole_number("n", one, least=1) for one in several)
    if not checked or len(set(checked)) < len(checked):
        raise InputError(f"n must be a whole number, at least 1, or several different ones, not {n!r}")
    return tuple(checked)


def names(measure: str, cutoffs: tuple[int, ...]) -> list[str]:
    """Columns of a measure: with several cut-offs one for each, such as ndcg@5.

    >>> names("ndcg", (10,)), names("ndcg", (5, 10)), names("R", (5, 10))
    (['ndcg'], ['ndcg@5', 'ndcg@10'], ['R'])
    """
    if measure not in CUT or len(cutoffs) == 1:
        return [measure]
    return [f"{measure}@{n}" for n in cutoffs]


def pair_measures(
    above: np.ndarray, ties: np.ndarray, unseen: np.ndarray, user: np.ndarray, cutoffs: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Measures of pairs, which are sorted by user; `precision` is a pair's term of its user's average precision."""
    below, last = unseen - 1 - above - ties, above + ties + 1
    out = {
        "position": above + 1 + ties / 2,
        "R": below / unseen,
        "mean_percentile": np.where(unseen > 1, (below + ties / 2) / np.maximum(unseen - 1, 1), 1.0),
    }
    before, level = _hits(user, above)
    for k, given in enumerate(cutoffs):
        n = min(given, int(unseen.max()))
        gain = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n + 2)))])  # of the first positions
        out[names("hr", cutoffs)[k]] = (np.minimum(last, n) - np.minimum(above, n)) / (ties + 1)
        out[names("ndcg", cutoffs)[k]] = (gain[np.minimum(last, n)] - gain[np.minimum(above, n)]) / (ties + 1)
        out[names("precision", cutoffs)[k]] = _precision(above, ties, before, level, n)
    out["mrr"] = np.where(ties == 0, 1 / last, (digamma(last + 1.0) - digamma(above + 1.0)) / (ties + 1))
    return out


def _hits(user: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each pair how many held-out items of its user score above it, and how many the same (itself among them).

    Two items of a user score the same where as many items are above them.
    """
    order = np.lexsort((above, user))
    sorted_user, sorted_above = user[order], above[order]
    begins = np.r_[True, np.diff(sorted_user) != 0]
    steps = begins | np.r_[True, np.diff(sorted_above) != 0]
    number = np.arange(user.size)
    first_of_user = np.maximum.accumulate(np.where(begins, number, 0))
    first_of_level = np.maximum.accumulate(np.where(steps, number, 0))
    size = np.diff(np.r_[np.flatnonzero(steps), user.size])[np.cumsum(steps) - 1]
    before, level = np.empty((2, user.size), np.int64)
    before[order], level[order] = first_of_level - first_of_user, size
    return before, level


def _precision(above: np.ndarray, ties: np.ndarray, before: np.ndarray, level: np.ndarray, n: int) -> np.ndarray:
    """Expected precision at a held-out item's position where that is among the first n, else 0.

    At place a + k of its level of g equal scores, h of them held out, the hits so far are before + 1 + (k - 1)(h - 1) /
    (g - 1) on average; the sums over k of 1 / (a + k) and (k - 1) / (a + k) are differences of harmonic numbers.
    """
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
    a = np.minimum(above, n)
    places = np.minimum(ties + 1, n - a)
    total = harmonic[a + places] - harmonic[a]
    later = places - (a + 1) * total
    tied = ((before + 1) * total + later * (level - 1) / np.maximum(ties, 1)) / (ties + 1)
    return np.where(ties == 0, np.where(above < n, (before + 1) / (above + 1), 0.0), tied)


def list_measures(pairs: pd.DataFrame, items: int, cutoffs: tuple[int, ...]) -> pd.DataFrame:
    """A row a user, in order of first appearance: c, held-out pairs, recall, NDCG and MAP."""
    user, labels = pd.factorize(pairs["user"])
    held = np.bincount(user)
    first = np.unique(user, return_index=True)[1]
    out = pd.DataFrame({"user": labels, "c": pairs["c"].to_numpy()[first], "pairs": held})
    for k, n in enumerate(cutoffs):
        most = np.minimum(min(n, items), held)  # hits that a list could have
        ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, int(most.max()) + 2)))])
        for measure, of_pair, best in (
            ("recall", "hr", held),
            ("ndcg", "ndcg", ideal[most]),
            ("map", "precision", most),
        ):
            hits = np.bincount(user, pairs[names(of_pair, cutoffs)[k]].to_numpy())
            out[names(measure, cutoffs)[k]] = hits / best
    return out


def summarise_rows(pairs: pd.DataFrame, lists: pd.DataFrame, cutoffs: tuple[int, ...]) -> dict[str, float]:
    """Means over pairs and over lists, with standard errors over users (one user's rows are not independent)."""
    user, labels = pd.factorize(pairs["user"])
    users = int(user.max()) + 1
    out: dict[str, float] = {"users": users, "pairs": len(pairs)}
    owner = pd.Index(labels).get_indexer(lists["user"])
    for part, whose, measures in ((pairs, user, OF_PAIRS), (lists, owner, OF_LISTS)):
        for name in (name for measure in measures for name in names(measure, cutoffs)):
            values = part[name].to_numpy(np.float64)
            mean = values.mean()
            with np.errstate(invalid="ignore"):  # a log-likelihood of -inf
                by_user = np.bincount(whose, values - mean)
            out[name] = mean
            deviation = np.sqrt((by_user**2).sum() * users / (users - 1)) if users > 1 else np.nan
            out[f"{name}_se"] = deviation / len(part)
    out["perplexity"] = np.exp(-out["log_likelihood"])
    return out


def compared(cutoffs: tuple[int, ...]) -> list[str]:
    """Measures whose differences between models get intervals."""
    return ["R", *names("recall", cutoffs), *names("ndcg", cutoffs), "log_likelihood"]


def differences(evaluations: dict[str, Any], random_state: int) -> pd.DataFrame:
    """Values and paired bootstrap intervals, the same drawn users for all models and measures."""
    base = next(iter(evaluations.values()))
    user, labels = pd.factorize(base.per_user["user"])
    owner, users = pd.Index(labels).get_indexer(base.lists["user"]), int(user.max()) + 1
    rows, sums, sizes = [], [], []
    for name, one in evaluations.items():
        for measure in compared(base.cutoffs):
            of_lists = measure.split("@")[0] in OF_LISTS
            here, there = (one.lists, base.lists) if of_lists else (one.per_user, base.per_user)
            values, whose = here[measure].to_numpy(np.float64), owner if of_lists else user
            with np.errstate(invalid="ignore"):
                difference = values - there[measure].to_numpy(np.float64)
            sums.append(np.bincount(whose, difference))
            sizes.append(np.bincount(whose))
            rows.append({"model": name, "measure": measure, "value": values.mean(), "difference": difference.mean()})
    frame, ends = pd.DataFrame(rows), np.empty((2, len(rows)))
    # Recall apart: the last bits of a product depend on how many columns it has, and recall came later.
    apart = frame["measure"].str.startswith("recall").to_numpy()
    for part in (np.flatnonzero(~apart), np.flatnonzero(apart)):
        columns = np.stack([sums[k] for k in part], axis=1)
        weights = np.stack([sizes[k] for k in part], axis=1).astype(np.float64)
        generator = np.random.default_rng(random_state)
        drawn = np.empty((REPLICATES, part.size))
        for k in range(REPLICATES):
            weight = np.bincount(generator.integers(users, size=users), minlength=users).astype(np.float64)
            drawn[k] = weight @ columns / (weight @ weights)
        ends[:, part] = np.quantile(drawn, [0.025, 0.975], axis=0)
    return frame.assign(low=ends[0], high=ends[1])


def exponents(c: np.ndarray) -> np.ndarray:
    """floor(log2 c), exactly."""
    return np.where(c > 0, np.frexp(c)[1] - 1, _NOTHING)


def bin_low(exponent: int) -> float:
    return 0.0 if exponent == _NOTHING else float(2.0**exponent)


def bin_name(low: float, whole: bool) -> str:
    if low == 0 or (whole and low == 1):
        return f"{low:g}"
    return f"{low:.0f}-{2 * low - 1:.0f}" if whole else f"[{low:g}, {2 * low:g})"
