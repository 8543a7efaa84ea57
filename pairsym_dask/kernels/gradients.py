"""Rows' posteriors by conjugate gradients: no K x K system of a row is ever written down.

A factorised q needs diag(P) and the mean P^-1 h only. From the old mean, a few preconditioned steps
bring the mean up the quadratic bound of the row, each for 2 K products a pair and one product with the
other side's background, B p, which is done for eight rows at a time.

*Sums* of a row, five of `width` numbers each, are what its pairs give once:

    sum W z,   sum W v,   sum W z^2,   sum (c/2 - W b) z,   sum W (z.x) z       x the old mean

and W itself is kept for the steps, each of which needs sum W (z.p) z for its direction p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .accelerate import compiled, inlined
from .chunks import (
    CHUNK,
    XI,
    A,
    C,
    T,
    ask_ahead,
    ask_row,
    energies,
    fill_left,
    pair_work_size,
    place,
    take_pairs,
    weigh,
)
from .outer import add_panel, stride_of
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
    load_turned,
    mul,
    number,
    pointer,
    put,
    reduce8,
    splat,
    store,
    sub,
)

SUMS = 5  # of `width` numbers a row


class State(NamedTuple):
    """Where the steps of some rows stand; rows of `stride_of(width)` numbers, zero beyond K."""

    mean: Any
    residual: Any
    direction: Any
    inverse: Any  # 1 / diag(P)
    extra: Any  # of diag(P), what is there without the squares of means
    product: Any  # r . r / diag(P), a number a row
    amount: Any  # 2 lambda* D' s_i, a number a row


# fmt: off


@inlined
def matrix_stride(width: int) -> int:
    """Numbers a row of the background's matrix, with eight places for a batch of vectors beside it."""
    return stride_of(width) + WIDEST


@inlined
def fill_matrix(square: Any, width: int, out: Any) -> None:
    for r in range(width):
        for k in range(0, width, LANES):
            store(out, r * matrix_stride(width) + k, load(square, r * width + k))


@inlined
def multiply(matrix: Any, vectors: Any, o: int, width: int, factors: int, out: Any) -> None:
    """B x for eight rows x of `vectors` from o on, `stride_of(width)` apart, as rows of `out`."""
    stride, pitch = stride_of(width), matrix_stride(width)
    for k in range(0, factors, LANES):
        a, b, c, d, e, f, g, h = load_turned(vectors, o + k, stride)
        at = k * pitch + stride
        store(matrix, at, a)
        store(matrix, at + pitch, b)
        store(matrix, at + 2 * pitch, c)
        store(matrix, at + 3 * pitch, d)
        store(matrix, at + 4 * pitch, e)
        store(matrix, at + 5 * pitch, f)
        store(matrix, at + 6 * pitch, g)
        store(matrix, at + 7 * pitch, h)
    add_panel(matrix, 0, stride, factors, pitch, 0, width, out, 0, stride, True)


@inlined
def multiply_diagonal(spectrum: Any, vectors: Any, o: int, width: int, out: Any) -> None:
    """The same where B is diagonal, `spectrum` its diagonal."""
    stride = stride_of(width)
    for lane in range(LANES):
        for k in range(0, width, LANES):
            store(out, lane * stride + k, mul(load(spectrum, k), load(vectors, o + lane * stride + k)))


@inlined
def add_row_sums(
    start: int, stop: int, indices: Any, counts: Any, parts: Any, own: Any, i: int, table: Any, width: int,
    factors: int, amount: Any, star: Any, cold: bool, places: Any, work: Any, weights: Any, out: Any, o: int,
) -> None:
    """Add the sums of one row's pairs to `out[o:]`, and write their W to `weights`; `amount` is D' s_i."""
    if start < stop:
        fill_left(own, i * 2 * width, factors, width, cold, work)
    bias = get(own, i * 2 * width + factors + 1)
    p = start
    while p < stop:
        end = min(p + CHUNK, stop)
        padded = take_pairs(indices, counts, p, end, parts, table, width, factors, places, work)
        energies(table, width, places, padded, work, cold)
        ask_ahead(indices, end, min(stop, end + CHUNK), parts, table, width, factors, cold)
        weigh(padded, amount, star, table, work)
        for q in range(end - p):
            w, b = get(work, XI + q), get(table, get(places, q) + factors + 1)
            put(weights, p + q, w)
            # in the places of c, t: c/2 - W b, and W (z.x) where z.x is the energy without its biases
            put(work, C + q, number(table, 0.5) * get(work, C + q) - w * b)
            put(work, T + q, w * (get(work, A + q) - bias - b))
        for k in range(0, width, LANES):
            s0, s1, s2 = load(out, o + k), load(out, o + width + k), load(out, o + 2 * width + k)
            s3, s4 = load(out, o + 3 * width + k), load(out, o + 4 * width + k)
            for q in range(end - p):
                z, w = load(table, get(places, q) + k), splat(get(work, XI + q))
                wz = mul(w, z)
                s0, s2 = add(s0, wz), fma(wz, z, s2)
                s3, s4 = fma(splat(get(work, C + q)), z, s3), fma(splat(get(work, T + q)), z, s4)
            if not cold:
                for q in range(end - p):
                    s1 = fma(splat(get(work, XI + q)), load(table, get(places, q) + width + k), s1)
            store(out, o + k, s0)
            store(out, o + width + k, s1)
            store(out, o + 2 * width + k, s2)
            store(out, o + 3 * width + k, s3)
            store(out, o + 4 * width + k, s4)
        p = end


@inlined
def table_places(indices: Any, start: int, stop: int, parts: Any, stride: int, places: Any) -> int:
    """Table places of a chunk of pairs, padded to whole vectors with its first one."""
    n = stop - start
    for q in range(n):
        put(places, q, place(indices, start + q, parts, stride))
    padded = (n + LANES - 1) // LANES * LANES
    for q in range(n, padded):
        put(places, q, get(places, 0))
    return padded


@inlined
def add_row_products(
    start: int, stop: int, indices: Any, parts: Any, table: Any, width: int, weights: Any, vector: Any, v: int,
    places: Any, work: Any, out: Any, o: int,
) -> None:
    """Add sum W (z.p) z over one row's pairs to `out[o:]`, with p = `vector[v:]`."""
    zero = splat(number(table, 0.0))
    at = start
    while at < stop:
        end = min(at + CHUNK, stop)
        padded = table_places(indices, at, end, parts, 2 * width, places)
        for q in range(0, padded, LANES):
            o0, o1, o2, o3 = get(places, q), get(places, q + 1), get(places, q + 2), get(places, q + 3)
            o4, o5, o6, o7 = get(places, q + 4), get(places, q + 5), get(places, q + 6), get(places, q + 7)
            a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
            for k in range(0, width, LANES):
                x = load(vector, v + k)
                a0, a1 = fma(x, load(table, o0 + k), a0), fma(x, load(table, o1 + k), a1)
                a2, a3 = fma(x, load(table, o2 + k), a2), fma(x, load(table, o3 + k), a3)
                a4, a5 = fma(x, load(table, o4 + k), a4), fma(x, load(table, o5 + k), a5)
                a6, a7 = fma(x, load(table, o6 + k), a6), fma(x, load(table, o7 + k), a7)
            store(work, q, reduce8(a0, a1, a2, a3, a4, a5, a6, a7))
        for q in range(end - at):
            put(work, q, get(work, q) * get(weights, at + q))
        for k in range(0, width, LANES):
            total = load(out, o + k)
            for q in range(end - at):
                total = fma(splat(get(work, q)), load(table, get(places, q) + k), total)
            store(out, o + k, total)
        at = end


@inlined
def begin_rows(
    sums: Any, s: int, own: Any, i: int, rows: int, terms: Any, variances: Any, matrix: Any, spectrum: Any,
    turned: bool, width: int, mean: Any, residual: Any, direction: Any, inverse: Any, extra: Any, product: Any,
    amount: Any, o: int, products: Any, diagonal: Any, bias: Any, bias_precision: Any,
) -> None:
    """Residuals of a batch of rows at their old means, with new biases; `s` and `o` are places of sums and state."""
    factors, stride, pitch = terms.factors, stride_of(width), matrix_stride(width)
    zero = splat(number(sums, 0.0))
    half = number(sums, 0.5)
    one, b_row = factors * pitch, (factors + 1) * pitch  # rows of the matrix: of the ones, of the biases
    star = number(sums, terms.two_lambda_star)
    for lane in range(LANES):
        at = o + lane * stride
        for k in range(0, width, LANES):
            store(mean, at + k, load(own, (i + lane) * 2 * width + k) if lane < rows else zero)
        if lane < rows:
            for k in range(factors, width):
                put(mean, at + k, number(sums, 0.0))
    if turned:
        multiply_diagonal(spectrum, mean, o, width, products)
    else:
        multiply(matrix, mean, o, width, factors, products)
    for lane in range(rows):
        at, here = o + lane * stride, s + lane * SUMS * width
        f = number(sums, terms.censored[i + lane])
        a = star * f
        put(amount, i + lane, a)
        # G[K,:K] = 2 lambda* D's B[K,:K] + sum W z
        dot = zero
        for k in range(0, width, LANES):
            g = fma(splat(a), load(matrix, one + k), load(sums, here + k))
            store(direction, at + k, g)
            dot = fma(g, load(mean, at + k), dot)
        rho = get(direction, at + factors) + number(sums, terms.tau_b)
        h = get(sums, here + 3 * width + factors) - half * f * get(matrix, one + factors)
        h = h - a * get(matrix, b_row + factors)
        b = number(sums, 0.0)
        if terms.biases:
            b = (h - hsum(dot)) / rho
        put(bias, i + lane, b)
        put(bias_precision, i + lane, rho if terms.biases else number(sums, np.inf))
        tau = splat(number(sums, terms.tau[i + lane]))
        for k in range(0, width, LANES):
            d = fma(splat(a), load(variances, k), add(load(sums, here + width + k), tau))
            store(extra, at + k, d)
            # right side h[:K] - b G[K,:K], less P x
            r = fnma(splat(half * f), load(matrix, one + k), load(sums, here + 3 * width + k))
            r = fnma(splat(a), load(matrix, b_row + k), r)
            r = fnma(splat(b), load(direction, at + k), r)
            r = sub(r, load(sums, here + 4 * width + k))
            r = fnma(splat(a), load(products, lane * stride + k), r)
            store(residual, at + k, fnma(d, load(mean, at + k), r))
        for k in range(factors):
            value = get(extra, at + k) + get(sums, here + 2 * width + k) + a * get(matrix, k * pitch + k)
            put(diagonal, (i + lane) * factors + k, value)
            put(inverse, at + k, number(sums, 1.0) / value)
        for k in range(factors, width):
            put(inverse, at + k, number(sums, 0.0))
        dot = zero
        for k in range(0, width, LANES):
            r = load(residual, at + k)
            z = mul(load(inverse, at + k), r)
            store(direction, at + k, z)
            dot = fma(r, z, dot)
        put(product, i + lane, hsum(dot))
    for lane in range(rows, LANES):
        for k in range(0, width, LANES):
            store(direction, o + lane * stride + k, zero)


@inlined
def step_rows(
    rows: int, i: int, o: int, width: int, products: Any, pulled: Any, u: int, mean: Any, residual: Any,
    direction: Any, inverse: Any, extra: Any, product: Any, amount: Any,
) -> None:
    """One step of a batch of rows; `products` holds B p, `pulled[u:]` sum W (z.p) z."""
    stride = stride_of(width)
    zero = splat(number(mean, 0.0))
    for lane in range(rows):
        at, here = o + lane * stride, u + lane * stride
        a = splat(get(amount, i + lane))
        before = get(product, i + lane)
        dot = zero
        for k in range(0, width, LANES):
            p = load(direction, at + k)
            y = fma(load(extra, at + k), p, fma(a, load(products, lane * stride + k), load(pulled, here + k)))
            store(pulled, here + k, y)
            dot = fma(p, y, dot)
        curvature = hsum(dot)
        if curvature > 0.0 and before > 0.0:  # else the row is settled
            step = splat(number(mean, before / curvature))
            dot = zero
            for k in range(0, width, LANES):
                store(mean, at + k, fma(step, load(direction, at + k), load(mean, at + k)))
                r = fnma(step, load(pulled, here + k), load(residual, at + k))
                store(residual, at + k, r)
                dot = fma(mul(r, load(inverse, at + k)), r, dot)
            after = hsum(dot)
            put(product, i + lane, number(mean, after))
            onward = splat(number(mean, after / before))
            for k in range(0, width, LANES):
                z = mul(load(inverse, at + k), load(residual, at + k))
                store(direction, at + k, fma(onward, load(direction, at + k), z))


@compiled
def update_rows_by_steps(
    pairs: Any, others: Any, own: Any, terms: Any, square: Any, variances: Any, turned: bool, steps: int, weights: Any,
    out: Any,
) -> None:
    """Update complete rows by so many steps; `square` and `variances` are the other side's B and sum t v, flat.

    Where the axes are `turned` to those of B, whose trait part is diagonal then, a step costs no product with it.
    `weights` is scratch, a number a pair of the tile.
    """
    table = others.table
    kind = table.dtype.type
    width, factors = variances.size, terms.factors
    stride = stride_of(width)
    star = kind(terms.two_lambda_star)
    scratch, places = np.empty(pair_work_size(width), table.dtype), np.empty(CHUNK, np.int64)
    matrix = np.zeros(width * matrix_stride(width) + WIDEST, table.dtype)
    sums = np.zeros(LANES * SUMS * width + WIDEST, table.dtype)
    size = LANES * stride + WIDEST
    mean, residual, direction = np.zeros(size, table.dtype), np.zeros(size, table.dtype), np.zeros(size, table.dtype)
    inverse, extra = np.zeros(size, table.dtype), np.zeros(size, table.dtype)
    products, pulled = np.zeros(size, table.dtype), np.zeros(size, table.dtype)
    starts, stops = pairs.starts, pairs.stops
    n = starts.size
    product, amount = np.zeros(n, table.dtype), np.zeros(n, table.dtype)
    indices_, counts_, own_, table_ = pointer(pairs.indices), pointer(pairs.counts), pointer(own), pointer(table)
    parts_, weights_, work, places_ = pointer(others.parts), pointer(weights), aligned(scratch), pointer(places)
    matrix_, sums_, variances_ = aligned(matrix), aligned(sums), pointer(variances)
    mean_, residual_, direction_ = aligned(mean), aligned(residual), aligned(direction)
    inverse_, extra_, products_, pulled_ = aligned(inverse), aligned(extra), aligned(products), aligned(pulled)
    product_, amount_, out_mean = pointer(product), pointer(amount), pointer(out.mean)
    precision_, bias_, bias_precision_ = pointer(out.precision), pointer(out.bias), pointer(out.bias_precision)
    fill_matrix(pointer(square), width, matrix_)
    spectrum = np.zeros(width, table.dtype)
    for k in range(factors):
        spectrum[k] = square[k * width + k]
    spectrum_ = pointer(spectrum)
    zero = splat(kind(0.0))
    tagged, pull_ = terms.pull.size > 0, pointer(terms.pull.reshape(-1))
    for i in range(0, n, LANES):
        rows = min(LANES, n - i)
        for k in range(0, LANES * SUMS * width, LANES):
            store(sums_, k, zero)
        for lane in range(rows):
            if tagged:
                for k in range(0, width, LANES):
                    store(sums_, (lane * SUMS + 3) * width + k, load(pull_, (i + lane) * width + k))
            if i + lane + 1 < n:
                ask_row(
                    indices_, starts[i + lane + 1], stops[i + lane + 1], parts_, table_, width, factors, terms.cold
                )
            add_row_sums(
                starts[i + lane], stops[i + lane], indices_, counts_, parts_, own_, i + lane, table_, width, factors,
                kind(terms.censored[i + lane]), star, terms.cold, places_, work, weights_, sums_, lane * SUMS * width,
            )
        begin_rows(
            sums_, 0, own_, i, rows, terms, variances_, matrix_, spectrum_, turned, width, mean_, residual_,
            direction_, inverse_, extra_, product_, amount_, 0, products_, precision_, bias_, bias_precision_,
        )
        for _ in range(steps):
            if turned:
                multiply_diagonal(spectrum_, direction_, 0, width, products_)
            else:
                multiply(matrix_, direction_, 0, width, factors, products_)
            for k in range(0, LANES * stride, LANES):
                store(pulled_, k, zero)
            for lane in range(rows):
                add_row_products(
                    starts[i + lane], stops[i + lane], indices_, parts_, table_, width, weights_, direction_,
                    lane * stride, places_, work, pulled_, lane * stride,
                )
            step_rows(
                rows, i, 0, width, products_, pulled_, 0, mean_, residual_, direction_, inverse_, extra_, product_,
                amount_,
            )
        for lane in range(rows):
            for k in range(factors):
                put(out_mean, (i + lane) * factors + k, get(mean_, lane * stride + k))
    keep(scratch)
    keep(places)
    keep(matrix)
    keep(sums)
    keep(mean)
    keep(residual)
    keep(direction)
    keep(inverse)
    keep(extra)
    keep(products)
    keep(pulled)
    keep(product)
    keep(amount)
    keep(spectrum)
