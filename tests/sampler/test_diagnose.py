"""Diagnostics against chains whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from pairsym_dask.sampler.diagnose import effective_draws, split_r_hat


def autoregression(rho, n, chains=1, seed=0):
    noise = np.random.default_rng(seed).standard_normal((chains, n))
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_draws_of_an_autoregression_are_those_of_its_theory(rho):
    n = 20_000
    assert effective_draws(autoregression(rho, n)) == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.2)


def test_chains_that_agree_have_r_hat_one_and_those_that_do_not_more():
    chains = autoregression(0.3, 2_000, chains=4)
    assert split_r_hat(chains) == pytest.approx(1, abs=0.01)
    assert split_r_hat(chains + np.array([0, 0, 0, 3])[:, None]) > 1.5


def test_a_drift_within_one_chain_is_seen():
    assert split_r_hat(autoregression(0.0, 1_000) + np.linspace(0, 4, 1_000)) > 1.3


def test_traces_too_short_or_constant_do_not_fail():
    assert np.isnan(split_r_hat(np.array([[1.0, 2.0]])))
    assert np.isnan(effective_draws(np.array([[1.0, 2.0]])))
    assert split_r_hat(np.ones((2, 50))) == 1
    assert effective_draws(np.ones((2, 50))) == 100
