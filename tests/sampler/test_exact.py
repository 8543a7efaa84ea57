"""The whole sampler against its definition: Geweke's joint-distribution test, and one posterior by weighted draws."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.sampling import State, draw_counts, draw_state, sweep
from scipy.special import expit

from pairsym_dask.sampler.diagnose import effective_draws
from pairsym_dask.settings import Settings

pytestmark = [pytest.mark.draws, pytest.mark.slow]
USERS, ITEMS, PROPOSALS = 4, 3, 14.0


def features(state: State, counts: np.ndarray) -> np.ndarray:
    """Bounded functions of everything: traits may have no moments under these priors."""
    a = state.energy()
    w, psis = state.users.chosen / state.users.chosen.sum(), state.items.chosen / state.items.chosen.sum(0)
    pi, psi, rho = w.sum(1), psis[:, 0], w.sum(0)
    return np.array(
        [
            *np.tanh(state.users.traits).mean(0),
            *np.tanh(state.items.traits).mean(0),
            *(np.tanh(state.users.traits) ** 2).mean(0),
            *(np.tanh(state.items.traits) ** 2).mean(0),
            np.tanh(state.users.bias).mean(),
            np.tanh(state.items.bias).mean(),
            (np.tanh(state.users.bias) ** 2).mean(),
            expit(a).mean(),
            (expit(a) ** 2).mean(),
            expit(a)[0, 0] * expit(a)[0, 1],
            pi[0] ** 2,
            psi[0] ** 2,
            pi[0] * expit(a)[0].mean(),
            psi[0] * expit(a)[:, 0].mean(),
            np.tanh(state.user_prior.mean).mean(),
            np.tanh(np.linalg.slogdet(state.user_prior.precision)[1] / 4),
            np.tanh(np.linalg.slogdet(state.item_prior.precision)[1] / 4),
            np.tanh(np.log(state.user_prior.bias_precision)),
            np.tanh(state.item_prior.bias_mean),
            min(counts.sum(), 12) / 12,
            np.tanh(counts[0, 0]),
            np.tanh(counts * a).mean(),
            rho[0] ** 2,
            (w[0] ** 2).sum(),
            (psis[0] ** 2).sum(),
            (w[0] * psis[0]).sum() * expit(a)[0, 0],
            np.tanh(counts[0, 0] * w[0] @ psis[0]),
            np.tanh(counts.sum(1) @ w).mean(),
        ]
    )


@pytest.mark.parametrize(
    "options",
    [
        {"hyperpriors": True},
        {"hyperpriors": False, "tau_u": 0.7, "tau_v": 1.5, "tau_b": 0.8},
        {"hyperpriors": True, "biases": False, "alpha": 0.6},
        {"hyperpriors": False, "tau_u": 1.0, "tau_v": 0.5, "tau_b": 1.0, "alpha": 2.0, "dtype": "float32"},
        {"hyperpriors": False, "tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0, "components": 3},
        {"hyperpriors": True, "components": 2, "alpha": 0.7},
    ],
    ids=["hyperpriors", "fixed", "no-biases", "float32", "three-components", "two-components"],
)
def test_draws_from_the_prior_and_sweeps_with_fresh_counts_agree(options):
    """Geweke (2004): (draw the counts given the state, sweep) leaves the joint prior of states and counts as it is."""
    settings = Settings(**{"factors": 2, "inference": "gibbs", "dtype": "float64", "random_state": 5} | options)
    rng = np.random.default_rng(1)
    n = 12_000 if settings.hyperpriors and settings.biases else 5_000  # traits and priors move slowly together
    apart = np.empty((n, features(draw_state(USERS, ITEMS, settings, rng), np.zeros((USERS, ITEMS))).size))
    chained = np.empty_like(apart)
    state = draw_state(USERS, ITEMS, settings, rng)
    for k in range(n):
        fresh = draw_state(USERS, ITEMS, settings, rng)
        apart[k] = features(fresh, draw_counts(fresh, PROPOSALS, rng))
        counts = draw_counts(state, PROPOSALS, rng)
        chained[k] = features(state, counts)
        state = sweep(state, counts, PROPOSALS, settings, k + 1)
    constant = apart.std(0) < 1e-12
    worth = np.array([effective_draws(trace) for trace in chained.T])
    error = np.sqrt(apart.var(0) / n + chained.var(0) / np.maximum(worth, 1))
    z = np.where(constant, 0.0, (chained.mean(0) - apart.mean(0)) / np.where(constant, 1.0, error))
    assert worth[~constant].min() > 80
    assert np.abs(z).max() < 4, np.round(z, 1)


def test_posterior_of_a_tiny_model_is_that_of_importance_sampling():
    settings = Settings(
        factors=1,
        inference="gibbs",
        hyperpriors=False,
        tau_u=1.0,
        tau_v=1.0,
        tau_b=1.0,
        dtype="float64",
        random_state=2,
    )
    rng = np.random.default_rng(4)
    counts = np.array([[3, 0, 1], [0, 2, 0], [1, 1, 0]])
    proposals = 20.0

    def asked(state: State) -> np.ndarray:
        a = state.energy()
        pi, psi = (side.selection / side.selection.sum() for side in (state.users, state.items))
        return np.array([a[0, 0], a[0, 1], a[1, 1], a[0, 0] - a[0, 1], a[2, 2], pi[0], psi[1], expit(a[0, 0])])

    n = 60_000
    weights, values = np.empty(n), np.empty((n, 8))
    for k in range(n):
        state = draw_state(3, 3, settings, rng)
        mean = state.rate(proposals) * expit(state.energy())
        weights[k] = (counts * np.log(mean) - mean).sum()
        values[k] = asked(state)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    expected = weights @ values
    known = np.sqrt((weights[:, None] ** 2 * (values - expected) ** 2).sum(0))
    assert 1 / (weights**2).sum() > 150
    state, found = draw_state(3, 3, settings, rng), []
    for k in range(10_000):
        state = sweep(state, counts, proposals, settings, k + 1)
        if k >= 500:
            found.append(asked(state))
    found = np.array(found)
    error = np.sqrt(known**2 + found.var(0) / [effective_draws(trace) for trace in found.T])
    assert (np.abs(found.mean(0) - expected) < 4 * error).all()
