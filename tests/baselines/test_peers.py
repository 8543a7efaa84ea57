"""Claims of the peers: each against its definition written out with dense matrices."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from helpers.systems import held_out_rank

import pairsym_dask as ps
from pairsym_dask.baselines import (
    EASE,
    IALS,
    GraphFilter,
    ImplicitALS,
    ImplicitBPR,
    ItemKNN,
    Popularity,
    RP3beta,
    ease,
    ials,
)


def objective(system: IALS, dense: np.ndarray, u: np.ndarray, v: np.ndarray) -> float:
    """What iALS lowers, over all pairs."""
    weight = 1 + system.alpha * dense
    total = (weight * ((dense > 0) - u @ v.T) ** 2).sum()
    for rows, factors in ((weight, u), (weight.T, v)):
        n = rows.sum(1)
        total += (system.regularization * (n / n.mean()) ** system.nu * (factors**2).sum(1)).sum()
    return float(total)


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0])
def test_ials_solves_each_rows_normal_equations(matrix: scipy.sparse.csr_matrix, nu: float) -> None:
    """Many steps of conjugate gradients are a solve; users' gradient is then zero."""
    dense, rng = matrix.toarray(), np.random.default_rng(0)
    system = IALS(factors=8, regularization=3.0, alpha=2.0, nu=nu, solver_steps=60)
    u, v = (rng.normal(size=(n, 8)) for n in dense.shape)
    with ials.ThreadPoolExecutor(2) as pool:
        system._update(matrix.astype(np.float64), u, v, pool)
    weight = 1 + 2.0 * dense
    ridge = 3.0 * (weight.sum(1) / weight.sum(1).mean()) ** nu
    for i in range(len(u)):
        left = (v.T * weight[i]) @ v + ridge[i] * np.eye(8)
        np.testing.assert_allclose(u[i], np.linalg.solve(left, weight[i] * (dense[i] > 0) @ v), rtol=1e-5, atol=1e-7)


def test_ials_every_iteration_lowers_the_objective(counts: ps.Counts, matrix: scipy.sparse.csr_matrix) -> None:
    values = []
    for iterations in range(6):
        system = IALS(factors=5, iterations=iterations, solver_steps=2, regularization=1.0).fit(counts)
        values.append(objective(system, matrix.toarray(), system._user_factors, system._item_factors))
    assert (np.diff(values) < 0).all()


def test_ials_without_frequencies_is_implicits(counts: ps.Counts, matrix: scipy.sparse.csr_matrix) -> None:
    """From the same start, implicit with its exact solver and weights 1 + alpha c takes the same iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        als = pytest.importorskip("implicit.cpu.als")
        theirs = als.AlternatingLeastSquares(
            factors=8, regularization=3.0, alpha=1.0, iterations=4, use_cg=False, num_threads=1, dtype=np.float32
        )
    ours = IALS(factors=8, regularization=3.0, alpha=2.0, nu=0.0, iterations=0)
    ours.fit(counts)
    theirs.user_factors, theirs.item_factors = ours._user_factors.copy(), ours._item_factors.copy()
    weights = matrix.astype(np.float32)
    weights.data = 1 + 2 * weights.data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(weights, show_progress=False)
    ours.iterations, ours.solver_steps = 4, 40
    scores = ours.fit(counts).scores(counts.user_ids)
    np.testing.assert_allclose(scores, theirs.user_factors @ theirs.item_factors.T, atol=2e-4)
    assert np.abs(scores).max() > 0.3


def test_ials_does_not_depend_on_threads(counts: ps.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    one = IALS(factors=5, threads=1).fit(counts).scores(counts.user_ids)
    np.testing.assert_array_equal(IALS(factors=5, threads=3).fit(counts).scores(counts.user_ids), one)
    monkeypatch.setattr(ials, "ROWS", 7)
    np.testing.assert_allclose(IALS(factors=5).fit(counts).scores(counts.user_ids), one, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_ease_weights_are_those_of_the_closed_form(
    matrix: scipy.sparse.csr_matrix, turned: bool, tmp_path: Any
) -> None:
    """More users than items, and fewer: the two sides give the same scores."""
    dense = (matrix.T if turned else matrix).toarray()
    system = EASE(regularization=3.0).fit(ps.ingest(scipy.sparse.csr_matrix(dense), tmp_path / "c.zarr"))
    assert system._by_users == turned
    seen = (dense > 0).astype(float)
    p = np.linalg.inv(seen.T @ seen + 3.0 * np.eye(seen.shape[1]))
    weights = -p / np.diag(p)
    np.fill_diagonal(weights, 0)
    np.testing.assert_allclose(system.scores(range(len(dense))), seen @ weights, atol=1e-5)


def test_ease_blocks_do_not_matter(counts: ps.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = EASE(regularization=3.0).fit(counts).scores(counts.user_ids)
    monkeypatch.setattr(ease, "BLOCK", 100)
    np.testing.assert_allclose(EASE(regularization=3.0).fit(counts).scores(counts.user_ids), whole, atol=1e-6)


def test_ease_refuses_what_memory_cannot_hold_with_the_arithmetic() -> None:
    with pytest.raises(ps.MemoryBudgetError, match=r"2,000,000 x 2,000,000 items x 4 bytes .* 14902\.\d GiB"):
        ease._check_memory(2_000_000, "items")


def test_item_knn_sums_the_shrunk_cosines_of_an_items_neighbours(
    counts: ps.Counts, matrix: scipy.sparse.csr_matrix
) -> None:
    seen = (matrix.toarray() > 0).astype(float)
    length = np.sqrt(seen.sum(0))
    cosine = seen.T @ seen / (np.outer(length, length) + 2.0)
    np.fill_diagonal(cosine, 0)
    for k in range(len(cosine)):
        cosine[np.argsort(-cosine[:, k], kind="stable")[5:], k] = 0
    scores = ItemKNN(neighbours=5, shrinkage=2.0).fit(counts).scores(counts.user_ids)
    np.testing.assert_allclose(scores, seen @ cosine, atol=1e-12)


def test_rp3beta_walks_three_steps(counts: ps.Counts, matrix: scipy.sparse.csr_matrix) -> None:
    seen = (matrix.toarray() > 0).astype(float)
    to_items, to_users = seen / seen.sum(1, keepdims=True), seen.T / seen.sum(0)[:, None]
    walk = to_users**0.7 @ to_items**0.7 / seen.sum(0) ** 0.4
    np.fill_diagonal(walk, 0)
    for row in walk:
        row[np.argsort(-row, kind="stable")[6:]] = 0
    scores = RP3beta(alpha=0.7, beta=0.4, neighbours=6).fit(counts).scores(counts.user_ids)
    np.testing.assert_allclose(scores, seen @ walk, atol=1e-12)


def test_graph_filter_is_the_linear_and_the_ideal_filter(counts: ps.Counts, matrix: scipy.sparse.csr_matrix) -> None:
    seen = (matrix.toarray() > 0).astype(float)
    of_items = np.sqrt(seen.sum(0))
    normal = seen / np.sqrt(seen.sum(1, keepdims=True)) / of_items
    v = np.linalg.svd(normal)[2][:7]
    expected = seen @ (normal.T @ normal + 0.4 * (v / of_items).T @ (v * of_items))
    scores = GraphFilter(factors=7, ideal=0.4).fit(counts).scores(counts.user_ids)
    np.testing.assert_allclose(scores, expected, atol=1e-3)


@pytest.mark.parametrize(
    "system",
    [
        IALS(factors=4, regularization=3.0, alpha=5.0),
        EASE(regularization=20.0),
        ItemKNN(neighbours=30),
        RP3beta(neighbours=30),
        GraphFilter(factors=8),
    ],
)
def test_peers_rank_above_popularity_where_users_have_tastes(system: Any, split: Any) -> None:
    counts, train, held_out = split
    popularity = held_out_rank(Popularity().fit(counts), train, held_out)
    assert held_out_rank(system.fit(counts), train, held_out) > popularity + 0.05


@pytest.mark.parametrize(
    "system",
    [IALS(factors=3), EASE(), ItemKNN(), RP3beta(), GraphFilter(factors=2)],
    ids=lambda one: type(one).__name__,
)
def test_symbols_without_pairs_score_finitely(system: Any, tmp_path: Any) -> None:
    dense = np.array([[1, 1, 0, 0, 2], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 1, 1]])
    scores = system.fit(ps.ingest(scipy.sparse.csr_matrix(dense), tmp_path / "c.zarr")).scores(range(4))
    assert np.isfinite(scores).all()
    assert np.abs(scores[1]).max() < 1e-12  # nothing is known of this user
    assert np.abs(scores[:, 2]).max() < 1e-12


@pytest.mark.parametrize(("system", "name"), [(ImplicitALS(factors=4), "als"), (ImplicitBPR(factors=4), "bpr")])
def test_implicits_models_are_taken_as_they_are(
    system: Any, name: str, counts: ps.Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"implicit.cpu.{name}", None)
    with pytest.raises(ps.InputError, match=r'implicit package is not installed: pip install "pairsym_dask\[bench\]"'):
        system.fit(counts)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("implicit")
    scores = system.fit(counts).scores(counts.user_ids)
    assert scores.shape == counts.shape
    np.testing.assert_array_equal(system.fit(counts).scores(counts.user_ids), scores)
    assert system.recommend(counts.user_ids[:2], n=3)["rank"].tolist() == [1, 2, 3, 1, 2, 3]
