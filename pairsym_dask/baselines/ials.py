"""Implicit alternating least squares (Hu et al., 2008) with regularisation by frequency (Rendle et al., 2022).

Every pair has a weight w_ij = 1 + alpha c_ij and a target, 1 where it was observed and 0 elsewhere:

    sum_ij w_ij ([c_ij > 0] - u_i.v_j)^2 + sum_i lambda_i |u_i|^2 + sum_j lambda_j |v_j|^2
    lambda_i = regularization (n_i / mean n)^nu,   n_i = sum_j w_ij

A row's normal equations are (V^T V + sum_j alpha c_ij v_j v_j^T + lambda_i) u_i = sum_j w_ij v_j over its pairs. They
are solved by conjugate gradients from where the row stands, a block of rows at once: V^T V is one product for all.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

from ..kernels.accelerate import compiled
from ..kernels.simd import LANES, fma, hsum, load, number, pointer, splat, store
from ..options import fraction, positive_number, seed, whole_number
from ..store.counts import Counts
from .base import Factors, steps

ROWS = 2048  # solved together
START_SCALE = 0.1  # of a row's length


@dataclass(eq=False)
class IALS(Factors):
    """Least squares over all pairs, observed ones with weight 1 + alpha c; scores are u_i.v_j.

    `nu` from 0, the same regularisation for every symbol, to 1, in proportion to its weights. `solver_steps` of
    conjugate gradients are taken a row and half-iteration. The result does not depend on `threads`.
    """

    factors: int = 64
    regularization: float = 10.0
    alpha: float = 20.0
    nu: float = 1.0
    iterations: int = 16
    solver_steps: int = 3
    random_state: int = 0
    threads: int = 1

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        positive_number("regularization", self.regularization)
        positive_number("alpha", self.alpha)
        fraction("nu", self.nu, ends=True)
        whole_number("iterations", self.iterations, least=0)
        whole_number("solver_steps", self.solver_steps, least=1)
        seed(self.random_state)
        whole_number("threads", self.threads, least=1)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        matrices = [pairs.astype(np.float32), pairs.T.tocsr().astype(np.float32)]
        generator = np.random.default_rng(self.random_state)
        # Columns of zeros make whole vectors: they stay zero.
        width = -(-self.factors // LANES) * LANES
        factors = [np.zeros((n, width), np.float32) for n in pairs.shape]
        for side in factors:
            drawn = generator.standard_normal((len(side), self.factors), np.float32)
            side[:, : self.factors] = drawn * np.float32(START_SCALE / np.sqrt(self.factors))
        with ThreadPoolExecutor(self.threads) as pool, threadpool_limits(1):
            for _ in steps("iALS", self.iterations, "iteration", progress):
                for own, matrix in enumerate(matrices):
                    self._update(matrix, factors[own], factors[1 - own], pool)
        self._user_factors, self._item_factors = (side[:, : self.factors] for side in factors)

    def _update(
        self, pairs: scipy.sparse.csr_matrix, own: np.ndarray, its: np.ndarray, pool: ThreadPoolExecutor
    ) -> None:
        """One half of an iteration: every row of a side, the other side held fixed."""
        alpha, gram = np.float32(self.alpha), its.T @ its
        n = pairs.shape[1] + self.alpha * np.asarray(pairs.sum(1), np.float64).ravel()
        ridge = (self.regularization * (n / n.mean()) ** self.nu).astype(np.float32)[:, None]
        weight = alpha * pairs.data

        def solve(first: int) -> None:
            part = slice(first, min(first + ROWS, len(own)))
            indptr = pairs.indptr[first : part.stop + 1]
            solve_rows(indptr, pairs.indices, weight, own[part], its, gram, ridge[part], self.solver_steps)

        list(pool.map(solve, range(0, len(own), ROWS)))


def solve_rows(
    indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray, own: np.ndarray, its: np.ndarray,
    gram: np.ndarray, ridge: np.ndarray, steps: int,
) -> None:  # fmt: skip
    """Conjugate-gradient steps of all rows at once, preconditioned by the diagonal; `own` is the start and the end.

    A row that has nothing left to gain stands still: its step is 0.
    """
    right, diagonal = np.zeros_like(own), np.zeros_like(own)
    _sum_pairs(indptr, indices, weight, its, right, diagonal)
    diagonal += np.diag(gram) + ridge

    def times(x: np.ndarray) -> np.ndarray:
        y = x @ gram + ridge * x
        _add_pairs(indptr, indices, weight, its, x, y)
        return np.asarray(y)

    rest = right - times(own)
    direction = rest / diagonal
    scaled = (rest * direction).sum(1, keepdims=True)
    for _ in range(steps):
        moved = times(direction)
        curve = (direction * moved).sum(1, keepdims=True)
        length = np.divide(scaled, curve, out=np.zeros_like(curve), where=curve > 0)
        own += length * direction
        rest -= length * moved
        next_direction = rest / diagonal
        new = (rest * next_direction).sum(1, keepdims=True)
        turn = np.divide(new, scaled, out=np.zeros_like(new), where=scaled > 0)
        direction = next_direction + turn * direction
        scaled = new


@compiled
def _sum_pairs(indptr: Any, indices: Any, weight: Any, its: Any, right: Any, diagonal: Any) -> None:
    """sum_j w_ij v_j with w = 1 + weight, and sum_j weight v_j^2."""
    one = number(pointer(its), 1.0)
    for i in range(right.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            w = weight[e]
            for k in range(its.shape[1]):
                v = its[indices[e], k]
                right[i, k] += (one + w) * v
                diagonal[i, k] += w * v * v


@compiled
def _add_pairs(indptr: Any, indices: Any, weight: Any, its: Any, x: Any, y: Any) -> None:
    """y_i += sum_j weight (v_j.x_i) v_j."""
    width = its.shape[1]
    its_, x_, y_ = pointer(its), pointer(x), pointer(y)
    for i in range(x.shape[0]):
        row = i * width
        for e in range(indptr[i], indptr[i + 1]):
            at = int(indices[e]) * width
            total = splat(number(its_, 0.0))
            for k in range(0, width, LANES):
                total = fma(load(its_, at + k), load(x_, row + k), total)
            share = splat(weight[e] * hsum(total))
            for k in range(0, width, LANES):
                store(y_, row + k, fma(share, load(its_, at + k), load(y_, row + k)))
