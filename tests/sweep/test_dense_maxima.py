"""Each step of the dense reference is a maximum of its bound, with xi fixed."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dense
from helpers.dense import (
    dense_bound,
    dense_bound_at,
    dense_xi,
)
from helpers.dense_cases import UNLIKE, after_sweeps, sparse_counts, steps


def shifted(bound, state, name, row, direction=1.0):
    """The bound as a function of h, where h times direction is added to a row."""

    def along(h):
        values = getattr(state, name).copy()
        values[row] += h * direction
        return bound(replace(state, **{name: values}))

    return along


def scaled(bound, state, name, row, direction=1.0, total=None):
    """The bound as a function of h, where a row is multiplied by exp(h times direction), then all to a total."""

    def along(h):
        values = getattr(state, name).copy()
        values[row] *= np.exp(h * direction)
        if total is not None:
            values *= total / values.sum()
        return bound(replace(state, **{name: values}))

    return along


def assert_peak(bound, step=1e-3):
    """bound(h), a number for each small h, is greatest at h = 0, and not merely near it."""
    top, left, right = bound(0.0), bound(-step), bound(step)
    assert left < top
    assert right < top
    # the vertex of the parabola through the three lies within 1% of a step from h = 0
    assert abs(right - left) < 0.02 * (2 * top - left - right)


def at_fixed_xi(counts, settings, side, updates):
    """A state after these of a side's updates, and the bound at the xi they were given."""
    state = after_sweeps(counts, settings)
    xi = dense_xi(state, counts)
    by_name = dict(steps(counts, settings))
    for update in updates:
        state = by_name[f"{side}_{update}"](state, xi)
    return state, lambda q: dense_bound_at(q, counts, xi, **settings)


@pytest.mark.parametrize("side", ["user", "item"])
def test_traits_are_a_maximum(side):
    state, bound = at_fixed_xi(sparse_counts(7), UNLIKE, side, ["bias", "traits"])
    rows, traits = getattr(state, f"{side}_mean").shape
    rng = np.random.default_rng(0)
    for row in range(rows):
        for direction in [*np.eye(traits), rng.standard_normal(traits)]:
            assert_peak(shifted(bound, state, f"{side}_mean", row, direction))
            assert_peak(scaled(bound, state, f"{side}_precision", row, direction))


@pytest.mark.parametrize("side", ["user", "item"])
def test_biases_are_a_maximum(side):
    state, bound = at_fixed_xi(sparse_counts(8), UNLIKE, side, ["bias"])
    for row in range(len(getattr(state, f"{side}_bias"))):
        assert_peak(shifted(bound, state, f"{side}_bias", row))
        assert_peak(scaled(bound, state, f"{side}_bias_precision", row))


@pytest.mark.parametrize("side", ["user", "item"])
def test_background_is_a_maximum_on_the_simplex(side):
    state, bound = at_fixed_xi(sparse_counts(9), UNLIKE, side, ["background"])
    background = getattr(state, f"{side}_background")
    assert background.sum() == pytest.approx(1, abs=1e-14)
    for row in range(len(background)):
        assert_peak(scaled(bound, state, f"{side}_background", row, total=1.0))


@pytest.mark.parametrize("side", ["user", "item"])
def test_selection_is_a_maximum(side):
    state, bound = at_fixed_xi(sparse_counts(10), UNLIKE, side, ["selection"])
    for row in range(len(getattr(state, f"{side}_selection"))):
        assert_peak(scaled(bound, state, f"{side}_selection", row))


def test_xi_star_is_a_maximum():
    counts = sparse_counts(11)
    state = dense.step_xi_star(after_sweeps(counts, UNLIKE), counts)
    assert_peak(lambda h: dense_bound(replace(state, xi_star=state.xi_star * np.exp(h)), counts, **UNLIKE))


def test_xi_of_an_observed_pair_is_a_maximum():
    counts = sparse_counts(12)
    state = after_sweeps(counts, UNLIKE)
    xi = dense_xi(state, counts)

    def along(i, j):
        pair = np.zeros_like(xi)
        pair[i, j] = 1
        return lambda h: dense_bound_at(state, counts, xi * np.exp(h * pair), **UNLIKE)

    for i, j in np.argwhere(counts > 0):
        assert_peak(along(i, j))
