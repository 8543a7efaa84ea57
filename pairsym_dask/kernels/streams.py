"""Streams of random numbers for numba kernels: every row of every step has one of its own, found by counting.

A stream is two words, a state and an odd step: its n-th number mixes state + n * step. Both come from the key of the
step (seed, sweep, purpose) and the row, so that numbers do not depend on blocks, workers or what was drawn elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled, inlined
from .random import _GOLDEN, _31, _mix
from .simd import get, keep, pointer, put

STREAM = 2  # words of a stream
_1, _12 = np.uint64(1), np.uint64(12)


def stream_key(seed: int, sweep: int, purpose: int) -> np.uint64:
    """The key that all rows' streams of one step of one sweep begin from."""
    key = np.uint64(seed)
    with np.errstate(over="ignore"):  # counting is modulo 2**64
        for word in (sweep, purpose):
            key = np.uint64(_mix(key)) + np.uint64(word)
        return np.uint64(_mix(key))


@inlined
def begin_stream(stream: Any, key: Any, row: int) -> None:
    """Make `stream` that of a row."""
    state = _mix(key + np.uint64(row) * _GOLDEN)
    step = _mix(state ^ _GOLDEN)
    put(stream, 0, state)
    # A step whose bits hardly change along the word mixes slowly; this one's change often enough.
    put(stream, 1, _mix(step + (step >> _31)) | _1)


@inlined
def uniform(stream: Any) -> float:
    """A number between 0 and 1, both left out."""
    state = get(stream, 0) + get(stream, 1)
    put(stream, 0, state)
    return (np.float64(_mix(state) >> _12) + 0.5) * 2.0**-52


@inlined
def exponential(stream: Any) -> float:
    """An exponential number of mean 1."""
    return -math.log(uniform(stream))


@inlined
def normal(stream: Any) -> float:
    """A standard normal number (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(stream)))
    return radius * math.cos(2.0 * math.pi * uniform(stream))


@compiled
def gamma(stream: Any, shape: float) -> float:
    """A Gamma number of scale 1 (Marsaglia and Tsang 2000); a shape below 1 by that of shape + 1."""
    boost = 1.0
    if shape < 1.0:
        boost = math.exp(math.log(uniform(stream)) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(stream)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        u = uniform(stream)
        if u < 1.0 - 0.0331 * x**4 or math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            return boost * d * v


@compiled
def poisson(stream: Any, rate: float) -> int:
    """A Poisson number: by waiting times for small rates, by transformed rejection (Hormann 1993) for large ones."""
    if rate < 10.0:
        limit, product, n = math.exp(-rate), uniform(stream), 0
        while product > limit:
            product *= uniform(stream)
            n += 1
        return n
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    quick = 0.9277 - 3.6224 / (b - 2.0)
    height = 1.1239 + 1.1328 / (b - 3.4)
    log_rate = math.log(rate)
    while True:
        u, v = uniform(stream) - 0.5, uniform(stream)
        near = 0.5 - abs(u)
        k = math.floor((2.0 * a / near + b) * u + rate + 0.43)
        if near >= 0.07 and v <= quick:
            return int(k)
        if k < 0 or (near < 0.013 and v > near):
            continue
        bound = k * log_rate - rate - math.lgamma(k + 1.0)
        if math.log(v * height / (a / (near * near) + b)) <= bound:
            return int(k)


@compiled
def draw_gammas(key: Any, first: int, shapes: Any, out: Any) -> None:
    """Gamma numbers of scale 1 for rows from `first` on, by their shapes (rows, numbers)."""
    words = np.empty(STREAM, np.uint64)
    stream = pointer(words)
    for r in range(shapes.shape[0]):
        begin_stream(stream, key, first + r)
        for n in range(shapes.shape[1]):
            out[r, n] = gamma(stream, shapes[r, n])
    keep(words)
