"""Conjugate gradients against the solved system, whole rows and rows gathered from parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.sides import DTYPES, assert_near, background_of, make_pairs, make_side, no_pull, plain_update
from numba import config

from pairsym_dask.kernels import gathered, gradients, rows
from pairsym_dask.kernels.layout import WHOLE, padded_width, row_offsets, side_by_side
from pairsym_dask.kernels.outer import stride_of

SIZES = (
    [(1, 3, 5), (9, 20, 6), (21, 70, 14)]
    if config.DISABLE_JIT
    else [(1, 3, 5), (9, 20, 6), (37, 150, 23), (21, 90, 64)]
)


def updated(dtype, n, columns, factors, biases, steps):
    """Rows after some steps, whole and from parts, and the solved system's."""
    rng = np.random.default_rng(n)
    own, its = make_side(rng, n, factors, dtype), make_side(rng, columns, factors, dtype)
    if not biases:
        for side in (own, its):
            side["b"][:], side["w"][:] = 0, 0
            stride, width = 2 * padded_width(factors), padded_width(factors)
            side["table"][factors + 1 :: stride] = 0
            side["table"][width + factors :: stride] = 0
    dense, indptr, indices, counts = make_pairs(rng, n, columns, 0.3)
    censored, tau = rng.uniform(0.1, 5, n), rng.uniform(0.5, 2, n).astype(dtype)
    wanted = plain_update(own, its, dense, censored, 0.21, tau, 0.7, biases)
    background = background_of(its, factors)[0]
    square, variances = background.square.astype(dtype).reshape(-1), background.variances.astype(dtype)
    width = padded_width(factors)
    terms = rows.Terms(
        factors, row_offsets(width), censored, 0.21, background.packed.astype(dtype), tau, 0.7, biases, False,
        no_pull(dtype),
    )  # fmt: skip
    pairs = rows.Pairs(indptr[:-1], indptr[1:], indices, counts)

    def empty():
        return rows.Values(*(np.empty(shape, dtype) for shape in ((n, factors), (n, factors), n, n)))

    got, weights = empty(), np.zeros(indices.size, dtype)
    others = rows.OtherSide(WHOLE, its["table"])
    gradients.update_rows_by_steps(pairs, others, own["table"], terms, square, variances, False, steps, weights, got)
    # The same from tables in pieces, sums gathered.
    step = 16
    tables = [its["table"][c * 2 * width : (c + step) * 2 * width].copy() for c in range(0, columns, step)]
    table, parts = side_by_side(0, step, tables)
    others = rows.OtherSide(parts, table)
    sums, again = np.zeros((n, gradients.SUMS * width), dtype), np.zeros(indices.size, dtype)
    gathered.add_sums(pairs, others, own["table"], width, factors, censored, 0.21, False, again, sums)
    checked = np.zeros(indices.size, dtype)
    gathered.weigh_pairs(pairs, others, own["table"], width, factors, censored, 0.21, False, checked)
    assert (again == weights).all()
    assert (again == checked).all()
    pieces, eights = empty(), -(-n // 8) * 8
    shape = (eights, stride_of(width))
    state = gradients.State(*(np.zeros(shape, dtype) for _ in range(5)), np.zeros(n, dtype), np.zeros(n, dtype))
    gathered.begin_steps(
        sums, own["table"], terms, square, variances, state, pieces.precision, pieces.bias, pieces.bias_precision
    )
    for _ in range(steps):
        pulled = np.zeros(shape, dtype)
        gathered.add_products(pairs, others, width, again, state.direction, pulled)
        gathered.take_step(pulled, factors, square, width, state)
    pieces.mean[:] = state.mean[:n, :factors]
    return got, pieces, wanted


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(("n", "columns", "factors"), SIZES)
def test_enough_steps_solve_the_system(dtype, biases, n, columns, factors):
    got, pieces, wanted = updated(dtype, n, columns, factors, biases, steps=40 if dtype is np.float64 else 25)
    tolerance = 1e-8 if dtype is np.float64 else 2e-3
    for values in (got, pieces):
        assert_near(values, wanted, tolerance)


def test_every_step_comes_closer():
    errors = []
    for steps in range(5):
        got, pieces, wanted = updated(np.float64, 21, 90, 14, True, steps)
        assert np.allclose(got.mean, pieces.mean, rtol=1e-10, atol=1e-12)
        errors.append(np.abs(got.mean - wanted[0]).max())
        assert np.allclose(got.precision, wanted[1])
    assert all(later < 0.9 * earlier for earlier, later in pairwise(errors))
