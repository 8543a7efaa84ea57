"""Ranking by popularity alone, the same for everyone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from ..store.counts import Counts
from .base import Density


@dataclass(eq=False)
class Popularity(Density):
    """Items by c_j, the sum of their counts; p(j | i) is in proportion to c_j + 1, so that no item is impossible."""

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        self._popularity = np.asarray(counts.marginal("items"), np.float64)

    def _score(self, positions: np.ndarray) -> np.ndarray:
        return np.tile(self._popularity, (positions.size, 1))

    def conditionals(self, positions: np.ndarray) -> np.ndarray:
        p = self._popularity + 1
        return np.tile(p / p.sum(), (positions.size, 1))
