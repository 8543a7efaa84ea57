"""Bayesian Personalized Ranking (Rendle et al., 2009): a user's items should score above those she has not seen.

A step draws a seen pair (i, j), an item l that the user has not seen, and climbs log sigma(x_ij - x_il), where
x_ij = u_i.v_j + b_j. The paper's BPR-uniform draws l uniformly; its BPR-pop in proportion to popularity, which takes
popularity out of what is learnt.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ..kernels.accelerate import compiled
from ..options import one_of, positive_number, seed, whole_number
from ..store.counts import Counts
from .base import Baseline, draw_item, is_seen, steps


@dataclass(eq=False)
class BPR(Baseline):
    """Matrix factorisation with item biases, trained by stochastic ascent on the ranking of pairs.

    `negatives` is "uniform" or "popularity". An epoch has as many draws as there are distinct pairs; a draw whose
    negative item the user has seen is passed over, as the implicit package does. One thread gives the same result for
    the same `random_state`; more threads write to the same parameters without locks, and do not.
    """

    factors: int = 20
    negatives: str = "uniform"
    epochs: int = 100
    learning_rate: float = 0.02
    regularization: float = 0.01
    random_state: int = 0
    threads: int = 1

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        one_of("negatives", self.negatives, ("uniform", "popularity"))
        whole_number("epochs", self.epochs, least=0)
        positive_number("learning_rate", self.learning_rate)
        positive_number("regularization", self.regularization, zero=True)
        seed(self.random_state)
        whole_number("threads", self.threads, least=1)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        users, items = pairs.shape
        start, *generators = np.random.default_rng(self.random_state).spawn(1 + self.threads)
        scale = np.float32(1 / self.factors)
        user_factors = (start.random((users, self.factors), np.float32) - np.float32(0.5)) * scale
        item_factors = (start.random((items, self.factors), np.float32) - np.float32(0.5)) * scale
        item_bias = np.zeros(items, np.float32)

        row = np.repeat(np.arange(users), np.diff(pairs.indptr))
        # Each distinct pair counts once, for the draws of seen pairs as for popularity.
        weight = np.bincount(pairs.indices, minlength=items) if self.negatives == "popularity" else np.ones(items)
        cumulative = np.cumsum(weight, dtype=np.float64)
        share = np.diff(np.linspace(0, pairs.nnz, self.threads + 1).astype(np.int64))
        rate, shrink = np.float32(self.learning_rate), np.float32(self.regularization)

        def climb(thread: int) -> None:
            _climb(
                generators[thread], share[thread], pairs.indptr, pairs.indices, row, cumulative,
                user_factors, item_factors, item_bias, rate, shrink,
            )  # fmt: skip

        with ThreadPoolExecutor(self.threads) as pool:
            for _ in steps("BPR", self.epochs, "epoch", progress):
                list(pool.map(climb, range(self.threads)))
        self._user_factors, self._item_factors, self._item_bias = user_factors, item_factors, item_bias

    def _score(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(self._user_factors[positions] @ self._item_factors.T + self._item_bias)


@compiled
def _climb(
    rng: Any, n: int, indptr: Any, indices: Any, row: Any, cumulative: Any,
    user_factors: Any, item_factors: Any, item_bias: Any, rate: Any, shrink: Any,
) -> None:  # fmt: skip
    """Take n steps of stochastic ascent."""
    factors = user_factors.shape[1]
    one = np.float32(1.0)
    for _ in range(n):
        p = rng.integers(0, indices.size)
        i, j = row[p], indices[p]
        unseen = draw_item(rng, cumulative)
        if is_seen(indices, indptr[i], indptr[i + 1], unseen):
            continue
        x = item_bias[j] - item_bias[unseen]
        for k in range(factors):
            x += user_factors[i, k] * (item_factors[j, k] - item_factors[unseen, k])
        slope = one / (one + np.exp(x))  # d log sigma(x) / dx
        for k in range(factors):
            u, v, w = user_factors[i, k], item_factors[j, k], item_factors[unseen, k]
            user_factors[i, k] = u + rate * (slope * (v - w) - shrink * u)
            item_factors[j, k] = v + rate * (slope * u - shrink * v)
            item_factors[unseen, k] = w - rate * (slope * u + shrink * w)
        item_bias[j] += rate * (slope - shrink * item_bias[j])
        item_bias[unseen] -= rate * (slope + shrink * item_bias[unseen])
