"""The systems that are compared, and pairs with tastes to try them on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.baselines import (
    BPR,
    EASE,
    IALS,
    GraphFilter,
    ItemKNN,
    Popularity,
    RandomGraph,
    RP3beta,
    SoftmaxMAP,
)

GROUPS = 4


class Ours:
    """This model under the baselines' signature: its fit wants a place for the model store."""

    def __init__(self, path: Path) -> None:
        self.path, self.fits = path, 0
        self.model = ps.PairedSymbols(factors=4)

    def fit(self, counts: Any, *, progress: bool = False) -> Ours:
        self.fits += 1
        self.model.fit(counts, self.path / f"model-{self.fits}.zarr", sweeps=10, progress=progress)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


SYSTEMS: dict[str, Callable[[Path], Any]] = {
    "popularity": lambda path: Popularity(),
    "bpr-uniform": lambda path: BPR(factors=4, epochs=30, learning_rate=0.1),
    "bpr-pop": lambda path: BPR(factors=4, negatives="popularity", epochs=30, learning_rate=0.1),
    "rg-like": lambda path: RandomGraph(factors=4, sweeps=10),
    "rg-pop*like": lambda path: RandomGraph(factors=4, ranking="pop*like", sweeps=10),
    "softmax": lambda path: SoftmaxMAP(factors=3, iterations=50),
    "ials": lambda path: IALS(factors=5, iterations=5),
    "ease": lambda path: EASE(regularization=2.0),
    "item-knn": lambda path: ItemKNN(neighbours=10, shrinkage=1.0),
    "rp3beta": lambda path: RP3beta(neighbours=10),
    "gf-cf": lambda path: GraphFilter(factors=6),
    "paired symbols": Ours,
}


def blocks(users: int, items: int, pairs: int, seed: int) -> scipy.sparse.csr_matrix:
    """Users who mostly take items of their own group, popular ones first; every user and item has a pair."""
    rng = np.random.default_rng(seed)
    weight = np.where(np.arange(users)[:, None] % GROUPS == np.arange(items) % GROUPS, 1.0, 0.02)
    weight *= rng.gamma(1.0, size=items) + 0.05
    dense = np.zeros((users, items))
    for i in range(users):
        n = min(items // 2, 2 + rng.poisson(pairs))
        dense[i, rng.choice(items, n, replace=False, p=weight[i] / weight[i].sum())] = 1 + rng.poisson(0.5, n)
    dense[np.arange(items) % users, np.arange(items)] += 1
    return scipy.sparse.csr_matrix(dense)


def frame_of(matrix: scipy.sparse.csr_matrix) -> pd.DataFrame:
    pairs = matrix.tocoo()
    return pd.DataFrame(
        {
            "user": [f"user {i:03}" for i in pairs.row],
            "item": [f"item {j:03}" for j in pairs.col],
            "count": pairs.data.astype(np.int64),
        }
    )


def held_out_rank(system: Any, train: scipy.sparse.csr_matrix, held_out: np.ndarray) -> float:
    """R of eq. (rank), averaged over users; `held_out` is an item a user."""
    scores = np.array(system.scores(system.counts.user_ids), np.float64)
    own = scores[np.arange(held_out.size), held_out]
    unseen = train.toarray() == 0
    return float((((own[:, None] > scores) & unseen).sum(1) / unseen.sum(1)).mean())
