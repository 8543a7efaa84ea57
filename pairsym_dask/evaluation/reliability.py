"""Whether p(j | i) can be taken at its word: predicted against observed shares of held-out pairs.

A held-out pair is of an item that its user has not been seen with, so p(j | i) is taken over those items alone. Cells
(user, item) are put into bins by their p; a bin's predicted share is the sum of its p, its observed share the part of
the held-out pairs that fell into it. The error (ECE) is the sum of differences over bins. Conformal lists, "the next
item is among these n", are sized on one half of the users and judged on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..answers.predict import seen_items
from ..errors import InputError
from ..options import fraction, seed
from .held_out import HeldOutPairs, read_held_out

BINS_A_DECADE = 3
FIRST = 10  # items of a list that are looked at on their own


@dataclass(frozen=True, repr=False)
class Reliability:
    """How predicted and observed shares of held-out pairs compare.

    `bins` has a row a bin of p(j | i), over all unseen items of the users asked: low, high, cells, predicted and
    observed (shares of the held-out pairs). `first` is the same over each user's ten most probable items. `lists` has
    a row a kind of list that is to hold the next item with probability `level`: the same length for everybody, or as
    many items as it takes to reach a share of p(j | i), with its mean length and how often it held it.
    """

    bins: pd.DataFrame
    first: pd.DataFrame
    lists: pd.DataFrame
    level: float
    pairs: int

    @property
    def ece(self) -> float:
        """Expected calibration error: sum over bins of |observed - predicted|, both as shares of all pairs."""
        return _error(self.bins)

    @property
    def ece_first(self) -> float:
        """The same among each user's ten most probable items."""
        return _error(self.first)

    def __repr__(self) -> str:
        words = (
            f"{self.pairs:,} held-out pairs: calibration error {self.ece:.4f}, among the first {FIRST} "
            f"{self.ece_first:.4f}; the first {FIRST} were to hold {self.first['predicted'].sum():.4f} of them "
            f"and held {self.first['observed'].sum():.4f}"
        )
        return f"{words}\n{self.lists.to_string(index=False, float_format='{:.4g}'.format)}"


def _error(bins: pd.DataFrame) -> float:
    return float((bins["observed"] - bins["predicted"]).abs().sum())


def reliability(
    model: Any,
    held_out: pd.DataFrame,
    *,
    level: float = 0.9,
    user: Any = "user",
    item: Any = "item",
    unknown: str = "error",
    random_state: int = 0,
) -> Reliability:
    """Compare p(j | i) of a fitted model with held-out pairs, a block of users at a time.

    `level` is what conformal lists are to hold; `random_state` halves the users. All else is as in `evaluate`.
    """
    fraction("level", level, ", such as 0.9")
    counts, predictor = model.counts, getattr(model, "_answering", None)
    pairs = HeldOutPairs.read(read_held_out(held_out, counts, user, item, unknown), counts)
    users = np.unique(pairs.user)
    if users.size < 2:
        raise InputError("held_out has pairs of one user: lists are sized on some users and judged on others")
    sized = np.random.default_rng(seed(random_state)).permutation(users.size) < (users.size + 1) // 2
    cells, first = _Bins(), _Bins()
    # Lists are sized on the first users that are looked at, and judged on the others.
    found = [look[:2] for look in _looks(predictor, users[sized], pairs, cells, first)]
    rank, mass = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n, share = int(_quantile(rank, level)) + 1, _quantile(mass, level)
    ranks, lengths = [], []
    for rank, _, row, cumulated in _looks(predictor, users[~sized], pairs, cells, first):
        ranks.append(rank)
        lengths.append(((cumulated < share).sum(1) + 1)[row])
    rank, length = np.concatenate(ranks), np.concatenate(lengths)
    lists = pd.DataFrame(
        {
            "list": ["the same length for everybody", f"up to {share:.3f} of p(j | i)"],
            "level": level,
            "length": [float(n), float(length.mean())],
            "held": [float((rank < n).mean()), float((rank < length).mean())],
        }
    )
    return Reliability(cells.table(pairs.user.size), first.table(pairs.user.size), lists, level, pairs.user.size)


def _looks(
    predictor: Any, users: np.ndarray, pairs: HeldOutPairs, cells: _Bins, first: _Bins
) -> Iterator[tuple[Any, ...]]:
    """Of some users' pairs, a block at a time: rank, share of p up to it, row, and the rows' cumulated p in order."""
    for part in predictor.blocks(users.size):
        some = users[part]
        here = np.flatnonzero(np.isin(pairs.user, some))
        row, column = np.searchsorted(some, pairs.user[here]), pairs.item[here]
        p = predictor.conditional(predictor.users(some))
        indptr, seen = seen_items(predictor.counts, some)
        p[np.repeat(np.arange(some.size), np.diff(indptr)), seen] = 0.0
        p /= p.sum(1, keepdims=True)
        ranked = np.argsort(-p, axis=1, kind="stable")
        place = np.empty_like(ranked)
        np.put_along_axis(place, ranked, np.arange(p.shape[1])[None], axis=1)
        best = np.take_along_axis(p, ranked, 1)
        cumulated, rank = np.cumsum(best, axis=1), place[row, column]
        weight = np.bincount(row, minlength=some.size).astype(float)[:, None]  # a user with n pairs counts n times
        cells.add(p, p * weight, p[row, column])
        first.add(best[:, :FIRST], best[:, :FIRST] * weight, p[row, column][rank < FIRST])
        yield rank, cumulated[row, rank], row, cumulated


class _Bins:
    """Sums over cells by bins of p, equally wide on a logarithmic scale."""

    def __init__(self) -> None:
        self.sums: dict[int, np.ndarray] = {}  # cells, predicted, observed

    def add(self, p: np.ndarray, predicted: np.ndarray, held: np.ndarray) -> None:
        """Cells with their chances and predicted pairs, and the chances that held-out pairs had."""
        for chances, values in ((p, (np.ones(p.shape), predicted)), (held, (None, None, np.ones(held.shape)))):
            bins = _bin(chances[chances > 0])
            for column, each in enumerate(values):
                if each is None or not bins.size:
                    continue
                totals = np.bincount(bins - bins.min(), each[chances > 0])
                for k in np.flatnonzero(totals).tolist():
                    self.sums.setdefault(k + int(bins.min()), np.zeros(3))[column] += totals[k]

    def table(self, pairs: int) -> pd.DataFrame:
        found = sorted(self.sums)
        values = np.array([self.sums[k] for k in found]).reshape(-1, 3)
        edges = np.array(found) / BINS_A_DECADE
        return pd.DataFrame(
            {
                "low": 10.0**edges,
                "high": 10.0 ** (edges + 1 / BINS_A_DECADE),
                "cells": values[:, 0].astype(np.int64),
                "predicted": values[:, 1] / pairs,
                "observed": values[:, 2] / pairs,
            }
        )


def _bin(p: np.ndarray) -> np.ndarray:
    return np.floor(np.log10(p) * BINS_A_DECADE + 1e-9).astype(np.int64)


def _quantile(values: np.ndarray, level: float) -> float:
    """The smallest of some values that a new one stays within with probability `level`, by exchangeability."""
    place = min(int(np.ceil((values.size + 1) * level)), values.size) - 1
    return float(np.sort(values)[max(place, 0)])
