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

from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .functions import exp_minus, log_sigmoid, two_lambda
from .simd import (
    LANES,
    add,
    fma,
    fnma,
    get,
    hsum,
    is_single,
    keep,
    load,
    maximum,
    mul,
    number,
    pointer,
    prefetch,
    put,
    reduce8,
    splat,
    sqrt,
    store,
    widen,
)
from .solve import batch_work_size, solve_rows

# Pairs of one row that are worked on together: enough to amortise, few enough for the first-level cache.
CHUNK = 64
AHEAD = 16  # pairs of the next row whose table rows are asked for ahead
# Places in the scratch of a chunk: counts, background weights, energies, xi (then W), the row's side; then z and W z.
C, T, A, XI, LEFT = 0, CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK

# fmt: off


@inlined
def pair_work_size(width: int) -> int:
    """Numbers of scratch for a chunk of pairs."""
    return 4 * CHUNK + 3 * width + 2 * CHUNK * width


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


@inlined
def _fill_left(own: Any, o: int, factors: int, width: int, work: Any, left: int) -> None:
    """The row's side of the energy's moments: [m, b, 1], [m^2 + v, 1, 0] and [v, w, 0]."""
    for k in range(0, width, LANES):
        m, v = load(own, o + k), load(own, o + width + k)
        store(work, left + k, m)
        store(work, left + width + k, fma(m, m, v))
        store(work, left + 2 * width + k, v)
    put(work, left + factors, get(own, o + factors + 1))
    put(work, left + factors + 1, 1.0)
    put(work, left + width + factors, 1.0)
    put(work, left + width + factors + 1, 0.0)
    put(work, left + 2 * width + factors + 1, 0.0)


@inlined
def _take_pairs(
    indices: Any, counts: Any, start: int, stop: int, first: int, table: Any, width: int, factors: int,
    places: Any, work: Any,
) -> int:
    """Copy a chunk of a row's pairs into buffers, padded to whole vectors with pairs that weigh nothing."""
    n = stop - start
    for p in range(n):
        o: Any = (np.int64(get(indices, start + p)) - first) * 2 * width
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
def _ask_ahead(indices: Any, start: int, stop: int, first: int, table: Any, stride: int) -> None:
    """Ask for the table rows of the next row's pairs while this row is worked on."""
    for p in range(start, min(stop, start + AHEAD)):
        o: Any = (np.int64(get(indices, p)) - first) * stride
        for k in range(0, stride, 16 if is_single(table) else 8):
            prefetch(table, o + k)


@inlined
def _energies(table: Any, width: int, places: Any, padded: int, work: Any) -> None:
    """a_ij = m_i.m_j + b_i + b_j and xi_ij = sqrt(a_ij^2 + var_ij), eight pairs at a time."""
    zero, tiny = splat(number(table, 0.0)), splat(number(table, 1e-20))
    for p in range(0, padded, LANES):
        o0, o1, o2, o3 = get(places, p), get(places, p + 1), get(places, p + 2), get(places, p + 3)
        o4, o5, o6, o7 = get(places, p + 4), get(places, p + 5), get(places, p + 6), get(places, p + 7)
        a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
        x0, x1, x2, x3, x4, x5, x6, x7 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(0, width, LANES):
            one, two, three = load(work, LEFT + k), load(work, LEFT + width + k), load(work, LEFT + 2 * width + k)
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
        store(work, A + p, energy)
        # lambda needs xi > 0; a posterior variance is never zero, so this only guards rounding.
        store(work, XI + p, sqrt(maximum(fma(energy, energy, variance), tiny)))


@inlined
def _panel(
    work: Any, z: int, wz: int, n: int, width: int, r: int, c: int, vectors: int, out: Any, o: int, pitch: int
) -> None:
    """Add sum_p (W z)_p[r:r+4] z_p[c:c+8*vectors] to four rows of the packed triangle, sums held in registers."""
    zero = splat(number(work, 0.0))
    s00, s01, s02, s10, s11, s12 = zero, zero, zero, zero, zero, zero
    s20, s21, s22, s30, s31, s32 = zero, zero, zero, zero, zero, zero
    if vectors == 3:
        for p in range(n):
            b = p * width
            z0, z1, z2 = load(work, z + b + c), load(work, z + b + c + 8), load(work, z + b + c + 16)
            w = splat(get(work, wz + b + r))
            s00, s01, s02 = fma(w, z0, s00), fma(w, z1, s01), fma(w, z2, s02)
            w = splat(get(work, wz + b + r + 1))
            s10, s11, s12 = fma(w, z0, s10), fma(w, z1, s11), fma(w, z2, s12)
            w = splat(get(work, wz + b + r + 2))
            s20, s21, s22 = fma(w, z0, s20), fma(w, z1, s21), fma(w, z2, s22)
            w = splat(get(work, wz + b + r + 3))
            s30, s31, s32 = fma(w, z0, s30), fma(w, z1, s31), fma(w, z2, s32)
    elif vectors == 2:
        for p in range(n):
            b = p * width
            z0, z1 = load(work, z + b + c), load(work, z + b + c + 8)
            w = splat(get(work, wz + b + r))
            s00, s01 = fma(w, z0, s00), fma(w, z1, s01)
            w = splat(get(work, wz + b + r + 1))
            s10, s11 = fma(w, z0, s10), fma(w, z1, s11)
            w = splat(get(work, wz + b + r + 2))
            s20, s21 = fma(w, z0, s20), fma(w, z1, s21)
            w = splat(get(work, wz + b + r + 3))
            s30, s31 = fma(w, z0, s30), fma(w, z1, s31)
    else:
        for p in range(n):
            b = p * width
            z0 = load(work, z + b + c)
            s00 = fma(splat(get(work, wz + b + r)), z0, s00)
            s10 = fma(splat(get(work, wz + b + r + 1)), z0, s10)
            s20 = fma(splat(get(work, wz + b + r + 2)), z0, s20)
            s30 = fma(splat(get(work, wz + b + r + 3)), z0, s30)
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


@inlined
def _add_triangle(work: Any, z: int, wz: int, n: int, used: int, width: int, out: Any, o: int) -> None:
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
                    _panel(work, z, wz, n, width, r, c, vectors, out, start + half * pitch + c - panel, pitch)
                    c += vectors * LANES
        start += LANES * pitch


@inlined
def _add_pairs(
    table: Any, width: int, factors: int, places: Any, n: int, work: Any, triangle: int, out: Any, o: int
) -> None:
    """Add a chunk's sums W z z^T, W v and c/2 z to the statistics at `out[o:]`; W is where xi was."""
    half, zero = splat(number(table, 0.5)), splat(number(table, 0.0))
    z = LEFT + 3 * width
    wz = z + CHUNK * width
    for k in range(0, width, LANES):
        d, h = zero, zero
        for p in range(n):
            at = get(places, p) + k
            m = load(table, at)
            weight = splat(get(work, XI + p))
            store(work, z + p * width + k, m)
            store(work, wz + p * width + k, mul(weight, m))
            d = fma(weight, load(table, at + width), d)
            h = fma(splat(get(work, C + p)), m, h)
        at = o + triangle + k
        store(out, at, add(load(out, at), d))
        store(out, at + width, fma(half, h, load(out, at + width)))
    _add_triangle(work, z, wz, n, factors + 2, width, out, o)


@inlined
def _add_row(
    start: int, stop: int, indices: Any, counts: Any, first: int, own: Any, i: int, table: Any, width: int,
    factors: int, shown: Any, two_lambda_star: Any, places: Any, work: Any, size: int, out: Any, o: int,
) -> None:
    """Add the statistics of one row's pairs; `shown` is D' s_i."""
    if start < stop:
        _fill_left(own, i * 2 * width, factors, width, work, LEFT)
    p = start
    while p < stop:
        end = min(p + CHUNK, stop)
        padded = _take_pairs(indices, counts, p, end, first, table, width, factors, places, work)
        _energies(table, width, places, padded, work)
        for k in range(0, padded, LANES):
            x = load(work, XI + k)
            e, one_minus_e = exp_minus(x, table)
            lam = two_lambda(x, e, one_minus_e, table)
            censored = mul(splat(shown), load(work, T + k))
            # W = 2 lambda_ij (c_ij + D' s_i t_j) - 2 lambda* D' s_i t_j
            w = fnma(splat(two_lambda_star), censored, mul(lam, add(load(work, C + k), censored)))
            store(work, XI + k, w)
        _add_pairs(table, width, factors, places, end - p, work, size - 2 * width, out, o)
        p = end


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
    width, size = offsets.size, base.size
    star = kind(two_lambda_star)
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    stats = np.zeros(LANES * size, table.dtype)
    work = np.zeros(batch_work_size(size, width), table.dtype)
    n = starts.size
    indices_, counts_, own_, table_ = pointer(indices), pointer(counts), pointer(own), pointer(table)
    scratch_, places_, stats_, work_ = pointer(scratch), pointer(places), pointer(stats), pointer(work)
    for i in range(0, n, LANES):
        lanes = min(LANES, n - i)
        for lane in range(lanes):
            for k in range(lane * size, (lane + 1) * size, LANES):
                store(stats_, k, splat(kind(0.0)))
            if i + lane + 1 < n:
                _ask_ahead(indices_, starts[i + lane + 1], stops[i + lane + 1], first, table_, 2 * width)
            _add_row(
                starts[i + lane], stops[i + lane], indices_, counts_, first, own_, i + lane, table_, width, factors,
                kind(shown[i + lane]), star, places_, scratch_, size, stats_, lane * size,
            )
        solve_rows(
            stats_, 0, size, own_, i, lanes, pointer(shown), pointer(base), pointer(offsets), width, factors, star,
            kind(tau), kind(tau_b), biases, work_, pointer(mean), pointer(precision), pointer(bias),
            pointer(bias_precision),
        )
    keep(scratch)
    keep(places)
    keep(stats)
    keep(work)


@compiled
def add_statistics(
    starts: Any, stops: Any, indices: Any, counts: Any, first: int, own: Any, table: Any, width: int, factors: int,
    shown: Any, two_lambda_star: float, out: Any,
) -> None:
    """Add the statistics of some of the rows' pairs to `out` (rows, statistics_size), without the background."""
    kind = table.dtype.type
    n, size = out.shape
    star = kind(two_lambda_star)
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(indices), pointer(counts), pointer(own), pointer(table)
    scratch_, places_, out_ = pointer(scratch), pointer(places), pointer(out.reshape(-1))
    for i in range(n):
        if i + 1 < n:
            _ask_ahead(indices_, starts[i + 1], stops[i + 1], first, table_, 2 * width)
        _add_row(
            starts[i], stops[i], indices_, counts_, first, own_, i, table_, width, factors, kind(shown[i]), star,
            places_, scratch_, size, out_, i * size,
        )
    keep(scratch)
    keep(places)


@compiled
def solve_statistics(
    stats: Any, own: Any, offsets: Any, factors: int, shown: Any, two_lambda_star: float, base: Any,
    tau: float, tau_b: float, biases: bool, mean: Any, precision: Any, bias: Any, bias_precision: Any,
) -> None:
    """Update rows from gathered statistics (rows, statistics_size)."""
    kind = stats.dtype.type
    width = offsets.size
    n, size = stats.shape
    work = np.zeros(batch_work_size(size, width), stats.dtype)
    flat = stats.reshape(-1)
    last = np.zeros(LANES * size, stats.dtype)  # the rows of a batch that is not full, so that no lane reads beyond
    whole = n // LANES * LANES
    last[: (n - whole) * size] = flat[whole * size :]
    for i in range(0, n, LANES):
        solve_rows(
            pointer(flat) if i < whole else pointer(last), i * size if i < whole else 0, size, pointer(own), i,
            min(LANES, n - i), pointer(shown), pointer(base), pointer(offsets), width, factors,
            kind(two_lambda_star), kind(tau), kind(tau_b), biases, pointer(work), pointer(mean), pointer(precision),
            pointer(bias), pointer(bias_precision),
        )


@compiled
def select_rows(
    starts: Any, stops: Any, indices: Any, counts: Any, first: int, own: Any, table: Any, width: int, factors: int,
    out: Any,
) -> None:
    """Add the selection statistics of the rows' pairs to `out` (rows, 4), float64.

    S0 = sum t_j,  S1 = sum t_j (log sigma(xi) - xi/2),  S2 = sum t_j xi^2,
    and the shown part of the bound, sum c_ij (log sigma(xi) - xi/2 + a/2).
    """
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(indices), pointer(counts), pointer(own), pointer(table)
    work, places_ = pointer(scratch), pointer(places)
    half = splat(number(table_, 0.5))
    n = starts.size
    for i in range(n):
        p, stop = starts[i], stops[i]
        if i + 1 < n:
            _ask_ahead(indices_, starts[i + 1], stops[i + 1], first, table_, 2 * width)
        if p == stop:
            continue
        _fill_left(own_, i * 2 * width, factors, width, work, LEFT)
        s0 = splat(0.0)
        s1, s2, shown = s0, s0, s0
        while p < stop:
            end = min(p + CHUNK, stop)
            padded = _take_pairs(indices_, counts_, p, end, first, table_, width, factors, places_, work)
            _energies(table_, width, places_, padded, work)
            for k in range(0, padded, LANES):
                x = load(work, XI + k)
                e, _ = exp_minus(x, table_)
                value = fnma(half, x, log_sigmoid(e, table_))
                weight = widen(load(work, T + k))
                s0 = add(s0, weight)
                s1 = fma(weight, widen(value), s1)
                s2 = fma(weight, widen(mul(x, x)), s2)
                shown = fma(widen(load(work, C + k)), widen(fma(half, load(work, A + k), value)), shown)
            p = end
        out[i, 0] += hsum(s0)
        out[i, 1] += hsum(s1)
        out[i, 2] += hsum(s2)
        out[i, 3] += hsum(shown)
    keep(scratch)
    keep(places)


@compiled
def advance(cursors: Any, stops: Any, indices: Any, limit: int, out: Any) -> None:
    """For every row the first pair at or after its cursor whose column is not below `limit`."""
    for i in range(cursors.size):
        p, stop = cursors[i], stops[i]
        while p < stop and indices[p] < limit:
            p += 1
        out[i] = p


@compiled
def add_background(table: Any, n: int, weight: Any, factors: int, out: Any, moments: Any) -> None:
    """Add what a table's rows send to the background and to the bound.

    `out` (packed, float64) gets sum_i s_i z_i z_i^T and sum_i s_i v_i; `moments` gets sum log v, sum m^2 and sum v
    of the traits, then the same of the biases. A number that is not finite anywhere makes the moments not finite.
    """
    width = table.size // (2 * n)
    triangle = out.size - 2 * width
    work = np.empty(2 * CHUNK * width)
    table_, work_, out_ = pointer(table), pointer(work), pointer(out)
    i = 0
    while i < n:
        rows = min(CHUNK, n - i)
        for p in range(rows):
            o = (i + p) * 2 * width
            s = weight[i + p]
            weight_ = splat(s)
            for k in range(0, width, LANES):
                m_ = widen(load(table_, o + k))
                store(work_, p * width + k, m_)
                store(work_, (CHUNK + p) * width + k, mul(weight_, m_))
                at = triangle + k  # slots beyond the variances gather what nobody reads
                store(out_, at, fma(weight_, widen(load(table_, o + width + k)), load(out_, at)))
            squares, variances, logs, product = 0.0, 0.0, 0.0, 1.0
            for k in range(factors):
                m, v = np.float64(table[o + k]), np.float64(table[o + width + k])
                squares += m * m
                variances += v
                product *= v
                if k % 4 == 3:  # few logarithms, without leaving the exponent's range
                    logs += np.log(product)
                    product = 1.0
            b, w = np.float64(table[o + factors + 1]), np.float64(table[o + width + factors])
            moments[0] += logs + np.log(product)
            moments[1] += squares
            moments[2] += variances
            moments[3] += np.log(w) if w > 0.0 else 0.0  # no variance: no biases
            moments[4] += b * b
            moments[5] += w
        _add_triangle(work_, 0, CHUNK * width, rows, factors + 2, width, out_, 0)
        i += rows
    keep(work)
    out[triangle + factors + 1 : triangle + width] = 0.0


@compiled
def background_moments(table: Any, n: int, factors: int, square: Any, d: Any, out: Any) -> None:
    """sum_j t_j E[a_ij^2] and sum_j t_j E[a_ij] over all j, for every row i of a table: out (n, 2), float64.

    `square` is the other side's B (width, width) and `d` its sum t v (width), both float64: with A = [m_i, b_i, 1],
    sum_j t_j E[a_ij^2] = A^T B A + sum_k d_k (m_ik^2 + v_ik) + sum_k v_ik B_kk + w_i + sum_j t_j w_j.
    """
    width = d.size
    # What v_ik is multiplied with, and what m_ik^2 is.
    diagonal = np.zeros(width)
    for k in range(factors):
        diagonal[k] = d[k] + square[k * width + k]
    spread = d.copy()
    spread[factors:] = 0.0
    left = np.zeros(width)
    table_, left_, square_ = pointer(table), pointer(left), pointer(square)
    diagonal_, spread_ = pointer(diagonal), pointer(spread)
    for i in range(n):
        o = i * 2 * width
        total, mean = splat(0.0), splat(0.0)
        for k in range(0, width, LANES):
            m, v = widen(load(table_, o + k)), widen(load(table_, o + width + k))
            store(left_, k, m)
            total = fma(load(diagonal_, k), v, total)
            total = fma(mul(load(spread_, k), m), m, total)
        put(left_, factors, get(left_, factors + 1))
        put(left_, factors + 1, 1.0)
        for r in range(0, width, LANES):
            y = splat(0.0)
            for k in range(factors + 2):
                y = fma(splat(get(left_, k)), load(square_, k * width + r), y)
            side = load(left_, r)
            total = fma(y, side, total)
            mean = fma(side, load(square_, factors * width + r), mean)
        out[i, 0] = hsum(total) + np.float64(table[o + width + factors]) + d[factors]
        out[i, 1] = hsum(mean)
    keep(left)
    keep(diagonal)
    keep(spread)
