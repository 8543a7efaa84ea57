"""Models of the implicit package under the same contract; the package is an optional extra."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

from ..errors import InputError
from ..options import positive_number, seed, whole_number
from ..store.counts import Counts
from .base import Factors


def _module(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what else is not installed
            return importlib.import_module(f"implicit.cpu.{name}")
    except ImportError:
        raise InputError('the implicit package is not installed: pip install "pairsym_dask[bench]"') from None


class _Implicit(Factors):
    """One of implicit's models of two tables of factors."""

    def _take(self, model: Any, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        with threadpool_limits(1, "blas"):  # as implicit asks
            model.fit(pairs, show_progress=progress)
        self._user_factors, self._item_factors = np.array(model.user_factors), np.array(model.item_factors)


@dataclass(eq=False)
class ImplicitALS(_Implicit):
    """implicit's alternating least squares: observed pairs have the weight alpha c, all others 1."""

    factors: int = 64
    regularization: float = 0.01
    alpha: float = 20.0
    iterations: int = 15
    random_state: int = 0
    threads: int = 1

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        positive_number("regularization", self.regularization, zero=True)
        positive_number("alpha", self.alpha)
        whole_number("iterations", self.iterations, least=1)
        seed(self.random_state)
        whole_number("threads", self.threads, least=1)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        with threadpool_limits(1, "blas"):
            model = _module("als").AlternatingLeastSquares(
                factors=self.factors, regularization=self.regularization, alpha=self.alpha,
                iterations=self.iterations, num_threads=self.threads, random_state=self.random_state,
            )  # fmt: skip
        self._take(model, pairs.astype(np.float32), progress)


@dataclass(eq=False)
class ImplicitBPR(_Implicit):
    """implicit's Bayesian personalised ranking, a pair counts once; only one thread gives the same result again."""

    factors: int = 64
    learning_rate: float = 0.03
    regularization: float = 0.01
    iterations: int = 100
    random_state: int = 0
    threads: int = 1

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        positive_number("learning_rate", self.learning_rate)
        positive_number("regularization", self.regularization, zero=True)
        whole_number("iterations", self.iterations, least=1)
        seed(self.random_state)
        whole_number("threads", self.threads, least=1)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        with threadpool_limits(1, "blas"):
            model = _module("bpr").BayesianPersonalizedRanking(
                factors=self.factors, learning_rate=self.learning_rate, regularization=self.regularization,
                iterations=self.iterations, num_threads=self.threads, random_state=self.random_state,
            )  # fmt: skip
        seen = scipy.sparse.csr_matrix((np.ones(pairs.nnz, np.float32), pairs.indices, pairs.indptr), pairs.shape)
        self._take(model, seen, progress)
