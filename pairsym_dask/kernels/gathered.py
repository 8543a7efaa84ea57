"""Conjugate gradients of rows whose pairs are gathered from parts: their sums, their products, and the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled
from .chunks import CHUNK, XI, ask_row, energies, fill_left, pair_work_size, take_pairs, weigh
from .gradients import SUMS, add_row_products, add_row_sums, begin_rows, fill_matrix, matrix_stride, multiply, step_rows
from .outer import stride_of
from .simd import LANES, WIDEST, aligned, get, keep, pointer, put

# fmt: off


@compiled
def add_sums(
    pairs: Any, others: Any, own: Any, width: int, factors: int, censored: Any, two_lambda_star: float, cold: bool,
    weights: Any, out: Any,
) -> None:
    """Add the sums of some of the rows' pairs to `out` (rows, SUMS width), and write the pairs' W to `weights`."""
    table = others.table
    kind = table.dtype.type
    starts, stops = pairs.starts, pairs.stops
    scratch, places = np.empty(pair_work_size(width), table.dtype), np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_, weights_, work, places_ = pointer(others.parts), pointer(weights), aligned(scratch), pointer(places)
    out_ = pointer(out.reshape(-1))
    for i in range(starts.size):
        if i + 1 < starts.size:
            ask_row(indices_, starts[i + 1], stops[i + 1], parts_, table_, width, factors, cold)
        add_row_sums(
            starts[i], stops[i], indices_, counts_, parts_, own_, i, table_, width, factors, kind(censored[i]),
            kind(two_lambda_star), cold, places_, work, weights_, out_, i * SUMS * width,
        )
    keep(scratch)
    keep(places)


@compiled
def weigh_pairs(
    pairs: Any, others: Any, own: Any, width: int, factors: int, censored: Any, two_lambda_star: float, cold: bool,
    weights: Any,
) -> None:
    """Write W of the rows' pairs to `weights`, the same as `add_sums` does."""
    table = others.table
    kind = table.dtype.type
    starts, stops = pairs.starts, pairs.stops
    scratch, places = np.empty(pair_work_size(width), table.dtype), np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_, weights_, work, places_ = pointer(others.parts), pointer(weights), aligned(scratch), pointer(places)
    for i in range(starts.size):
        p, stop = starts[i], stops[i]
        if p < stop:
            fill_left(own_, i * 2 * width, factors, width, cold, work)
        while p < stop:
            end = min(p + CHUNK, stop)
            padded = take_pairs(indices_, counts_, p, end, parts_, table_, width, factors, places_, work)
            energies(table_, width, places_, padded, work, cold)
            weigh(padded, kind(censored[i]), kind(two_lambda_star), table_, work)
            for q in range(end - p):
                put(weights_, p + q, get(work, XI + q))
            p = end
    keep(scratch)
    keep(places)


@compiled
def add_products(pairs: Any, others: Any, width: int, weights: Any, direction: Any, out: Any) -> None:
    """Add sum W (z.p) z over some of the rows' pairs to `out`, with p the rows of `direction`; both (rows, stride)."""
    table = others.table
    starts, stops = pairs.starts, pairs.stops
    scratch, places = np.empty(pair_work_size(width), table.dtype), np.empty(CHUNK, np.int64)
    indices_, table_, parts_ = pointer(pairs.indices), pointer(table), pointer(others.parts)
    weights_, work, places_ = pointer(weights), aligned(scratch), pointer(places)
    direction_, out_, stride = pointer(direction.reshape(-1)), pointer(out.reshape(-1)), out.shape[1]
    for i in range(starts.size):
        if i + 1 < starts.size:
            ask_row(indices_, starts[i + 1], stops[i + 1], parts_, table_, width, 0, True)  # means alone
        add_row_products(
            starts[i], stops[i], indices_, parts_, table_, width, weights_, direction_, i * stride, places_, work,
            out_, i * stride,
        )
    keep(scratch)
    keep(places)


@compiled
def begin_steps(
    sums: Any, own: Any, terms: Any, square: Any, variances: Any, state: Any, precision: Any, bias: Any,
    bias_precision: Any,
) -> None:
    """Fill `state` from gathered sums (rows, SUMS width), with precisions and biases; its rows come in eights."""
    width, n = variances.size, sums.shape[0]
    stride = stride_of(width)
    matrix = np.zeros(width * matrix_stride(width) + WIDEST, sums.dtype)
    products = np.zeros(LANES * stride + WIDEST, sums.dtype)
    matrix_, products_ = aligned(matrix), aligned(products)
    fill_matrix(pointer(square), width, matrix_)
    for i in range(0, n, LANES):
        begin_rows(
            pointer(sums.reshape(-1)), i * SUMS * width, pointer(own), i, min(LANES, n - i), terms, pointer(variances),
            matrix_, matrix_, False, width, pointer(state.mean.reshape(-1)), pointer(state.residual.reshape(-1)),
            pointer(state.direction.reshape(-1)), pointer(state.inverse.reshape(-1)), pointer(state.extra.reshape(-1)),
            pointer(state.product), pointer(state.amount), i * stride, products_, pointer(precision), pointer(bias),
            pointer(bias_precision),
        )
    keep(matrix)
    keep(products)


@compiled
def take_step(pulled: Any, factors: int, square: Any, width: int, state: Any) -> None:
    """One step of all rows; `pulled` (rows in eights, stride) is sum W (z.p) z, and is overwritten."""
    n = state.product.size
    stride = stride_of(width)
    matrix = np.zeros(width * matrix_stride(width) + WIDEST, pulled.dtype)
    products = np.zeros(LANES * stride + WIDEST, pulled.dtype)
    matrix_, products_ = aligned(matrix), aligned(products)
    direction_ = pointer(state.direction.reshape(-1))
    fill_matrix(pointer(square), width, matrix_)
    for i in range(0, n, LANES):
        multiply(matrix_, direction_, i * stride, width, factors, products_)
        step_rows(
            min(LANES, n - i), i, i * stride, width, products_, pointer(pulled.reshape(-1)), i * stride,
            pointer(state.mean.reshape(-1)), pointer(state.residual.reshape(-1)), direction_,
            pointer(state.inverse.reshape(-1)), pointer(state.extra.reshape(-1)), pointer(state.product),
            pointer(state.amount),
        )
    keep(matrix)
    keep(products)
