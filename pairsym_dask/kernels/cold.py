"""Rows' posteriors by conjugate gradients where no posterior has a variance and B is diagonal: all of a row at once.

On the axes of the other side's background (`sweep.turn`) a row's precision is P = D + sum W z z^T with D = tau + 2
lambda* D' s_i diag(B): whatever a step needs beside D are its pairs, whose table rows stay in the nearest cache from
the first look to the last step. Two things save looks at them:

- with e = z.x at the old mean x, the new bias and the residual need sums of numbers and one sum of vectors,
  sum (c/2 - W (b_j + b_i + e)) z;
- p.P p = p.D p + sum W (z.p)^2, so the last step needs no sum of vectors.

Vectors here are `span_of(K)` numbers long; beyond K the table's own are ignored, because 1 / diag(P) is zero there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .chunks import ask_ahead, place
from .dots import dots, fold, span_of
from .gradients import fill_matrix, matrix_stride, multiply
from .logistic import exp_minus, two_lambda
from .outer import stride_of
from .simd import (
    LANES,
    WIDEST,
    add,
    aligned,
    div,
    fma,
    fnma,
    get,
    hsum,
    keep,
    load,
    load_wide,
    maximum,
    mul,
    number,
    pointer,
    put,
    splat,
    splat_wide,
    sqrt,
    store,
    wide_lanes,
)

AHEAD = 32  # pairs of the next row whose table rows are asked for ahead
# Vectors of the other side: B's diagonal, its rows of the ones and of the biases; 1 where traits are, and elsewhere.
SPECTRUM, ONES, BIASES, TRAITS, OTHERS = range(5)
# Vectors of a row: its mean, D, 1 / diag(P), the residual, the direction, and what the next one is made of.
MEAN, OWN, INVERSE, RESIDUAL, DIRECTION, NEXT = range(6)

# fmt: off


@inlined
def find(
    indices: Any, counts: Any, start: int, stop: int, parts: Any, table: Any, width: int, factors: int, places: Any,
    shown: Any, weight: Any, bias: Any,
) -> None:
    """Table places, counts, background weights and biases of some pairs, padded to eights with pairs of no weight."""
    n = stop - start
    for q in range(n):
        o = place(indices, start + q, parts, 2 * width)
        put(places, q, o)
        put(shown, q, get(counts, start + q))
        put(weight, q, get(table, o + width + factors + 1))
        put(bias, q, get(table, o + factors + 1))
    for q in range(n, (n + LANES - 1) // LANES * LANES):
        put(places, q, get(places, 0))
        put(shown, q, 0.0)
        put(weight, q, 0.0)
        put(bias, q, 0.0)


@inlined
def weigh_cold(n: int, own: Any, amount: Any, star: Any, dot: Any, shown: Any, bias: Any, weight: Any) -> None:
    """W = 2 lambda(a) (c + D' s t) - 2 lambda* D' s t in the place of the background weights t; a = z.x + b_i + b_j."""
    tiny = splat(number(dot, 1e-20))
    for q in range(0, n, LANES):
        energy = add(add(load(dot, q), splat(own)), load(bias, q))
        x = sqrt(maximum(mul(energy, energy), tiny))
        e, one_minus_e = exp_minus(x, dot)
        lam = two_lambda(x, e, one_minus_e, dot)
        censored = mul(splat(amount), load(weight, q))
        store(weight, q, fnma(splat(star), censored, mul(lam, add(load(shown, q), censored))))


@inlined
def copy_traits(source: Any, o: int, factors: int, span: int, out: Any, at: int) -> None:
    """K numbers of a table's row as a vector of `span`."""
    for k in range(0, span, wide_lanes(source)):
        store(out, at + k, load_wide(source, o + k))
    for k in range(factors, span):
        put(out, at + k, 0.0)


@inlined
def copy_out(source: Any, at: int, factors: int, out: Any, o: int) -> None:
    """The first K numbers of a vector to a row of K."""
    lanes = wide_lanes(source)
    whole = factors // lanes * lanes
    for k in range(0, whole, lanes):
        store(out, o + k, load_wide(source, at + k))
    for k in range(whole, factors):
        put(out, o + k, get(source, at + k))


@inlined
def add_rows(table: Any, places: Any, n: int, factor: Any, out: Any, o: int, span: int) -> None:
    """out[o + k] += sum factor[q] table[places[q] + k] over `span` numbers; four vectors at a time."""
    lanes = wide_lanes(table)
    four = span // (4 * lanes) * 4 * lanes
    for k in range(0, four, 4 * lanes):
        a, b = load_wide(out, o + k), load_wide(out, o + k + lanes)
        c, d = load_wide(out, o + k + 2 * lanes), load_wide(out, o + k + 3 * lanes)
        for q in range(n):
            x, at = splat_wide(get(factor, q)), get(places, q) + k
            a, b = fma(x, load_wide(table, at), a), fma(x, load_wide(table, at + lanes), b)
            c, d = fma(x, load_wide(table, at + 2 * lanes), c), fma(x, load_wide(table, at + 3 * lanes), d)
        store(out, o + k, a)
        store(out, o + k + lanes, b)
        store(out, o + k + 2 * lanes, c)
        store(out, o + k + 3 * lanes, d)
    for k in range(four, span, lanes):
        a = load_wide(out, o + k)
        for q in range(n):
            a = fma(splat_wide(get(factor, q)), load_wide(table, get(places, q) + k), a)
        store(out, o + k, a)


@inlined
def add_rows_and_squares(
    table: Any, places: Any, n: int, factor: Any, weight: Any, out: Any, o: int, squares: int, span: int
) -> None:
    """The same, and out[squares + k] += sum weight[q] table[places[q] + k]^2; two vectors at a time."""
    lanes = wide_lanes(table)
    two = span // (2 * lanes) * 2 * lanes
    for k in range(0, two, 2 * lanes):
        a, b = load_wide(out, o + k), load_wide(out, o + k + lanes)
        c, d = load_wide(out, squares + k), load_wide(out, squares + k + lanes)
        for q in range(n):
            x, w, at = splat_wide(get(factor, q)), splat_wide(get(weight, q)), get(places, q) + k
            y, z = load_wide(table, at), load_wide(table, at + lanes)
            a, b = fma(x, y, a), fma(x, z, b)
            c, d = fma(mul(w, y), y, c), fma(mul(w, z), z, d)
        store(out, o + k, a)
        store(out, o + k + lanes, b)
        store(out, squares + k, c)
        store(out, squares + k + lanes, d)
    for k in range(two, span, lanes):
        a, c = load_wide(out, o + k), load_wide(out, squares + k)
        for q in range(n):
            y = load_wide(table, get(places, q) + k)
            a = fma(splat_wide(get(factor, q)), y, a)
            c = fma(mul(splat_wide(get(weight, q)), y), y, c)
        store(out, o + k, a)
        store(out, squares + k, c)


@inlined
def begin_row(
    n: int, table: Any, places: Any, coefficient: Any, weight: Any, base: Any, span: int, factors: int, a: Any,
    along: Any, tau: Any, pulled: bool, pull: Any, at: int, line: Any, precision: Any, p: int,
) -> Any:
    """diag(P), the residual at the old mean and the first direction of a row; r.r / diag(P) and p.D p.

    The residual is sum `coefficient` z - `along` B[K,:K] - a B[K+1,:K] - D x. `base` holds the vectors from
    SPECTRUM on, `line` those from MEAN on. Where rows are `pulled` to prior means, it gains `pull[at:]`.
    """
    lanes = wide_lanes(table)
    product = splat_wide(number(table, 0.0))
    square = product
    for k in range(0, span, lanes):
        own = fma(splat_wide(a), load_wide(base, SPECTRUM * span + k), splat_wide(tau))
        r = mul(splat_wide(-along), load_wide(base, ONES * span + k))
        r = fnma(splat_wide(a), load_wide(base, BIASES * span + k), r)
        store(line, RESIDUAL * span + k, fnma(own, load_wide(line, MEAN * span + k), r))
        store(line, OWN * span + k, own)
        store(line, NEXT * span + k, own)
    if pulled:
        for k in range(factors):
            put(line, RESIDUAL * span + k, get(line, RESIDUAL * span + k) + get(pull, at + k))
    add_rows_and_squares(table, places, n, coefficient, weight, line, RESIDUAL * span, NEXT * span, span)
    for k in range(0, span, lanes):
        r, own = load_wide(line, RESIDUAL * span + k), load_wide(line, OWN * span + k)
        traits = load_wide(base, TRAITS * span + k)
        # beyond K diag(P) counts as 1, and its inverse as 0
        d = fma(traits, load_wide(line, NEXT * span + k), load_wide(base, OTHERS * span + k))
        inverse = div(traits, d)
        direction = mul(inverse, r)
        product, square = fma(r, direction, product), fma(mul(own, direction), direction, square)
        store(line, NEXT * span + k, d)
        store(line, INVERSE * span + k, inverse)
        store(line, DIRECTION * span + k, direction)
    copy_out(line, NEXT * span, factors, precision, p)
    return hsum(fold(product)), hsum(fold(square))


@inlined
def curvature_of(n: int, weight: Any, dot: Any) -> Any:
    """sum W (z.p)^2."""
    total = splat(number(dot, 0.0))
    for q in range(0, n, LANES):
        v = load(dot, q)
        total = fma(mul(load(weight, q), v), v, total)
    return hsum(total)


@inlined
def step_row(
    n: int, table: Any, places: Any, dot: Any, weight: Any, span: int, before: Any, step: Any, line: Any,
) -> Any:
    """A step of a row that others follow, to the next direction; r.r / diag(P) and p.D p there."""
    lanes = wide_lanes(table)
    for q in range(0, n, LANES):
        store(dot, q, mul(load(dot, q), load(weight, q)))
    product = splat_wide(number(table, 0.0))
    along = splat_wide(step)
    for k in range(0, span, lanes):
        store(line, NEXT * span + k, mul(load_wide(line, OWN * span + k), load_wide(line, DIRECTION * span + k)))
    add_rows(table, places, n, dot, line, NEXT * span, span)
    for k in range(0, span, lanes):
        p = load_wide(line, DIRECTION * span + k)
        store(line, MEAN * span + k, fma(along, p, load_wide(line, MEAN * span + k)))
        r = fnma(along, load_wide(line, NEXT * span + k), load_wide(line, RESIDUAL * span + k))
        z = mul(load_wide(line, INVERSE * span + k), r)
        product = fma(r, z, product)
        store(line, RESIDUAL * span + k, r)
        store(line, NEXT * span + k, z)
    after = hsum(fold(product))
    onward, square = splat_wide(number(table, after / before)), splat_wide(number(table, 0.0))
    for k in range(0, span, lanes):
        p = fma(onward, load_wide(line, DIRECTION * span + k), load_wide(line, NEXT * span + k))
        square = fma(mul(load_wide(line, OWN * span + k), p), p, square)
        store(line, DIRECTION * span + k, p)
    return after, hsum(fold(square))


@compiled
def update_cold_rows(
    pairs: Any, others: Any, own: Any, axes: Any, terms: Any, square: Any, steps: int, out: Any
) -> None:
    """Update complete rows by so many steps; `square` is the other side's B, flat, its trait part diagonal.

    The rows' own table is turned to these `axes` (width, width), flat, eight rows at a time.
    """
    table = others.table
    kind = table.dtype.type
    width, factors = terms.offsets.size, terms.factors
    span, one = span_of(factors), factors * width  # where B has the row of the ones; that of the biases follows
    starts, stops = pairs.starts, pairs.stops
    n, longest = starts.size, 0
    for i in range(n):
        longest = max(longest, stops[i] - starts[i])
    base, line = np.zeros(5 * span + WIDEST, table.dtype), np.zeros(6 * span + WIDEST, table.dtype)
    size = longest + LANES
    places, shown, weight = np.zeros(size, np.int64), np.zeros(size, table.dtype), np.zeros(size, table.dtype)
    bias, dot, coefficient = np.zeros(size, table.dtype), np.zeros(size, table.dtype), np.zeros(size, table.dtype)
    base_, line_, own_, table_ = aligned(base), aligned(line), pointer(own), pointer(table)
    parts_ = pointer(others.parts)
    indices_, counts_, places_, shown_ = pointer(pairs.indices), pointer(pairs.counts), pointer(places), pointer(shown)
    weight_, bias_, dot_, coefficient_ = pointer(weight), pointer(bias), pointer(dot), pointer(coefficient)
    mean_, precision_ = pointer(out.mean.reshape(-1)), pointer(out.precision.reshape(-1))
    for k in range(span):
        trait = k < factors
        put(base_, SPECTRUM * span + k, square[k * width + k] if trait else kind(0.0))
        put(base_, ONES * span + k, square[one + k] if trait else kind(0.0))
        put(base_, BIASES * span + k, square[one + width + k] if trait else kind(0.0))
        put(base_, TRAITS * span + k, kind(1.0) if trait else kind(0.0))
        put(base_, OTHERS * span + k, kind(0.0) if trait else kind(1.0))
    half, star = kind(0.5), kind(terms.two_lambda_star)
    tagged, pull_ = terms.pull.size > 0, pointer(terms.pull.reshape(-1))
    stride = stride_of(width)
    matrix = np.zeros(width * matrix_stride(width) + WIDEST, table.dtype)
    vectors, turned = np.zeros(LANES * stride + WIDEST, table.dtype), np.zeros(LANES * stride + WIDEST, table.dtype)
    matrix_, vectors_, turned_ = aligned(matrix), aligned(vectors), aligned(turned)
    fill_matrix(pointer(axes), width, matrix_)
    for i in range(n):
        if i % LANES == 0:
            for lane in range(min(LANES, n - i)):
                for k in range(0, width, LANES):
                    store(vectors_, lane * stride + k, load(own_, (i + lane) * 2 * width + k))
            multiply(matrix_, vectors_, 0, width, factors, turned_)
        start, stop = starts[i], stops[i]
        m, at = stop - start, i * 2 * width
        if i + 1 < n:
            ask_ahead(
                indices_, starts[i + 1], min(stops[i + 1], starts[i + 1] + AHEAD), parts_, table_, width, factors, True
            )
        find(indices_, counts_, start, stop, parts_, table_, width, factors, places_, shown_, weight_, bias_)
        copy_traits(turned_, i % LANES * stride, factors, span, line_, MEAN * span)
        dots(table_, places_, m, line_, MEAN * span, span, dot_)
        f = kind(terms.censored[i])
        a = star * f
        weigh_cold(m, get(own_, at + factors + 1), f, star, dot_, shown_, bias_, weight_)
        # rho = G[K,K] + tau_b and b_i = (h[K] - G[K,:K].m_i) / rho, with sums over pairs for G[K,:K].m_i
        total, pulled, right = splat(kind(0.0)), splat(kind(0.0)), splat(kind(0.0))
        for q in range(0, m, LANES):
            w = load(weight_, q)
            total, pulled = add(total, w), fma(w, load(dot_, q), pulled)
            right = add(right, fnma(w, load(bias_, q), mul(splat(half), load(shown_, q))))
        mixed = splat_wide(kind(0.0))
        for k in range(0, span, wide_lanes(table_)):
            mixed = fma(load_wide(base_, ONES * span + k), load_wide(line_, MEAN * span + k), mixed)
        rho = hsum(total) + a * square[one + factors] + kind(terms.tau_b)
        h = hsum(right) - half * f * square[one + factors] - a * square[one + width + factors]
        if tagged:
            h += get(pull_, i * width + factors)
        b = kind(0.0)
        if terms.biases:
            b = (h - hsum(pulled) - a * hsum(fold(mixed))) / rho
        out.bias[i] = b
        out.bias_precision[i] = rho if terms.biases else kind(np.inf)
        for q in range(0, m, LANES):
            rest = add(add(load(bias_, q), splat(b)), load(dot_, q))
            store(coefficient_, q, fnma(load(weight_, q), rest, mul(splat(half), load(shown_, q))))
        product, curved = begin_row(
            m, table_, places_, coefficient_, weight_, base_, span, factors, a, half * f + a * b,
            kind(terms.tau[i]), tagged, pull_, i * width, line_, precision_, i * factors,
        )
        for taken in range(steps):
            dots(table_, places_, m, line_, DIRECTION * span, span, dot_)
            curvature = curved + curvature_of(m, weight_, dot_)
            if not (curvature > kind(0.0) and product > kind(0.0)):  # the row is settled
                break
            step = product / curvature
            if taken == steps - 1:
                for k in range(0, span, wide_lanes(table_)):
                    p = load_wide(line_, DIRECTION * span + k)
                    store(line_, MEAN * span + k, fma(splat_wide(step), p, load_wide(line_, MEAN * span + k)))
                break
            product, curved = step_row(m, table_, places_, dot_, weight_, span, product, step, line_)
        copy_out(line_, MEAN * span, factors, mean_, i * factors)
    keep(base)
    keep(line)
    keep(matrix)
    keep(vectors)
    keep(turned)
    keep(places)
    keep(shown)
    keep(weight)
    keep(bias)
    keep(dot)
    keep(coefficient)
