"""The variational bound from sums that the passes return anyway, and expectations under its Dirichlets."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gammaln, psi

from ..settings import Settings

LOG_2_PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class SideSums:
    """What one side adds to the bound, summed over a block of its rows."""

    gauss: float  # sum of E[log p] - E[log q] of traits and biases
    weighted: float  # sum (c + D's + alpha0 - alpha) psi(alpha)
    weight: float  # sum (c + D's + alpha0 - alpha)
    log_gamma: float  # sum log Gamma(alpha)
    entropy: float  # -sum s log s

    @staticmethod
    def add(parts: list[SideSums]) -> SideSums:
        """Sum of blocks, always in the blocks' order."""
        return SideSums(*(float(np.sum([getattr(part, f.name) for part in parts])) for f in fields(SideSums)))


def side_sums(
    moments: np.ndarray,
    selection: np.ndarray,
    weights: np.ndarray,
    marginal: np.ndarray,
    growth: np.ndarray,
    censored: float,
    tau: float,
    settings: Settings,
) -> SideSums:
    """`SideSums` of a block of rows from its `moments.add_background` sums; `weights` are s or t, `censored` is D'."""
    rows, temperature = selection.size, settings.temperature
    grown = settings.factors * float(np.sum(np.log(growth)))
    gauss = _gauss(rows * settings.factors, moments[:3], tau, grown, temperature)
    if settings.biases:
        gauss += _gauss(rows, moments[3:], settings.tau_b, 0.0, temperature)
    # (c + D's) E[log pi] and the Dirichlet's log p - log q meet in one coefficient.
    coefficient = marginal + censored * weights + settings.alpha - selection
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.sum(np.where(weights > 0, weights * np.log(weights), 0.0))
    return SideSums(
        gauss=gauss,
        weighted=float(np.sum(coefficient * psi(selection))),
        weight=float(np.sum(coefficient)),
        log_gamma=float(np.sum(gammaln(selection))),
        entropy=float(entropy),
    )


def _gauss(numbers: int, moments: np.ndarray, tau: float, grown: float, temperature: float) -> float:
    """sum of E[log p] + T H(q), with p = N(0, 1/(g tau)) and v = T / precision; `grown` is sum log g.

    At T = 1 that is 1/2 (log(g tau v) - g tau (m^2 + v) + 1); the bound of a cold posterior counts entropies T times.
    """
    log_variance, square, variance = moments
    fit = numbers * np.log(tau) + grown - tau * (square + variance)
    if temperature == 1:
        return float(0.5 * (log_variance + (numbers * (np.log(tau) + 1.0) + grown) - tau * (square + variance)))
    entropy = temperature * (log_variance + numbers * (LOG_2_PI + 1.0)) if temperature > 0 else 0.0
    return float(0.5 * (entropy + fit - numbers * LOG_2_PI))


def dirichlet_total(size: int, total: float, censored: float, alpha: float) -> float:
    """Sum of a side's Dirichlet parameters: s and t sum to one."""
    return size * alpha + total + censored


def dirichlet_parameters(marginal: np.ndarray, weights: np.ndarray, censored: float, alpha: float) -> np.ndarray:
    """alpha_i = alpha + c_i + D' s_i."""
    return np.asarray(alpha + marginal + censored * weights)


def counted_share(marginal: np.ndarray, size: int, total: float, alpha: float) -> np.ndarray:
    """s_i as the counts alone would have it, that is under constant messages."""
    return np.asarray((alpha + marginal) / (size * alpha + total))


def side_bound(sums: SideSums, size: int, total: float, censored: float, settings: Settings) -> float:
    """All terms of the bound that belong to one side alone."""
    whole = dirichlet_total(size, total, censored, settings.alpha)
    dirichlet = (
        sums.weighted
        - psi(whole) * sums.weight
        + sums.log_gamma
        - gammaln(whole)
        + gammaln(size * settings.alpha)
        - size * gammaln(settings.alpha)
    )
    return float(sums.gauss + dirichlet + censored * sums.entropy)


def expected_log(selection: np.ndarray, whole: float) -> np.ndarray:
    """E[log pi_i] under a Dirichlet."""
    return np.asarray(psi(selection) - psi(whole))


def log_sum_exp(parts: np.ndarray) -> float:
    """log sum exp from (maximum, sum exp(x - maximum)) of blocks, a row each."""
    top = parts[:, 0].max()
    return float(top + np.log(np.sum(parts[:, 1] * np.exp(parts[:, 0] - top))))
