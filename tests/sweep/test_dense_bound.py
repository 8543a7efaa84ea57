"""The dense reference climbs its bound, and the bound is a bound."""

from dataclasses import fields
from itertools import product

import numpy as np
import pytest
from helpers.dense import (
    DenseState,
    dense_bound,
    dense_sweep,
    dense_xi,
    mirrored,
)
from helpers.dense_cases import EDGES, SETTINGS, UNLIKE, after_sweeps, slack, sparse_counts, start, steps
from scipy.special import gammaln, log_expit, logsumexp


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("settings", SETTINGS)
def test_bound_never_falls(settings, seed):
    counts = sparse_counts(seed)
    state = start(counts, settings, seed)
    bound = first = dense_bound(state, counts, **settings)
    for sweep in range(50):
        state = dense_sweep(state, counts, **settings)
        before, bound = bound, dense_bound(state, counts, **settings)
        assert bound >= before - slack(before), f"sweep {sweep}"
    assert bound > first + 1


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", EDGES)
def test_bound_never_falls_on_edge_shapes(name, settings):
    counts = EDGES[name]
    state = start(counts, settings)
    bound = dense_bound(state, counts, **settings)
    for sweep in range(15):
        state = dense_sweep(state, counts, **settings)
        before, bound = bound, dense_bound(state, counts, **settings)
        assert np.isfinite(bound)
        assert bound >= before - slack(before), f"sweep {sweep}"


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("counts", [sparse_counts(0), sparse_counts(5), *EDGES.values()])
def test_every_step_alone_raises_the_bound(counts, settings):
    state = start(counts, settings)
    for _ in range(3):
        for name, step in steps(counts, settings):
            xi = dense_xi(state, counts)
            before = dense_bound(state, counts, **settings)
            state = step(state, xi)
            assert dense_bound(state, counts, **settings) >= before - slack(before), name


def test_steps_in_order_are_the_sweep():
    """In a sweep xi is that of the half-sweep's beginning, so the steps get it so."""
    counts, settings = sparse_counts(6), UNLIKE
    state = begun = after_sweeps(counts, settings)
    for name, step in steps(counts, settings):
        if name in ("user_selection", "xi_star", "item_background"):
            xi = dense_xi(state, counts)
        state = step(state, xi)
    swept = dense_sweep(begun, counts, **settings)
    for field in fields(DenseState):
        np.testing.assert_array_equal(getattr(state, field.name), getattr(swept, field.name))


def log_evidence(counts, *, censored_ratio, tau_u, tau_v, tau_b, alpha=1.0, biases=True):
    """log p(data) of one user, a few items and one trait, all assignments of the D' censored pairs summed out.

    Given u and b_i the energies of different items are independent Gaussians, so that Gauss-Hermite nodes do the rest.
    """
    counts = counts[0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    log_weights = np.log(weights / weights.sum())
    bias_variance = 1 / tau_b if biases else 0.0
    u, b = (grid.ravel() for grid in np.meshgrid(nodes / np.sqrt(tau_u), nodes * np.sqrt(bias_variance)))
    log_weight_ub = np.add.outer(log_weights, log_weights).ravel()
    energy = b[:, None] + np.sqrt(u**2 / tau_v + bias_variance)[:, None] * nodes  # a_j at (u, b_i), by node
    terms = []
    for items in product(range(len(counts)), repeat=round(censored_ratio * counts.sum())):
        censored = np.bincount(items, minlength=len(counts))
        # log integral of prod_j psi_j^(c_j + c'_j) under Dirichlet(alpha)
        pairs = counts + censored
        log_selection = gammaln(alpha * len(counts)) - gammaln(alpha * len(counts) + pairs.sum())
        log_selection += (gammaln(alpha + pairs) - gammaln(alpha)).sum()
        # log integral of prod_j sigma(a_j)^c_j sigma(-a_j)^c'_j
        log_shown = sum(
            logsumexp(c * log_expit(energy) + n * log_expit(-energy) + log_weights, axis=1)
            for c, n in zip(counts, censored, strict=True)
        )
        terms.append(log_selection + logsumexp(log_shown + log_weight_ub))
    return logsumexp(terms)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(
    ("counts", "ratio"), [([[3.0]], 1.0), ([[2.0, 1.0]], 1.0), ([[1.0, 0.0]], 2.0), ([[1.0, 0.0, 1.0]], 1.0)]
)
def test_bound_stays_just_below_the_exact_evidence(counts, ratio, biases):
    counts = np.array(counts)
    # tight priors: there the factorised Gaussians are nearly right, and a lost constant of the bound would show
    settings = {"censored_ratio": ratio, "tau_u": 20.0, "tau_v": 15.0, "tau_b": 10.0, "alpha": 0.8, "biases": biases}
    state = start(counts, settings, traits=1, scale=0.1)
    for _ in range(60):
        state = dense_sweep(state, counts, **settings)
    gap = log_evidence(counts, **settings) - dense_bound(state, counts, **settings)
    assert 0 <= gap < 0.5


def test_bound_is_the_same_for_mirrored_data():
    counts = sparse_counts(17)
    state = after_sweeps(counts, UNLIKE)
    swapped = {**UNLIKE, "tau_u": UNLIKE["tau_v"], "tau_v": UNLIKE["tau_u"]}
    bound = dense_bound(state, counts, **UNLIKE)
    assert dense_bound(mirrored(state), counts.T, **swapped) == pytest.approx(bound, rel=1e-13)
