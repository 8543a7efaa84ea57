"""BPR: its gradient, its rankings, and users who have seen everything."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from helpers.systems import held_out_rank

import pairsym_dask as ps
from pairsym_dask.baselines import BPR, Popularity, bpr


@pytest.mark.parametrize("settings", [{}, {"negatives": "popularity"}, {"threads": 2}])
def test_bpr_ranks_above_popularity_where_users_have_tastes(settings: dict[str, Any], split: Any) -> None:
    counts, train, held_out = split
    popularity = held_out_rank(Popularity().fit(counts), train, held_out)
    learnt = held_out_rank(BPR(factors=4, epochs=100, learning_rate=0.05, **settings).fit(counts), train, held_out)
    assert learnt > popularity + 0.1


def test_bpr_is_as_good_as_implicits(split: Any) -> None:
    """Implicit draws negative items from the pairs, so in proportion to popularity, and passes over seen ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        implicit_bpr = pytest.importorskip("implicit.cpu.bpr")
    counts, train, held_out = split
    settings = {"factors": 8, "learning_rate": 0.03, "regularization": 0.01}

    class Theirs:
        def __init__(self, seed: int) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it warns of BLAS threads
                self.model = implicit_bpr.BayesianPersonalizedRanking(
                    **settings, iterations=60, random_state=seed, num_threads=1
                )
                self.model.fit((train > 0).astype(np.float32).tocsr(), show_progress=False)
            self.counts = counts

        def scores(self, users: Any) -> np.ndarray:
            return self.model.user_factors @ self.model.item_factors.T

    ours = [
        held_out_rank(BPR(negatives="popularity", epochs=60, random_state=s, **settings).fit(counts), train, held_out)
        for s in range(5)
    ]
    theirs = [held_out_rank(Theirs(s), train, held_out) for s in range(5)]
    spread = np.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 5)
    assert abs(np.mean(ours) - np.mean(theirs)) < 4 * spread + 0.002, (ours, theirs)


def test_bpr_steps_up_the_exact_gradient() -> None:
    """One user, who has seen item 0, so that item 1 alone can be drawn against it."""
    rng = np.random.default_rng(0)
    before = rng.normal(size=3 + 2 * 4)  # u; v_0, b_0; v_1, b_1

    def objective(x: np.ndarray) -> float:
        u, v, w = x[:3], x[3:7], x[7:]
        energy = u @ (v[:3] - w[:3]) + v[3] - w[3]
        return float(-np.logaddexp(0, -energy) - 0.3 / 2 * (x @ x))

    user_factors = before[None, :3].astype(np.float32)
    item_factors = np.array([before[3:6], before[7:10]], np.float32)
    item_bias = before[[6, 10]].astype(np.float32)
    bpr._climb(
        rng, 1, np.array([0, 1]), np.array([0]), np.array([0]), np.array([0.0, 1.0]),
        user_factors, item_factors, item_bias, np.float32(0.01), np.float32(0.3),
    )  # fmt: skip
    after = np.concatenate([user_factors[0], *[[*item_factors[j], item_bias[j]] for j in (0, 1)]])
    gradient = scipy.optimize.approx_fprime(before, objective, 1e-6)
    np.testing.assert_allclose(after - before, 0.01 * gradient, atol=1e-6)


def test_bpr_leaves_alone_a_user_who_has_seen_everything(tmp_path: Path) -> None:
    dense = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 1, 0]])
    system = BPR(factors=2, epochs=20).fit(ps.ingest(scipy.sparse.csr_matrix(dense), tmp_path / "c.zarr"))
    start, _ = np.random.default_rng(0).spawn(2)
    first = (start.random((3, 2), np.float32) - np.float32(0.5)) / np.float32(2)
    moved = (system._user_factors != first).any(1)
    assert moved.tolist() == [False, True, True]
    assert system.recommend([0]).empty
