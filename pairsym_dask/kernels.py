"""The numba kernels: everything that is computed once per observed pair or once per symbol.

A *table* holds the posterior of a block of symbols, one row of `2 * width` numbers a symbol, where
`width = padded_width(K)` is K + 2 rounded up to whole vectors:

    first half    m_1 .. m_K, 1, b, 0 ..        means, one, mean of the bias
    second half   v_1 .. v_K, w, t, 0 ..        variances, variance of the bias, background weight

so that the moments of the energy a_ij and all sums of an update are products of such rows. *Statistics*
of a row are sums over its pairs: the upper triangle of sum W z z^T with z the first half of the other
symbol's row (in panels of eight rows, see `row_offsets`), then sum W v, then sum c/2 z.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

from .simd import (
    LANES,
    add,
    div,
    fma,
    fnma,
    hsum,
    load,
    maximum,
    minimum,
    mul,
    pow2,
    reduce8,
    rint,
    splat,
    sqrt,
    store,
    sub,
    widen,
)

F = TypeVar("F", bound=Callable[..., Any])

# Pairs of one row that are worked on together: enough to amortise, few enough for the first-level cache.
CHUNK = 64

_EXPM1 = np.array([1.0 / float(np.prod(np.arange(1, k + 1, dtype=np.float64))) for k in range(1, 15)])
_ATANH = np.array([1.0 / (2 * k + 1) for k in range(17)])
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453


def compiled(function: F) -> F:
    """The one set of numba options: no GIL, cached, IEEE division; fast arithmetic comes from `simd`."""
    return njit(nogil=True, cache=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def padded_width(factors: int) -> int:
    """K + 2 rounded up to whole vectors."""
    return -(-(factors + 2) // LANES) * LANES


def row_offsets(width: int) -> np.ndarray:
    """Where row r of the packed triangle starts, such that entry (r, c) with c >= r is at `offset[r] + c`."""
    offsets, start = np.zeros(width, np.int64), 0
    for panel in range(0, width, LANES):
        for r in range(panel, panel + LANES):
            offsets[r] = start - panel
            start += width - panel
    return offsets


def triangle_size(width: int) -> int:
    panels = width // LANES
    return LANES * LANES * panels * (panels + 1) // 2


def statistics_size(factors: int) -> int:
    """Numbers a row in packed statistics: triangle, sum W v, sum c/2 z."""
    width = padded_width(factors)
    return triangle_size(width) + 2 * width


@compiled
def exp_minus(x: Any, like: Any) -> Any:
    """exp(-x) and 1 - exp(-x) of a vector x >= 0, the second without cancellation near zero."""
    kind = like.dtype.type
    single = like.itemsize == 4
    x = minimum(x, splat(kind(80.0 if single else 700.0)))
    n = rint(mul(x, splat(kind(_LOG2_E))))
    r = fma(n, splat(kind(_LN_2)), sub(splat(kind(0.0)), x))  # exp(-x) = 2^-n exp(r), |r| <= ln(2)/2
    p = splat(kind(0.0))
    for k in range(6 if single else 12, -1, -1):
        p = fma(p, r, splat(kind(_EXPM1[k])))
    p = mul(p, r)
    scale = pow2(sub(splat(kind(0.0)), n))
    return fma(scale, p, scale), fnma(scale, p, sub(splat(kind(1.0)), scale))


@compiled
def two_lambda(x: Any, e: Any, one_minus_e: Any, like: Any) -> Any:
    """2 lambda(x) = tanh(x/2) / (2x)."""
    kind = like.dtype.type
    return div(one_minus_e, mul(add(splat(kind(1.0)), e), mul(splat(kind(2.0)), x)))


@compiled
def log_sigmoid(e: Any, like: Any) -> Any:
    """log sigma(x) = -log(1 + e) with e = exp(-x) in [0, 1], as -2 atanh(e / (2 + e))."""
    kind = like.dtype.type
    s = div(e, add(splat(kind(2.0)), e))
    square = mul(s, s)
    p = splat(kind(0.0))
    for k in range(7 if like.itemsize == 4 else 16, -1, -1):
        p = fma(p, square, splat(kind(_ATANH[k])))
    return mul(mul(splat(kind(-2.0)), s), p)


@compiled
def fill_table(
    mean: Any, precision: Any, bias: Any, bias_precision: Any, background: Any, width: int, table: Any
) -> None:
    """Write the table rows of a block of symbols into the flat `table`."""
    n, factors = mean.shape
    kind = table.dtype.type
    for i in range(n):
        o = i * 2 * width
        for k in range(factors):
            table[o + k] = mean[i, k]
            table[o + width + k] = kind(1.0) / precision[i, k]
        for k in range(factors, width):
            table[o + k] = kind(0.0)
            table[o + width + k] = kind(0.0)
        table[o + factors] = kind(1.0)
        table[o + factors + 1] = bias[i]
        table[o + width + factors] = kind(1.0) / bias_precision[i]
        table[o + width + factors + 1] = kind(background[i])


@compiled
def _fill_left(own: Any, o: int, factors: int, width: int, left: Any) -> None:
    """The row's side of the energy's moments: [m, b, 1], [m^2 + v, 1, 0] and [v, w, 0]."""
    kind = own.dtype.type
    for k in range(factors):
        m, v = own[o + k], own[o + width + k]
        left[k] = m
        left[width + k] = m * m + v
        left[2 * width + k] = v
    for k in range(factors, width):
        left[k] = kind(0.0)
        left[width + k] = kind(0.0)
        left[2 * width + k] = kind(0.0)
    left[factors] = own[o + factors + 1]
    left[factors + 1] = kind(1.0)
    left[width + factors] = kind(1.0)
    left[2 * width + factors] = own[o + width + factors]


@compiled
def _take_pairs(
    indices: Any, counts: Any, start: int, stop: int, first: int, table: Any, slot: int, stride: int,
    columns: Any, c: Any, t: Any,
) -> int:
    """Copy a chunk of a row's pairs into buffers, padded to whole vectors with pairs that weigh nothing."""
    kind = table.dtype.type
    n = stop - start
    for p in range(n):
        o = (np.int64(indices[start + p]) - first) * stride
        columns[p] = o
        c[p] = kind(counts[start + p])
        t[p] = table[o + slot]
    padded = (n + LANES - 1) // LANES * LANES
    for p in range(n, padded):
        columns[p] = columns[0]
        c[p] = kind(0.0)
        t[p] = kind(0.0)
    return padded


@compiled
def _energies(left: Any, table: Any, width: int, columns: Any, padded: int, a: Any, xi: Any) -> None:
    """a_ij = m_i.m_j + b_i + b_j and xi_ij = sqrt(a_ij^2 + var_ij), eight pairs at a time."""
    kind = table.dtype.type
    zero = splat(kind(0.0))
    for p in range(0, padded, LANES):
        o0, o1, o2, o3 = columns[p], columns[p + 1], columns[p + 2], columns[p + 3]
        o4, o5, o6, o7 = columns[p + 4], columns[p + 5], columns[p + 6], columns[p + 7]
        a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
        x0, x1, x2, x3, x4, x5, x6, x7 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(0, width, LANES):
            one, two, three = load(left, k), load(left, width + k), load(left, 2 * width + k)
            # var = sum (m_i^2 + v_i) v_j + v_i m_j^2
            m = load(table, o0 + k)
            a0, x0 = fma(one, m, a0), fma(two, load(table, o0 + width + k), fma(three, mul(m, m), x0))
            m = load(table, o1 + k)
            a1, x1 = fma(one, m, a1), fma(two, load(table, o1 + width + k), fma(three, mul(m, m), x1))
            m = load(table, o2 + k)
            a2, x2 = fma(one, m, a2), fma(two, load(table, o2 + width + k), fma(three, mul(m, m), x2))
            m = load(table, o3 + k)
            a3, x3 = fma(one, m, a3), fma(two, load(table, o3 + width + k), fma(three, mul(m, m), x3))
            m = load(table, o4 + k)
            a4, x4 = fma(one, m, a4), fma(two, load(table, o4 + width + k), fma(three, mul(m, m), x4))
            m = load(table, o5 + k)
            a5, x5 = fma(one, m, a5), fma(two, load(table, o5 + width + k), fma(three, mul(m, m), x5))
            m = load(table, o6 + k)
            a6, x6 = fma(one, m, a6), fma(two, load(table, o6 + width + k), fma(three, mul(m, m), x6))
            m = load(table, o7 + k)
            a7, x7 = fma(one, m, a7), fma(two, load(table, o7 + width + k), fma(three, mul(m, m), x7))
        energy = reduce8(a0, a1, a2, a3, a4, a5, a6, a7)
        variance = reduce8(x0, x1, x2, x3, x4, x5, x6, x7)
        store(a, p, energy)
        # lambda needs xi > 0; a posterior variance is never zero, so this only guards rounding.
        store(xi, p, sqrt(maximum(fma(energy, energy, variance), splat(kind(1e-20)))))


@compiled
def _panel(z: Any, wz: Any, n: int, width: int, r: int, c: int, vectors: int, out: Any, o: int, pitch: int) -> None:
    """Add sum_p (W z)_p[r:r+4] z_p[c:c+8*vectors] to four rows of the packed triangle, sums held in registers."""
    zero = splat(z.dtype.type(0.0))
    s00, s01, s02, s10, s11, s12 = zero, zero, zero, zero, zero, zero
    s20, s21, s22, s30, s31, s32 = zero, zero, zero, zero, zero, zero
    if vectors == 3:
        for p in range(n):
            b = p * width
            z0, z1, z2 = load(z, b + c), load(z, b + c + 8), load(z, b + c + 16)
            w = splat(wz[b + r])
            s00, s01, s02 = fma(w, z0, s00), fma(w, z1, s01), fma(w, z2, s02)
            w = splat(wz[b + r + 1])
            s10, s11, s12 = fma(w, z0, s10), fma(w, z1, s11), fma(w, z2, s12)
            w = splat(wz[b + r + 2])
            s20, s21, s22 = fma(w, z0, s20), fma(w, z1, s21), fma(w, z2, s22)
            w = splat(wz[b + r + 3])
            s30, s31, s32 = fma(w, z0, s30), fma(w, z1, s31), fma(w, z2, s32)
    elif vectors == 2:
        for p in range(n):
            b = p * width
            z0, z1 = load(z, b + c), load(z, b + c + 8)
            w = splat(wz[b + r])
            s00, s01 = fma(w, z0, s00), fma(w, z1, s01)
            w = splat(wz[b + r + 1])
            s10, s11 = fma(w, z0, s10), fma(w, z1, s11)
            w = splat(wz[b + r + 2])
            s20, s21 = fma(w, z0, s20), fma(w, z1, s21)
            w = splat(wz[b + r + 3])
            s30, s31 = fma(w, z0, s30), fma(w, z1, s31)
    else:
        for p in range(n):
            b = p * width
            z0 = load(z, b + c)
            s00 = fma(splat(wz[b + r]), z0, s00)
            s10 = fma(splat(wz[b + r + 1]), z0, s10)
            s20 = fma(splat(wz[b + r + 2]), z0, s20)
            s30 = fma(splat(wz[b + r + 3]), z0, s30)
    o1, o2, o3 = o + pitch, o + 2 * pitch, o + 3 * pitch
    store(out, o, add(load(out, o), s00))
    store(out, o1, add(load(out, o1), s10))
    store(out, o2, add(load(out, o2), s20))
    store(out, o3, add(load(out, o3), s30))
    if vectors >= 2:
        store(out, o + 8, add(load(out, o + 8), s01))
        store(out, o1 + 8, add(load(out, o1 + 8), s11))
        store(out, o2 + 8, add(load(out, o2 + 8), s21))
        store(out, o3 + 8, add(load(out, o3 + 8), s31))
    if vectors == 3:
        store(out, o + 16, add(load(out, o + 16), s02))
        store(out, o1 + 16, add(load(out, o1 + 16), s12))
        store(out, o2 + 16, add(load(out, o2 + 16), s22))
        store(out, o3 + 16, add(load(out, o3 + 16), s32))


@compiled
def _add_triangle(z: Any, wz: Any, n: int, used: int, width: int, out: Any, o: int) -> None:
    """Add sum_p (W z)_p z_p^T to the packed triangle at `out[o:]`; rows from `used` on are left alone."""
    start = o
    for panel in range(0, width, LANES):
        pitch = width - panel
        for half in range(0, LANES, 4):
            r = panel + half
            if r < used:
                c = panel
                while c < width:
                    vectors = min(3, (width - c) // LANES)
                    _panel(z, wz, n, width, r, c, vectors, out, start + half * pitch + c - panel, pitch)
                    c += vectors * LANES
        start += LANES * pitch


@compiled
def _add_pairs(
    table: Any, width: int, factors: int, columns: Any, padded: int, w: Any, c: Any, z: Any, wz: Any,
    triangle: int, out: Any, o: int,
) -> None:
    """Add a chunk's sums W z z^T, W v and c/2 z to the statistics at `out[o:]`."""
    half = splat(table.dtype.type(0.5))
    zero = splat(table.dtype.type(0.0))
    for k in range(0, width, LANES):
        d, h = zero, zero
        for p in range(padded):
            m = load(table, columns[p] + k)
            weight = splat(w[p])
            store(z, p * width + k, m)
            store(wz, p * width + k, mul(weight, m))
            d = fma(weight, load(table, columns[p] + width + k), d)
            h = fma(splat(c[p]), m, h)
        at = o + triangle + k
        store(out, at, add(load(out, at), d))
        store(out, at + width, fma(half, h, load(out, at + width)))
    _add_triangle(z, wz, padded, factors + 2, width, out, o)


@compiled
def _add_row(
    start: int, stop: int, indices: Any, counts: Any, first: int, left: Any, table: Any, width: int, factors: int,
    shown: Any, two_lambda_star: Any, columns: Any, c: Any, t: Any, a: Any, xi: Any, z: Any, wz: Any,
    triangle: int, out: Any, o: int,
) -> None:
    """Add the statistics of one row's pairs; `shown` is D' s_i."""
    p = start
    while p < stop:
        end = min(p + CHUNK, stop)
        padded = _take_pairs(
            indices, counts, p, end, first, table, width + factors + 1, 2 * width, columns, c, t
        )
        _energies(left, table, width, columns, padded, a, xi)
        for k in range(0, padded, LANES):
            x = load(xi, k)
            e, one_minus_e = exp_minus(x, table)
            lam = two_lambda(x, e, one_minus_e, table)
            censored = mul(splat(shown), load(t, k))
            # W = 2 lambda_ij (c_ij + D' s_i t_j) - 2 lambda* D' s_i t_j
            store(xi, k, fnma(splat(two_lambda_star), censored, mul(lam, add(load(c, k), censored))))
        _add_pairs(table, width, factors, columns, padded, xi, c, z, wz, triangle, out, o)
        p = end


@compiled
def _close_row(
    stats: Any, o: int, own: Any, own_o: int, shown: Any, base: Any, offsets: Any, width: int, factors: int,
    triangle: int, tau: Any, tau_b: Any, biases: bool, lane: int, system: Any, right: Any, bias: Any,
    bias_precision: Any, i: int,
) -> None:
    """From complete statistics: the new bias, and the trait system as one lane of a batch."""
    kind = stats.dtype.type
    half = kind(0.5) * shown
    b = kind(0.0)
    if biases:
        # rho = G[K,K] + tau_b,  b_i = (h[K] - G[K,:K].m_i) / rho
        rho = stats[o + offsets[factors] + factors] + tau_b
        h = (
            stats[o + triangle + width + factors]
            - half * base[offsets[factors] + factors]
            - stats[o + offsets[factors] + factors + 1]
        )
        for k in range(factors):
            h -= stats[o + offsets[k] + factors] * own[own_o + k]
        b = h / rho
        bias_precision[i] = rho
    else:
        bias_precision[i] = kind(np.inf)
    bias[i] = b
    for k in range(factors):
        row = o + offsets[k]
        # h = sum c/2 z - D' s_i B[K,:]/2 - G[:,b];  right-hand side h[:K] - b_i G[K,:K]
        right[k * LANES + lane] = (
            stats[o + triangle + width + k]
            - half * base[offsets[k] + factors]
            - stats[row + factors + 1]
            - b * stats[row + factors]
        )
        at = offsets[k] * LANES + lane
        for j in range(k, factors):
            system[at + j * LANES] = stats[row + j]
        system[at + k * LANES] += stats[o + triangle + k] + tau


@compiled
def _solve_batch(system: Any, right: Any, offsets: Any, factors: int) -> None:
    """Cholesky of eight systems at once, a lane each: U^T U = system in place, then right := solution."""
    one = splat(system.dtype.type(1.0))
    for j in range(factors):
        row_j = offsets[j]
        s = load(system, (row_j + j) * LANES)
        for k in range(j):
            u = load(system, (offsets[k] + j) * LANES)
            s = fnma(u, u, s)
        inverse = div(one, sqrt(s))
        store(system, (row_j + j) * LANES, inverse)  # the diagonal keeps the reciprocal
        c = j + 1
        while c + 4 <= factors:
            o = (row_j + c) * LANES
            s0, s1, s2, s3 = load(system, o), load(system, o + 8), load(system, o + 16), load(system, o + 24)
            for k in range(j):
                u = load(system, (offsets[k] + j) * LANES)
                at = (offsets[k] + c) * LANES
                s0, s1 = fnma(u, load(system, at), s0), fnma(u, load(system, at + 8), s1)
                s2, s3 = fnma(u, load(system, at + 16), s2), fnma(u, load(system, at + 24), s3)
            store(system, o, mul(s0, inverse))
            store(system, o + 8, mul(s1, inverse))
            store(system, o + 16, mul(s2, inverse))
            store(system, o + 24, mul(s3, inverse))
            c += 4
        while c < factors:
            o = (row_j + c) * LANES
            s0 = load(system, o)
            for k in range(j):
                s0 = fnma(load(system, (offsets[k] + j) * LANES), load(system, (offsets[k] + c) * LANES), s0)
            store(system, o, mul(s0, inverse))
            c += 1
        # Forward substitution rides along: U^T y = right.
        s = load(right, j * LANES)
        for k in range(j):
            s = fnma(load(system, (offsets[k] + j) * LANES), load(right, k * LANES), s)
        store(right, j * LANES, mul(s, inverse))
    for j in range(factors - 1, -1, -1):
        s = load(right, j * LANES)
        o = offsets[j] * LANES
        for k in range(j + 1, factors):
            s = fnma(load(system, o + k * LANES), load(right, k * LANES), s)
        store(right, j * LANES, mul(s, load(system, o + j * LANES)))


@compiled
def _store_batch(
    system_diagonal: Any, right: Any, lanes: int, i: int, factors: int, mean: Any, precision: Any
) -> None:
    for lane in range(lanes):
        for k in range(factors):
            mean[i + lane, k] = right[k * LANES + lane]
            precision[i + lane, k] = system_diagonal[k * LANES + lane]


@compiled
def _solve_lanes(
    system: Any, right: Any, diagonal: Any, offsets: Any, factors: int, lanes: int, i: int, mean: Any, precision: Any
) -> None:
    """Solve the first `lanes` systems of a batch and store means and precisions from row i on."""
    kind = system.dtype.type
    for lane in range(lanes, LANES):  # idle lanes get the identity
        for k in range(factors):
            right[k * LANES + lane] = kind(0.0)
            for j in range(k, factors):
                system[(offsets[k] + j) * LANES + lane] = kind(1.0) if j == k else kind(0.0)
    for k in range(factors):
        store(diagonal, k * LANES, load(system, (offsets[k] + k) * LANES))
    _solve_batch(system, right, offsets, factors)
    _store_batch(diagonal, right, lanes, i, factors, mean, precision)


@compiled
def update_rows(
    starts: Any, stops: Any, indices: Any, counts: Any, first: int, own: Any, table: Any, offsets: Any, factors: int,
    shown: Any, two_lambda_star: float, base: Any, tau: float, tau_b: float, biases: bool,
    mean: Any, precision: Any, bias: Any, bias_precision: Any,
) -> None:
    """Update complete rows: accumulate and solve in cache.

    `own` and `table` are flat tables of the rows and of the columns from column `first` on; row i has the
    pairs `starts[i]:stops[i]`; `shown` is D' s_i; `base` the packed background of the other side.
    """
    kind = table.dtype.type
    width = offsets.size
    triangle = base.size - 2 * width
    star, tau_, tau_b_ = kind(two_lambda_star), kind(tau), kind(tau_b)
    left = np.empty(3 * width, table.dtype)
    stats = np.empty(base.size, table.dtype)
    columns = np.empty(CHUNK, np.int64)
    c, t = np.empty(CHUNK, table.dtype), np.empty(CHUNK, table.dtype)
    a, xi = np.empty(CHUNK, table.dtype), np.empty(CHUNK, table.dtype)
    z, wz = np.empty(CHUNK * width, table.dtype), np.empty(CHUNK * width, table.dtype)
    system = np.empty(triangle * LANES, table.dtype)
    right, diagonal = np.empty(factors * LANES, table.dtype), np.empty(factors * LANES, table.dtype)
    n = starts.size
    lane = 0
    for i in range(n):
        s = kind(shown[i])
        scale = splat(star * s)
        for k in range(0, base.size, LANES):
            store(stats, k, mul(scale, load(base, k)))
        _fill_left(own, i * 2 * width, factors, width, left)
        _add_row(
            starts[i], stops[i], indices, counts, first, left, table, width, factors, s, star,
            columns, c, t, a, xi, z, wz, triangle, stats, 0,
        )
        _close_row(
            stats, 0, own, i * 2 * width, s, base, offsets, width, factors, triangle, tau_, tau_b_, biases,
            lane, system, right, bias, bias_precision, i,
        )
        lane += 1
        if lane == LANES or i == n - 1:
            _solve_lanes(system, right, diagonal, offsets, factors, lane, i + 1 - lane, mean, precision)
            lane = 0


@compiled
def add_statistics(
    starts: Any, stops: Any, indices: Any, counts: Any, first: int, own: Any, table: Any, width: int, factors: int,
    shown: Any, two_lambda_star: float, out: Any,
) -> None:
    """Add the statistics of some of the rows' pairs to `out` (rows, statistics_size), without the background."""
    kind = table.dtype.type
    size = out.shape[1]
    flat = out.reshape(-1)
    triangle = size - 2 * width
    star = kind(two_lambda_star)
    left = np.empty(3 * width, table.dtype)
    columns = np.empty(CHUNK, np.int64)
    c, t = np.empty(CHUNK, table.dtype), np.empty(CHUNK, table.dtype)
    a, xi = np.empty(CHUNK, table.dtype), np.empty(CHUNK, table.dtype)
    z, wz = np.empty(CHUNK * width, table.dtype), np.empty(CHUNK * width, table.dtype)
    for i in range(starts.size):
        if starts[i] < stops[i]:
            _fill_left(own, i * 2 * width, factors, width, left)
            _add_row(
                starts[i], stops[i], indices, counts, first, left, table, width, factors, kind(shown[i]), star,
                columns, c, t, a, xi, z, wz, triangle, flat, i * size,
            )


@compiled
def solve_statistics(
    stats: Any, own: Any, offsets: Any, factors: int, shown: Any, two_lambda_star: float, base: Any,
    tau: float, tau_b: float, biases: bool, mean: Any, precision: Any, bias: Any, bias_precision: Any,
) -> None:
    """Update rows from gathered statistics (which are changed: the background is added to them)."""
    kind = stats.dtype.type
    width = offsets.size
    size = stats.shape[1]
    flat = stats.reshape(-1)
    triangle = size - 2 * width
    system = np.empty(triangle * LANES, stats.dtype)
    right, diagonal = np.empty(factors * LANES, stats.dtype), np.empty(factors * LANES, stats.dtype)
    star, tau_, tau_b_ = kind(two_lambda_star), kind(tau), kind(tau_b)
    n = stats.shape[0]
    lane = 0
    for i in range(n):
        s = kind(shown[i])
        scale = splat(star * s)
        for k in range(0, size, LANES):
            store(flat, i * size + k, fma(scale, load(base, k), load(flat, i * size + k)))
        _close_row(
            flat, i * size, own, i * 2 * width, s, base, offsets, width, factors, triangle, tau_, tau_b_, biases,
            lane, system, right, bias, bias_precision, i,
        )
        lane += 1
        if lane == LANES or i == n - 1:
            _solve_lanes(system, right, diagonal, offsets, factors, lane, i + 1 - lane, mean, precision)
            lane = 0


@compiled
def select_rows(
    starts: Any, stops: Any, indices: Any, counts: Any, first: int, own: Any, table: Any, width: int, factors: int,
    out: Any,
) -> None:
    """Add the selection statistics of the rows' pairs to `out` (rows, 4), float64.

    S0 = sum t_j,  S1 = sum t_j (log sigma(xi) - xi/2),  S2 = sum t_j xi^2,
    and the shown part of the bound, sum c_ij (log sigma(xi) - xi/2 + a/2).
    """
    kind = table.dtype.type
    left = np.empty(3 * width, table.dtype)
    columns = np.empty(CHUNK, np.int64)
    c, t = np.empty(CHUNK, table.dtype), np.empty(CHUNK, table.dtype)
    a, xi = np.empty(CHUNK, table.dtype), np.empty(CHUNK, table.dtype)
    half = splat(kind(0.5))
    for i in range(starts.size):
        p, stop = starts[i], stops[i]
        if p == stop:
            continue
        _fill_left(own, i * 2 * width, factors, width, left)
        s0 = splat(0.0)
        s1, s2, shown = s0, s0, s0
        while p < stop:
            end = min(p + CHUNK, stop)
            padded = _take_pairs(
                indices, counts, p, end, first, table, width + factors + 1, 2 * width, columns, c, t
            )
            _energies(left, table, width, columns, padded, a, xi)
            for k in range(0, padded, LANES):
                x = load(xi, k)
                e, _ = exp_minus(x, table)
                value = fnma(half, x, log_sigmoid(e, table))
                weight = widen(load(t, k))
                s0 = add(s0, weight)
                s1 = fma(weight, widen(value), s1)
                s2 = fma(weight, widen(mul(x, x)), s2)
                shown = fma(widen(load(c, k)), widen(fma(half, load(a, k), value)), shown)
            p = end
        out[i, 0] += hsum(s0)
        out[i, 1] += hsum(s1)
        out[i, 2] += hsum(s2)
        out[i, 3] += hsum(shown)


@compiled
def advance(cursors: Any, stops: Any, indices: Any, limit: int, out: Any) -> None:
    """For every row the first pair at or after its cursor whose column is not below `limit`."""
    for i in range(cursors.size):
        p, stop = cursors[i], stops[i]
        while p < stop and indices[p] < limit:
            p += 1
        out[i] = p


@compiled
def add_background(table: Any, n: int, weight: Any, factors: int, out: Any) -> None:
    """Add sum_i s_i z_i z_i^T and sum_i s_i v_i of a table's rows to the packed float64 background `out`."""
    width = padded_width_compiled(factors)
    triangle = out.size - 2 * width
    z, wz = np.empty(CHUNK * width), np.empty(CHUNK * width)
    i = 0
    while i < n:
        rows = min(CHUNK, n - i)
        for p in range(rows):
            o = (i + p) * 2 * width
            s = weight[i + p]
            for k in range(width):
                m = np.float64(table[o + k])
                z[p * width + k] = m
                wz[p * width + k] = s * m
            for k in range(factors + 1):
                out[triangle + k] += s * np.float64(table[o + width + k])
        _add_triangle(z, wz, rows, factors + 2, width, out, 0)
        i += rows


@compiled
def padded_width_compiled(factors: int) -> int:
    return (factors + 2 + LANES - 1) // LANES * LANES
