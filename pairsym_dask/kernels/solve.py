"""Rows' posteriors from their statistics: a batch of rows at a time, a lane each, turned in registers, solved together.

A batch is as many rows as a wide vector has lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import inlined
from .simd import (
    LANES,
    WIDEST,
    add,
    div,
    fma,
    fnma,
    get,
    load,
    load_turned,
    load_wide,
    mul,
    number,
    put,
    splat,
    splat_wide,
    sqrt,
    store,
    sub,
    wide_lanes,
)

# fmt: off

@inlined
def batch_work_size(size: int, width: int) -> int:
    """Numbers of scratch for a batch: statistics, old tables, right sides, diagonals, three lane vectors, a square."""
    return (size + 4 * width + 3) * WIDEST + LANES * LANES + WIDEST


@inlined
def _turn(source: Any, o: int, pitch: int, n: int, out: Any, at: int, step: int) -> None:
    """Eight rows of `source`, `pitch` apart, as lanes: out[at + step k + lane] = source[o + lane pitch + k], k < n."""
    for k in range(0, n, LANES):
        a, b, c, d, e, f, g, h = load_turned(source, o + k, pitch)
        q = at + k * step
        store(out, q, a)
        store(out, q + step, b)
        store(out, q + 2 * step, c)
        store(out, q + 3 * step, d)
        store(out, q + 4 * step, e)
        store(out, q + 5 * step, f)
        store(out, q + 6 * step, g)
        store(out, q + 7 * step, h)


@inlined
def _turn_statistics(stats: Any, o: int, size: int, base: Any, out: Any, shares: int) -> None:
    """A batch of rows' statistics as lanes, each with its share `out[shares + lane]` of the background `base`."""
    lanes = wide_lanes(out)
    for k in range(0, size, LANES):
        for half in range(0, lanes, LANES):  # a whole cache line while it is at hand
            a, b, c, d, e, f, g, h = load_turned(stats, o + half * size + k, size)
            share = load(out, shares + half)
            q = k * lanes + half
            store(out, q, fma(share, splat(get(base, k)), a))
            store(out, q + lanes, fma(share, splat(get(base, k + 1)), b))
            store(out, q + 2 * lanes, fma(share, splat(get(base, k + 2)), c))
            store(out, q + 3 * lanes, fma(share, splat(get(base, k + 3)), d))
            store(out, q + 4 * lanes, fma(share, splat(get(base, k + 4)), e))
            store(out, q + 5 * lanes, fma(share, splat(get(base, k + 5)), f))
            store(out, q + 6 * lanes, fma(share, splat(get(base, k + 6)), g))
            store(out, q + 7 * lanes, fma(share, splat(get(base, k + 7)), h))


@inlined
def _close_batch(
    work: Any, old: int, lane: int, base: Any, offsets: Any, width: int, factors: int, triangle: int,
    tau_b: Any, biases: bool, right: int, diagonal: int,
) -> None:
    """From a batch of rows' statistics, a lane a row: the new biases, and systems and right-hand sides of the traits.

    `work` begins with the turned statistics; `old`, `lane`, `right` and `diagonal` are places in it: the turned
    tables of the rows; D' s_i and the prior precision, where bias and its precision go; what the solver takes.
    """
    lanes = wide_lanes(work)
    half = mul(splat_wide(number(base, 0.5)), load_wide(work, lane))
    tau = load_wide(work, lane + 2 * lanes)
    b = splat_wide(number(base, 0.0))
    gather = (triangle + width) * lanes  # sum c/2 z
    if biases:
        # rho = G[K,K] + tau_b,  b_i = (h[K] - G[K,:K].m_i) / rho
        at = get(offsets, factors) + factors
        rho = add(load_wide(work, at * lanes), splat_wide(tau_b))
        h = fnma(half, splat_wide(get(base, at)), load_wide(work, gather + factors * lanes))
        h = sub(h, load_wide(work, (at + 1) * lanes))
        for k in range(factors):
            h = fnma(load_wide(work, (get(offsets, k) + factors) * lanes), load_wide(work, old + k * lanes), h)
        b = div(h, rho)
        store(work, lane + lanes, rho)
    store(work, lane, b)
    for k in range(factors):
        row = get(offsets, k)
        # h = sum c/2 z - D' s_i B[K,:]/2 - G[:,b];  right-hand side h[:K] - b_i G[K,:K]
        h = fnma(half, splat_wide(get(base, row + factors)), load_wide(work, gather + k * lanes))
        h = sub(h, load_wide(work, (row + factors + 1) * lanes))
        store(work, right + k * lanes, fnma(b, load_wide(work, (row + factors) * lanes), h))
        # P = G[:K,:K] + diag(d) + tau I
        at = (row + k) * lanes
        p = add(load_wide(work, at), add(load_wide(work, (triangle + k) * lanes), tau))
        store(work, at, p)
        store(work, diagonal + k * lanes, p)


@inlined
def _factor_corner(system: Any, right: int, offsets: Any, j: int, lanes: int) -> Any:
    """Rows j to j + 3 of U in columns j to j + 3, and of U^-T right; the reciprocals of the diagonal, the rest."""
    a, b = (get(offsets, j) + j) * lanes, (get(offsets, j + 1) + j) * lanes
    c, d = (get(offsets, j + 2) + j) * lanes, (get(offsets, j + 3) + j) * lanes
    y = right + j * lanes
    s00, s01 = load_wide(system, a), load_wide(system, a + lanes)
    s02, s03 = load_wide(system, a + 2 * lanes), load_wide(system, a + 3 * lanes)
    s11, s12 = load_wide(system, b + lanes), load_wide(system, b + 2 * lanes)
    s13, s22 = load_wide(system, b + 3 * lanes), load_wide(system, c + 2 * lanes)
    s23, s33 = load_wide(system, c + 3 * lanes), load_wide(system, d + 3 * lanes)
    y0, y1 = load_wide(system, y), load_wide(system, y + lanes)
    y2, y3 = load_wide(system, y + 2 * lanes), load_wide(system, y + 3 * lanes)
    for k in range(j):
        at = (get(offsets, k) + j) * lanes
        u0, u1 = load_wide(system, at), load_wide(system, at + lanes)
        u2, u3 = load_wide(system, at + 2 * lanes), load_wide(system, at + 3 * lanes)
        done = load_wide(system, right + k * lanes)
        s00, s01, s02, s03 = fnma(u0, u0, s00), fnma(u0, u1, s01), fnma(u0, u2, s02), fnma(u0, u3, s03)
        s11, s12, s13 = fnma(u1, u1, s11), fnma(u1, u2, s12), fnma(u1, u3, s13)
        s22, s23, s33 = fnma(u2, u2, s22), fnma(u2, u3, s23), fnma(u3, u3, s33)
        y0, y1, y2, y3 = fnma(u0, done, y0), fnma(u1, done, y1), fnma(u2, done, y2), fnma(u3, done, y3)
    one = splat_wide(number(system, 1.0))
    d0 = div(one, sqrt(s00))
    s01, s02, s03, y0 = mul(s01, d0), mul(s02, d0), mul(s03, d0), mul(y0, d0)
    d1 = div(one, sqrt(fnma(s01, s01, s11)))
    s12, s13, y1 = mul(fnma(s01, s02, s12), d1), mul(fnma(s01, s03, s13), d1), mul(fnma(s01, y0, y1), d1)
    d2 = div(one, sqrt(fnma(s12, s12, fnma(s02, s02, s22))))
    s23, y2 = mul(fnma(s12, s13, fnma(s02, s03, s23)), d2), mul(fnma(s12, y1, fnma(s02, y0, y2)), d2)
    d3 = div(one, sqrt(fnma(s23, s23, fnma(s13, s13, fnma(s03, s03, s33)))))
    y3 = mul(fnma(s23, y2, fnma(s13, y1, fnma(s03, y0, y3))), d3)
    store(system, a, d0)
    store(system, a + lanes, s01)
    store(system, a + 2 * lanes, s02)
    store(system, a + 3 * lanes, s03)
    store(system, b + lanes, d1)
    store(system, b + 2 * lanes, s12)
    store(system, b + 3 * lanes, s13)
    store(system, c + 2 * lanes, d2)
    store(system, c + 3 * lanes, s23)
    store(system, d + 3 * lanes, d3)
    store(system, y, y0)
    store(system, y + lanes, y1)
    store(system, y + 2 * lanes, y2)
    store(system, y + 3 * lanes, y3)
    return d0, d1, d2, d3, s01, s02, s03, s12, s13, s23


@inlined
def _factor_square(system: Any, offsets: Any, j: int, c: int, lanes: int, corner: Any) -> None:
    """Rows j to j + 3 of U in columns c to c + 3: sixteen sums in registers, eight loads for sixteen products."""
    o, p = (get(offsets, j) + c) * lanes, (get(offsets, j + 1) + c) * lanes
    q, r = (get(offsets, j + 2) + c) * lanes, (get(offsets, j + 3) + c) * lanes
    s00, s01 = load_wide(system, o), load_wide(system, o + lanes)
    s02, s03 = load_wide(system, o + 2 * lanes), load_wide(system, o + 3 * lanes)
    s10, s11 = load_wide(system, p), load_wide(system, p + lanes)
    s12, s13 = load_wide(system, p + 2 * lanes), load_wide(system, p + 3 * lanes)
    s20, s21 = load_wide(system, q), load_wide(system, q + lanes)
    s22, s23 = load_wide(system, q + 2 * lanes), load_wide(system, q + 3 * lanes)
    s30, s31 = load_wide(system, r), load_wide(system, r + lanes)
    s32, s33 = load_wide(system, r + 2 * lanes), load_wide(system, r + 3 * lanes)
    for k in range(j):
        row = get(offsets, k)
        at = (row + j) * lanes
        u0, u1 = load_wide(system, at), load_wide(system, at + lanes)
        u2, u3 = load_wide(system, at + 2 * lanes), load_wide(system, at + 3 * lanes)
        at = (row + c) * lanes
        v = load_wide(system, at)
        s00, s10, s20, s30 = fnma(u0, v, s00), fnma(u1, v, s10), fnma(u2, v, s20), fnma(u3, v, s30)
        v = load_wide(system, at + lanes)
        s01, s11, s21, s31 = fnma(u0, v, s01), fnma(u1, v, s11), fnma(u2, v, s21), fnma(u3, v, s31)
        v = load_wide(system, at + 2 * lanes)
        s02, s12, s22, s32 = fnma(u0, v, s02), fnma(u1, v, s12), fnma(u2, v, s22), fnma(u3, v, s32)
        v = load_wide(system, at + 3 * lanes)
        s03, s13, s23, s33 = fnma(u0, v, s03), fnma(u1, v, s13), fnma(u2, v, s23), fnma(u3, v, s33)
    _finish_column(system, o, p, q, r, s00, s10, s20, s30, corner)
    _finish_column(system, o + lanes, p + lanes, q + lanes, r + lanes, s01, s11, s21, s31, corner)
    two, three = 2 * lanes, 3 * lanes
    _finish_column(system, o + two, p + two, q + two, r + two, s02, s12, s22, s32, corner)
    _finish_column(system, o + three, p + three, q + three, r + three, s03, s13, s23, s33, corner)


@inlined
def _finish_column(
    system: Any, o: int, p: int, q: int, r: int, s0: Any, s1: Any, s2: Any, s3: Any, corner: Any
) -> None:
    """Four entries of a column of U, after the rows above have been taken off."""
    d0, d1, d2, d3, u01, u02, u03, u12, u13, u23 = corner
    s0 = mul(s0, d0)
    s1 = mul(fnma(u01, s0, s1), d1)
    s2 = mul(fnma(u12, s1, fnma(u02, s0, s2)), d2)
    s3 = mul(fnma(u23, s2, fnma(u13, s1, fnma(u03, s0, s3))), d3)
    store(system, o, s0)
    store(system, p, s1)
    store(system, q, s2)
    store(system, r, s3)


@inlined
def _back_substitute(system: Any, right: int, offsets: Any, padded: int, lanes: int) -> None:
    """U x = y in place, four rows at a time, each with two sums so that no product waits for the one before."""
    zero = splat_wide(number(system, 0.0))
    for j in range(padded - 4, -1, -4):
        a, b = get(offsets, j) * lanes, get(offsets, j + 1) * lanes
        c, d = get(offsets, j + 2) * lanes, get(offsets, j + 3) * lanes
        y = right + j * lanes
        s0, s1 = load_wide(system, y), load_wide(system, y + lanes)
        s2, s3 = load_wide(system, y + 2 * lanes), load_wide(system, y + 3 * lanes)
        t0, t1, t2, t3 = zero, zero, zero, zero
        for k in range((j + 4) * lanes, padded * lanes, 2 * lanes):
            x = load_wide(system, right + k)
            s0, s1 = fnma(load_wide(system, a + k), x, s0), fnma(load_wide(system, b + k), x, s1)
            s2, s3 = fnma(load_wide(system, c + k), x, s2), fnma(load_wide(system, d + k), x, s3)
            m = k + lanes
            x = load_wide(system, right + m)
            t0, t1 = fnma(load_wide(system, a + m), x, t0), fnma(load_wide(system, b + m), x, t1)
            t2, t3 = fnma(load_wide(system, c + m), x, t2), fnma(load_wide(system, d + m), x, t3)
        s0, s1, s2, s3 = add(s0, t0), add(s1, t1), add(s2, t2), add(s3, t3)
        a, b, c, d = a + j * lanes, b + j * lanes, c + j * lanes, d + j * lanes
        s3 = mul(s3, load_wide(system, d + 3 * lanes))
        s2 = mul(fnma(load_wide(system, c + 3 * lanes), s3, s2), load_wide(system, c + 2 * lanes))
        s1 = fnma(load_wide(system, b + 2 * lanes), s2, fnma(load_wide(system, b + 3 * lanes), s3, s1))
        s1 = mul(s1, load_wide(system, b + lanes))
        s0 = fnma(load_wide(system, a + 2 * lanes), s2, fnma(load_wide(system, a + 3 * lanes), s3, s0))
        s0 = mul(fnma(load_wide(system, a + lanes), s1, s0), load_wide(system, a))
        store(system, y, s0)
        store(system, y + lanes, s1)
        store(system, y + 2 * lanes, s2)
        store(system, y + 3 * lanes, s3)


@inlined
def _solve_batch(system: Any, right: int, offsets: Any, factors: int) -> None:
    """Cholesky of a batch of systems at once, a lane each: U^T U = system in place; the solution at system[right:].

    The diagonal of U keeps reciprocals. Four rows at a time: the systems are made up with rows of the identity,
    for which the packed triangle has room beyond K.
    """
    lanes = wide_lanes(system)
    padded = (factors + 3) // 4 * 4
    zero, one = splat_wide(number(system, 0.0)), splat_wide(number(system, 1.0))
    for j in range(factors, padded):
        for k in range(j):
            store(system, (get(offsets, k) + j) * lanes, zero)
        store(system, (get(offsets, j) + j) * lanes, one)
        store(system, right + j * lanes, zero)
    for j in range(0, padded, 4):
        corner = _factor_corner(system, right, offsets, j, lanes)
        for c in range(j + 4, padded, 4):
            _factor_square(system, offsets, j, c, lanes, corner)
    _back_substitute(system, right, offsets, padded, lanes)


@inlined
def solve_rows(
    stats: Any, o: int, size: int, own: Any, i: int, rows: int, censored: Any, base: Any, offsets: Any, width: int,
    factors: int, star: Any, tau: Any, tau_b: Any, biases: bool, work: Any, mean: Any, precision: Any, bias: Any,
    bias_precision: Any,
) -> None:
    """Close and solve a batch: rows i to i + rows, whose statistics lie `size` apart from `stats[o]` on.

    A whole batch is always computed; what the idle lanes hold is not stored. `work` is scratch.
    """
    lanes = wide_lanes(work)
    old = size * lanes
    right = old + 2 * width * lanes
    diagonal = right + width * lanes
    lane = diagonal + width * lanes
    turned = lane + 3 * lanes
    triangle = size - 2 * width
    for k in range(rows):
        put(work, lane + k, get(censored, i + k))
        put(work, lane + 2 * lanes + k, get(tau, i + k))
        for m in range(0, width, LANES):  # a copy, so that no lane reads beyond the last row
            store(work, right + k * width + m, load(own, (i + k) * 2 * width + m))
    for k in range(rows, lanes):
        put(work, lane + k, 0.0)
        put(work, lane + 2 * lanes + k, 1.0)
        for m in range(0, width, LANES):
            store(work, right + k * width + m, splat(number(work, 0.0)))
    store(work, lane + lanes, mul(splat_wide(star), load_wide(work, lane)))
    _turn_statistics(stats, o, size, base, work, lane + lanes)
    for k in range(0, lanes, LANES):
        _turn(work, right + k * width, width, width, work, old + k, lanes)
    _close_batch(
        work, old, lane, base, offsets, width, factors, triangle, tau_b, biases, right, diagonal
    )
    for k in range(rows):
        put(bias, i + k, get(work, lane + k))
        put(bias_precision, i + k, get(work, lane + lanes + k) if biases else number(work, np.inf))
    _solve_batch(work, right, offsets, factors)
    for k in range(0, rows, LANES):
        _store_turned(work, right + k, lanes, turned, min(LANES, rows - k), i + k, factors, mean)
        _store_turned(work, diagonal + k, lanes, turned, min(LANES, rows - k), i + k, factors, precision)


@inlined
def _store_turned(
    work: Any, values: int, step: int, turned: int, rows: int, i: int, factors: int, out: Any
) -> None:
    """out[i + lane, k] = work[values + step k + lane], for eight lanes or fewer rows."""
    for k in range(0, factors, LANES):
        _turn(work, values + k * step, step, LANES, work, turned, LANES)
        whole = k + LANES <= factors
        for lane in range(rows):
            at = (i + lane) * factors + k
            if whole:
                store(out, at, load(work, turned + lane * LANES))
            else:
                for m in range(factors - k):
                    put(out, at + m, get(work, turned + lane * LANES + m))
