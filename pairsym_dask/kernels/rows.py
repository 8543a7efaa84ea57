"""The numba kernels of a sweep: what is computed once per observed pair, and the updates of rows.

A *table* holds the posterior of a block of symbols, one row of `2 * width` numbers a symbol, where
`width = padded_width(K)` is K + 2 rounded up to whole vectors:

    first half    m_1 .. m_K, 1, b, 0 ..        means, one, mean of the bias
    second half   v_1 .. v_K, w, t, 0 ..        variances, variance of the bias, background weight

so that the moments of the energy a_ij and all sums of an update are products of such rows. *Statistics*
of a row are sums over its pairs: the upper triangle of sum W z z^T with z the first half of the other
symbol's row (in panels of eight rows, see `row_offsets`), then sum W v, then sum c/2 z.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .accelerate import compiled, inlined
from .chunks import CHUNK, LEFT, XI, A, C, T, ask_ahead, ask_row, energies, fill_left, pair_work_size, take_pairs, weigh
from .logistic import exp_minus, log_sigmoid
from .outer import add_triangle, stride_of
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
    mul,
    number,
    pointer,
    splat,
    store,
    wide_lanes,
    widen,
)
from .solve import batch_work_size, solve_rows

# Columns of the selection statistics: sum t_j, sum t_j (log sigma(xi) - xi/2), sum t_j xi^2, and the shown part of the
# bound, sum c_ij (log sigma(xi) - xi/2 + a/2).
WEIGHT, LOGISTIC, SQUARE, SHOWN = range(4)


class Pairs(NamedTuple):
    """Pairs of some rows: row i has those from `starts[i]` to `stops[i]`, in the order of their columns."""

    starts: Any
    stops: Any
    indices: Any
    counts: Any


class OtherSide(NamedTuple):
    """The other side: a flat table, and `parts`, which says where its rows lie (see `layout.side_by_side`)."""

    parts: Any
    table: Any


class Terms(NamedTuple):
    """What an update of rows takes beside their pairs."""

    factors: int
    offsets: Any  # of the packed triangle, see `layout.row_offsets`
    censored: Any  # D' s_i, a number a row
    two_lambda_star: float
    base: Any  # packed background of the other side
    tau: Any  # prior precision of the traits, a number a row
    tau_b: float
    biases: bool
    cold: bool  # whether no posterior has a variance
    pull: Any  # prior precisions times prior means, (rows, width): traits, then the bias; (0, 0) where these are 0


class Values(NamedTuple):
    """The posterior of some rows, where it is written to."""

    mean: Any
    precision: Any
    bias: Any
    bias_precision: Any


# fmt: off


@compiled
def fill_table(values: Any, weights: Any, temperature: float, width: int, table: Any) -> None:
    """Write the table rows of a block of symbols into the flat `table`; variances are temperature / precision."""
    mean, precision, bias, bias_precision = values
    n, factors = mean.shape
    kind = table.dtype.type
    warm = kind(temperature)
    for i in range(n):
        o = i * 2 * width
        for k in range(factors):
            table[o + k] = mean[i, k]
        if temperature > 0:
            for k in range(factors):
                table[o + width + k] = warm / precision[i, k]
        else:
            table[o + width : o + width + factors] = kind(0.0)
        for k in range(factors, width):
            table[o + k] = kind(0.0)
            table[o + width + k] = kind(0.0)
        table[o + factors] = kind(1.0)
        table[o + factors + 1] = bias[i]
        table[o + width + factors] = warm / bias_precision[i]
        table[o + width + factors + 1] = kind(weights[i])


@inlined
def _add_pairs(
    table: Any, width: int, factors: int, cold: bool, places: Any, n: int, work: Any, triangle: int, out: Any,
    o: int, fresh: bool,
) -> None:
    """Add a chunk's sums W z z^T, W v, c/2 z to the statistics at `out[o:]`, or begin with them; W is where xi was."""
    half, zero = splat(number(table, 0.5)), splat(number(table, 0.0))
    stride = stride_of(width)
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
            if not cold:
                d = fma(weight, load(table, at + width), d)
            h = fma(splat(get(work, C + p)), m, h)
        at = o + triangle + k
        store(out, at, d if fresh else add(load(out, at), d))
        store(out, at + width, mul(half, h) if fresh else fma(half, h, load(out, at + width)))
    add_triangle(work, z, wz, n, stride, factors + 2, width, out, o, fresh)


@inlined
def _add_row(
    start: int, stop: int, indices: Any, counts: Any, parts: Any, own: Any, i: int, table: Any, width: int,
    factors: int, amount: Any, two_lambda_star: Any, cold: bool, places: Any, work: Any, size: int, out: Any, o: int,
    fresh: bool,
) -> None:
    """Add the statistics of one row's pairs, or begin with them; `amount` is D' s_i."""
    if start < stop:
        fill_left(own, i * 2 * width, factors, width, cold, work)
    p = start
    while p < stop:
        end = min(p + CHUNK, stop)
        padded = take_pairs(indices, counts, p, end, parts, table, width, factors, places, work)
        energies(table, width, places, padded, work, cold)
        ask_ahead(indices, end, min(stop, end + CHUNK), parts, table, width, factors, cold)
        weigh(padded, amount, two_lambda_star, table, work)
        _add_pairs(table, width, factors, cold, places, end - p, work, size - 2 * width, out, o, fresh)
        fresh = False
        p = end


@compiled
def update_rows(pairs: Any, others: Any, own: Any, terms: Any, out: Any) -> None:
    """Update complete rows: accumulate and solve in cache. `own` is the flat table of the rows."""
    table = others.table
    kind = table.dtype.type
    width, size, factors = terms.offsets.size, terms.base.size, terms.factors
    star = kind(terms.two_lambda_star)
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    batch = wide_lanes(pointer(table))
    stats = np.zeros(batch * size + WIDEST, table.dtype)
    work = np.zeros(batch_work_size(size, width), table.dtype)
    starts, stops, censored = pairs.starts, pairs.stops, terms.censored
    n = starts.size
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_ = pointer(others.parts)
    scratch_, places_, stats_, work_ = aligned(scratch), pointer(places), aligned(stats), aligned(work)
    pulled, pull_ = terms.pull.size > 0, pointer(terms.pull.reshape(-1))
    for i in range(0, n, batch):
        rows = min(batch, n - i)
        for lane in range(rows):
            if starts[i + lane] == stops[i + lane]:
                for k in range(lane * size, (lane + 1) * size, LANES):
                    store(stats_, k, splat(kind(0.0)))
            if i + lane + 1 < n:
                ask_row(
                    indices_, starts[i + lane + 1], stops[i + lane + 1], parts_, table_, width, factors, terms.cold
                )
            _add_row(
                starts[i + lane], stops[i + lane], indices_, counts_, parts_, own_, i + lane, table_, width, factors,
                kind(censored[i + lane]), star, terms.cold, places_, scratch_, size, stats_, lane * size, True,
            )
            if pulled:
                for k in range(0, width, LANES):
                    at = (lane + 1) * size - width + k
                    store(stats_, at, add(load(stats_, at), load(pull_, (i + lane) * width + k)))
        solve_rows(
            stats_, 0, size, own_, i, rows, pointer(censored), pointer(terms.base), pointer(terms.offsets), width,
            factors, star, pointer(terms.tau), kind(terms.tau_b), terms.biases, work_, pointer(out.mean),
            pointer(out.precision), pointer(out.bias), pointer(out.bias_precision),
        )
    keep(scratch)
    keep(places)
    keep(stats)
    keep(work)


@compiled
def add_statistics(
    pairs: Any, others: Any, own: Any, width: int, factors: int, censored: Any, two_lambda_star: float, cold: bool,
    out: Any,
) -> None:
    """Add the statistics of some of the rows' pairs to `out` (rows, statistics_size), without the background."""
    table = others.table
    kind = table.dtype.type
    n, size = out.shape
    star = kind(two_lambda_star)
    starts, stops = pairs.starts, pairs.stops
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_ = pointer(others.parts)
    scratch_, places_, out_ = aligned(scratch), pointer(places), pointer(out.reshape(-1))
    for i in range(n):
        if i + 1 < n:
            ask_row(indices_, starts[i + 1], stops[i + 1], parts_, table_, width, factors, cold)
        _add_row(
            starts[i], stops[i], indices_, counts_, parts_, own_, i, table_, width, factors, kind(censored[i]), star,
            cold, places_, scratch_, size, out_, i * size, False,
        )
    keep(scratch)
    keep(places)


@compiled
def solve_statistics(stats: Any, own: Any, terms: Any, out: Any) -> None:
    """Update rows from gathered statistics (rows, statistics_size)."""
    kind = stats.dtype.type
    width = terms.offsets.size
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
            min(batch, n - i), pointer(terms.censored), pointer(terms.base), pointer(terms.offsets), width,
            terms.factors, kind(terms.two_lambda_star), pointer(terms.tau), kind(terms.tau_b), terms.biases,
            aligned(work), pointer(out.mean), pointer(out.precision), pointer(out.bias), pointer(out.bias_precision),
        )
    keep(last)
    keep(work)


@compiled
def select_rows(pairs: Any, others: Any, own: Any, width: int, factors: int, cold: bool, out: Any) -> None:
    """Add the selection statistics of the rows' pairs to `out` (rows, 4), float64; WEIGHT .. SHOWN name its columns."""
    table = others.table
    scratch = np.empty(pair_work_size(width), table.dtype)
    places = np.empty(CHUNK, np.int64)
    starts, stops = pairs.starts, pairs.stops
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_ = pointer(others.parts)
    work, places_ = aligned(scratch), pointer(places)
    half = splat(number(table_, 0.5))
    n = starts.size
    for i in range(n):
        p, stop = starts[i], stops[i]
        if i + 1 < n:
            ask_row(indices_, starts[i + 1], stops[i + 1], parts_, table_, width, factors, cold)
        if p == stop:
            continue
        fill_left(own_, i * 2 * width, factors, width, cold, work)
        s0 = splat(0.0)
        s1, s2, shown = s0, s0, s0
        while p < stop:
            end = min(p + CHUNK, stop)
            padded = take_pairs(indices_, counts_, p, end, parts_, table_, width, factors, places_, work)
            ask_ahead(indices_, end, min(stop, end + CHUNK), parts_, table_, width, factors, cold)
            energies(table_, width, places_, padded, work, cold)
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
        out[i, WEIGHT] += hsum(s0)
        out[i, LOGISTIC] += hsum(s1)
        out[i, SQUARE] += hsum(s2)
        out[i, SHOWN] += hsum(shown)
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
