"""The variational bound from sums that the passes return anyway, and the messages behind s and t."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gammaln, psi

from ..settings import Settings
from .background import Background, lambda_of, star_constant


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
    background: np.ndarray,
    marginal: np.ndarray,
    censored: float,
    tau: float,
    settings: Settings,
) -> SideSums:
    """`SideSums` of a block of rows from its `kernels.add_background` moments; `censored` is D'."""
    rows = selection.size
    gauss = _gauss(rows * settings.factors, moments[:3], tau)
    if settings.biases:
        gauss += _gauss(rows, moments[3:], settings.tau_b)
    # (c + D's) E[log pi] and the Dirichlet's log p - log q meet in one coefficient.
    coefficient = marginal + censored * background + settings.alpha - selection
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.sum(np.where(background > 0, background * np.log(background), 0.0))
    return SideSums(
        gauss=gauss,
        weighted=float(np.sum(coefficient * psi(selection))),
        weight=float(np.sum(coefficient)),
        log_gamma=float(np.sum(gammaln(selection))),
        entropy=float(entropy),
    )


def _gauss(numbers: int, moments: np.ndarray, tau: float) -> float:
    """sum of 1/2 (log(tau v) - tau (m^2 + v) + 1) from sum log v, sum m^2 and sum v."""
    log_variance, square, variance = moments
    return float(0.5 * (log_variance + numbers * (np.log(tau) + 1.0) - tau * (square + variance)))


def dirichlet_total(size: int, total: float, censored: float, alpha: float) -> float:
    """Sum of a side's Dirichlet parameters: s and t sum to one."""
    return size * alpha + total + censored


def share(marginal: np.ndarray, size: int, total: float, alpha: float) -> np.ndarray:
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


def messages(stats: np.ndarray, table: np.ndarray, its: Background, xi_star: float) -> np.ndarray:
    """sum_j t_j Omega_ij for a block of rows: S1 + lambda* S2 - S0 (...) + sum_j t_j Omega*_ij."""
    star = its.message_star(table, stats.shape[0], xi_star)
    s0, s1, s2 = stats[:, 0], stats[:, 1], stats[:, 2]
    # sum t (Omega - Omega*) over observed pairs; their energies' linear terms cancel.
    return np.asarray(s1 + lambda_of(xi_star) * s2 - s0 * star_constant(xi_star) + star)


def expected_log(selection: np.ndarray, whole: float) -> np.ndarray:
    """E[log pi_i] under a Dirichlet."""
    return np.asarray(psi(selection) - psi(whole))


def log_sum_exp(parts: list[tuple[float, float]]) -> float:
    """log sum exp from (maximum, sum exp(x - maximum)) of blocks."""
    top = max(maximum for maximum, _ in parts)
    return float(top + np.log(np.sum([total * np.exp(maximum - top) for maximum, total in parts])))
