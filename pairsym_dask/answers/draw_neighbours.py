"""Symbols that are alike and users for an item, averaged over draws; users are read a block and a draw at a time.

Within a draw the measures are those of `neighbours`: the cosine of two symbols' traits, or the correlation of their
energies over the other side. Only then are they averaged: traits turn from draw to draw, these do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from ..settings import other
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from .draws import DrawPredictor, SymbolDraws, beliefs_over
from .neighbours import check_measure, first_of, over_users
from .predict import Newcomers, labels_of


def similar(
    predictor: DrawPredictor, side: str, position: int, n: int, measure: str, new: SymbolDraws | None = None,
    **where: Any,
) -> pd.DataFrame:  # fmt: skip
    """The n symbols of a side most like one over all draws, itself left out: label, rank, similarity.

    It is of the store, or `new`.
    """
    check_measure(measure)
    covariances = None if measure == "cosine" else covariance_of(predictor, other(side), where)
    if side == "items":
        total = np.zeros(predictor.counts.shape[1])
        for d in range(predictor.size):
            rows = _rows(predictor.items(d).traits, predictor.items(d).bias)
            one = rows[position] if new is None else _rows(new.traits[d], new.bias[d])[0]
            total += likeness_of(one, rows, None if covariances is None else covariances[d])
        places, likeness = np.arange(total.size), total / predictor.size
    else:
        me = predictor.users(np.array([position])) if new is None else new
        ones = np.stack([_rows(me.traits[d], me.bias[d])[0] for d in range(predictor.size)])
        asked = (ones, covariances, n)
        found = over_users("similar-users", _similar_block, predictor.commits, predictor.counts, asked, where)
        places, likeness = (np.concatenate(parts) for parts in zip(*found, strict=True))
    kept = places != position
    places, likeness = places[kept], likeness[kept]
    best = first_of(likeness, places, n)
    labels = predictor.counts.label_rows(side, places[best])
    return pd.DataFrame({side[:-1]: labels, "rank": np.arange(best.size) + 1, "similarity": likeness[best]})


def _rows(traits: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """[traits, bias] in float64."""
    return np.hstack([traits, bias[:, None]]).astype(np.float64)


def likeness_of(one: np.ndarray, others: np.ndarray, covariance: np.ndarray | None) -> np.ndarray:
    """Likeness of a row [traits, bias] to others in one draw: the cosine of traits, or the correlation of energies.

    With S the covariance of the other side's [traits, bias] the covariance of two energies is y_j^T S y_k, y = [v, 1].
    """
    mine, theirs = one[:-1], others[:, :-1]
    if covariance is None:
        product, sizes = theirs @ mine, np.linalg.norm(theirs, axis=1) * np.linalg.norm(mine)
    else:
        mine, theirs = np.append(mine, 1.0), np.hstack([theirs, np.ones((len(theirs), 1))])
        product = theirs @ (covariance @ mine)
        sizes = np.sqrt(
            np.einsum("nk,kl,nl->n", theirs, covariance, theirs, optimize=True) * (mine @ covariance @ mine)
        )
    return np.divide(product, sizes, out=np.zeros_like(product), where=sizes > 0)


def covariance_of(predictor: DrawPredictor, side: str, where: dict[str, Any]) -> np.ndarray:
    """Covariances (draws, K + 1, K + 1) of [traits, bias] over a side; kept."""
    if side not in predictor.covariances:
        if side == "items":
            parts = [np.stack([_moments(predictor.items(d)) for d in range(predictor.size)])]
        else:
            parts = over_users("sum-users", _moments_block, predictor.commits, predictor.counts, (), where)
        sums = np.sum(parts, axis=0)
        n, total, squares = predictor.commit.record["rows"][side], sums[:, -1, :-1], sums[:, :-1, :-1]
        mean = total / n
        predictor.covariances[side] = squares / n - mean[:, :, None] * mean[:, None, :]
    return predictor.covariances[side]


def _moments(symbols: Any) -> np.ndarray:
    """Sums of products of [traits, bias, 1]."""
    rows = _rows(symbols.traits, symbols.bias)
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    return np.asarray(rows.T @ rows)


def users_for(
    predictor: DrawPredictor, item: int, n: int, exclude_seen: bool, popularity: float, interval: float,
    users: Newcomers | None = None, **where: Any,
) -> pd.DataFrame:  # fmt: skip
    """The n users whom an item suits best over all draws: user, rank, probability p(i | j), sigma, sd, low, high.

    `users` are some beside the store's, each as active as the geometric mean of those.
    """
    items = [predictor.items(d) for d in range(predictor.size)]
    rows = np.stack([np.append(one.traits[item].astype(np.float64), one.bias[item]) for one in items])
    parts = np.stack([one.psi[:, item] / one.psi[:, item].sum() for one in items])
    asked = (item, rows, parts, n, exclude_seen, popularity)
    found = over_users("recommend-item", _users_block, predictor.commits, predictor.counts, asked, where)
    if users is not None:
        many = predictor.counts.shape[0]
        middle = np.exp(np.sum([part[-1] for part in found], axis=0) / many)  # (draws, components)
        pi = (middle * parts).sum(1) / [commit.selected("users").sum() for commit in predictor.commits]
        new = users.symbols
        energies = np.stack([_rows(new.traits[d], new.bias[d]) @ [*rows[d, :-1], 1.0] for d in range(predictor.size)])
        energies += rows[:, -1:]
        places, kept = many + np.arange(len(new)), np.arange(len(new))
        found.append((*_best(energies, np.repeat(pi[:, None], len(new), axis=1), places, kept, n, popularity), middle))
    totals = np.sum([part[-2] for part in found], axis=0)
    places, score = (np.concatenate([part[k] for part in found]) for k in (0, 1))
    energies, chosen = (np.concatenate([part[k] for part in found], axis=1) for k in (2, 3))
    best = first_of(score, places, n)
    # p(i | j) is normalised within every draw
    p = (expit(energies[:, best]) * chosen[:, best] / totals[:, None]).mean(0)
    return pd.DataFrame(
        {
            "user": labels_of(predictor.counts, "users", places[best], users),
            "rank": np.arange(best.size) + 1,
            "probability": p,
            **beliefs_over(energies[:, best], interval),
        }
    )


# Tasks, a block of users each ----------------------------------------------------------------------------------------


def _read(commit: Commit, positions: np.ndarray) -> np.ndarray:
    return _rows(*(read_rows(commit, f"users/{name}", positions) for name in ("traits", "bias")))


def _similar_block(
    commits: list[Commit], counts: Counts, block: int, ones: np.ndarray, covariances: np.ndarray | None, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The n + 1 users of a block most like one, who may be among them: [traits, bias] by draw are `ones`."""
    positions = np.arange(*counts.cuts["users"].row_range(block))
    likeness = np.zeros(positions.size)
    for d, commit in enumerate(commits):
        likeness += likeness_of(ones[d], _read(commit, positions), None if covariances is None else covariances[d])
    best = first_of(likeness, positions, n + 1)
    return positions[best], likeness[best] / len(commits)


def _moments_block(commits: list[Commit], counts: Counts, block: int) -> np.ndarray:
    positions = np.arange(*counts.cuts["users"].row_range(block))
    rows = (_read(commit, positions) for commit in commits)
    return np.stack([(x := np.hstack([row, np.ones((len(row), 1))])).T @ x for row in rows])


def _users_block(
    commits: list[Commit], counts: Counts, block: int, item: int, rows: np.ndarray, parts: np.ndarray, n: int,
    exclude_seen: bool, popularity: float,
) -> tuple[Any, ...]:  # fmt: skip
    """The n best users of a block, as of `_best`, and sums of the logarithms of selections (draws, components).

    `parts` (draws, components) are which components the item is selected by.
    """
    positions = np.arange(*counts.cuts["users"].row_range(block))
    energies, chosen = np.empty((2, len(commits), positions.size))
    logs = np.empty_like(parts)
    for d, commit in enumerate(commits):
        users = _read(commit, positions)
        energies[d] = users[:, :-1] @ rows[d, :-1] + users[:, -1] + rows[d, -1]
        selection = read_rows(commit, "users/selection", positions).reshape(positions.size, -1)
        chosen[d] = (selection * parts[d]).sum(1) / commit.selected("users").sum()
        logs[d] = np.log(selection).sum(0)
    kept = np.ones(positions.size, bool)
    if exclude_seen:
        tile = counts.rows("users", block)
        kept[np.searchsorted(tile.indptr, np.flatnonzero(tile.indices == item), "right") - 1] = False
    return *_best(energies, chosen, positions, np.flatnonzero(kept), n, popularity), logs


def _best(
    energies: np.ndarray, chosen: np.ndarray, positions: np.ndarray, here: np.ndarray, n: int, popularity: float
) -> tuple[Any, ...]:
    """Of the users `here` the n best: positions, scores, energies and pi by draw, and what pi sigma of all sums to."""
    shown = expit(energies)
    score, totals = shown.mean(0) * chosen.mean(0) ** popularity, (shown * chosen).sum(1)
    best = here[first_of(score[here], positions[here], n)]
    return positions[best], score[best], energies[:, best], chosen[:, best], totals
