"""Random graphs: the hidden graph, the bound of a fixed graph, the rankings."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
from helpers.systems import held_out_rank

import pairsym_dask as ps
from pairsym_dask.answers.predict import Symbols
from pairsym_dask.baselines import Popularity, RandomGraph, random_graph


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
