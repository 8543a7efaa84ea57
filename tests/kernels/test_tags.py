"""Kernels of tags against the same sums written out."""

from __future__ import annotations

import numpy as np

from pairsym_dask.kernels.tags import draw_tags, mix_tags, sum_squares, take_off_tags, update_tags


def by_tag(weights):
    """Dense weights (symbols, tags) as each tag's symbols."""
    lengths = (weights > 0).sum(0)
    symbols = np.concatenate([np.flatnonzero(column) for column in weights.T]).astype(np.uint32)
    return np.r_[0, np.cumsum(lengths)], symbols, weights.T[weights.T > 0]


def some(seed=0, symbols=9, tags=4, columns=3):
    rng = np.random.default_rng(seed)
    weights = (rng.random((symbols, tags)) < 0.5) * rng.uniform(0.2, 1.0, (symbols, tags))
    effects, values = rng.standard_normal((tags, columns)), rng.standard_normal((symbols, columns))
    return rng, weights, effects, values


def test_tags_are_mixed_and_taken_off():
    _, weights, effects, values = some()
    rows = np.r_[0, np.cumsum((weights > 0).sum(1))], np.nonzero(weights)[1].astype(np.uint32), weights[weights > 0]
    mixed = np.empty_like(values)
    mix_tags(*rows, effects, mixed)
    np.testing.assert_allclose(mixed, weights @ effects, rtol=1e-12)
    left = values.copy()
    take_off_tags(*by_tag(weights), effects, left)
    np.testing.assert_allclose(left, values - weights @ effects, rtol=1e-12)


def test_effects_are_drawn_beside_what_other_tags_leave():
    rng, weights, effects, values = some()
    gamma, scales = rng.uniform(0.5, 2.0, 4), rng.uniform(0.5, 3.0, 3)
    noise = rng.standard_normal((4, 3))
    residual, squares, wanted = values - weights @ effects, np.empty(4), effects.copy()
    sum_squares(*by_tag(weights), np.ones(9), squares)
    np.testing.assert_allclose(squares, (weights**2).sum(0), rtol=1e-12)
    for f in range(4):
        others = np.arange(4) != f
        precision = gamma[f] + scales * (weights[:, f] ** 2).sum()
        mean = scales * (weights[:, f] @ (values - weights[:, others] @ wanted[others])) / precision
        wanted[f] = mean + noise[f] / np.sqrt(precision)
    draw_tags(*by_tag(weights), scales, gamma, squares, noise, effects, residual)
    np.testing.assert_allclose(effects, wanted, rtol=1e-11)
    np.testing.assert_allclose(residual, values - weights @ wanted, rtol=1e-10, atol=1e-12)


def test_without_noise_a_draw_is_an_update():
    rng, weights, effects, values = some(1)
    gamma, tau = rng.uniform(0.5, 2.0, 4), np.full(9, 1.7)
    squares, reach = np.empty(4), np.empty(4)
    sum_squares(*by_tag(weights), np.ones(9), squares)
    sum_squares(*by_tag(weights), tau, reach)
    drawn, updated = effects.copy(), effects.copy()
    draw_tags(*by_tag(weights), tau[:3], gamma, squares, np.zeros((4, 3)), drawn, values - weights @ effects)
    update_tags(*by_tag(weights), tau, gamma, gamma + reach, updated, values - weights @ effects)
    np.testing.assert_allclose(drawn, updated, rtol=1e-11)
