"""GF-CF (Shen et al., 2021): two filters of the graph of pairs, no training but singular vectors.

With R = D_u^-1/2 X D_i^-1/2, the 0/1 matrix over the roots of both degrees, and V its leading right singular vectors,
scores are X (R^T R + ideal D_i^-1/2 V V^T D_i^1/2): a linear filter, which favours smooth signals, and an ideal
low-pass one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from ..errors import InputError
from ..options import positive_number, seed, whole_number
from ..store.counts import Counts
from .base import Baseline

TOLERANCE = 1e-4  # of singular values: lists do not change beyond it


@dataclass(eq=False)
class GraphFilter(Baseline):
    """The linear filter plus `ideal` times the low-pass one of `factors` singular vectors; a pair counts once."""

    factors: int = 256
    ideal: float = 0.3
    random_state: int = 0

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        positive_number("ideal", self.ideal, zero=True)
        seed(self.random_state)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        if self.factors >= min(pairs.shape):
            raise InputError(
                f"factors must be below the shorter side of the matrix, {min(pairs.shape):,}, not {self.factors}"
            )
        seen = scipy.sparse.csr_matrix((np.ones(pairs.nnz), pairs.indices, pairs.indptr), pairs.shape)
        # A symbol without pairs has only zeros to be divided.
        of_users, of_items = (np.maximum(np.asarray(seen.sum(axis)).ravel(), 1.0) ** 0.5 for axis in (1, 0))
        normal = (scipy.sparse.diags_array(1 / of_users) @ seen @ scipy.sparse.diags_array(1 / of_items)).tocsr()
        normal = normal.astype(np.float32)  # half the bytes, of which the search for singular vectors reads many
        start = np.random.default_rng(self.random_state).standard_normal(min(pairs.shape), np.float32)
        vectors = scipy.sparse.linalg.svds(normal, self.factors, v0=start, tol=TOLERANCE, return_singular_vectors="vh")[
            2
        ]
        self._seen, self._normal = seen, normal
        self._down = (vectors / of_items).T.astype(np.float32)
        self._up = (self.ideal * vectors * of_items).astype(np.float32)

    def _score(self, positions: np.ndarray) -> np.ndarray:
        rows = self._seen[positions].astype(np.float32)
        return np.asarray((rows @ self._normal.T).toarray() @ self._normal + (rows @ self._down) @ self._up)
