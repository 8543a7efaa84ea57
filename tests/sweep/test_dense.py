"""The dense reference: energies, predictions, its start and its small functions."""

from dataclasses import fields, replace

import numpy as np
import pytest
from helpers import dense
from helpers.dense import (
    DenseState,
    dense_conditional,
    dense_energy,
    dense_sigma,
    dense_sweep,
    lambda_of,
    log_sigma,
)
from helpers.dense_cases import EDGES, SETTINGS, UNLIKE, after_sweeps, sparse_counts, start
from scipy.special import expit


@pytest.mark.parametrize("settings", SETTINGS)
def test_energy_moments_are_those_of_the_products(settings):
    """E[a^2] = tr E[u u^T] E[v v^T] + 2 E[b_i + b_j] E[u^T v] + E[(b_i + b_j)^2], pair by pair."""
    counts = sparse_counts(13)
    state = after_sweeps(counts, settings)
    mean, variance = dense_energy(state)
    for i, j in np.ndindex(counts.shape):
        u, v = state.user_mean[i], state.item_mean[j]
        uu = np.outer(u, u) + np.diag(1 / state.user_precision[i])
        vv = np.outer(v, v) + np.diag(1 / state.item_precision[j])
        b = state.user_bias[i] + state.item_bias[j]
        bb = b**2 + 1 / state.user_bias_precision[i] + 1 / state.item_bias_precision[j]
        assert mean[i, j] == pytest.approx(u @ v + b, rel=1e-12)
        assert mean[i, j] ** 2 + variance[i, j] == pytest.approx(np.trace(uu @ vv) + 2 * b * (u @ v) + bb, rel=1e-12)


@pytest.mark.parametrize("name", EDGES)
def test_conditional_sums_to_one(name):
    counts = EDGES[name]
    state = after_sweeps(counts, UNLIKE)
    for user in range(len(counts)):
        conditional = dense_conditional(state, user)
        assert conditional.shape == counts.shape[1:]
        assert conditional.min() > 0
        assert conditional.sum() == pytest.approx(1, abs=1e-14)


def test_conditional_is_popularity_where_the_energies_are_equal():
    state = after_sweeps(sparse_counts(20), {**UNLIKE, "biases": False})
    flat = replace(state, item_mean=np.zeros_like(state.item_mean))
    popularity = state.item_selection / state.item_selection.sum()
    np.testing.assert_allclose(dense_conditional(flat, 3), popularity, rtol=1e-14)


def test_conditionals_of_two_items_are_as_their_sigmas_and_popularities():
    state = after_sweeps(sparse_counts(20), UNLIKE)
    conditional, sigma = dense_conditional(state, 3), dense_sigma(state)[3]
    ratio = sigma[0] * state.item_selection[0] / (sigma[5] * state.item_selection[5])
    assert conditional[0] / conditional[5] == pytest.approx(ratio, rel=1e-13)


def test_sigma_is_near_the_logistic_gaussian_integral():
    state = after_sweeps(sparse_counts(21), UNLIKE)
    mean, variance = dense_energy(state)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    integral = expit(mean[..., None] + np.sqrt(variance)[..., None] * nodes) @ (weights / weights.sum())
    assert abs(dense_sigma(state) - integral).max() < 0.02  # MacKay's approximation, no more


def test_uncertain_energies_are_drawn_towards_a_half():
    state = after_sweeps(sparse_counts(14), UNLIKE)
    sure = replace(state, user_precision=state.user_precision * 1e6, item_precision=state.item_precision * 1e6)
    assert (abs(dense_sigma(state) - 0.5) < abs(dense_sigma(sure) - 0.5)).all()


def test_start_is_as_promised():
    counts = sparse_counts(15)
    state = start(counts, UNLIKE)
    users, items = counts.shape
    censored = UNLIKE["censored_ratio"] * counts.sum()
    np.testing.assert_allclose(state.user_selection, 0.7 + counts.sum(axis=1) + censored / users)
    np.testing.assert_allclose(state.item_selection, 0.7 + counts.sum(axis=0) + censored / items)
    assert state.xi_star == 1
    assert {*state.user_background, *state.user_bias, *state.item_bias_precision} == {1 / users, 0.0, 1.0}


def test_sweep_leaves_its_state_alone():
    counts = sparse_counts(16)
    state, twin = (start(counts, UNLIKE) for _ in range(2))
    dense_sweep(state, counts, **UNLIKE)
    for field in fields(DenseState):
        np.testing.assert_array_equal(getattr(state, field.name), getattr(twin, field.name))


def test_without_biases_there_are_none():
    counts = sparse_counts(18)
    state = after_sweeps(counts, {**UNLIKE, "biases": False})
    assert not state.user_bias.any()
    assert not state.item_bias.any()
    assert np.isinf(state.user_bias_precision).all()
    assert np.isinf(state.item_bias_precision).all()


def test_constant_selection_follows_the_dirichlet_alone():
    counts = sparse_counts(19)
    state = after_sweeps(counts, {**UNLIKE, "selection": "constant"})
    for selection, background in [
        (state.user_selection, state.user_background),
        (state.item_selection, state.item_background),
    ]:
        weights = np.exp(dense.expected_log(selection))
        np.testing.assert_allclose(background, weights / weights.sum(), rtol=1e-13)


def test_xi_star_is_kept_where_every_pair_is_observed():
    counts = EDGES["every pair observed"]
    assert after_sweeps(counts, UNLIKE).xi_star == 1


def test_logistic_functions_hold_at_the_ends():
    assert lambda_of(0.0) == 0.125
    assert lambda_of(1e-9) == pytest.approx(0.125, rel=1e-15)
    assert lambda_of(1e6) == pytest.approx(0.25e-6)
    assert log_sigma(-1e4) == -1e4
    assert log_sigma(1e4) == 0
    assert log_sigma(0.0) == pytest.approx(-np.log(2))
