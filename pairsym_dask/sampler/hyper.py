"""Priors of a side's traits and biases: kept at the taus, or drawn from Normal-Wishart and Normal-Gamma posteriors.

Traits are N(mu, Lambda^-1) with Lambda ~ Wishart(I, K) and mu ~ N(0, (2 Lambda)^-1); biases N(m, 1 / t) with
t ~ Gamma(1, 1) and m ~ N(0, 1 / (2 t)).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np

from ..errors import NumericError
from ..kernels.wishart import draw_normal_gamma, draw_normal_wishart
from ..settings import Settings

STRENGTH = 2.0  # beta_0: pseudo-rows behind the prior mean of a mean
SHAPE, RATE = 1.0, 1.0  # of the precision of biases


@dataclass(frozen=True)
class Prior:
    """Normal priors of a side: traits N(mean, precision^-1), biases N(bias_mean, 1 / bias_precision)."""

    mean: np.ndarray
    precision: np.ndarray
    bias_mean: float
    bias_precision: float

    @staticmethod
    def fixed(settings: Settings, side: str) -> Prior:
        """The taus; also what a chain with hyperpriors starts from."""
        factors = settings.factors
        return Prior(np.zeros(factors), settings.tau(side) * np.eye(factors), 0.0, settings.tau_b)

    def joint(self) -> tuple[np.ndarray, np.ndarray]:
        """Precision of [traits, bias], and that times their mean."""
        factors = self.mean.size
        precision, right = np.zeros((factors + 1, factors + 1)), np.zeros(factors + 1)
        precision[:factors, :factors], precision[factors, factors] = self.precision, self.bias_precision
        # Summed by numpy itself: a library's product may depend on its threads.
        right[:factors], right[factors] = (self.precision * self.mean).sum(1), self.bias_precision * self.bias_mean
        return precision, right

    def encode(self) -> str:
        """As a record holds it."""
        parts = [self.mean, self.precision.reshape(-1), np.array([self.bias_mean, self.bias_precision])]
        return base64.b64encode(np.concatenate(parts).astype("<f8").tobytes()).decode()

    @staticmethod
    def decode(text: str, factors: int) -> Prior:
        values = np.frombuffer(base64.b64decode(text), "<f8")
        precision = values[factors : factors + factors**2].reshape(factors, factors)
        return Prior(values[:factors], precision, float(values[-2]), float(values[-1]))


def draw_prior(keys: tuple[np.uint64, np.uint64], moments: np.ndarray, settings: Settings) -> Prior:
    """A prior given its side's rows by their moments, sums of products of [traits, bias, 1] above the diagonal."""
    factors = settings.factors
    n = float(moments[-1, -1])
    upper = moments[:factors, :factors]
    total = moments[:factors, -1]
    centre = total / (STRENGTH + n)
    # I + S + beta_0 n / (beta_0 + n) xbar xbar^T, with S the scatter about the mean
    scatter = np.eye(factors) + np.triu(upper) + np.triu(upper, 1).T - np.outer(total, centre)
    mean, precision = np.empty(factors), np.empty((factors, factors))
    if not draw_normal_wishart(keys[0], scatter, factors + n, STRENGTH + n, centre, mean, precision):
        raise NumericError(
            "the traits' scatter is not positive definite, so that no prior can be drawn; the last committed sweep is "
            'intact; dtype="float64" may help'
        )
    if not settings.biases:
        return Prior(mean, precision, 0.0, settings.tau_b)
    bias, square = float(moments[factors, -1]), float(moments[factors, factors])
    middle = bias / (STRENGTH + n)
    rate = RATE + 0.5 * max(square - bias * middle, 0.0)
    bias_mean, bias_precision = draw_normal_gamma(keys[1], SHAPE + 0.5 * n, rate, STRENGTH + n, middle)
    return Prior(mean, precision, float(bias_mean), float(bias_precision))
