"""Rows' posteriors from their statistics: eight rows at a time, a lane each, turned in registers, solved together."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import inlined
from .simd import (
    LANES,
    add,
    div,
    fma,
    fnma,
    get,
    load,
    mul,
    number,
    put,
    splat,
    sqrt,
    store,
    sub,
    transpose8,
)

# fmt: off

@inlined
def batch_work_size(size: int, width: int) -> int:
    """Numbers of scratch for a batch: statistics, old tables, right sides, diagonals, two lane vectors, a square."""
    return (size + 4 * width + 2 + LANES) * LANES


@inlined
def _turn(source: Any, o: int, pitch: int, n: int, out: Any, at: int) -> None:
    """Eight rows of `source`, `pitch` apart, as lanes: out[at + 8 k + lane] = source[o + lane * pitch + k], k < n."""
    for k in range(0, n, LANES):
        p = o + k
        a, b, c, d, e, f, g, h = transpose8(
            load(source, p), load(source, p + pitch), load(source, p + 2 * pitch), load(source, p + 3 * pitch),
            load(source, p + 4 * pitch), load(source, p + 5 * pitch), load(source, p + 6 * pitch),
            load(source, p + 7 * pitch),
        )
        q = at + k * LANES
        store(out, q, a)
        store(out, q + 8, b)
        store(out, q + 16, c)
        store(out, q + 24, d)
        store(out, q + 32, e)
        store(out, q + 40, f)
        store(out, q + 48, g)
        store(out, q + 56, h)


@inlined
def _turn_statistics(stats: Any, o: int, size: int, base: Any, scale: Any, out: Any) -> None:
    """Eight rows' statistics as lanes, each with its share `scale` of the background `base`."""
    for k in range(0, size, LANES):
        p = o + k
        a, b, c, d, e, f, g, h = transpose8(
            load(stats, p), load(stats, p + size), load(stats, p + 2 * size), load(stats, p + 3 * size),
            load(stats, p + 4 * size), load(stats, p + 5 * size), load(stats, p + 6 * size), load(stats, p + 7 * size),
        )
        q = k * LANES
        store(out, q, fma(scale, splat(get(base, k)), a))
        store(out, q + 8, fma(scale, splat(get(base, k + 1)), b))
        store(out, q + 16, fma(scale, splat(get(base, k + 2)), c))
        store(out, q + 24, fma(scale, splat(get(base, k + 3)), d))
        store(out, q + 32, fma(scale, splat(get(base, k + 4)), e))
        store(out, q + 40, fma(scale, splat(get(base, k + 5)), f))
        store(out, q + 48, fma(scale, splat(get(base, k + 6)), g))
        store(out, q + 56, fma(scale, splat(get(base, k + 7)), h))


@inlined
def _close_batch(
    work: Any, old: int, lane: int, base: Any, offsets: Any, width: int, factors: int, triangle: int,
    tau: Any, tau_b: Any, biases: bool, right: int, diagonal: int,
) -> None:
    """From eight rows' statistics, a lane a row: the new biases, and systems and right-hand sides of the traits.

    `work` begins with the turned statistics; `old`, `lane`, `right` and `diagonal` are places in it: the turned
    tables of the rows; D' s_i, where bias and its precision go; what the solver takes.
    """
    half = mul(splat(number(base, 0.5)), load(work, lane))
    b = splat(number(base, 0.0))
    gather = (triangle + width) * LANES  # sum c/2 z
    if biases:
        # rho = G[K,K] + tau_b,  b_i = (h[K] - G[K,:K].m_i) / rho
        at = get(offsets, factors) + factors
        rho = add(load(work, at * LANES), splat(tau_b))
        h = fnma(half, splat(get(base, at)), load(work, gather + factors * LANES))
        h = sub(h, load(work, (at + 1) * LANES))
        for k in range(factors):
            h = fnma(load(work, (get(offsets, k) + factors) * LANES), load(work, old + k * LANES), h)
        b = div(h, rho)
        store(work, lane + LANES, rho)
    store(work, lane, b)
    for k in range(factors):
        row = get(offsets, k)
        # h = sum c/2 z - D' s_i B[K,:]/2 - G[:,b];  right-hand side h[:K] - b_i G[K,:K]
        h = fnma(half, splat(get(base, row + factors)), load(work, gather + k * LANES))
        h = sub(h, load(work, (row + factors + 1) * LANES))
        store(work, right + k * LANES, fnma(b, load(work, (row + factors) * LANES), h))
        # P = G[:K,:K] + diag(d) + tau I
        at = (row + k) * LANES
        p = add(load(work, at), add(load(work, (triangle + k) * LANES), splat(tau)))
        store(work, at, p)
        store(work, diagonal + k * LANES, p)


@inlined
def _eliminate(system: Any, offsets: Any, j: int, c: int) -> Any:
    """system[j, c] - sum_k<j U[k, j] U[k, c]; four sums at a time, or each product would wait for the one before."""
    s0 = load(system, (get(offsets, j) + c) * LANES)
    s1 = splat(number(system, 0.0))
    s2, s3 = s1, s1
    k = 0
    while k + 4 <= j:
        o, p, q, r = get(offsets, k), get(offsets, k + 1), get(offsets, k + 2), get(offsets, k + 3)
        s0 = fnma(load(system, (o + j) * LANES), load(system, (o + c) * LANES), s0)
        s1 = fnma(load(system, (p + j) * LANES), load(system, (p + c) * LANES), s1)
        s2 = fnma(load(system, (q + j) * LANES), load(system, (q + c) * LANES), s2)
        s3 = fnma(load(system, (r + j) * LANES), load(system, (r + c) * LANES), s3)
        k += 4
    while k < j:
        o = get(offsets, k)
        s0 = fnma(load(system, (o + j) * LANES), load(system, (o + c) * LANES), s0)
        k += 1
    return add(add(s0, s1), add(s2, s3))


@inlined
def _factor_two_rows(system: Any, offsets: Any, j: int, factors: int, first: Any, second: Any, corner: Any) -> None:
    """Rows j and j + 1 of U from column j + 2 on; two rows by four columns share their loads."""
    row, next_row = get(offsets, j) * LANES, get(offsets, j + 1) * LANES
    c = j + 2
    while c + 4 <= factors:
        o, q = row + c * LANES, next_row + c * LANES
        s0, s1, s2, s3 = load(system, o), load(system, o + 8), load(system, o + 16), load(system, o + 24)
        t0, t1, t2, t3 = load(system, q), load(system, q + 8), load(system, q + 16), load(system, q + 24)
        for k in range(j):
            at = get(offsets, k) * LANES
            u, w = load(system, at + j * LANES), load(system, at + j * LANES + 8)
            at += c * LANES
            v = load(system, at)
            s0, t0 = fnma(u, v, s0), fnma(w, v, t0)
            v = load(system, at + 8)
            s1, t1 = fnma(u, v, s1), fnma(w, v, t1)
            v = load(system, at + 16)
            s2, t2 = fnma(u, v, s2), fnma(w, v, t2)
            v = load(system, at + 24)
            s3, t3 = fnma(u, v, s3), fnma(w, v, t3)
        s0, s1, s2, s3 = mul(s0, first), mul(s1, first), mul(s2, first), mul(s3, first)
        store(system, o, s0)
        store(system, o + 8, s1)
        store(system, o + 16, s2)
        store(system, o + 24, s3)
        store(system, q, mul(fnma(corner, s0, t0), second))
        store(system, q + 8, mul(fnma(corner, s1, t1), second))
        store(system, q + 16, mul(fnma(corner, s2, t2), second))
        store(system, q + 24, mul(fnma(corner, s3, t3), second))
        c += 4
    while c < factors:
        s = mul(_eliminate(system, offsets, j, c), first)
        store(system, row + c * LANES, s)
        store(system, next_row + c * LANES, mul(_eliminate(system, offsets, j + 1, c), second))
        c += 1


@inlined
def _solve_batch(system: Any, right: int, offsets: Any, factors: int) -> None:
    """Cholesky of eight systems at once, a lane each: U^T U = system in place; the solution at system[right:].

    The diagonal of U keeps reciprocals.
    """
    one = splat(number(system, 1.0))
    j = 0
    while j < factors:
        o = (get(offsets, j) + j) * LANES
        first = div(one, sqrt(_eliminate(system, offsets, j, j)))
        store(system, o, first)
        if j + 1 < factors:
            corner = mul(_eliminate(system, offsets, j, j + 1), first)
            store(system, o + LANES, corner)
            second = div(one, sqrt(_eliminate(system, offsets, j + 1, j + 1)))
            store(system, (get(offsets, j + 1) + j + 1) * LANES, second)
            _factor_two_rows(system, offsets, j, factors, first, second, corner)
        j += 2
    # U^T y = right, column by column, and U x = y, so that no product waits for the one before.
    for j in range(factors):
        o = get(offsets, j) * LANES
        y = mul(load(system, right + j * LANES), load(system, o + j * LANES))
        store(system, right + j * LANES, y)
        for k in range(j + 1, factors):
            at = right + k * LANES
            store(system, at, fnma(y, load(system, o + k * LANES), load(system, at)))
    for j in range(factors - 1, -1, -1):
        x = mul(load(system, right + j * LANES), load(system, (get(offsets, j) + j) * LANES))
        store(system, right + j * LANES, x)
        for k in range(j):
            at = right + k * LANES
            store(system, at, fnma(x, load(system, (get(offsets, k) + j) * LANES), load(system, at)))


@inlined
def solve_rows(
    stats: Any, o: int, size: int, own: Any, i: int, lanes: int, shown: Any, base: Any, offsets: Any, width: int,
    factors: int, star: Any, tau: Any, tau_b: Any, biases: bool, work: Any, mean: Any, precision: Any, bias: Any,
    bias_precision: Any,
) -> None:
    """Close and solve a batch: rows i to i + lanes, whose statistics lie `size` apart from `stats[o]` on.

    Eight rows are always computed; what the idle lanes hold is not stored. `work` is scratch.
    """
    old = size * LANES
    right = old + 2 * width * LANES
    diagonal = right + width * LANES
    lane = diagonal + width * LANES
    turned = lane + 2 * LANES
    triangle = size - 2 * width
    for k in range(lanes):
        put(work, lane + k, get(shown, i + k))
        for m in range(0, width, LANES):  # a copy, so that no lane reads beyond the last row
            store(work, right + k * width + m, load(own, (i + k) * 2 * width + m))
    for k in range(lanes, LANES):
        put(work, lane + k, 0.0)
        for m in range(0, width, LANES):
            store(work, right + k * width + m, splat(number(work, 0.0)))
    _turn_statistics(stats, o, size, base, mul(splat(star), load(work, lane)), work)
    _turn(work, right, width, width, work, old)
    _close_batch(
        work, old, lane, base, offsets, width, factors, triangle, tau, tau_b, biases, right, diagonal
    )
    for k in range(lanes):
        put(bias, i + k, get(work, lane + k))
        put(bias_precision, i + k, get(work, lane + LANES + k) if biases else number(work, np.inf))
    _solve_batch(work, right, offsets, factors)
    _store_turned(work, right, turned, lanes, i, factors, mean)
    _store_turned(work, diagonal, turned, lanes, i, factors, precision)


@inlined
def _store_turned(work: Any, values: int, turned: int, lanes: int, i: int, factors: int, out: Any) -> None:
    """out[i + lane, k] = work[values + 8 k + lane]."""
    for k in range(0, factors, LANES):
        _turn(work, values + k * LANES, LANES, LANES, work, turned)
        for lane in range(lanes):
            for m in range(min(LANES, factors - k)):
                put(out, (i + lane) * factors + k + m, get(work, turned + lane * LANES + m))
