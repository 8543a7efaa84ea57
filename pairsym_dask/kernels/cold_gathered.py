"""Conjugate gradients of rows without variances whose pairs are gathered from parts: what each look at pairs brings.

The first look brings *cold sums* of a row: sum W z, sum W z^2 and sum (c/2 - W (b_j + z.x)) z at the old mean x, a
`span` of numbers each, then sum W and sum (c/2 - W b_j). A step needs sum W (z.p) z for its direction p, and the last
one only the number sum W (z.p)^2. On a cluster sums and directions travel: they have no number that is always zero, but
for those that fill up a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .chunks import ask_ahead, place
from .cold import add_rows, add_rows_and_squares, copy_traits, curvature_of, find, weigh_cold
from .dots import dots, span_of
from .gradients import SUMS, fill_matrix, matrix_stride, multiply, table_places
from .outer import stride_of
from .simd import (
    LANES,
    WIDEST,
    add,
    aligned,
    fma,
    fnma,
    get,
    hsum,
    is_single,
    keep,
    load,
    mul,
    number,
    pointer,
    prefetch,
    put,
    splat,
    store,
)

MOST = 16  # pairs that are worked on together while those that follow are on their way to the first-level cache

# fmt: off


def cold_sums_size(factors: int) -> int:
    """Numbers of a row's cold sums."""
    return 3 * span_of(factors) + WIDEST


def as_sums(sums: np.ndarray, width: int, factors: int) -> np.ndarray:
    """Cold sums as the sums that `gathered.begin_steps` takes: those of variances are zero."""
    span = span_of(factors)
    out = np.zeros((sums.shape[0], SUMS * width), sums.dtype)
    for part, at in enumerate((0, 2, 3)):
        out[:, at * width : at * width + factors] = sums[:, part * span : part * span + factors]
    out[:, factors], out[:, 3 * width + factors] = sums[:, 3 * span], sums[:, 3 * span + 1]
    return out


def as_direction(direction: np.ndarray, factors: int) -> np.ndarray:
    """Rows of a state's direction as `add_cold_products` takes them: of all their numbers, those of traits."""
    return np.ascontiguousarray(direction[:, : span_of(factors)])


@compiled
def add_cold_sums(
    pairs: Any, others: Any, own: Any, width: int, factors: int, censored: Any, two_lambda_star: float, weights: Any,
    out: Any,
) -> None:
    """Add the cold sums of some of the rows' pairs to `out` (rows, cold_sums_size), and write their W to `weights`."""
    table = others.table
    kind = table.dtype.type
    span, size = span_of(factors), out.shape[1]
    starts, stops = pairs.starts, pairs.stops
    mean, places = np.zeros(span + WIDEST, table.dtype), np.zeros(MOST, np.int64)
    numbers = np.zeros(5 * MOST, table.dtype)
    shown, weight, bias = numbers[:MOST], numbers[MOST : 2 * MOST], numbers[2 * MOST : 3 * MOST]
    dot, factor = numbers[3 * MOST : 4 * MOST], numbers[4 * MOST :]
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_, weights_, places_, mean_ = pointer(others.parts), pointer(weights), pointer(places), aligned(mean)
    shown_, weight_, bias_, dot_ = pointer(shown), pointer(weight), pointer(bias), pointer(dot)
    factor_, out_ = pointer(factor), pointer(out.reshape(-1))
    half, star = splat(kind(0.5)), kind(two_lambda_star)
    for i in range(starts.size):
        p, stop, o = starts[i], stops[i], i * size
        if p < stop:
            copy_traits(own_, i * 2 * width, factors, span, mean_, 0)
        while p < stop:
            end = min(p + MOST, stop)
            n = end - p
            find(indices_, counts_, p, end, parts_, table_, width, factors, places_, shown_, weight_, bias_)
            if end < stop:
                ask_ahead(indices_, end, min(stop, end + MOST), parts_, table_, width, factors, True)
            elif i + 1 < starts.size:
                ask_ahead(
                    indices_, starts[i + 1], min(stops[i + 1], starts[i + 1] + MOST), parts_, table_, width, factors,
                    True,
                )
            dots(table_, places_, n, mean_, 0, span, dot_)
            weigh_cold(
                n, get(own_, i * 2 * width + factors + 1), kind(censored[i]), star, dot_, shown_, bias_, weight_
            )
            total, right = splat(kind(0.0)), splat(kind(0.0))
            for q in range(0, n, LANES):
                w = load(weight_, q)
                h = fnma(w, load(bias_, q), mul(half, load(shown_, q)))
                total, right = add(total, w), add(right, h)
                store(factor_, q, fnma(w, load(dot_, q), h))
            for q in range(n):
                put(weights_, p + q, get(weight_, q))
            put(out_, o + 3 * span, get(out_, o + 3 * span) + hsum(total))
            put(out_, o + 3 * span + 1, get(out_, o + 3 * span + 1) + hsum(right))
            add_rows(table_, places_, n, weight_, out_, o, span)
            add_rows_and_squares(table_, places_, n, factor_, weight_, out_, o + 2 * span, o + span, span)
            p = end
    keep(mean)
    keep(places)
    keep(numbers)


@compiled
def weigh_cold_pairs(
    pairs: Any, others: Any, own: Any, width: int, factors: int, censored: Any, two_lambda_star: float, weights: Any
) -> None:
    """Write W of the rows' pairs to `weights`, the same as `add_cold_sums` does."""
    table = others.table
    kind = table.dtype.type
    span = span_of(factors)
    starts, stops = pairs.starts, pairs.stops
    mean, places = np.zeros(span + WIDEST, table.dtype), np.zeros(MOST, np.int64)
    numbers = np.zeros(4 * MOST, table.dtype)
    shown, weight = numbers[:MOST], numbers[MOST : 2 * MOST]
    bias, dot = numbers[2 * MOST : 3 * MOST], numbers[3 * MOST :]
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_, weights_, places_, mean_ = pointer(others.parts), pointer(weights), pointer(places), aligned(mean)
    shown_, weight_, bias_, dot_ = pointer(shown), pointer(weight), pointer(bias), pointer(dot)
    for i in range(starts.size):
        p, stop = starts[i], stops[i]
        if p < stop:
            copy_traits(own_, i * 2 * width, factors, span, mean_, 0)
        while p < stop:
            end = min(p + MOST, stop)
            find(indices_, counts_, p, end, parts_, table_, width, factors, places_, shown_, weight_, bias_)
            dots(table_, places_, end - p, mean_, 0, span, dot_)
            weigh_cold(
                end - p, get(own_, i * 2 * width + factors + 1), kind(censored[i]), kind(two_lambda_star), dot_,
                shown_, bias_, weight_,
            )
            for q in range(end - p):
                put(weights_, p + q, get(weight_, q))
            p = end
    keep(mean)
    keep(places)
    keep(numbers)


@inlined
def ask_means(indices: Any, start: int, stop: int, parts: Any, table: Any, width: int, span: int) -> None:
    """Ask for the traits of coming pairs."""
    for p in range(start, stop):
        o = place(indices, p, parts, 2 * width)
        for k in range(0, span, 16 if is_single(table) else 8):
            prefetch(table, o + k)


@compiled
def add_cold_products(
    pairs: Any, others: Any, width: int, factors: int, weights: Any, direction: Any, last: bool, out: Any
) -> None:
    """Add sum W (z.p) z over some of the rows' pairs to the rows of `out`, with p those of `direction` (rows, stride).

    For the `last` step sum W (z.p)^2 is added to the first number of a row instead.
    """
    table = others.table
    span, stride, size = span_of(factors), direction.shape[1], out.shape[1]
    starts, stops = pairs.starts, pairs.stops
    places, numbers = np.zeros(MOST, np.int64), np.zeros(2 * MOST, table.dtype)
    weight, dot = numbers[:MOST], numbers[MOST:]
    indices_, table_, parts_ = pointer(pairs.indices), pointer(table), pointer(others.parts)
    weights_, weight_, dot_, places_ = pointer(weights), pointer(weight), pointer(dot), pointer(places)
    direction_, out_ = pointer(direction.reshape(-1)), pointer(out.reshape(-1))
    for i in range(starts.size):
        p, stop = starts[i], stops[i]
        while p < stop:
            end = min(p + MOST, stop)
            n = end - p
            table_places(indices_, p, end, parts_, 2 * width, places_)
            for q in range(n):
                put(weight_, q, get(weights_, p + q))
            for q in range(n, (n + LANES - 1) // LANES * LANES):
                put(weight_, q, 0.0)
            if end < stop:
                ask_means(indices_, end, min(stop, end + MOST), parts_, table_, width, span)
            elif i + 1 < starts.size:
                ask_means(indices_, starts[i + 1], min(stops[i + 1], starts[i + 1] + MOST), parts_, table_, width, span)
            dots(table_, places_, n, direction_, i * stride, span, dot_)
            if last:
                put(out_, i * size, get(out_, i * size) + curvature_of(n, weight_, dot_))
            else:
                for q in range(0, n, LANES):
                    store(dot_, q, mul(load(dot_, q), load(weight_, q)))
                add_rows(table_, places_, n, dot_, out_, i * size, span)
            p = end
    keep(places)
    keep(numbers)


@compiled
def take_last_step(curvature: Any, factors: int, square: Any, width: int, state: Any) -> None:
    """The last step of all rows, to the mean alone; `curvature` (rows, 1) is sum W (z.p)^2."""
    n, stride = state.product.size, stride_of(width)
    matrix = np.zeros(width * matrix_stride(width) + WIDEST, curvature.dtype)
    products = np.zeros(LANES * stride + WIDEST, curvature.dtype)
    matrix_, products_ = aligned(matrix), aligned(products)
    direction_, mean_ = pointer(state.direction.reshape(-1)), pointer(state.mean.reshape(-1))
    extra_ = pointer(state.extra.reshape(-1))
    fill_matrix(pointer(square), width, matrix_)
    for i in range(0, n, LANES):
        multiply(matrix_, direction_, i * stride, width, factors, products_)
        for lane in range(min(LANES, n - i)):
            at, a = (i + lane) * stride, splat(state.amount[i + lane])
            total = splat(number(mean_, 0.0))
            for k in range(0, width, LANES):
                p = load(direction_, at + k)
                total = fma(fma(load(extra_, at + k), p, mul(a, load(products_, lane * stride + k))), p, total)
            whole = hsum(total) + curvature[i + lane, 0]
            if whole > 0.0 and state.product[i + lane] > 0.0:  # else the row is settled
                step = splat(number(mean_, state.product[i + lane] / whole))
                for k in range(0, width, LANES):
                    store(mean_, at + k, fma(step, load(direction_, at + k), load(mean_, at + k)))
    keep(matrix)
    keep(products)
