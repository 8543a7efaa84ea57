"""A chunk of one row's pairs: their table rows found, energies, xi and weights, eight pairs at a time.

`work` is a scratch of `pair_work_size` numbers, whose places the constants name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import inlined
from .logistic import exp_minus, two_lambda
from .outer import stride_of
from .simd import (
    LANES,
    WIDEST,
    add,
    fma,
    fnma,
    get,
    is_single,
    load,
    maximum,
    mul,
    number,
    prefetch,
    put,
    reduce8,
    splat,
    sqrt,
    store,
)

# Pairs of one row that are worked on together: enough to amortise, few enough for the first-level cache.
CHUNK = 64
AHEAD = 16  # pairs of the next row whose table rows are asked for ahead
# Places in the scratch of a chunk: counts, background weights, energies, xi (then W), the row's side; then z and W z.
C, T, A, XI, LEFT = 0, CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK

# fmt: off


@inlined
def pair_work_size(width: int) -> int:
    """Numbers of scratch for a chunk of pairs, aligned."""
    return 4 * CHUNK + (3 + 2 * CHUNK) * stride_of(width) + WIDEST


@inlined
def fill_left(own: Any, o: int, factors: int, width: int, cold: bool, work: Any) -> None:
    """The row's side of the energy's moments: [m, b, 1], and unless cold [m^2 + v, 1, 0] and [v, w, 0]."""
    two = LEFT + stride_of(width)
    three = two + stride_of(width)
    for k in range(0, width, LANES):
        store(work, LEFT + k, load(own, o + k))
    put(work, LEFT + factors, get(own, o + factors + 1))
    put(work, LEFT + factors + 1, 1.0)
    if not cold:
        for k in range(0, width, LANES):
            m, v = load(own, o + k), load(own, o + width + k)
            store(work, two + k, fma(m, m, v))
            store(work, three + k, v)
        put(work, two + factors, 1.0)
        put(work, two + factors + 1, 0.0)
        put(work, three + factors + 1, 0.0)


@inlined
def place(indices: Any, p: int, parts: Any, stride: int) -> Any:
    """Where the table row of pair p begins."""
    row: Any = np.int64(get(indices, p)) - get(parts, 0)
    return row * stride + get(parts, 2 + (row >> get(parts, 1)))


@inlined
def take_pairs(
    indices: Any, counts: Any, start: int, stop: int, parts: Any, table: Any, width: int, factors: int,
    places: Any, work: Any,
) -> int:
    """Copy a chunk of a row's pairs into buffers, padded to whole vectors with pairs that weigh nothing."""
    n = stop - start
    for p in range(n):
        o = place(indices, start + p, parts, 2 * width)
        put(places, p, o)
        put(work, C + p, get(counts, start + p))
        put(work, T + p, get(table, o + width + factors + 1))
    padded = (n + LANES - 1) // LANES * LANES
    for p in range(n, padded):
        put(places, p, get(places, 0))
        put(work, C + p, 0.0)
        put(work, T + p, 0.0)
    return padded


@inlined
def ask_ahead(
    indices: Any, start: int, stop: int, parts: Any, table: Any, width: int, factors: int, cold: bool
) -> None:
    """Ask for the table rows of coming pairs while others are worked on; where it is cold, not for variances."""
    for p in range(start, stop):
        o = place(indices, p, parts, 2 * width)
        for k in range(0, width if cold else 2 * width, 16 if is_single(table) else 8):
            prefetch(table, o + k)
        if cold:
            prefetch(table, o + width + factors + 1)


@inlined
def ask_row(
    indices: Any, start: int, stop: int, parts: Any, table: Any, width: int, factors: int, cold: bool
) -> None:
    ask_ahead(indices, start, min(stop, start + AHEAD), parts, table, width, factors, cold)


@inlined
def _moment(m: Any, v: Any, one: Any, two: Any, three: Any, a: Any, x: Any) -> Any:
    """Some factors' part of the energy's mean, and of var = sum (m_i^2 + v_i) v_j + v_i m_j^2."""
    return fma(one, m, a), fma(two, v, fma(three, mul(m, m), x))


@inlined
def _energies(table: Any, width: int, places: Any, padded: int, work: Any) -> None:
    """a_ij = m_i.m_j + b_i + b_j and xi_ij = sqrt(a_ij^2 + var_ij), eight pairs at a time."""
    zero, tiny = splat(number(table, 0.0)), splat(number(table, 1e-20))
    left_two = LEFT + stride_of(width)
    left_three = left_two + stride_of(width)
    for p in range(0, padded, LANES):
        o0, o1, o2, o3 = get(places, p), get(places, p + 1), get(places, p + 2), get(places, p + 3)
        o4, o5, o6, o7 = get(places, p + 4), get(places, p + 5), get(places, p + 6), get(places, p + 7)
        a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
        x0, x1, x2, x3, x4, x5, x6, x7 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(0, width, LANES):
            one, two, three = load(work, LEFT + k), load(work, left_two + k), load(work, left_three + k)
            a0, x0 = _moment(load(table, o0 + k), load(table, o0 + width + k), one, two, three, a0, x0)
            a1, x1 = _moment(load(table, o1 + k), load(table, o1 + width + k), one, two, three, a1, x1)
            a2, x2 = _moment(load(table, o2 + k), load(table, o2 + width + k), one, two, three, a2, x2)
            a3, x3 = _moment(load(table, o3 + k), load(table, o3 + width + k), one, two, three, a3, x3)
            a4, x4 = _moment(load(table, o4 + k), load(table, o4 + width + k), one, two, three, a4, x4)
            a5, x5 = _moment(load(table, o5 + k), load(table, o5 + width + k), one, two, three, a5, x5)
            a6, x6 = _moment(load(table, o6 + k), load(table, o6 + width + k), one, two, three, a6, x6)
            a7, x7 = _moment(load(table, o7 + k), load(table, o7 + width + k), one, two, three, a7, x7)
        energy = reduce8(a0, a1, a2, a3, a4, a5, a6, a7)
        variance = reduce8(x0, x1, x2, x3, x4, x5, x6, x7)
        store(work, A + p, energy)
        # lambda needs xi > 0; a posterior variance is never zero, so this only guards rounding.
        store(work, XI + p, sqrt(maximum(fma(energy, energy, variance), tiny)))


@inlined
def _cold_energies(table: Any, width: int, places: Any, padded: int, work: Any) -> None:
    """The same where no posterior has a variance: xi_ij = |a_ij|, and half of every table row is not looked at."""
    zero, tiny = splat(number(table, 0.0)), splat(number(table, 1e-20))
    for p in range(0, padded, LANES):
        o0, o1, o2, o3 = get(places, p), get(places, p + 1), get(places, p + 2), get(places, p + 3)
        o4, o5, o6, o7 = get(places, p + 4), get(places, p + 5), get(places, p + 6), get(places, p + 7)
        a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(0, width, LANES):
            one = load(work, LEFT + k)
            a0, a1 = fma(one, load(table, o0 + k), a0), fma(one, load(table, o1 + k), a1)
            a2, a3 = fma(one, load(table, o2 + k), a2), fma(one, load(table, o3 + k), a3)
            a4, a5 = fma(one, load(table, o4 + k), a4), fma(one, load(table, o5 + k), a5)
            a6, a7 = fma(one, load(table, o6 + k), a6), fma(one, load(table, o7 + k), a7)
        energy = reduce8(a0, a1, a2, a3, a4, a5, a6, a7)
        store(work, A + p, energy)
        store(work, XI + p, sqrt(maximum(mul(energy, energy), tiny)))


@inlined
def energies(table: Any, width: int, places: Any, padded: int, work: Any, cold: bool) -> None:
    """Energies and xi of a chunk of pairs; `cold` when no posterior has a variance."""
    if cold:
        _cold_energies(table, width, places, padded, work)
    else:
        _energies(table, width, places, padded, work)


@inlined
def weigh(padded: int, amount: Any, two_lambda_star: Any, table: Any, work: Any) -> None:
    """W = 2 lambda_ij (c_ij + D' s_i t_j) - 2 lambda* D' s_i t_j of a chunk of pairs, in the place of xi."""
    for k in range(0, padded, LANES):
        x = load(work, XI + k)
        e, one_minus_e = exp_minus(x, table)
        lam = two_lambda(x, e, one_minus_e, table)
        censored = mul(splat(amount), load(work, T + k))
        w = fnma(splat(two_lambda_star), censored, mul(lam, add(load(work, C + k), censored)))
        store(work, XI + k, w)
