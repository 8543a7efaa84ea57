"""One contract for all systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from helpers.systems import SYSTEMS

import pairsym_dask as ps
from pairsym_dask.baselines import (
    BPR,
    EASE,
    IALS,
    GraphFilter,
    ImplicitALS,
    ImplicitBPR,
    ItemKNN,
    Popularity,
    RandomGraph,
    RP3beta,
    SoftmaxMAP,
)
from pairsym_dask.baselines.base import top


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request: pytest.FixtureRequest, counts: ps.Counts, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return SYSTEMS[request.param](tmp_path_factory.mktemp("model")).fit(counts)


def test_contract_scores_are_finite_users_by_items(system: Any, counts: ps.Counts) -> None:
    scores = system.scores(["user 007", "user 003", "user 007"])
    assert scores.shape == (3, counts.shape[1])
    assert np.issubdtype(scores.dtype, np.floating)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores[0], scores[2])
    np.testing.assert_allclose(system.scores(counts.user_ids)[[7, 3]], scores[:2], rtol=1e-5)
    assert system.counts.digest == counts.digest


def test_contract_scores_are_the_callers_own(system: Any) -> None:
    before = system.scores(["user 001"])
    system.scores(["user 001"])[:] = 0
    np.testing.assert_array_equal(system.scores(["user 001"]), before)


def test_contract_recommends_exactly_n_unseen_items_best_first(
    system: Any, counts: ps.Counts, matrix: scipy.sparse.csr_matrix
) -> None:
    found = system.recommend(["user 012", "user 005"], n=7)
    assert {"user", "item", "rank"} <= set(found.columns)
    assert found.user.tolist() == ["user 012"] * 7 + ["user 005"] * 7
    assert found["rank"].tolist() == list(range(1, 8)) * 2
    scores = system.scores(["user 012", "user 005"])
    for row, user in enumerate((12, 5)):
        unseen = np.flatnonzero(matrix[[user]].toarray()[0] == 0)
        best = unseen[np.argsort(-scores[row, unseen], kind="stable")][:7]
        assert found.item[found.user == f"user {user:03}"].tolist() == counts.item_ids[best].tolist()


def test_contract_never_recommends_what_was_seen_to_anyone(
    system: Any, counts: ps.Counts, matrix: scipy.sparse.csr_matrix
) -> None:
    found = system.recommend(counts.user_ids, n=counts.shape[1])
    rows, columns = counts.positions("users", found.user), counts.positions("items", found.item)
    assert not matrix.toarray()[rows, columns].any()
    assert len(found) == matrix.shape[0] * matrix.shape[1] - matrix.nnz
    assert not found.duplicated(["user", "item"]).any()


def test_contract_seen_items_come_back_when_asked_for(system: Any, counts: ps.Counts) -> None:
    found = system.recommend("user 004", n=1000, exclude_seen=False)
    assert sorted(found.item) == counts.item_ids.tolist()


def test_contract_recommends_among_candidates_only(system: Any, matrix: scipy.sparse.csr_matrix) -> None:
    unseen = np.flatnonzero(matrix[[9]].toarray()[0] == 0)[:3]
    candidates = [f"item {j:03}" for j in unseen]
    assert sorted(system.recommend(["user 009"], n=5, items=candidates).item) == candidates


def test_contract_unknown_labels_are_named(system: Any) -> None:
    with pytest.raises(ps.InputError, match="user 999"):
        system.scores(["user 001", "user 999"])
    with pytest.raises(ps.InputError, match="nobody"):
        system.recommend(["nobody"])
    with pytest.raises(ps.InputError, match="no such film"):
        system.recommend(["user 001"], items=["no such film"])


@pytest.mark.parametrize("n", [0, -1, 2.5])
def test_contract_n_is_checked(system: Any, n: Any) -> None:
    with pytest.raises(ps.InputError, match="n must be"):
        system.recommend(["user 001"], n=n)


@pytest.mark.parametrize("name", SYSTEMS)
def test_contract_not_fitted_is_an_error(name: str, tmp_path: Path) -> None:
    system = SYSTEMS[name](tmp_path)
    for ask in (lambda: system.counts, lambda: system.scores(["a"]), lambda: system.recommend(["a"])):
        with pytest.raises(ps.InputError, match="not fitted"):
            ask()


@pytest.mark.parametrize("name", SYSTEMS)
def test_contract_same_seed_gives_the_same_result(name: str, counts: ps.Counts, tmp_path: Path) -> None:
    first = SYSTEMS[name](tmp_path).fit(counts)
    before = first.scores(counts.user_ids)
    np.testing.assert_array_equal(first.fit(counts).scores(counts.user_ids), before)
    if isinstance(first, (BPR, IALS, RandomGraph, SoftmaxMAP)):
        first.random_state = 1
        assert not np.array_equal(first.fit(counts).scores(counts.user_ids), before)


@pytest.mark.parametrize(
    ("system", "name"),
    [
        (BPR(factors=0), "factors"),
        (BPR(negatives="all"), "negatives"),
        (BPR(epochs=1.5), "epochs"),
        (BPR(learning_rate=0), "learning_rate"),
        (BPR(learning_rate=float("nan")), "learning_rate"),
        (BPR(regularization=-1), "regularization"),
        (BPR(threads=0), "threads"),
        (RandomGraph(ranking="pop"), "ranking"),
        (RandomGraph(sweeps=-1), "sweeps"),
        (RandomGraph(tau=0.0), "tau"),
        (RandomGraph(decay="fast"), "decay"),
        (RandomGraph(random_state=-1), "random_state"),
        (SoftmaxMAP(tau=True), "tau"),
        (SoftmaxMAP(symmetric=1), "symmetric"),
        (SoftmaxMAP(iterations=0), "iterations"),
        (IALS(factors=0), "factors"),
        (IALS(regularization=0), "regularization"),
        (IALS(alpha=-1), "alpha"),
        (IALS(nu=1.5), "nu"),
        (IALS(iterations=-1), "iterations"),
        (IALS(solver_steps=0), "solver_steps"),
        (EASE(regularization=0), "regularization"),
        (ItemKNN(neighbours=0), "neighbours"),
        (ItemKNN(shrinkage=-1), "shrinkage"),
        (RP3beta(alpha=-1), "alpha"),
        (RP3beta(beta="much"), "beta"),
        (GraphFilter(factors=40), "factors"),
        (GraphFilter(ideal=-0.1), "ideal"),
        (ImplicitALS(alpha=0), "alpha"),
        (ImplicitBPR(learning_rate=0), "learning_rate"),
    ],
)
def test_settings_are_checked_by_fit(system: Any, name: str, counts: ps.Counts) -> None:
    with pytest.raises(ps.InputError, match=f"^{name} must be"):
        system.fit(counts)


def test_no_users_give_empty_answers(counts: ps.Counts) -> None:
    system = Popularity().fit(counts)
    assert system.scores([]).shape == (0, counts.shape[1])
    assert system.recommend([]).columns.tolist() == ["user", "item", "rank", "score"]


def test_progress_is_shown_when_asked_for(counts: ps.Counts, capsys: pytest.CaptureFixture[str]) -> None:
    RandomGraph(factors=2, sweeps=2).fit(counts)
    assert capsys.readouterr().err == ""
    RandomGraph(factors=2, sweeps=2).fit(counts, progress=True)
    assert "2/2" in capsys.readouterr().err


def test_top_takes_equal_scores_by_position_and_nothing_barred() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (50, 12)).astype(float)
    scores[rng.random(scores.shape) < 0.4] = -np.inf
    for n in (1, 5, 11, 12, 40):
        row, column, rank = top(scores, n)
        for i in range(50):
            expected = [j for j in np.argsort(-scores[i], kind="stable") if scores[i, j] > -np.inf][:n]
            assert column[row == i].tolist() == expected
            assert rank[row == i].tolist() == list(range(len(expected)))


def test_popularity_is_the_sum_of_counts(counts: ps.Counts, matrix: scipy.sparse.csr_matrix) -> None:
    scores = Popularity().fit(counts).scores(["user 000", "user 001"])
    np.testing.assert_array_equal(scores, np.tile(matrix.toarray().sum(0), (2, 1)))


@pytest.mark.parametrize("name", ["popularity", "rg-like", "rg-pop*like", "softmax"])
def test_log_likelihood_is_that_of_the_conditional(name: str, counts: ps.Counts, tmp_path: Path) -> None:
    train, held_out = ps.leave_one_out(counts, tmp_path / "train.zarr")
    model = SYSTEMS[name](tmp_path).fit(train)
    rows = ps.evaluate(model, held_out).per_user
    for row in rows.head(5).itertuples():
        p = model.conditional(row.user)
        assert p.sum() == pytest.approx(1)
        assert row.log_likelihood == pytest.approx(np.log(p[row.item]))
