"""EASE (Steck, 2019): each item's column of the matrix from all other items' columns, by ridge regression.

With X the 0/1 matrix and P = (X^T X + lambda)^-1, the weights are B_jk = -P_jk / P_kk and B_kk = 0, and the scores X B.
Where there are fewer users than items the same scores come from the users' side: X P = M X with
M = (X X^T + lambda)^-1, and P_kk = (1 - x_k^T M x_k) / lambda. Either way one dense matrix of the shorter side is
inverted, in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import psutil
import scipy.linalg.lapack
import scipy.sparse

from ..errors import MemoryBudgetError, NumericError
from ..options import positive_number
from ..store.counts import Counts
from .base import Baseline

BLOCK = 2**26  # numbers worked on together


@dataclass(eq=False)
class EASE(Baseline):
    """Linear item-to-item weights in closed form, with an empty diagonal; a pair counts once."""

    regularization: float = 500.0

    def _check(self) -> None:
        positive_number("regularization", self.regularization)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        seen = scipy.sparse.csr_matrix((np.ones(pairs.nnz, np.float32), pairs.indices, pairs.indptr), pairs.shape)
        self._by_users = pairs.shape[0] < pairs.shape[1]
        _check_memory(min(pairs.shape), "users" if self._by_users else "items")
        inverse = _inverse(seen if self._by_users else seen.T.tocsr(), np.float32(self.regularization))
        if self._by_users:
            divisor = np.zeros(pairs.shape[1])
            step = max(1, BLOCK // pairs.shape[1])
            for first in range(0, len(inverse), step):
                part = slice(first, first + step)
                divisor += np.asarray(seen[part].multiply(inverse[part] @ seen).sum(0)).ravel()
            divisor = (1 - divisor) / self.regularization
        else:
            divisor = inverse.diagonal().copy()
        self._seen, self._inverse, self._divisor = seen, inverse, divisor.astype(np.float32)

    def _score(self, positions: np.ndarray) -> np.ndarray:
        # X B = X (1 - P diag(P)^-1), whose diagonal of B is 0.
        product = self._inverse[positions] @ self._seen if self._by_users else self._seen[positions] @ self._inverse
        scores = product / -self._divisor
        pairs = self._seen[positions].tocoo()
        scores[pairs.row, pairs.col] += 1
        return np.asarray(scores)


def _check_memory(n: int, side: str) -> None:
    """Refuse a matrix that would not fit, with the arithmetic: one of n x n float32, and room to work."""
    need, there = 4 * n * n + 16 * BLOCK, psutil.virtual_memory().available
    if need > there:
        raise MemoryBudgetError(
            f"EASE inverts a dense matrix of the shorter side: {n:,} x {n:,} {side} x 4 bytes and room to work are "
            f"{need / 2**30:.1f} GiB, and {there / 2**30:.1f} GiB are free; take fewer symbols, or a system whose "
            "memory grows with observed pairs"
        )


def _inverse(rows: scipy.sparse.csr_matrix, ridge: np.float32) -> np.ndarray:
    """(R R^T + ridge)^-1 by Cholesky, in the memory of one matrix."""
    n = rows.shape[0]
    gram, other = np.empty((n, n), np.float32, order="F"), rows.T.tocsc()
    step = max(1, BLOCK // n)
    for first in range(0, n, step):
        gram[:, first : first + step] = (rows @ other[:, first : first + step]).toarray()
    gram.flat[:: n + 1] += ridge
    factor, failed = scipy.linalg.lapack.spotrf(gram, lower=1, clean=0, overwrite_a=1)
    if not failed:
        inverse, failed = scipy.linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
    if failed:
        raise NumericError(f"EASE's matrix is singular in single precision at regularization {ridge:g}: give more")
    for first in range(0, n, step):  # the lower half is the inverse's: the upper half is its mirror
        stop = min(first + step, n)
        corner = inverse[first:stop, first:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        inverse[first:stop, stop:] = inverse[stop:, first:stop].T
    return np.asarray(inverse.T)  # which is the same, its rows contiguous
