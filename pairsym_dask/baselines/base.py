"""What every baseline shares: the contract, ranked lists, checks of settings, and drawing unseen items.

Baselines keep the pairs and all their parameters in memory; they are for comparison, not for scale.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse
from tqdm import tqdm

from ..answers.predict import SCORES
from ..errors import InputError
from ..kernels.accelerate import compiled
from ..options import whole_number
from ..store.counts import Counts, open_counts


class Baseline:
    """A recommender: the constructor stores settings, `fit` checks them and learns from a counts store.

    A subclass says how to learn (`_learn`) and how to score rows of users (`_score`).
    """

    _counts: Counts | None = None
    _pairs: scipy.sparse.csr_matrix

    def fit(self, counts: Counts | str | os.PathLike[str], *, progress: bool = False) -> Self:
        """Learn from a counts store; `progress` shows a bar."""
        self._check()
        counts = open_counts(counts)
        pairs = counts.to_scipy()
        self._learn(counts, pairs, progress)
        # Last, so that a fit that was interrupted does not pass for a finished one.
        self._counts, self._pairs = counts, pairs
        return self

    @property
    def counts(self) -> Counts:
        """The counts store that the system was fitted to."""
        if self._counts is None:
            raise InputError(f"this {type(self).__name__} is not fitted yet; call fit")
        return self._counts

    def scores(self, users: Any) -> np.ndarray:
        """What `recommend` ranks by, for some users and all items in store order: (users, items)."""
        # The last bits of a product hang on where in it a row stands: a user who is named twice has one row.
        positions, rows = np.unique(self.counts.positions("users", users), return_inverse=True)
        return self._score(positions)[rows]

    def recommend(self, users: Any, n: int = 10, exclude_seen: bool = True, items: Any = None) -> pd.DataFrame:
        """The n best items for each user: user, item, rank, score.

        `items` are the candidates (all by default). A user gets fewer than n only when fewer are left.
        """
        counts = self.counts
        whole_number("n", n, least=1)
        positions = counts.positions("users", users)
        barred = np.zeros(counts.shape[1], bool)
        if items is not None:
            barred[:] = True
            barred[counts.positions("items", items)] = False
        step = max(1, SCORES // (8 * counts.shape[1]))
        lists = []
        # At least one part, so that no users give an empty frame with the same columns.
        for first in range(0, max(positions.size, 1), step):
            part = positions[first : first + step]
            scores = self._score(part).astype(np.float64)
            scores[:, barred] = -np.inf
            if exclude_seen:
                scores[self._pairs[part].nonzero()] = -np.inf
            user, item, rank = top(scores, int(n))
            lists.append(
                pd.DataFrame(
                    {
                        "user": counts.user_ids[part[user]],
                        "item": counts.item_ids[item],
                        "rank": rank + 1,
                        "score": scores[user, item],
                    }
                )
            )
        return pd.concat(lists, ignore_index=True)

    def _check(self) -> None:
        """Raise InputError where a setting cannot be used."""

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        raise NotImplementedError

    def _score(self, positions: np.ndarray) -> np.ndarray:
        """A new array of scores of users by row number, (users, items)."""
        raise NotImplementedError


class Factors(Baseline):
    """A model that is two tables of factors; scores are u_i.v_j."""

    _user_factors: np.ndarray
    _item_factors: np.ndarray

    def _score(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(self._user_factors[positions] @ self._item_factors.T)


class Density(Baseline):
    """A recommender that is a model of the next item too: a subclass says p(j | i) of rows of users."""

    def conditional(self, user: Any) -> pd.Series:
        """p(j | i) over all items, indexed by item label; sums to one."""
        p = self.conditionals(self.counts.positions("users", [user]))[0]
        return pd.Series(p, index=pd.Index(self.counts.item_ids, name="item"), name="probability")

    def conditionals(self, positions: np.ndarray) -> np.ndarray:
        """p(j | i) of users by row number, (users, items), rows that sum to one."""
        raise NotImplementedError


def top(scores: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n best columns of each row, best first, equal scores by position: (row, column, rank from 0).

    Scores of minus infinity are never taken.

    >>> row, column, rank = top(np.array([[1.0, 3.0, 3.0], [2.0, -np.inf, -np.inf]]), 2)
    >>> row.tolist(), column.tolist(), rank.tolist()
    ([0, 0, 1], [1, 2, 0], [0, 1, 0])
    """
    rows, columns = scores.shape
    if n < columns:
        best = np.argpartition(scores, -n, axis=1)[:, -n:]
        # A partition takes any of the scores that are equal to the last one taken: those rows are sorted in full.
        value = np.take_along_axis(scores, best, 1)
        edge = value.min(1, keepdims=True)
        tied = (scores == edge).sum(1) > (value == edge).sum(1)
        best[tied] = np.argsort(-scores[tied], axis=1, kind="stable")[:, :n]
        best.sort(1)
    else:
        best = np.tile(np.arange(columns), (rows, 1))
    value = np.take_along_axis(scores, best, 1)
    order = np.argsort(-value, axis=1, kind="stable")
    best, value = np.take_along_axis(best, order, 1), np.take_along_axis(value, order, 1)
    row, rank = np.nonzero(value > -np.inf)
    return row, best[row, rank], rank


def steps(name: str, n: int, unit: str, progress: bool) -> Iterable[int]:
    """0 .. n - 1, with a bar when asked for."""
    bar: Iterable[int] = tqdm(range(n), desc=name, unit=unit, disable=not progress)
    return bar


@compiled
def is_seen(indices: Any, start: int, stop: int, item: int) -> bool:
    """Whether a user's sorted items `indices[start:stop]` hold an item."""
    while start < stop:
        middle = (start + stop) // 2
        if indices[middle] < item:
            start = middle + 1
        elif indices[middle] > item:
            stop = middle
        else:
            return True
    return False


@compiled
def draw_item(rng: Any, cumulative: Any) -> int:
    """An item in proportion to its weight; `cumulative` are running sums of the weights."""
    item = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    # The product can round up to the whole sum.
    return int(min(item, cumulative.size - 1))
