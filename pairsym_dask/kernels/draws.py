"""Kernels of the sampler: censored pairs by thinning, Polya-Gamma weights, sums over pairs, draws of traits and biases.

A *draw table* holds one draw of a block of symbols, a row of `width = padded_width(K)` numbers a symbol: traits, one,
bias, zeros. A row of the long side proposes Poisson(rate) columns from an alias table and keeps each with probability
1 - sigma(a): these are its censored pairs. A sum of Polya-Gamma numbers of the same energy is one of the summed trials,
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
    fnma,
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
from .streams import STREAM, begin_stream, normal, poisson, uniform

CHUNK = 64  # pairs of a row that are drawn together
# Places in the scratch of a chunk: kappa, energies, chances to be censored, omega, the row's side; then z and omega z.
KAPPA, ENERGY, CENSORED, OMEGA, LEFT = 0, CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK
# Totals of a call: sum c log sigma(a) over observed pairs, proposals, censored pairs.
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
def _draw_chunk(
    stream: Any, indices: Any, counts: Any, p: int, seen: int, proposed: int, kept: Any, alias: Any, items: int,
    table: Any, width: int, columns: Any, work: Any, totals: Any,
) -> int:
    """Pairs p to p + seen of a row and some proposals: columns, omega and kappa of those that count; how many.

    Observed pairs come first, then the censored ones.
    """
    for q in range(seen):
        put(columns, q, np.int64(get(indices, p + q)))
    for q in range(seen, seen + proposed):
        place = uniform(stream) * items
        j: Any = np.int64(place)
        if place - j >= get(kept, j):
            j = np.int64(get(alias, j))
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


@compiled
def add_own_pairs(
    key: Any, first: int, rates: Any, indptr: Any, indices: Any, counts: Any, kept: Any, alias: Any, own: Any,
    table: Any, factors: int, out: Any, censored: Any, totals: Any,
) -> None:
    """Draw the pairs of rows `first + r` and write the rows' statistics to `out` (rows, size).

    `own` and `table` are draw tables of the rows and of all columns; `kept` and `alias` the columns' alias table;
    `rates` expected proposals. `censored` gets the rows' censored pairs, `totals` is added to.
    """
    rows, size = out.shape
    width = own.size // max(rows, 1)
    triangle = size - width
    words, scratch = np.empty(STREAM, np.uint64), np.zeros(_work_size(width), table.dtype)
    chunk = np.empty(CHUNK, np.int64)
    stream, work, columns = pointer(words), aligned(scratch), pointer(chunk)
    indices_, counts_, kept_, alias_ = pointer(indices), pointer(counts), pointer(kept), pointer(alias)
    own_, table_, out_, totals_ = pointer(own), pointer(table), pointer(out), pointer(totals)
    for r in range(rows):
        begin_stream(stream, key, first + r)
        waiting = poisson(stream, rates[r])
        _fill_left(own_, r * width, factors, width, work)
        p, stop, fresh = indptr[r], indptr[r + 1], True
        censored[r] = 0
        while p < stop or waiting > 0:
            seen = min(CHUNK, stop - p)
            proposed = min(CHUNK - seen, waiting)
            n = _draw_chunk(
                stream, indices_, counts_, p, seen, proposed, kept_, alias_, kept.size, table_, width, columns, work,
                totals_,
            )
            if n > 0:
                _add_chunk(table_, width, factors, columns, n, work, triangle, out_, r * size, fresh)
                fresh = False
            censored[r] += n - seen
            p += seen
            waiting -= proposed
        if fresh:
            for k in range(r * size, (r + 1) * size, LANES):
                store(out_, k, splat(number(out_, 0.0)))
    keep(words)
    keep(scratch)
    keep(chunk)


@compiled
def add_their_pairs(
    key: Any, first: int, rates: Any, indptr: Any, indices: Any, counts: Any, kept: Any, alias: Any, own: Any,
    table: Any, factors: int, start: int, buffer: int, out: Any, censored: Any, totals: Any,
) -> None:
    """Draw the pairs of rows `first + r`, and add to the statistics `out` (columns, size) of columns from `start` on.

    Pairs are set aside and grouped by column whenever `buffer` of them may have been drawn, whatever columns are
    asked for: so the order of sums, and the bits, do not depend on how columns are bundled. `censored` counts censored
    pairs by column; all else is as in `add_own_pairs`.
    """
    columns_wanted = out.shape[0]
    rows = rates.size
    width = own.size // max(rows, 1)
    words, scratch = np.empty(STREAM, np.uint64), np.zeros(_work_size(width), table.dtype)
    chunk = np.empty(CHUNK, np.int64)
    column, row = np.empty(buffer, np.uint32), np.empty(buffer, np.uint32)
    weight, sign = np.empty(buffer, table.dtype), np.empty(buffer, table.dtype)
    order, starts = np.empty(buffer, np.uint32), np.empty(columns_wanted + 1, np.int64)
    stream, work, columns = pointer(words), aligned(scratch), pointer(chunk)
    indices_, counts_, kept_, alias_ = pointer(indices), pointer(counts), pointer(kept), pointer(alias)
    own_, table_, totals_ = pointer(own), pointer(table), pointer(totals)
    drawn, held = 0, 0
    for r in range(rows):
        begin_stream(stream, key, first + r)
        waiting = poisson(stream, rates[r])
        _fill_left(own_, r * width, factors, width, work)
        p, stop = indptr[r], indptr[r + 1]
        while p < stop or waiting > 0:
            if drawn + CHUNK > buffer:  # before the scratch holds a chunk
                _group(column, row, weight, sign, held, order, starts, own, width, factors, scratch, out)
                drawn, held = 0, 0
            seen = min(CHUNK, stop - p)
            proposed = min(CHUNK - seen, waiting)
            n = _draw_chunk(
                stream, indices_, counts_, p, seen, proposed, kept_, alias_, kept.size, table_, width, columns, work,
                totals_,
            )
            drawn += n
            for q in range(n):
                j = get(columns, q) - start
                if 0 <= j < columns_wanted:
                    column[held], row[held] = j, r
                    weight[held], sign[held] = get(work, OMEGA + q), get(work, KAPPA + q)
                    held += 1
                    if q >= seen:
                        censored[j] += 1
            p += seen
            waiting -= proposed
    _group(column, row, weight, sign, held, order, starts, own, width, factors, scratch, out)
    keep(words)
    keep(scratch)
    keep(chunk)


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


@compiled
def draw_rows(
    key: Any, first: int, stats: Any, offsets: Any, factors: int, biases: bool, precision: Any, right: Any, traits: Any,
    bias: Any,
) -> int:
    """Draw (u_i, b_i) of rows `first + r` jointly from N(P^-1 h, P^-1); the first row without a Cholesky factor, or -1.

    P = prior precision + sum omega z z^T and h = prior right side + sum (kappa - omega b) z, in float64 whatever the
    statistics are in. `precision` (K + 1, K + 1) and `right` (K + 1) are of traits and bias together.
    """
    rows, size = stats.shape
    width = offsets.size
    triangle = size - width
    n = factors + 1 if biases else factors
    pitch = (n + LANES - 1) // LANES * LANES
    square, side, words = np.zeros(n * pitch), np.zeros(pitch), np.empty(STREAM, np.uint64)
    P, h, stream = pointer(square), pointer(side), pointer(words)
    failed = -1
    for r in range(rows):
        begin_stream(stream, key, first + r)
        for i in range(n):
            for k in range(i, n):
                put(P, i * pitch + k, precision[i, k] + np.float64(stats[r, offsets[i] + k]))
            shifted = np.float64(stats[r, offsets[i] + factors + 1]) if biases else 0.0
            put(h, i, right[i] + np.float64(stats[r, triangle + i]) - shifted)
        if not _factor(P, h, n, pitch):
            failed = r if failed < 0 else failed
        for i in range(n - 1, -1, -1):  # U x = y + e with e standard normal has the wanted mean and covariance
            total = get(h, i) + normal(stream)
            for k in range(i + 1, n):
                total -= get(P, i * pitch + k) * get(h, k)
            put(h, i, total / get(P, i * pitch + i))
        for k in range(factors):
            traits[r, k] = get(h, k)
        bias[r] = get(h, factors) if biases else 0.0
    keep(square)
    keep(side)
    keep(words)
    return failed


@inlined
def _factor(P: Any, h: Any, n: int, pitch: int) -> bool:
    """U^T U = P in place above the diagonal, and y = U^-T h; whether P is positive definite."""
    sound = True
    for j in range(n):
        d = get(P, j * pitch + j)
        sound = sound and d > 0.0 and d < np.inf
        inverse = 1.0 / math.sqrt(d) if d > 0.0 else 1.0
        scale = splat(inverse)
        begin = j // LANES * LANES
        for c in range(begin, pitch, LANES):
            store(P, j * pitch + c, mul(scale, load(P, j * pitch + c)))
        y = get(h, j) * inverse
        # What lies left of the diagonal is worked on with the rest of its vector and never looked at.
        for i in range(j + 1, n):
            f = splat(get(P, j * pitch + i))
            for c in range(i // LANES * LANES, pitch, LANES):
                store(P, i * pitch + c, fnma(f, load(P, j * pitch + c), load(P, i * pitch + c)))
        for k in range(j + 1, n):
            put(h, k, get(h, k) - y * get(P, j * pitch + k))
        put(h, j, y)
    return sound


@compiled
def add_moments(traits: Any, bias: Any, out: Any) -> None:
    """Add sum x x^T over rows x = [traits, bias, 1] to `out` (K + 2, K + 2), in float64, above the diagonal."""
    n, factors = traits.shape
    x = np.empty(factors + 2)
    for i in range(n):
        for k in range(factors):
            x[k] = traits[i, k]
        x[factors], x[factors + 1] = bias[i], 1.0
        for a in range(factors + 2):
            for b in range(a, factors + 2):
                out[a, b] += x[a] * x[b]
