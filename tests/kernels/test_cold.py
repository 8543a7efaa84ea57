"""Rows without variances by kernels of their own: against the solved system, whole and gathered from parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.sides import DTYPES, assert_near, background_of, make_pairs, make_side, no_pull, plain_update
from numba import config

from pairsym_dask.kernels import cold, cold_close, cold_gathered, gathered, gradients, moments, rows
from pairsym_dask.kernels.layout import WHOLE, padded_width, row_offsets, side_by_side, statistics_size
from pairsym_dask.kernels.outer import stride_of
from pairsym_dask.sweep.turn import Turn

SIZES = (
    [(1, 3, 5), (9, 20, 6), (21, 70, 17)]
    if config.DISABLE_JIT
    else [(1, 3, 5), (9, 20, 6), (37, 150, 23), (21, 90, 64), (11, 300, 130)]
)


def cold_side(rng, n, factors, dtype, biases):
    """A random side whose variances count for nothing."""
    side, width = make_side(rng, n, factors, dtype), padded_width(factors)
    side["v"][:], side["w"][:] = 0, 0
    table = side["table"].reshape(n, 2 * width)
    table[:, width : width + factors + 1] = 0
    if not biases:
        side["b"][:], table[:, factors + 1] = 0, 0
    return side


def turned(side, axes, factors):
    """A side on other axes."""
    width = axes.shape[0]
    table = side["table"].reshape(-1, 2 * width).copy()
    mean = side["mean"] @ axes[:factors, :factors]
    table[:, :factors] = mean
    return {**side, "mean": mean, "table": table.reshape(-1)}


def updated(dtype, n, columns, factors, biases, steps):
    """Rows after some steps, whole and from parts, and the solved system's."""
    rng = np.random.default_rng(n)
    own, its = (cold_side(rng, many, factors, dtype, biases) for many in (n, columns))
    dense, indptr, indices, counts = make_pairs(rng, n, columns, 0.3)
    dense[n // 2] = 0  # a row without pairs
    counts[indptr[n // 2] : indptr[n // 2 + 1]] = 0
    keep = counts > 0
    indptr = np.r_[0, np.cumsum(np.add.reduceat(np.r_[keep, False], indptr[:-1]) * (np.diff(indptr) > 0))]
    indices, counts = indices[keep], counts[keep]
    turn = Turn.of(background_of(its, factors)[0], "", np.dtype(dtype).name)
    axes, width = turn.axes, padded_width(factors)
    here, there = (turned(side, axes, factors) for side in (own, its))
    censored, tau = rng.uniform(0.1, 5, n), rng.uniform(0.5, 2, n).astype(dtype)
    wanted = plain_update(here, there, dense, censored, 0.21, tau, 0.7, biases)
    square, variances = turn.base.dense(np.dtype(dtype).name)
    packed = turn.base.packed.astype(dtype)
    terms = rows.Terms(factors, row_offsets(width), censored, 0.21, packed, tau, 0.7, biases, True, no_pull(dtype))
    pairs = rows.Pairs(indptr[:-1], indptr[1:], indices, counts)

    def empty():
        return rows.Values(*(np.empty(shape, dtype) for shape in ((n, factors), (n, factors), n, n)))

    got = empty()
    others = rows.OtherSide(WHOLE, there["table"])
    cold.update_cold_rows(pairs, others, own["table"], axes.reshape(-1), terms, square, steps, got)
    # The same from tables in pieces, sums gathered.
    step = 16
    tables = [there["table"][c * 2 * width : (c + step) * 2 * width].copy() for c in range(0, columns, step)]
    table, parts = side_by_side(0, step, tables)
    others = rows.OtherSide(parts, table)
    weights, again = np.zeros(indices.size, dtype), np.ones(indices.size, dtype)
    sums = np.zeros((n, cold_gathered.cold_sums_size(factors)), dtype)
    rest = here["table"], width, factors, censored, 0.21
    cold_gathered.add_cold_sums(pairs, others, *rest, weights, sums)
    cold_gathered.weigh_cold_pairs(pairs, others, *rest, again)
    assert (weights == again).all()
    pieces, shape = empty(), (-(-n // 8) * 8, stride_of(width))
    state = gradients.State(*(np.zeros(shape, dtype) for _ in range(5)), np.zeros(n, dtype), np.zeros(n, dtype))
    gathered.begin_steps(
        cold_gathered.as_sums(sums, width, factors), here["table"], terms, square, variances, state, pieces.precision,
        pieces.bias, pieces.bias_precision,
    )  # fmt: skip
    for taken in range(steps):
        last = taken == steps - 1
        pulled = np.zeros((shape[0], 1) if last else shape, dtype)
        direction = cold_gathered.as_direction(state.direction, factors)
        cold_gathered.add_cold_products(pairs, others, width, factors, weights, direction, last, pulled)
        take = cold_gathered.take_last_step if last else gathered.take_step
        take(pulled, factors, square, width, state)
    pieces.mean[:] = state.mean[:n, :factors]
    return got, pieces, wanted


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(("n", "columns", "factors"), SIZES)
def test_enough_steps_solve_the_system(dtype, biases, n, columns, factors):
    got, pieces, wanted = updated(dtype, n, columns, factors, biases, steps=250 if dtype is np.float64 else 90)
    tolerance = 1e-8 if dtype is np.float64 else 2e-3
    for values in (got, pieces):
        assert_near(values, wanted, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "factors"), [(1, 1), (70, 6), (150, 23), (65, 64)])
def test_rows_are_closed_as_tables_and_backgrounds_are_made(dtype, n, factors):
    rng = np.random.default_rng(n)
    side, width = cold_side(rng, n, factors, dtype, True), padded_width(factors)
    precision = rng.uniform(0.5, 3, (n, factors)).astype(dtype)
    values = rows.Values(side["mean"], precision, side["b"], np.ones(n, dtype))
    growth = rng.uniform(0.5, 2, n)
    packed, sums = (np.zeros(size) for size in (statistics_size(factors), 6))
    table = np.full_like(side["table"], np.nan)
    assert cold_close.close_cold_rows(values, True, side["t"], growth, width, table, packed, sums) == -1
    span = max(width, -(-factors // 16) * 16)
    got, wanted = (array.reshape(n, 2 * width) for array in (table, side["table"]))
    assert (got[:, :span] == wanted[:, :span]).all()
    assert (got[:, width + factors + 1] == wanted[:, width + factors + 1]).all()
    expected, whole = np.zeros_like(packed), np.zeros_like(sums)
    moments.add_background(side["table"], n, side["t"], growth, factors, True, expected, whole)
    assert np.allclose(packed, expected, rtol=1e-12)
    assert np.allclose(sums[[1, 4]], whole[[1, 4]], rtol=1e-12)
    for array, bad in ((values.mean, np.nan), (values.precision, -1.0), (values.bias, np.inf)):
        kept = array[n // 2].copy()
        array[n // 2] = bad
        with np.errstate(invalid="ignore"):
            found = cold_close.close_cold_rows(
                values, True, side["t"], growth, width, table, packed.copy(), sums.copy()
            )
        array[n // 2] = kept
        assert found == n // 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "columns", "factors"), SIZES)
def test_selection_statistics_are_those_of_rows_with_variances_of_zero(dtype, n, columns, factors):
    rng = np.random.default_rng(n)
    own, its = (cold_side(rng, many, factors, dtype, True) for many in (n, columns))
    _, indptr, indices, counts = make_pairs(rng, n, columns, 0.5)
    pairs, others = rows.Pairs(indptr[:-1], indptr[1:], indices, counts), rows.OtherSide(WHOLE, its["table"])
    got, wanted = np.zeros((n, 4)), np.zeros((n, 4))
    cold_close.select_cold_rows(pairs, others, own["table"], padded_width(factors), factors, got)
    rows.select_rows(pairs, others, own["table"], padded_width(factors), factors, True, wanted)
    assert np.allclose(got, wanted, rtol=1e-4 if dtype is np.float32 else 1e-10)


def test_every_step_comes_closer():
    errors = []
    for steps in range(5):
        got, pieces, wanted = updated(np.float64, 21, 90, 14, True, steps)
        assert np.allclose(got.mean, pieces.mean, rtol=1e-10, atol=1e-12)
        errors.append(np.abs(got.mean - wanted[0]).max())
        assert np.allclose(got.precision, wanted[1])
    assert all(later < 0.9 * earlier for earlier, later in pairwise(errors))
