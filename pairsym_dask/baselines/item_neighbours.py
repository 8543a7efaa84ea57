"""Items near a user's items: cosine neighbours, and random walks of three steps with a penalty on popular items.

Both keep a sparse matrix of weights from item to item, the largest of every item; scores are sums of the weights of the
user's items. A pair counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from ..options import positive_number, whole_number
from ..store.counts import Counts
from .base import Baseline, steps

BLOCK = 512  # items whose neighbours are found together


class ItemNeighbours(Baseline):
    """What the two share: weights from item to item, and scores from them."""

    def _score(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray((self._seen[positions] @ self._weights).toarray())

    def _keep(self, pairs: scipy.sparse.csr_matrix, rows: Iterator[scipy.sparse.csr_matrix], neighbours: int) -> None:
        """Keep the largest weights of every row, its own item left out."""
        kept, first = [], 0
        for block in rows:
            block = block.tocsr()
            row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
            block.data[block.indices == first + row] = 0
            kept.append(largest(block, neighbours))
            first += block.shape[0]
        self._weights, self._seen = scipy.sparse.vstack(kept, "csr"), _once(pairs)


@dataclass(eq=False)
class ItemKNN(ItemNeighbours):
    """Cosine of items: x_j.x_k over (product of norms + shrinkage), the `neighbours` largest of every item."""

    neighbours: int = 100
    shrinkage: float = 10.0

    def _check(self) -> None:
        whole_number("neighbours", self.neighbours, least=1)
        positive_number("shrinkage", self.shrinkage, zero=True)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        seen = _once(pairs)
        turned, length = seen.T.tocsr(), np.sqrt(np.asarray(seen.sum(0)).ravel())

        def rows() -> Iterator[scipy.sparse.csr_matrix]:
            for k in steps("ItemKNN", -(-len(length) // BLOCK), "block", progress):
                part = slice(k * BLOCK, (k + 1) * BLOCK)
                common = (turned[part] @ seen).tocsr()
                row = np.repeat(np.arange(common.shape[0]), np.diff(common.indptr))
                common.data /= length[part][row] * length[common.indices] + self.shrinkage
                yield common

        self._keep(pairs, rows(), self.neighbours)
        # The neighbours that count are those of the item that is scored: a column each.
        self._weights = self._weights.T.tocsr()


@dataclass(eq=False)
class RP3beta(ItemNeighbours):
    """Walks user, item, user, item (Paudel et al., 2017): P(j -> i)^alpha P(i -> k)^alpha / degree_k^beta."""

    alpha: float = 1.0
    beta: float = 0.4
    neighbours: int = 100

    def _check(self) -> None:
        positive_number("alpha", self.alpha, zero=True)
        positive_number("beta", self.beta, zero=True)
        whole_number("neighbours", self.neighbours, least=1)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        seen = _once(pairs)
        turned, degree = seen.T.tocsr(), np.asarray(seen.sum(0)).ravel()
        penalty = np.maximum(degree, 1.0) ** -self.beta
        to_items, to_users = (_walk(matrix, self.alpha) for matrix in (seen, turned))

        def rows() -> Iterator[scipy.sparse.csr_matrix]:
            for k in steps("RP3beta", -(-len(degree) // BLOCK), "block", progress):
                walked = (to_users[k * BLOCK : (k + 1) * BLOCK] @ to_items).tocsr()
                walked.data *= penalty[walked.indices]
                yield walked

        self._keep(pairs, rows(), self.neighbours)


def _once(pairs: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix((np.ones(pairs.nnz), pairs.indices, pairs.indptr), pairs.shape)


def _walk(seen: scipy.sparse.csr_matrix, alpha: float) -> scipy.sparse.csr_matrix:
    """Probabilities of a step from each row, to the power of alpha."""
    degree = np.diff(seen.indptr)
    return scipy.sparse.csr_matrix((np.repeat(degree, degree) ** -float(alpha), seen.indices, seen.indptr), seen.shape)


def largest(rows: scipy.sparse.csr_matrix, n: int) -> scipy.sparse.csr_matrix:
    """The n largest numbers above 0 of every row; among equal ones those of earlier columns.

    >>> largest(scipy.sparse.csr_matrix([[3.0, 0.0, 5.0, 3.0], [0.0, 1.0, 0.0, 0.0]]), 2).toarray().tolist()
    [[3.0, 0.0, 5.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    rows.sort_indices()
    keep = rows.data > 0
    for i in np.flatnonzero(np.diff(rows.indptr) > n):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        keep[part][np.argsort(-rows.data[part], kind="stable")[n:]] = False
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return scipy.sparse.csr_matrix((rows.data[keep], (row[keep], rows.indices[keep])), rows.shape)
