"""What the end of an update and of a sweep need of rows without variances, while they are in cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled
from .chunks import ask_ahead
from .cold import copy_traits, find
from .dots import dots, span_of
from .logistic import exp_minus, log_sigmoid
from .moments import CHUNK, MEAN_SQUARE
from .outer import add_triangle, stride_of
from .rows import LOGISTIC, SHOWN, SQUARE, WEIGHT
from .simd import (
    LANES,
    WIDEST,
    add,
    aligned,
    fma,
    fnma,
    get,
    hsum,
    keep,
    load,
    maximum,
    minimum,
    mul,
    pointer,
    put,
    splat,
    store,
    sub,
    widen,
)

MOST = 64  # pairs of one row that are looked at together

# fmt: off


@compiled
def close_cold_rows(
    values: Any, biases: bool, weight: Any, growth: Any, width: int, table: Any, out: Any, moments: Any
) -> int:
    """Fill the rows' table, and add what they send to the background and to the bound; the first unsound row or -1.

    Of the second half of a table's row little but the weight is written: variances that count for nothing are not
    looked at.
    `out` and `moments` are those of `moments.add_background`, `brief`; a row is unsound as in `moments.first_unsound`.
    """
    mean, precision, bias, bias_precision = values
    n, factors = mean.shape
    kind = table.dtype.type
    whole, stride, triangle = factors // LANES * LANES, stride_of(width), out.size - 2 * width
    short = np.zeros(2 * CHUNK * stride + WIDEST, table.dtype)
    chunk = np.empty(triangle + WIDEST, table.dtype)
    short_, chunk_, out_, table_ = aligned(short), aligned(chunk), pointer(out), pointer(table)
    mean_, precision_ = pointer(mean.reshape(-1)), pointer(precision.reshape(-1))
    zero = splat(kind(0.0))
    squares, rest = splat(0.0), 0.0
    i = 0
    while i < n:
        rows = min(CHUNK, n - i)
        for p in range(rows):
            r, o, z, wz = (i + p) * factors, (i + p) * 2 * width, p * stride, (CHUNK + p) * stride
            s, g = kind(weight[i + p]), growth[i + p]
            off, least = zero, splat(kind(1.0))
            for k in range(0, whole, LANES):
                m, d = load(mean_, r + k), load(precision_, r + k)
                off, least = add(off, add(sub(m, m), sub(d, d))), minimum(least, d)  # 0 of finite numbers, else NaN
                squares = fma(mul(splat(g), widen(m)), widen(m), squares)
                store(table_, o + k, m)
                store(short_, z + k, m)
                store(short_, wz + k, mul(splat(s), m))
            wrong, lowest = hsum(off) + (bias[i + p] - bias[i + p]) + (s - s), bias_precision[i + p]
            if biases:
                wrong += bias_precision[i + p] - bias_precision[i + p]
            store(chunk_, 0, least)
            for k in range(LANES):
                lowest = min(lowest, get(chunk_, k))
            for k in range(whole, width):
                m = kind(0.0)
                if k < factors:
                    m, d = mean[i + p, k], precision[i + p, k]
                    wrong, lowest, rest = wrong + (m - m) + (d - d), min(lowest, d), rest + g * np.float64(m) ** 2
                elif k == factors:
                    m = kind(1.0)
                elif k == factors + 1:
                    m = bias[i + p]
                put(table_, o + k, m)
                put(short_, z + k, m)
                put(short_, wz + k, s * m)
            if not (wrong == 0.0 and lowest > 0.0):
                return i + p
            for k in range(width, span_of(factors)):  # what whole vectors reach
                put(table_, o + k, 0.0)
            put(table_, o + width + factors + 1, s)
            moments[3 + MEAN_SQUARE] += np.float64(bias[i + p]) ** 2
        add_triangle(short_, 0, CHUNK * stride, rows, stride, factors + 2, width, chunk_, 0, True)
        for k in range(0, triangle, LANES):
            store(out_, k, add(load(out_, k), widen(load(chunk_, k))))
        i += rows
    moments[MEAN_SQUARE] += hsum(squares) + rest
    keep(short)
    keep(chunk)
    return -1


@compiled
def select_cold_rows(pairs: Any, others: Any, own: Any, width: int, factors: int, out: Any) -> None:
    """Add the selection statistics of the rows' pairs to `out` (rows, 4), as `rows.select_rows` does."""
    table = others.table
    kind = table.dtype.type
    span = span_of(factors)
    starts, stops = pairs.starts, pairs.stops
    mean, places = np.zeros(span + WIDEST, table.dtype), np.zeros(MOST, np.int64)
    numbers = np.zeros(4 * MOST, table.dtype)
    shown, weight = numbers[:MOST], numbers[MOST : 2 * MOST]
    bias, dot = numbers[2 * MOST : 3 * MOST], numbers[3 * MOST :]
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_, places_, mean_ = pointer(others.parts), pointer(places), aligned(mean)
    shown_, weight_, bias_, dot_ = pointer(shown), pointer(weight), pointer(bias), pointer(dot)
    half, zero = splat(kind(0.5)), splat(kind(0.0))
    n = starts.size
    for i in range(n):
        p, stop = starts[i], stops[i]
        if i + 1 < n:
            ask_ahead(
                indices_, starts[i + 1], min(stops[i + 1], starts[i + 1] + MOST // 2), parts_, table_, width, factors,
                True,
            )
        if p == stop:
            continue
        copy_traits(own_, i * 2 * width, factors, span, mean_, 0)
        b = splat(get(own_, i * 2 * width + factors + 1))
        s0 = splat(0.0)
        s1, s2, s3 = s0, s0, s0
        while p < stop:
            end = min(p + MOST, stop)
            find(indices_, counts_, p, end, parts_, table_, width, factors, places_, shown_, weight_, bias_)
            dots(table_, places_, end - p, mean_, 0, span, dot_)
            for q in range(0, end - p, LANES):
                a = add(add(load(dot_, q), b), load(bias_, q))
                x = maximum(a, sub(zero, a))  # xi = |a|
                e, _ = exp_minus(x, table_)
                value = fnma(half, x, log_sigmoid(e, table_))
                t = widen(load(weight_, q))
                s0, s1 = add(s0, t), fma(t, widen(value), s1)
                s2 = fma(t, widen(mul(x, x)), s2)
                s3 = fma(widen(load(shown_, q)), widen(fma(half, a, value)), s3)
            p = end
        out[i, WEIGHT] += hsum(s0)
        out[i, LOGISTIC] += hsum(s1)
        out[i, SQUARE] += hsum(s2)
        out[i, SHOWN] += hsum(s3)
    keep(mean)
    keep(places)
    keep(numbers)
