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
from .logistic import exp_minus, log_sigmoid, two_lambda
from .outer import add_outer_narrow, add_outer_one, add_outer_three, add_outer_two
from .simd import (
    LANES,
    WIDEST,
    add,
    aligned,
    exponent,
    fma,
    fnma,
    get,
    hsum,
    is_single,
    keep,
    load,
    load_turned,
    mantissa,
    maximum,
    minimum,
    mul,
    number,
    pointer,
    prefetch,
    put,
    reduce8,
    splat,
    sqrt,
    store,
    where_negative,
    wide_lanes,
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
def _stride(width: int) -> int:
    """Numbers from one row of a chunk's scratch to the next: whole cache lines."""
    return (width + WIDEST - 1) // WIDEST * WIDEST


@inlined
def pair_work_size(width: int) -> int:
    """Numbers of scratch for a chunk of pairs, aligned."""
    return 4 * CHUNK + (3 + 2 * CHUNK) * _stride(width) + WIDEST


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
def _fill_left(own: Any, o: int, factors: int, width: int, work: Any) -> None:
    """The row's side of the energy's moments: [m, b, 1], [m^2 + v, 1, 0] and [v, w, 0]."""
    two = LEFT + _stride(width)
    three = two + _stride(width)
    for k in range(0, width, LANES):
        m, v = load(own, o + k), load(own, o + width + k)
        store(work, LEFT + k, m)
        store(work, two + k, fma(m, m, v))
        store(work, three + k, v)
    put(work, LEFT + factors, get(own, o + factors + 1))
    put(work, LEFT + factors + 1, 1.0)
    put(work, two + factors, 1.0)
    put(work, two + factors + 1, 0.0)
    put(work, three + factors + 1, 0.0)


@inlined
def _place(indices: Any, p: int, parts: Any, stride: int) -> Any:
    """Where the table row of pair p begins."""
    row: Any = np.int64(get(indices, p)) - get(parts, 0)
    return row * stride + get(parts, 2 + (row >> get(parts, 1)))


@inlined
def _take_pairs(
    indices: Any, counts: Any, start: int, stop: int, parts: Any, table: Any, width: int, factors: int,
    places: Any, work: Any,
) -> int:
    """Copy a chunk of a row's pairs into buffers, padded to whole vectors with pairs that weigh nothing."""
    n = stop - start
    for p in range(n):
        o = _place(indices, start + p, parts, 2 * width)
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
def _ask_ahead(indices: Any, start: int, stop: int, parts: Any, table: Any, stride: int) -> None:
    """Ask for the table rows of coming pairs while others are worked on."""
    for p in range(start, stop):
        o = _place(indices, p, parts, stride)
        for k in range(0, stride, 16 if is_single(table) else 8):
            prefetch(table, o + k)


@inlined
def _ask_row(indices: Any, start: int, stop: int, parts: Any, table: Any, stride: int) -> None:
    _ask_ahead(indices, start, min(stop, start + AHEAD), parts, table, stride)


@inlined
def _moment(m: Any, v: Any, one: Any, two: Any, three: Any, a: Any, x: Any) -> Any:
    """Some factors' part of the energy's mean, and of var = sum (m_i^2 + v_i) v_j + v_i m_j^2."""
    return fma(one, m, a), fma(two, v, fma(three, mul(m, m), x))


@inlined
def _energies(table: Any, width: int, places: Any, padded: int, work: Any) -> None:
    """a_ij = m_i.m_j + b_i + b_j and xi_ij = sqrt(a_ij^2 + var_ij), eight pairs at a time."""
    zero, tiny = splat(number(table, 0.0)), splat(number(table, 1e-20))
    left_two = LEFT + _stride(width)
    left_three = left_two + _stride(width)
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
def _add_triangle(
    work: Any, z: int, wz: int, n: int, stride: int, used: int, width: int, out: Any, o: int, fresh: bool
) -> None:
    """Add sum_p (W z)_p z_p^T to the packed triangle at `out[o:]`; panels from row `used` on are left alone."""
    wide = wide_lanes(work)
    for panel in range(0, used, LANES):
        pitch = width - panel
        c = panel
        while c + 3 * wide <= width:
            add_outer_three(work, z + c, wz + panel, n, stride, out, o + c - panel, pitch, fresh)
            c += 3 * wide
        if c + 2 * wide <= width:
            add_outer_two(work, z + c, wz + panel, n, stride, out, o + c - panel, pitch, fresh)
            c += 2 * wide
        elif c + wide <= width:
            add_outer_one(work, z + c, wz + panel, n, stride, out, o + c - panel, pitch, fresh)
            c += wide
        if c < width:
            add_outer_narrow(work, z + c, wz + panel, n, stride, out, o + c - panel, pitch, fresh)
        o += LANES * pitch


@inlined
def _add_pairs(
    table: Any, width: int, factors: int, places: Any, n: int, work: Any, triangle: int, out: Any, o: int,
    fresh: bool,
) -> None:
    """Add a chunk's sums W z z^T, W v, c/2 z to the statistics at `out[o:]`, or begin with them; W is where xi was."""
    half, zero = splat(number(table, 0.5)), splat(number(table, 0.0))
    stride = _stride(width)
    z = LEFT + 3 * stride
    wz = z + CHUNK * stride
    for k in range(0, width, LANES):
        d, h = zero, zero
        for p in range(n):
            at = get(places, p) + k
            m = load(table, at)
            weight = splat(get(work, XI + p))
            store(work, z + p * stride + k, m)
            store(work, wz + p * stride + k, mul(weight, m))
            d = fma(weight, load(table, at + width), d)
            h = fma(splat(get(work, C + p)), m, h)
        at = o + triangle + k
        store(out, at, d if fresh else add(load(out, at), d))
        store(out, at + width, mul(half, h) if fresh else fma(half, h, load(out, at + width)))
    _add_triangle(work, z, wz, n, stride, factors + 2, width, out, o, fresh)


@inlined
def _add_row(
    start: int, stop: int, indices: Any, counts: Any, parts: Any, own: Any, i: int, table: Any, width: int,
    factors: int, shown: Any, two_lambda_star: Any, places: Any, work: Any, size: int, out: Any, o: int,
    fresh: bool,
) -> None:
    """Add the statistics of one row's pairs, or begin with them; `shown` is D' s_i."""
    if start < stop:
        _fill_left(own, i * 2 * width, factors, width, work)
    p = start
    while p < stop:
        end = min(p + CHUNK, stop)
        padded = _take_pairs(indices, counts, p, end, parts, table, width, factors, places, work)
        _energies(table, width, places, padded, work)
        _ask_ahead(indices, end, min(stop, end + CHUNK), parts, table, 2 * width)
        for k in range(0, padded, LANES):
            x = load(work, XI + k)
            e, one_minus_e = exp_minus(x, table)
            lam = two_lambda(x, e, one_minus_e, table)
            censored = mul(splat(shown), load(work, T + k))
            # W = 2 lambda_ij (c_ij + D' s_i t_j) - 2 lambda* D' s_i t_j
            w = fnma(splat(two_lambda_star), censored, mul(lam, add(load(work, C + k), censored)))
            store(work, XI + k, w)
        _add_pairs(table, width, factors, places, end - p, work, size - 2 * width, out, o, fresh)
        fresh = False
        p = end


@compiled
def update_rows(
    starts: Any, stops: Any, indices: Any, counts: Any, parts: Any, own: Any, table: Any, offsets: Any, factors: int,
    shown: Any, two_lambda_star: float, base: Any, tau: float, tau_b: float, biases: bool,
    mean: Any, precision: Any, bias: Any, bias_precision: Any,
) -> None:
    """Update complete rows: accumulate and solve in cache.

    `own` and `table` are flat tables of the rows and of the columns, of which `parts` says where they lie (see
    `packing.side_by_side`); row i has the pairs `starts[i]:stops[i]`; `shown` is D' s_i; `base` the packed background
    of the other side.
    """
    kind = table.dtype.type
    width, size = offsets.size, base.size
    star = kind(two_lambda_star)
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    batch = wide_lanes(pointer(table))
    stats = np.zeros(batch * size + WIDEST, table.dtype)
    work = np.zeros(batch_work_size(size, width), table.dtype)
    n = starts.size
    indices_, counts_, own_, table_ = pointer(indices), pointer(counts), pointer(own), pointer(table)
    parts_ = pointer(parts)
    scratch_, places_, stats_, work_ = aligned(scratch), pointer(places), aligned(stats), aligned(work)
    for i in range(0, n, batch):
        rows = min(batch, n - i)
        for lane in range(rows):
            if starts[i + lane] == stops[i + lane]:
                for k in range(lane * size, (lane + 1) * size, LANES):
                    store(stats_, k, splat(kind(0.0)))
            if i + lane + 1 < n:
                _ask_row(indices_, starts[i + lane + 1], stops[i + lane + 1], parts_, table_, 2 * width)
            _add_row(
                starts[i + lane], stops[i + lane], indices_, counts_, parts_, own_, i + lane, table_, width, factors,
                kind(shown[i + lane]), star, places_, scratch_, size, stats_, lane * size, True,
            )
        solve_rows(
            stats_, 0, size, own_, i, rows, pointer(shown), pointer(base), pointer(offsets), width, factors, star,
            kind(tau), kind(tau_b), biases, work_, pointer(mean), pointer(precision), pointer(bias),
            pointer(bias_precision),
        )
    keep(scratch)
    keep(places)
    keep(stats)
    keep(work)


@compiled
def add_statistics(
    starts: Any, stops: Any, indices: Any, counts: Any, parts: Any, own: Any, table: Any, width: int, factors: int,
    shown: Any, two_lambda_star: float, out: Any,
) -> None:
    """Add the statistics of some of the rows' pairs to `out` (rows, statistics_size), without the background."""
    kind = table.dtype.type
    n, size = out.shape
    star = kind(two_lambda_star)
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(indices), pointer(counts), pointer(own), pointer(table)
    parts_ = pointer(parts)
    scratch_, places_, out_ = aligned(scratch), pointer(places), pointer(out.reshape(-1))
    for i in range(n):
        if i + 1 < n:
            _ask_row(indices_, starts[i + 1], stops[i + 1], parts_, table_, 2 * width)
        _add_row(
            starts[i], stops[i], indices_, counts_, parts_, own_, i, table_, width, factors, kind(shown[i]), star,
            places_, scratch_, size, out_, i * size, False,
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
    batch = wide_lanes(pointer(flat))
    last = np.zeros(batch * size, stats.dtype)  # the rows of a batch that is not full, so that no lane reads beyond
    whole = n // batch * batch
    last[: (n - whole) * size] = flat[whole * size :]
    for i in range(0, n, batch):
        solve_rows(
            pointer(flat) if i < whole else pointer(last), i * size if i < whole else 0, size, pointer(own), i,
            min(batch, n - i), pointer(shown), pointer(base), pointer(offsets), width, factors,
            kind(two_lambda_star), kind(tau), kind(tau_b), biases, aligned(work), pointer(mean), pointer(precision),
            pointer(bias), pointer(bias_precision),
        )


@compiled
def select_rows(
    starts: Any, stops: Any, indices: Any, counts: Any, parts: Any, own: Any, table: Any, width: int, factors: int,
    out: Any,
) -> None:
    """Add the selection statistics of the rows' pairs to `out` (rows, 4), float64.

    S0 = sum t_j,  S1 = sum t_j (log sigma(xi) - xi/2),  S2 = sum t_j xi^2,
    and the shown part of the bound, sum c_ij (log sigma(xi) - xi/2 + a/2).
    """
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(indices), pointer(counts), pointer(own), pointer(table)
    parts_ = pointer(parts)
    work, places_ = aligned(scratch), pointer(places)
    half = splat(number(table_, 0.5))
    n = starts.size
    for i in range(n):
        p, stop = starts[i], stops[i]
        if i + 1 < n:
            _ask_row(indices_, starts[i + 1], stops[i + 1], parts_, table_, 2 * width)
        if p == stop:
            continue
        _fill_left(own_, i * 2 * width, factors, width, work)
        s0 = splat(0.0)
        s1, s2, shown = s0, s0, s0
        while p < stop:
            end = min(p + CHUNK, stop)
            padded = _take_pairs(indices_, counts_, p, end, parts_, table_, width, factors, places_, work)
            _ask_ahead(indices_, end, min(stop, end + CHUNK), parts_, table_, 2 * width)
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
        if p < stop and indices[stop - 1] < limit:
            p = stop
        while p < stop and indices[p] < limit:
            p += 1
        out[i] = p


@compiled
def add_background(table: Any, n: int, weight: Any, factors: int, out: Any, moments: Any) -> None:
    """Add what n rows of a table with `weight` s send to the background and to the bound.

    `out` (packed, float64) gets sum_i s_i z_i z_i^T and sum_i s_i v_i; `moments` gets sum log v, sum m^2 and sum v
    of the traits, then the same of the biases. A number that is not finite anywhere makes the moments not finite.
    """
    width = table.size // (2 * n)
    triangle = out.size - 2 * width
    stride = _stride(width)
    work = np.empty(2 * CHUNK * stride + WIDEST)
    trait = np.ones(width)  # below zero where a factor is
    trait[:factors] = -1.0
    table_, work_, out_, trait_ = pointer(table), aligned(work), pointer(out), pointer(trait)
    zero, one = splat(0.0), splat(1.0)
    squares, variances, least = zero, zero, one
    product, powers = one, zero  # of all variances: product 2^powers
    i = 0
    while i < n:
        rows = min(CHUNK, n - i)
        for p in range(rows):
            o = (i + p) * 2 * width
            s = splat(weight[i + p])
            for k in range(0, width, LANES):
                m, v, mine = widen(load(table_, o + k)), widen(load(table_, o + width + k)), load(trait_, k)
                store(work_, p * stride + k, m)
                store(work_, (CHUNK + p) * stride + k, mul(s, m))
                at = triangle + k  # slots beyond the variances gather what nobody reads
                store(out_, at, fma(s, v, load(out_, at)))
                m = where_negative(mine, m, zero)
                squares = fma(m, m, squares)
                variances = add(variances, where_negative(mine, v, zero))
                v = where_negative(mine, v, one)
                least = minimum(least, v)
                product, powers = mul(product, mantissa(v)), add(powers, exponent(v))
            product, powers = mantissa(product), add(powers, exponent(product))
            b, w = np.float64(table[o + factors + 1]), np.float64(table[o + width + factors])
            moments[3] += np.log(w) if w > 0.0 else 0.0  # no variance: no biases
            moments[4] += b * b
            moments[5] += w
        _add_triangle(work_, 0, CHUNK * stride, rows, stride, factors + 2, width, out_, 0, False)
        i += rows
    store(work_, 0, product)
    store(work_, LANES, least)
    logs = hsum(powers) * np.log(2.0)
    for k in range(LANES):
        logs += np.log(get(work_, k))
        if not get(work_, LANES + k) > 0.0:
            logs = -np.inf
    moments[0] += logs
    moments[1] += hsum(squares)
    moments[2] += hsum(variances)
    keep(work)
    keep(trait)
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
