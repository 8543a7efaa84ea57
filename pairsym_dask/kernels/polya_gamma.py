"""PolyaGamma(n, z) draws: Devroye's method for n = 1 (Polson, Scott and Windle 2013), sums of it for small n.

A PolyaGamma(1, z) number is a quarter of a J*(1, z / 2) number, whose density is an alternating series with terms
a_0 > a_1 > .. on both sides of a point T. Proposals come from the first term: an exponential beyond T, a truncated
inverse Gaussian below. Beyond `SUMMED` a normal number of the same mean and variance stands for the sum of n.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from .accelerate import compiled, inlined
from .simd import keep, pointer
from .streams import STREAM, begin_stream, exponential, normal, uniform

T = 0.64
SUMMED = 32  # trials up to which a draw is the exact sum of single ones
SURE = 0.994  # a_1 / a_0 is nowhere above 3 exp(-4 / T) = 0.0058: a uniform number up to this is always accepted
CELLS_A_UNIT, CELLS = 64, 512
HUGE = 1e4  # energies beyond this, and those that are not numbers, are not worth a draw


def beyond_share(z: np.ndarray) -> np.ndarray:
    """Probability that a proposal for J*(1, z) comes from beyond T; it falls with z."""
    rate = np.pi**2 / 8 + z**2 / 2
    log_beyond = np.log(np.pi / (2 * rate)) - rate * T
    root = 1 / np.sqrt(T)
    log_below = np.log(2) + np.logaddexp(-z + log_ndtr(root * (T * z - 1)), z + log_ndtr(-root * (T * z + 1)))
    return np.asarray(1 / (1 + np.exp(log_below - log_beyond)))


# Both ends of a cell settle most choices without the exponentials and error functions of the exact share.
_BEYOND = beyond_share(np.arange(CELLS + 1) / CELLS_A_UNIT)


@compiled
def _exact_share(z: float) -> float:
    rate = math.pi**2 / 8.0 + 0.5 * z * z
    beyond = math.pi / (2.0 * rate) * math.exp(-rate * T)
    root = math.sqrt(0.5 / T)
    below = math.exp(-z) * math.erfc(-root * (T * z - 1.0)) + math.exp(z) * math.erfc(root * (T * z + 1.0))
    return beyond / (beyond + below)


@inlined
def _is_beyond(u: float, z: float) -> bool:
    """Whether u is below the share of proposals from beyond T."""
    cell = int(z * CELLS_A_UNIT)
    if cell >= CELLS:
        return u < _BEYOND[CELLS] and z < 100.0 and u < _exact_share(z)
    if u >= _BEYOND[cell]:
        return False
    return u < _BEYOND[cell + 1] or u < _exact_share(z)


@inlined
def _below(stream: Any, z: float) -> float:
    """An inverse Gaussian number of mean 1 / z and shape 1, if below T."""
    if z * T < 1.0:
        while True:
            # T / (1 + T e)^2 has the density of 1 / chi^2 below T once thinned by exp(-T e^2 / 2).
            e = exponential(stream)
            x = T / ((1.0 + T * e) * (1.0 + T * e))
            y = 0.5 * (T * e * e + z * z * x)
            u = uniform(stream)
            if u <= 1.0 - y or (u * (1.0 + y) < 1.0 and u <= math.exp(-y)):
                return x
    mean = 1.0 / z
    while True:
        y = normal(stream)
        t = mean * y * y
        # The smaller root of the quadratic by the larger one, so that nothing cancels.
        x = 2.0 * mean / (2.0 + t + math.sqrt(t * (4.0 + t)))
        if uniform(stream) * (mean + x) > mean:
            x = mean * mean / x
        if x <= T:
            return x


@compiled
def _is_accepted(u: float, x: float) -> bool:
    """Whether u a_0(x) lies below the alternating series a_0 - a_1 + a_2 - .. at x."""
    rate = -0.5 * math.pi**2 * x if x > T else -2.0 / x
    total, n = 1.0, 0
    while True:
        n += 1
        term = (2 * n + 1) * math.exp(rate * n * (n + 1))
        if n % 2:
            total -= term
            if u <= total:
                return True
        else:
            total += term
            if u > total:
                return False


@compiled
def polya_gamma_one(stream: Any, energy: float) -> float:
    """A PolyaGamma(1, energy) number."""
    z = 0.5 * abs(energy)
    if not z < HUGE:
        return 0.25 / z
    rate = math.pi**2 / 8.0 + 0.5 * z * z
    while True:
        x = T + exponential(stream) / rate if _is_beyond(uniform(stream), z) else _below(stream, z)
        u = uniform(stream)
        if u <= SURE or _is_accepted(u, x):
            return 0.25 * x


@compiled
def moments(energy: float) -> Any:
    """Mean and variance of a PolyaGamma(1, energy) number."""
    z = abs(energy)
    if z < 0.05:  # series in z^2, where the closed forms cancel
        s = z * z
        return 0.25 - s / 48.0 + s * s / 480.0, 1.0 / 24.0 - s / 120.0 + 17.0 * s * s / 13440.0
    e = math.exp(-z)
    mean = (1.0 - e) / (1.0 + e) / (2.0 * z)
    # (sinh z - z) / (4 z^3 cosh^2(z / 2)), both divided by exp(z) so that neither overflows
    return mean, (1.0 - e * e - 2.0 * z * e) / (2.0 * z * z * z * (1.0 + e) * (1.0 + e))


@inlined
def polya_gamma(stream: Any, trials: int, energy: float) -> float:
    """A PolyaGamma(trials, energy) number."""
    if trials <= SUMMED:
        total = 0.0
        for _ in range(trials):
            total += polya_gamma_one(stream, energy)
        return total
    mean, variance = moments(energy)
    # Nine standard deviations from zero at least.
    return max(trials * mean + math.sqrt(trials * variance) * normal(stream), 1e-3 * trials * mean)


@compiled
def draw_polya_gammas(key: Any, trials: Any, energies: Any, out: Any) -> None:
    """PolyaGamma(trials[k], energies[k]) numbers, each from the stream of row k."""
    words = np.empty(STREAM, np.uint64)
    stream = pointer(words)
    for k in range(energies.size):
        begin_stream(stream, key, k)
        out[k] = polya_gamma(stream, trials[k], energies[k])
    keep(words)
