"""Draws of rows given the sums over their pairs, and what rows say of their prior."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .simd import LANES, fnma, get, keep, load, mul, pointer, put, splat, store
from .streams import STREAM, begin_stream, normal

# fmt: off


@compiled
def draw_rows(
    key: Any, first: int, stats: Any, offsets: Any, factors: int, biases: bool, precision: Any, right: Any,
    centres: Any, traits: Any, bias: Any,
) -> int:
    """Draw (u_i, b_i) of rows `first + r` jointly from N(P^-1 h, P^-1); the first row without a Cholesky factor, or -1.

    P = prior precision + sum omega z z^T and h = prior right side + sum (kappa - omega b) z, in float64 whatever the
    statistics are in. `precision` (K + 1, K + 1) and `right` (K + 1) are of traits and bias together; `centres` (rows,
    K + 1) is what is added to the prior mean of each row, without any rows where nothing is.
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
            pulled = right[i]
            if centres.shape[0] > 0:
                for k in range(n):
                    pulled += precision[i, k] * centres[r, k]
            put(h, i, pulled + np.float64(stats[r, triangle + i]) - shifted)
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
