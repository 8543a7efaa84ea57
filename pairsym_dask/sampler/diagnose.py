"""Whether a chain has settled: split R-hat and effective draws of traces (Gelman et al., BDA3, section 11.4-11.5)."""

from __future__ import annotations

import numpy as np

SETTLED = 1.1  # split R-hat above this is worth a warning
LEAST = 20  # sweeps of a trace that say something


def split_r_hat(chains: np.ndarray) -> float:
    """Potential scale reduction of traces (chains, draws), each split into halves; 1 where they agree.

    >>> float(round(split_r_hat(np.random.default_rng(0).standard_normal((2, 1000))), 2))
    1.0
    """
    halves = _halves(np.atleast_2d(chains))
    n = halves.shape[1]
    if n < 2:
        return float("nan")
    within = halves.var(1, ddof=1).mean()
    between = n * halves.mean(1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else float("inf")
    return float(np.sqrt((n - 1) / n + between / (n * within)))


def effective_draws(chains: np.ndarray) -> float:
    """How many independent draws traces (chains, draws) are worth, by Geyer's initial positive sequence.

    >>> 900 < effective_draws(np.random.default_rng(0).standard_normal((1, 1000))) < 1100
    True
    """
    halves = _halves(np.atleast_2d(chains))
    m, n = halves.shape
    if n < 4:
        return float("nan")
    centred = halves - halves.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum)[:, :n].mean(0) / n  # at lags 0, 1, ..
    within = covariance[0] * n / (n - 1)
    total = within * (n - 1) / n + (halves.mean(1).var(ddof=1) if m > 1 else 0.0)
    if total == 0:
        return float(m * n)
    rho = 1 - (within - covariance * n / (n - 1)) / total
    even = n - n % 2
    sums = rho[:even:2] + rho[1:even:2]  # of neighbouring lags, the first of lags 0 and 1
    negative = np.flatnonzero(sums < 0)
    kept = np.minimum.accumulate(sums[: negative[0] if negative.size else sums.size])
    return float(min(m * n / max(2 * kept.sum() - 1, 1e-3), m * n * np.log10(m * n)))


def _halves(chains: np.ndarray) -> np.ndarray:
    """Each chain as two, the middle draw of an odd number left out."""
    n = chains.shape[1] // 2
    return np.concatenate([chains[:, :n], chains[:, chains.shape[1] - n :]])
