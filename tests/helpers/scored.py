"""Models that are a matrix of scores, and pairs to judge them by."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.sparse

import pairsym_dask as ps


class Table:
    """A model that is a matrix of scores."""

    def __init__(self, counts: ps.Counts, scores: np.ndarray) -> None:
        self.counts, self.table = counts, scores

    def scores(self, users: np.ndarray) -> np.ndarray:
        return self.table[self.counts.positions("users", users)]


class Chances(Table):
    """One that knows p(j | i) too."""

    def conditional(self, user: int) -> pd.Series:
        scores = self.scores([user])[0]
        return pd.Series(scores / scores.sum(), index=self.counts.item_ids)


def make_counts(path, users=150, items=23, seed=0, fractional=False):
    """A store with an empty user, and pairs that it does not hold, some users with several."""
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((users, items)) < 0.3, rng.integers(1, 9, (users, items)), 0)
    matrix[3] = 0
    if fractional:
        matrix = matrix * 0.15
    counts = ps.ingest(scipy.sparse.csr_matrix(matrix), path)
    held = rng.random(matrix.shape) < 0.1
    held[3, :2] = True
    user, item = np.nonzero((matrix == 0) & held)
    held_out = pd.DataFrame({"user": user, "item": item}).sample(frac=1, random_state=0).reset_index(drop=True)
    return counts, held_out
