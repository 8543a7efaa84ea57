"""Kernels over all rows of a table, whatever their pairs: backgrounds, their moments, and the Gaussian sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .outer import add_triangle, stride_of
from .simd import (
    LANES,
    WIDEST,
    add,
    aligned,
    exponent,
    fma,
    get,
    hsum,
    keep,
    load,
    load_turned,
    mantissa,
    minimum,
    mul,
    number,
    pointer,
    splat,
    store,
    where_negative,
    widen,
)

CHUNK = 64  # rows worked on together
# Places of the sums of `add_background`: of log v, g m^2 and g v of the traits, then of log w, b^2 and w of the biases.
LOG_VARIANCE, MEAN_SQUARE, VARIANCE = range(3)

# fmt: off


@compiled
def first_unsound(mean: Any, precision: Any, bias: Any, bias_precision: Any, biases: bool, weight: Any) -> int:
    """The first row with a number that is not finite, or a precision that is not above zero; -1 where all are sound.

    Without biases their precisions are infinite.
    """
    for i in range(weight.size):
        off = (bias[i] - bias[i]) + mean.dtype.type(weight[i] - weight[i])  # 0 of a finite number, else NaN
        if biases:
            off += bias_precision[i] - bias_precision[i]
        least = bias_precision[i]
        for k in range(mean.shape[1]):
            off += (mean[i, k] - mean[i, k]) + (precision[i, k] - precision[i, k])
            least = min(least, precision[i, k])
        if not (off == 0.0 and least > 0.0):
            return i
    return -1


@compiled
def add_background(
    table: Any, n: int, weight: Any, growth: Any, factors: int, brief: bool, out: Any, moments: Any
) -> None:
    """Add what n rows of a table with `weight` s send to the background and to the bound.

    `out` (packed, float64) gets sum_i s_i z_i z_i^T and sum_i s_i v_i; `moments` gets sum log v, sum g m^2 and sum g v
    of the traits with g = `growth` of the row's prior precision, then sum log w, sum b^2 and sum w of the biases. A
    number that is not finite anywhere makes the moments not finite; a variance of zero makes the first one -inf.
    Where it is `brief`, products of a chunk of rows are added up as numbers of the table's type, chunks as float64.
    """
    width = table.size // (2 * n)
    triangle = out.size - 2 * width
    stride = stride_of(width)
    work = np.empty(2 * CHUNK * stride + WIDEST)
    trait = np.ones(width)  # below zero where a factor is
    trait[:factors] = -1.0
    table_, work_, out_, trait_ = pointer(table), aligned(work), pointer(out), pointer(trait)
    short = np.empty(2 * CHUNK * stride + WIDEST if brief else 0, table.dtype)
    chunk = np.empty(triangle + WIDEST if brief else 0, table.dtype)
    short_, chunk_ = aligned(short), aligned(chunk)
    zero, one = splat(0.0), splat(1.0)
    squares, variances, least = zero, zero, one
    product, powers = one, zero  # of all variances: product 2^powers
    i = 0
    while i < n:
        rows = min(CHUNK, n - i)
        for p in range(rows):
            o = (i + p) * 2 * width
            s, g = splat(weight[i + p]), splat(growth[i + p])
            for k in range(0, width, LANES):
                m, v, mine = widen(load(table_, o + k)), widen(load(table_, o + width + k)), load(trait_, k)
                if brief:
                    x = load(table_, o + k)
                    store(short_, p * stride + k, x)
                    store(short_, (CHUNK + p) * stride + k, mul(splat(number(table_, weight[i + p])), x))
                else:
                    store(work_, p * stride + k, m)
                    store(work_, (CHUNK + p) * stride + k, mul(s, m))
                at = triangle + k  # slots beyond the variances gather what nobody reads
                store(out_, at, fma(s, v, load(out_, at)))
                m = where_negative(mine, m, zero)
                squares = fma(mul(g, m), m, squares)
                variances = fma(g, where_negative(mine, v, zero), variances)
                v = where_negative(mine, v, one)
                least = minimum(least, v)
                product, powers = mul(product, mantissa(v)), add(powers, exponent(v))
            product, powers = mantissa(product), add(powers, exponent(product))
            b, w = np.float64(table[o + factors + 1]), np.float64(table[o + width + factors])
            moments[3 + LOG_VARIANCE] += np.log(w) if w > 0.0 else 0.0  # no variance: no biases
            moments[3 + MEAN_SQUARE] += b * b
            moments[3 + VARIANCE] += w
        if brief:
            add_triangle(short_, 0, CHUNK * stride, rows, stride, factors + 2, width, chunk_, 0, True)
            for k in range(0, triangle, LANES):
                store(out_, k, add(load(out_, k), widen(load(chunk_, k))))
        else:
            add_triangle(work_, 0, CHUNK * stride, rows, stride, factors + 2, width, out_, 0, False)
        i += rows
    store(work_, 0, product)
    store(work_, LANES, least)
    logs = hsum(powers) * np.log(2.0)
    for k in range(LANES):
        if get(work_, LANES + k) > 0.0:
            logs += np.log(get(work_, k))
        else:
            logs = -np.inf
    moments[LOG_VARIANCE] += logs
    moments[MEAN_SQUARE] += hsum(squares)
    moments[VARIANCE] += hsum(variances)
    keep(work)
    keep(trait)
    keep(short)
    keep(chunk)
    out[triangle + factors + 1 : triangle + width] = 0.0


@compiled
def background_moments(table: Any, n: int, factors: int, square: Any, d: Any, out: Any) -> None:
    """sum_j t_j E[a_ij^2] and sum_j t_j E[a_ij] over all j, for every row i of a table: out (n, 2), float64.

    `square` is the other side's B (width, width) and `d` its sum t v (width), both float64: with A = [m_i, b_i, 1],
    sum_j t_j E[a_ij^2] = A^T B A + sum_k d_k (m_ik^2 + v_ik) + sum_k v_ik B_kk + w_i + sum_j t_j w_j.
    Eight rows at a time, a lane each.
    """
    width = d.size
    # A^T B A from the upper triangle: eight rows of B by columns, so that eight sums run side by side.
    upper = np.zeros(width * width)
    for panel in range(0, width, LANES):
        for c in range(panel, width):
            for r in range(panel, min(c + 1, panel + LANES)):
                upper[panel * width + c * LANES + r - panel] = square[r * width + c] * (1.0 if r == c else 2.0)
    diagonal = np.zeros(width)  # what v_ik is multiplied with
    for k in range(factors):
        diagonal[k] = d[k] + square[k * width + k]
    last = np.zeros(LANES * 2 * width, table.dtype)  # rows that are no whole batch
    whole = n // LANES * LANES
    last[: (n - whole) * 2 * width] = table[whole * 2 * width : n * 2 * width]
    work = np.empty(2 * width * LANES + WIDEST)
    work_, upper_ = aligned(work), pointer(upper)
    for i in range(0, n, LANES):
        source, o = (pointer(table), i * 2 * width) if i < whole else (pointer(last), 0)
        for k in range(0, 2 * width, LANES):
            t0, t1, t2, t3, t4, t5, t6, t7 = load_turned(source, o + k, 2 * width)
            at = k * LANES
            store(work_, at, widen(t0))
            store(work_, at + 8, widen(t1))
            store(work_, at + 16, widen(t2))
            store(work_, at + 24, widen(t3))
            store(work_, at + 32, widen(t4))
            store(work_, at + 40, widen(t5))
            store(work_, at + 48, widen(t6))
            store(work_, at + 56, widen(t7))
        total = add(load(work_, (width + factors) * LANES), splat(d[factors]))
        for k in range(factors):
            m = load(work_, k * LANES)
            total = fma(splat(diagonal[k]), load(work_, (width + k) * LANES), total)
            total = fma(mul(splat(d[k]), m), m, total)
        one, b = load(work_, factors * LANES), load(work_, (factors + 1) * LANES)
        store(work_, factors * LANES, b)
        store(work_, (factors + 1) * LANES, one)
        mean = splat(0.0)
        for k in range(factors + 2):
            mean = fma(load(work_, k * LANES), splat(square[factors * width + k]), mean)
        for panel in range(0, width, LANES):
            total = _panel_form(work_, upper_, panel, width, total)
        store(work_, 0, total)
        store(work_, LANES, mean)
        for k in range(min(LANES, n - i)):
            out[i + k, 0], out[i + k, 1] = get(work_, k), get(work_, LANES + k)
    keep(work)
    keep(upper)
    keep(last)


@inlined
def _panel_form(left: Any, upper: Any, panel: int, width: int, total: Any) -> Any:
    """total + sum_r A_r sum_c>=r B_rc A_c over eight rows r of a form."""
    y0 = splat(0.0)
    y1, y2, y3, y4, y5, y6, y7 = y0, y0, y0, y0, y0, y0, y0
    for c in range(panel, width):
        at = panel * width + c * LANES
        a = load(left, c * LANES)
        y0, y1 = fma(splat(get(upper, at)), a, y0), fma(splat(get(upper, at + 1)), a, y1)
        y2, y3 = fma(splat(get(upper, at + 2)), a, y2), fma(splat(get(upper, at + 3)), a, y3)
        y4, y5 = fma(splat(get(upper, at + 4)), a, y4), fma(splat(get(upper, at + 5)), a, y5)
        y6, y7 = fma(splat(get(upper, at + 6)), a, y6), fma(splat(get(upper, at + 7)), a, y7)
    at = panel * LANES
    total = fma(load(left, at), y0, fma(load(left, at + 8), y1, total))
    total = fma(load(left, at + 16), y2, fma(load(left, at + 24), y3, total))
    total = fma(load(left, at + 32), y4, fma(load(left, at + 40), y5, total))
    return fma(load(left, at + 48), y6, fma(load(left, at + 56), y7, total))
