"""Kernels of the sampler: censored pairs by thinning, Polya-Gamma weights, and sums over pairs.

A *draw table* holds one draw of a block of symbols, a row of `width = padded_width(K)` numbers a symbol: traits, one,
bias, zeros. A row of the long side proposes Poisson(rate) columns from an alias table and keeps each with probability
1 - sigma(a): these are its censored pairs. Where selection has several components, a proposal first chooses one by the
row's rates and then a column from that component's table, and every observed pair chooses by what both symbols have of
each. A sum of Polya-Gamma numbers of the same energy is one of the summed trials,
so a censored pair stands beside the observed ones with one trial of its own; none are ever merged, sorted or stored.

*Statistics* of a row are the packed triangle of sum omega z z^T with z the other symbol's table row, whose last column
is sum omega b z, then sum kappa z with kappa = (shown - censored) / 2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .layout import padded_width, triangle_size
from .logistic import exp_minus
from .outer import add_triangle, stride_of
from .polya_gamma import polya_gamma, polya_gamma_one
from .simd import (
    LANES,
    WIDEST,
    add,
    aligned,
    div,
    fma,
    get,
    keep,
    load,
    maximum,
    mul,
    number,
    pointer,
    put,
    reduce8,
    splat,
    store,
    sub,
    where_negative,
)
from .streams import STREAM, begin_stream, poisson, uniform

CHUNK = 64  # pairs of a row that are drawn together
# Places in the scratch of a chunk: kappa, energies, chances to be censored, omega, the row's side; then z and omega z.
KAPPA, ENERGY, CENSORED, OMEGA, LEFT = 0, CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK
# Totals of a call: sum c log sigma(a) over observed pairs (with several components also their log odds to be selected),
# proposals, censored pairs.
TOTALS = 3


def draw_statistics_size(factors: int) -> int:
    """Numbers a row of statistics: triangle, sum kappa z."""
    width = padded_width(factors)
    return triangle_size(width) + width


# fmt: off


@inlined
def _work_size(width: int) -> int:
    return 4 * CHUNK + (1 + 2 * CHUNK) * stride_of(width) + WIDEST


@compiled
def fill_draw_table(traits: Any, bias: Any, width: int, table: Any) -> None:
    """Write the table rows of a block of symbols into the flat `table`."""
    n, factors = traits.shape
    for i in range(n):
        o = i * width
        for k in range(factors):
            table[o + k] = traits[i, k]
        table[o + factors] = 1.0
        table[o + factors + 1] = bias[i]
        for k in range(factors + 2, width):
            table[o + k] = 0.0


@inlined
def _fill_left(own: Any, o: int, factors: int, width: int, work: Any) -> None:
    """The row's side of an energy: traits, bias, one."""
    for k in range(0, width, LANES):
        store(work, LEFT + k, load(own, o + k))
    put(work, LEFT + factors, get(own, o + factors + 1))
    put(work, LEFT + factors + 1, 1.0)


@inlined
def _energies(table: Any, width: int, columns: Any, n: int, work: Any) -> None:
    """a = u.v + b_i + b_j of a chunk's pairs and 1 - sigma(a), eight pairs at a time."""
    zero, one = splat(number(table, 0.0)), splat(number(table, 1.0))
    for q in range(n, (n + LANES - 1) // LANES * LANES):
        put(columns, q, 0)
    for q in range(0, n, LANES):
        o0, o1, o2, o3 = (get(columns, q) * width, get(columns, q + 1) * width,
                          get(columns, q + 2) * width, get(columns, q + 3) * width)
        o4, o5, o6, o7 = (get(columns, q + 4) * width, get(columns, q + 5) * width,
                          get(columns, q + 6) * width, get(columns, q + 7) * width)
        a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(0, width, LANES):
            x = load(work, LEFT + k)
            a0, a1 = fma(x, load(table, o0 + k), a0), fma(x, load(table, o1 + k), a1)
            a2, a3 = fma(x, load(table, o2 + k), a2), fma(x, load(table, o3 + k), a3)
            a4, a5 = fma(x, load(table, o4 + k), a4), fma(x, load(table, o5 + k), a5)
            a6, a7 = fma(x, load(table, o6 + k), a6), fma(x, load(table, o7 + k), a7)
        a = reduce8(a0, a1, a2, a3, a4, a5, a6, a7)
        e, _ = exp_minus(maximum(a, sub(zero, a)), table)
        share = div(one, add(one, e))
        store(work, ENERGY + q, a)
        # 1 - sigma(a) is e / (1 + e) with e = exp(-|a|) for a >= 0, and 1 / (1 + e) below
        store(work, CENSORED + q, where_negative(a, share, mul(e, share)))


@inlined
def _choose(stream: Any, odds: Any, total: float, components: int) -> int:
    """A component by its odds, which sum to `total`."""
    left, n = uniform(stream) * total - get(odds, 0), 0
    while left >= 0.0 and n < components - 1:
        n += 1
        left -= get(odds, n)
    return n


@inlined
def _choose_observed(
    stream: Any, columns: Any, counts: Any, p: int, seen: int, rates: Any, o: int, chances: Any, components: int,
    odds: Any, chosen: Any, totals: Any,
) -> None:
    """Components of pairs p to p + seen, each by rate times chance; `rates[o:]` are the row's."""
    for q in range(seen):
        at, total, c = get(columns, q) * components, 0.0, np.int64(get(counts, p + q))
        for n in range(components):
            put(odds, n, get(rates, o + n) * get(chances, at + n))
            total += get(odds, n)
            put(chosen, q * components + n, 0)
        put(totals, 0, get(totals, 0) + c * math.log(total))
        for _ in range(c):
            n = q * components + _choose(stream, odds, total, components)
            put(chosen, n, get(chosen, n) + 1)


@inlined
def _draw_chunk(
    stream: Any, indices: Any, counts: Any, p: int, seen: int, proposed: int, rates: Any, o: int, rate: float,
    kept: Any, alias: Any, chances: Any, components: int, items: int, table: Any, width: int, columns: Any,
    odds: Any, chosen: Any, work: Any, totals: Any,
) -> int:
    """Pairs p to p + seen of a row and some proposals: columns, omega and kappa of those that count; how many.

    Observed pairs come first, then the censored ones; `chosen` gets the trials of each by component.
    """
    for q in range(seen):
        put(columns, q, np.int64(get(indices, p + q)))
        put(chosen, q * components, np.int64(get(counts, p + q)))
    if components > 1:
        _choose_observed(
            stream, columns, counts, p, seen, rates, o, chances, components, odds, chosen, totals,
        )
        for n in range(components):
            put(odds, n, get(rates, o + n))
    for q in range(seen, seen + proposed):
        which = _choose(stream, odds, rate, components) if components > 1 else 0
        put(chosen, q * components, which)
        place = uniform(stream) * items
        j: Any = np.int64(place)
        if place - j >= get(kept, which * items + j):
            j = np.int64(get(alias, which * items + j))
        put(columns, q, j)
    _energies(table, width, columns, seen + proposed, work)
    for q in range(seen):
        a, c = np.float64(get(work, ENERGY + q)), np.int64(get(counts, p + q))
        put(totals, 0, get(totals, 0) + c * (min(a, 0.0) - math.log1p(math.exp(-abs(a)))))
        put(work, OMEGA + q, polya_gamma(stream, c, a))
        put(work, KAPPA + q, 0.5 * c)
    n = seen
    for q in range(seen, seen + proposed):
        if uniform(stream) < np.float64(get(work, CENSORED + q)):
            put(work, OMEGA + n, polya_gamma_one(stream, np.float64(get(work, ENERGY + q))))
            put(work, KAPPA + n, -0.5)
            put(columns, n, get(columns, q))
            which = get(chosen, q * components)
            for m in range(components):
                put(chosen, n * components + m, 0)
            put(chosen, n * components + which, 1)
            n += 1
    put(totals, 1, get(totals, 1) + proposed)
    put(totals, 2, get(totals, 2) + (n - seen))
    return n


@inlined
def _add_chunk(
    table: Any, width: int, factors: int, places: Any, n: int, work: Any, triangle: int, out: Any, o: int, fresh: bool
) -> None:
    """Add a chunk's sums omega z z^T and kappa z to the statistics at `out[o:]`; `places` are rows of the table."""
    stride = stride_of(width)
    z = LEFT + stride
    wz = z + CHUNK * stride
    for k in range(0, width, LANES):
        h = splat(number(table, 0.0))
        for q in range(n):
            x = load(table, get(places, q) * width + k)
            store(work, z + q * stride + k, x)
            store(work, wz + q * stride + k, mul(splat(get(work, OMEGA + q)), x))
            h = fma(splat(get(work, KAPPA + q)), x, h)
        at = o + triangle + k
        store(out, at, h if fresh else add(load(out, at), h))
    add_triangle(work, z, wz, n, stride, factors + 2, width, out, o, fresh)


@inlined
def _sum_row(values: Any, r: int) -> float:
    total = 0.0
    for n in range(values.shape[1]):
        total += values[r, n]
    return total


@compiled
def add_own_pairs(
    key: Any, first: int, rates: Any, indptr: Any, indices: Any, counts: Any, kept: Any, alias: Any, chances: Any,
    own: Any, table: Any, factors: int, out: Any, pairs: Any, totals: Any,
) -> None:
    """Draw the pairs of rows `first + r` and write the rows' statistics to `out` (rows, size).

    `own` and `table` are draw tables of the rows and of all columns; `rates` (rows, components) expected proposals;
    `kept` and `alias` the columns' alias tables, one after another, and `chances` (columns, components) what they are
    made of, looked at where there are several. `pairs` (rows, components) gets the rows' observed and censored pairs,
    `totals` is added to.
    """
    rows, size = out.shape
    width = own.size // max(rows, 1)
    triangle = size - width
    words, scratch = np.empty(STREAM, np.uint64), np.zeros(_work_size(width), table.dtype)
    components = rates.shape[1]
    items = kept.size // components
    chunk, some, trials = np.empty(CHUNK, np.int64), np.empty(components), np.empty(CHUNK * components, np.int64)
    stream, work, columns = pointer(words), aligned(scratch), pointer(chunk)
    odds, chosen = pointer(some), pointer(trials)
    indices_, counts_, kept_, alias_ = pointer(indices), pointer(counts), pointer(kept), pointer(alias)
    rates_, chances_ = pointer(rates), pointer(chances)
    own_, table_, out_, totals_ = pointer(own), pointer(table), pointer(out), pointer(totals)
    for r in range(rows):
        begin_stream(stream, key, first + r)
        rate = _sum_row(rates, r)
        waiting = poisson(stream, rate)
        _fill_left(own_, r * width, factors, width, work)
        p, stop, fresh = indptr[r], indptr[r + 1], True
        pairs[r, :] = 0
        while p < stop or waiting > 0:
            seen = min(CHUNK, stop - p)
            proposed = min(CHUNK - seen, waiting)
            n = _draw_chunk(
                stream, indices_, counts_, p, seen, proposed, rates_, r * components, rate, kept_, alias_, chances_,
                components, items, table_, width, columns, odds, chosen, work, totals_,
            )
            if n > 0:
                _add_chunk(table_, width, factors, columns, n, work, triangle, out_, r * size, fresh)
                fresh = False
            for q in range(n):
                for m in range(components):
                    pairs[r, m] += get(chosen, q * components + m)
            p += seen
            waiting -= proposed
        if fresh:
            for k in range(r * size, (r + 1) * size, LANES):
                store(out_, k, splat(number(out_, 0.0)))
    keep(words)
    keep(scratch)
    keep(chunk)
    keep(some)
    keep(trials)


@compiled
def add_their_pairs(
    key: Any, first: int, rates: Any, indptr: Any, indices: Any, counts: Any, kept: Any, alias: Any, chances: Any,
    own: Any, table: Any, factors: int, start: int, buffer: int, out: Any, pairs: Any, totals: Any,
) -> None:
    """Draw the pairs of rows `first + r`, and add to the statistics `out` (columns, size) of columns from `start` on.

    Pairs are set aside and grouped by column whenever `buffer` of them may have been drawn, whatever columns are
    asked for: so the order of sums, and the bits, do not depend on how columns are bundled. `pairs` counts pairs by
    column and component; all else is as in `add_own_pairs`.
    """
    columns_wanted = out.shape[0]
    rows, components = rates.shape
    items = kept.size // components
    width = own.size // max(rows, 1)
    words, scratch = np.empty(STREAM, np.uint64), np.zeros(_work_size(width), table.dtype)
    chunk, some, trials = np.empty(CHUNK, np.int64), np.empty(components), np.empty(CHUNK * components, np.int64)
    column, row = np.empty(buffer, np.uint32), np.empty(buffer, np.uint32)
    weight, sign = np.empty(buffer, table.dtype), np.empty(buffer, table.dtype)
    order, starts = np.empty(buffer, np.uint32), np.empty(columns_wanted + 1, np.int64)
    stream, work, columns = pointer(words), aligned(scratch), pointer(chunk)
    odds, chosen = pointer(some), pointer(trials)
    indices_, counts_, kept_, alias_ = pointer(indices), pointer(counts), pointer(kept), pointer(alias)
    rates_, chances_ = pointer(rates), pointer(chances)
    own_, table_, totals_ = pointer(own), pointer(table), pointer(totals)
    drawn, held = 0, 0
    for r in range(rows):
        begin_stream(stream, key, first + r)
        rate = _sum_row(rates, r)
        waiting = poisson(stream, rate)
        _fill_left(own_, r * width, factors, width, work)
        p, stop = indptr[r], indptr[r + 1]
        while p < stop or waiting > 0:
            if drawn + CHUNK > buffer:  # before the scratch holds a chunk
                _group(column, row, weight, sign, held, order, starts, own, width, factors, scratch, out)
                drawn, held = 0, 0
            seen = min(CHUNK, stop - p)
            proposed = min(CHUNK - seen, waiting)
            n = _draw_chunk(
                stream, indices_, counts_, p, seen, proposed, rates_, r * components, rate, kept_, alias_, chances_,
                components, items, table_, width, columns, odds, chosen, work, totals_,
            )
            drawn += n
            for q in range(n):
                j = get(columns, q) - start
                if 0 <= j < columns_wanted:
                    column[held], row[held] = j, r
                    weight[held], sign[held] = get(work, OMEGA + q), get(work, KAPPA + q)
                    held += 1
                    for m in range(components):
                        pairs[j, m] += get(chosen, q * components + m)
            p += seen
            waiting -= proposed
    _group(column, row, weight, sign, held, order, starts, own, width, factors, scratch, out)
    keep(words)
    keep(scratch)
    keep(chunk)
    keep(some)
    keep(trials)


@compiled
def _group(
    column: Any, row: Any, weight: Any, sign: Any, held: int, order: Any, starts: Any, own: Any, width: int,
    factors: int, scratch: Any, out: Any,
) -> None:
    """Add pairs that were set aside to the statistics of their columns; the row's side in `scratch` stays."""
    columns, size = out.shape
    triangle = size - width
    starts[:] = 0
    for e in range(held):
        starts[column[e] + 1] += 1
    for j in range(columns):
        starts[j + 1] += starts[j]
    for e in range(held):
        order[starts[column[e]]] = e
        starts[column[e]] += 1
    chunk = np.empty(CHUNK, np.int64)
    rows, work, own_, out_ = pointer(chunk), aligned(scratch), pointer(own), pointer(out)
    p = 0
    for j in range(columns):
        stop = starts[j]
        while p < stop:
            n = min(CHUNK, stop - p)
            for q in range(n):
                e = order[p + q]
                put(rows, q, np.int64(row[e]))
                put(work, OMEGA + q, weight[e])
                put(work, KAPPA + q, sign[e])
            _add_chunk(own_, width, factors, rows, n, work, triangle, out_, j * size, False)
            p += n
    keep(chunk)
