"""Claims of the systems that the paper compares: one contract for all, then what each alone must hold."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.answers.predict import Symbols
from pairsym_dask.baselines import BPR, Popularity, RandomGraph, SoftmaxMAP, bpr, random_graph, softmax
from pairsym_dask.baselines.base import top

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


@pytest.fixture(scope="module")
def matrix() -> scipy.sparse.csr_matrix:
    return blocks(60, 40, 6, 0)


@pytest.fixture(scope="module")
def counts(matrix: scipy.sparse.csr_matrix, tmp_path_factory: pytest.TempPathFactory) -> ps.Counts:
    return ps.ingest(frame_of(matrix), tmp_path_factory.mktemp("pairs") / "pairs.zarr", count="count")


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request: pytest.FixtureRequest, counts: ps.Counts, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return SYSTEMS[request.param](tmp_path_factory.mktemp("model")).fit(counts)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[ps.Counts, scipy.sparse.csr_matrix, np.ndarray]:
    """A training store, its matrix, and one held-out item a user."""
    train = blocks(300, 120, 12, 1).tolil()
    rng = np.random.default_rng(2)
    held_out = np.zeros(300, np.int64)
    for i in range(300):
        held_out[i] = rng.choice(train.rows[i])
        train[i, held_out[i]] = 0
    train = train.tocsr()
    return ps.ingest(train, tmp_path_factory.mktemp("train") / "train.zarr"), train, held_out


# One contract for all.


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
    if isinstance(first, (BPR, RandomGraph, SoftmaxMAP)):
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


# Popularity.


def test_popularity_is_the_sum_of_counts(counts: ps.Counts, matrix: scipy.sparse.csr_matrix) -> None:
    scores = Popularity().fit(counts).scores(["user 000", "user 001"])
    np.testing.assert_array_equal(scores, np.tile(matrix.toarray().sum(0), (2, 1)))


# BPR.


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


# Random graph.


def test_hidden_graphs_never_hold_a_liked_pair(matrix: scipy.sparse.csr_matrix) -> None:
    liked = (matrix > 0).astype(float).tolil()
    liked[3, :38] = 1  # 2 items left
    liked[4, :] = 1  # none left
    liked = liked.tocsr()
    liked.sort_indices()
    degree = np.asarray(liked.sum(0)).ravel() + 1
    rng = np.random.default_rng(0)
    seen = np.diff(liked.indptr)
    for _ in range(20):
        graph = random_graph.draw_graph(liked, degree / degree.sum(), rng)
        assert graph.multiply(liked).nnz == 0
        assert set(graph.data) == {1.0}  # an edge at most once
        np.testing.assert_array_equal(np.diff(graph.indptr), np.minimum(seen, 40 - seen))


def test_hidden_graphs_follow_popularity() -> None:
    liked = scipy.sparse.csr_matrix(([1.0] * 8000, [2] * 8000, np.arange(8001)), (8000, 5))
    rate = np.array([0.1, 0.2, 0.4, 0.05, 0.25])
    share = np.asarray(random_graph.draw_graph(liked, rate, np.random.default_rng(0)).mean(0)).ravel()
    expected = np.where(np.arange(5) == 2, 0, rate) / 0.6
    np.testing.assert_allclose(share, expected, atol=4 * np.sqrt(0.25 / 8000))


def test_hidden_graphs_follow_popularity_when_little_is_left() -> None:
    # Item 0 takes nearly every draw, and everyone has it: the others are drawn from what is left.
    liked = scipy.sparse.csr_matrix(([1.0] * 4000, [0] * 4000, np.arange(4001)), (4000, 3))
    rate = np.array([1 - 4e-6, 1e-6, 3e-6])
    share = np.asarray(random_graph.draw_graph(liked, rate, np.random.default_rng(0)).mean(0)).ravel()
    np.testing.assert_allclose(share, [0, 0.25, 0.75], atol=4 * np.sqrt(0.25 / 4000))


def jaakkola_jordan_bound(users: Symbols, items: Symbols, graph: np.ndarray, tau: float, tau_b: float) -> float:
    """The variational bound for one graph, at the best xi, from dense arrays."""
    a = users.mean @ items.mean.T + users.bias[:, None] + items.bias
    second = (users.mean**2 + users.variance) @ (items.mean**2 + items.variance).T
    second += -((users.mean**2) @ (items.mean**2).T) + a**2 + users.bias_variance[:, None] + items.bias_variance
    xi = np.sqrt(second)
    bound = ((graph * a - xi) / 2 - np.log1p(np.exp(-xi)))[graph != 0].sum()
    for side in (users, items):
        for mean, variance, precision in (
            (side.mean, side.variance, tau),
            (side.bias, side.bias_variance, tau_b),
        ):
            bound -= 0.5 * (precision * (mean**2 + variance) - 1 - np.log(precision * variance)).sum()
    return float(bound)


def test_random_graph_updates_raise_the_bound_of_a_fixed_graph(matrix: scipy.sparse.csr_matrix) -> None:
    liked = scipy.sparse.csr_matrix((np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
    rng = np.random.default_rng(0)
    graph = (liked - random_graph.draw_graph(liked, np.full(40, 1 / 40), rng)).tocsr()
    users, items = random_graph._start(60, 3, rng), random_graph._start(40, 3, rng)
    bounds = [jaakkola_jordan_bound(users, items, graph.toarray(), 0.5, 2.0)]
    for _ in range(15):
        for own, other, edges in ((users, items, graph), (items, users, graph.T.tocsr())):
            random_graph._update_rows(
                edges.indptr, edges.indices, edges.data, own.mean, own.variance, own.bias, own.bias_variance,
                other.mean, other.variance, other.bias, other.bias_variance, 0.5, 2.0, 1.0,
            )  # fmt: skip
            bounds.append(jaakkola_jordan_bound(users, items, graph.toarray(), 0.5, 2.0))
    assert (np.diff(bounds) > 0).all()
    assert bounds[-1] - bounds[0] > 50


def test_random_graph_updates_are_coordinate_steps_of_natural_parameters(matrix: scipy.sparse.csr_matrix) -> None:
    """Against a twin that takes every energy anew for every coordinate."""
    rng = np.random.default_rng(0)
    graph = scipy.sparse.csr_matrix(np.where(matrix.toarray() > 0, rng.choice([-1.0, 1.0], matrix.shape), 0))
    users, items = (
        Symbols(rng.normal(size=(n, 3)), rng.gamma(3, size=(n, 3)), rng.normal(size=n), rng.gamma(3, size=n))
        for n in matrix.shape
    )
    step, tau, tau_b = 0.3, 0.5, 2.0
    # Bias and traits as one row, with a constant 1 among the other side's traits.
    mean = np.column_stack([users.bias, users.mean])
    variance = np.column_stack([users.bias_variance, users.variance])
    for i in range(60):
        j, sign = graph[[i]].indices, graph[[i]].data
        m = np.column_stack([np.ones(j.size), items.mean[j]])
        v = np.column_stack([np.zeros(j.size), items.variance[j]])
        spread = (m**2 + v) @ variance[i] + v @ mean[i] ** 2 + items.bias_variance[j]
        xi = np.sqrt((m @ mean[i] + items.bias[j]) ** 2 + spread)
        w = np.tanh(xi / 2) / (2 * xi)
        for k in range(4):
            rest = m @ mean[i] + items.bias[j] - m[:, k] * mean[i, k]
            best = (tau if k else tau_b) + w @ (m[:, k] ** 2 + v[:, k]), m[:, k] @ (sign / 2 - w * rest)
            precision = (1 - step) / variance[i, k] + step * best[0]
            mean[i, k] = ((1 - step) * mean[i, k] / variance[i, k] + step * best[1]) / precision
            variance[i, k] = 1 / precision
    random_graph._update_rows(
        graph.indptr, graph.indices, graph.data, users.mean, users.variance, users.bias, users.bias_variance,
        items.mean, items.variance, items.bias, items.bias_variance, tau, tau_b, step,
    )  # fmt: skip
    np.testing.assert_allclose(np.column_stack([users.bias, users.mean]), mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.column_stack([users.bias_variance, users.variance]), variance, rtol=1e-9)


def test_random_graph_rankings_differ_by_the_popularity_rate(
    counts: ps.Counts, matrix: scipy.sparse.csr_matrix
) -> None:
    like = RandomGraph(factors=3, sweeps=5).fit(counts).scores(counts.user_ids)
    both = RandomGraph(factors=3, sweeps=5, ranking="pop*like").fit(counts).scores(counts.user_ids)
    assert ((like > 0) & (like < 1)).all()
    degree = (matrix.toarray() > 0).sum(0) + 1
    np.testing.assert_allclose(both, like * degree / degree.sum(), rtol=1e-12)


def test_random_graph_ranks_above_popularity_where_users_have_tastes(split: Any) -> None:
    counts, train, held_out = split
    popularity = held_out_rank(Popularity().fit(counts), train, held_out)
    system = RandomGraph(factors=4, sweeps=30).fit(counts)
    assert held_out_rank(system, train, held_out) > popularity + 0.1
    system.ranking = "pop*like"
    assert held_out_rank(system, train, held_out) > popularity + 0.05


# Softmax.


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("room", [softmax.BLOCK, 8 * 5 * 2])
def test_softmax_gradient_is_exact(biases: bool, symmetric: bool, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "BLOCK", room)  # the second room holds two users at a time
    rng = np.random.default_rng(0)
    dense = rng.poisson(1.0, (5, 5)).astype(float)
    if symmetric:
        dense += dense.T
    model = SoftmaxMAP(factors=2, tau=0.7, biases=biases, symmetric=symmetric)
    parameters = rng.normal(size=(5 if symmetric else 10) * (2 + biases))
    pairs = scipy.sparse.csr_matrix(dense)

    u, v, b_u, b_v = model._split(parameters, 5)
    a = u @ v.T + b_u[:, None] + b_v
    expected = (dense * (a - np.log(np.exp(a).sum()))).sum() - 0.35 * (parameters**2).sum()
    value, gradient = model._objective(parameters, pairs, dense.sum())
    assert value == pytest.approx(-expected, rel=1e-12)
    numeric = scipy.optimize.approx_fprime(parameters, lambda x: model._objective(x, pairs, dense.sum())[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, atol=2e-4)


def test_softmax_does_not_overflow_on_great_energies() -> None:
    model = SoftmaxMAP(factors=1)
    pairs = scipy.sparse.csr_matrix(np.ones((3, 2)))
    value, gradient = model._objective(np.linspace(-60, 60, 10), pairs, 6.0)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_softmax_without_shrinkage_reproduces_the_counts(tmp_path: Path) -> None:
    dense = np.array([[4.0, 1, 7], [2, 9, 3], [5, 5, 1], [1, 2, 8]])
    model = SoftmaxMAP(factors=3, tau=1e-5, tolerance=1e-14, iterations=2000)
    model.fit(ps.ingest(scipy.sparse.csr_matrix(dense), tmp_path / "c.zarr"))
    assert model.converged
    np.testing.assert_allclose(model.scores(range(4)), dense / dense.sum(1, keepdims=True), atol=2e-3)


@pytest.mark.parametrize("name", ["popularity", "rg-like", "rg-pop*like", "softmax"])
def test_log_likelihood_is_that_of_the_conditional(name: str, counts: ps.Counts, tmp_path: Path) -> None:
    train, held_out = ps.leave_one_out(counts, tmp_path / "train.zarr")
    model = SYSTEMS[name](tmp_path).fit(train)
    rows = ps.evaluate(model, held_out).per_user
    for row in rows.head(5).itertuples():
        p = model.conditional(row.user)
        assert p.sum() == pytest.approx(1)
        assert row.log_likelihood == pytest.approx(np.log(p[row.item]))


def test_softmax_conditional_sums_to_one_under_the_items_labels(counts: ps.Counts) -> None:
    model = SoftmaxMAP(factors=2, iterations=20).fit(counts)
    p = model.conditional("user 010")
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p.index.tolist() == counts.item_ids.tolist()
    np.testing.assert_array_equal(p.to_numpy(), model.scores(["user 010"])[0])


def test_softmax_symmetric_ties_both_sides(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    upper = np.triu(rng.poisson(0.6, (12, 12)), 1)
    counts = ps.ingest(scipy.sparse.csr_matrix(upper + upper.T), tmp_path / "c.zarr")
    model = SoftmaxMAP(factors=2, symmetric=True).fit(counts)
    a = model._user_traits @ model._item_traits.T + model._item_bias
    joint = np.exp(a + model._item_bias[:, None])
    np.testing.assert_allclose(joint, joint.T, rtol=1e-12)
    np.testing.assert_allclose(model.scores(range(12)), joint / joint.sum(1, keepdims=True), rtol=1e-10)
    # With next to no shrinkage, what is not tied fits better: u_i.u_j alone cannot give every symmetric matrix.
    free = SoftmaxMAP(factors=2, tau=1e-3).fit(counts)
    tied = SoftmaxMAP(factors=2, tau=1e-3, symmetric=True).fit(counts)
    assert free.log_posterior > tied.log_posterior


def test_softmax_symmetric_needs_the_same_labels(counts: ps.Counts) -> None:
    with pytest.raises(ps.InputError, match="same labels on both sides"):
        SoftmaxMAP(symmetric=True).fit(counts)


def test_softmax_refuses_what_is_too_large(counts: ps.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CELLS", 2399)
    with pytest.raises(ps.InputError, match=r"60 x 40 = 2,400 pairs; at most 2,399"):
        SoftmaxMAP().fit(counts)


# Symmetric counts.


@pytest.mark.skipif("PAIRSYM_DATA" not in os.environ, reason="PAIRSYM_DATA does not say where the co-author pairs are")
def test_paired_symbols_finds_a_symmetric_solution_of_symmetric_counts(tmp_path: Path) -> None:
    """At the paper's settings, with nothing that forces it: energies m_i.m_j and m_j.m_i come together."""
    counts = ps.ingest(
        pd.read_parquet(Path(os.environ["PAIRSYM_DATA"]) / "nips-coauthors.parquet"),
        tmp_path / "coauthors.zarr",
        user="author",
        item="coauthor",
        count="count",
    )
    assert counts.user_ids.tolist() == counts.item_ids.tolist()
    model = ps.PairedSymbols(factors=5, censored_ratio=1, tau_u=1, tau_v=1, biases=False, selection="bayes")

    def asymmetry(sweeps: int) -> float:
        model.fit(counts, tmp_path / "model.zarr", sweeps=sweeps, progress=False)
        state = model.to_xarray()
        energy = state.user_mean.to_numpy() @ state.item_mean.to_numpy().T
        assert np.abs(energy).max() > 1  # a solution that says something
        return float(np.linalg.norm(energy - energy.T) / np.linalg.norm(energy))

    start, end = asymmetry(5), asymmetry(60)
    assert end < 0.01
    assert end < start / 10
