"""Draws of priors against the moments of their distributions; also run without the JIT."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config

from pairsym_dask.kernels.streams import stream_key
from pairsym_dask.kernels.wishart import draw_normal_gamma, draw_normal_wishart, factor_lower, solve_definite

N = 300 if config.DISABLE_JIT else 20_000
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # streams count modulo 2**64
SCATTER = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.7]])


def test_the_factor_is_choleskys_and_a_matrix_without_one_is_told():
    square = SCATTER.copy()
    assert factor_lower(square)
    assert np.allclose(square, np.linalg.cholesky(SCATTER))
    assert not factor_lower(np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert not factor_lower(np.array([[np.nan]]))


def test_precisions_are_wishart_and_means_normal_given_them():
    freedom, strength, centre = 7.0, 3.0, np.array([1.0, -2.0, 0.5])
    precisions, white = np.empty((N, 3, 3)), np.empty((N, 3))
    for k in range(N):
        mean, precision = np.empty(3), np.empty((3, 3))
        assert draw_normal_wishart(stream_key(1, k, 0), SCATTER.copy(), freedom, strength, centre, mean, precision)
        precisions[k] = precision
        white[k] = (mean - centre) @ np.linalg.cholesky(strength * precision)
    scale = np.linalg.inv(SCATTER)
    # var Wishart_ij = freedom (scale_ij^2 + scale_ii scale_jj)
    variance = freedom * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))
    assert (np.abs(precisions.mean(0) - freedom * scale) < 4.5 * np.sqrt(variance / N)).all()
    assert np.allclose(precisions.var(0), variance, rtol=12 / np.sqrt(N))
    assert np.abs(white.mean(0)).max() < 4.5 / np.sqrt(N)
    assert np.abs(np.cov(white.T) - np.eye(3)).max() < 7 / np.sqrt(N)


def test_precisions_of_biases_are_gamma_and_means_normal_given_them():
    shape, rate, strength, centre = 4.0, 2.5, 3.0, -1.0
    drawn = np.array([draw_normal_gamma(stream_key(2, k, 0), shape, rate, strength, centre) for k in range(N)])
    mean, precision = drawn.T
    assert abs(precision.mean() - shape / rate) < 4.5 * np.sqrt(shape) / rate / np.sqrt(N)
    white = (mean - centre) * np.sqrt(strength * precision)
    assert abs(white.mean()) < 4.5 / np.sqrt(N)
    assert abs(white.var() - 1) < 7 / np.sqrt(N)


def test_a_definite_system_is_solved_and_another_is_refused():
    rng = np.random.default_rng(1)
    root, right = rng.standard_normal((5, 5)), rng.standard_normal(5)
    square = root @ root.T + np.eye(5)
    found = right.copy()
    assert solve_definite(square.copy(), found)
    assert np.allclose(square @ found, right, rtol=1e-12)
    assert not solve_definite(-square, right.copy())
