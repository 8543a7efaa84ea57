"""The negative background of a side: a few hundred numbers that stand for all unobserved pairs.

For the side with weights t and table rows z = [m, 1, b], v = [v, w] a background holds B = sum t z z^T and
d = sum t v, as float64, in the layout of `packing`. In the paper's letters P_minus = B[:K,:K] + diag(d),
m-double-dagger = B[:K,K], m-dagger = B[:K,K+1], nu = B[K,K+1], kappa = B[K+1,K+1] + sum t w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..kernels.layout import padded_width, row_offsets, statistics_size, triangle_size
from ..kernels.moments import background_moments
from ..kernels.rows import LOGISTIC, SQUARE, WEIGHT


def lambda_of(xi: float) -> float:
    """lambda(xi) = tanh(xi/2) / (4 xi), and 1/8 at 0.

    >>> lambda_of(0.0)
    0.125
    """
    return 0.125 if xi < 1e-8 else float(np.tanh(xi / 2) / (4 * xi))


def star_constant(xi: float) -> float:
    """log sigma(xi*) + lambda* xi*^2 - xi*/2: the constant of Omega* (written once, see design of s)."""
    return float(-np.log1p(np.exp(-xi)) + lambda_of(xi) * xi * xi - xi / 2)


def add_packed(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of blocks' packed sums in their order: `np.sum(parts, axis=0)`, which would copy all of them."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


@dataclass(frozen=True)
class Background:
    factors: int
    packed: np.ndarray  # float64, statistics_size(factors); the last part is zero

    def _entry(self, r: int, c: int) -> float:
        offsets = row_offsets(padded_width(self.factors))
        return float(self.packed[offsets[r] + c])

    @property
    def precision(self) -> np.ndarray:
        """P (K, K)."""
        k, width = self.factors, padded_width(self.factors)
        offsets = row_offsets(width)
        upper = np.zeros((k, k))
        for r in range(k):
            upper[r, r:] = self.packed[offsets[r] + r : offsets[r] + k]
        d = self.packed[triangle_size(width) : triangle_size(width) + k]
        return np.asarray(upper + np.triu(upper, 1).T + np.diag(d))

    def _column(self, c: int) -> np.ndarray:
        return self.packed[row_offsets(padded_width(self.factors))[: self.factors] + c]

    @property
    def double_dagger(self) -> np.ndarray:
        return self._column(self.factors)

    @property
    def dagger(self) -> np.ndarray:
        return self._column(self.factors + 1)

    @property
    def nu(self) -> float:
        return self._entry(self.factors, self.factors + 1)

    @property
    def kappa(self) -> float:
        k = self.factors
        return self._entry(k + 1, k + 1) + float(self.packed[triangle_size(padded_width(k)) + k])

    @property
    def square(self) -> np.ndarray:
        """B as a full padded matrix (width, width)."""
        width = padded_width(self.factors)
        offsets = row_offsets(width)
        upper = np.zeros((width, width))
        for r in range(self.factors + 2):
            upper[r, r:] = self.packed[offsets[r] + r : offsets[r] + width]
        return np.asarray(upper + np.triu(upper, 1).T)

    @property
    def variances(self) -> np.ndarray:
        """sum t v, padded (width)."""
        width = padded_width(self.factors)
        return self.packed[triangle_size(width) : triangle_size(width) + width]

    @staticmethod
    def of_square(factors: int, square: np.ndarray, variances: np.ndarray) -> Background:
        """The background with such `square` and `variances`."""
        width = padded_width(factors)
        offsets, packed = row_offsets(width), np.zeros(statistics_size(factors))
        for r in range(factors + 2):
            packed[offsets[r] + r : offsets[r] + width] = square[r, r:]
        packed[triangle_size(width) : triangle_size(width) + width] = variances
        return Background(factors, packed)

    def dense(self, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """B and sum t v, flat, as kernels take them."""
        return self.square.astype(dtype).reshape(-1), self.variances.astype(dtype)

    def average(self, temperature: float) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Mean, precision, bias and its precision of the side's average symbol: a start for one among settled ones."""
        with np.errstate(divide="ignore"):  # no biases: no variance
            precision = temperature / self.variances[: self.factors + 1] if temperature else np.ones(self.factors + 1)
        return self.double_dagger, precision[:-1], self.nu, float(precision[-1])

    def message_star(self, table: np.ndarray, n: int, xi_star: float) -> np.ndarray:
        """sum_j t_j Omega*_ij for every row of a table, float64."""
        moments = np.empty((n, 2))
        background_moments(table, n, self.factors, self.square.reshape(-1), self.variances, moments)
        return np.asarray(-lambda_of(xi_star) * moments[:, 0] + star_constant(xi_star) - moments[:, 1] / 2)


def observed_messages(stats: np.ndarray, xi_star: float) -> np.ndarray:
    """sum_j t_j (Omega_ij - Omega*_ij) over the observed pairs of rows: their energies' linear terms cancel."""
    s0, s1, s2 = stats[:, WEIGHT], stats[:, LOGISTIC], stats[:, SQUARE]
    return np.asarray(s1 + lambda_of(xi_star) * s2 - s0 * star_constant(xi_star))


def observed_message(sums: np.ndarray, xi_star: float) -> float:
    """The same summed over rows with weights s_i, from the weighted sums of their statistics."""
    return float(observed_messages(sums[None], xi_star)[0])


def messages(stats: np.ndarray, table: np.ndarray, its: Background, xi_star: float) -> np.ndarray:
    """sum_j t_j Omega_ij for a block of rows."""
    return np.asarray(observed_messages(stats, xi_star) + its.message_star(table, stats.shape[0], xi_star))


def expected_square(own: Background, its: Background) -> float:
    """sum_ij s_i t_j E[a_ij^2] over all pairs, from the two backgrounds ("full")."""
    return float(
        np.sum(own.precision * its.precision)
        + 2 * own.double_dagger @ its.dagger
        + 2 * own.dagger @ its.double_dagger
        + 2 * own.nu * its.nu
        + own.kappa
        + its.kappa
    )


def whole_message(own: Background, its: Background, xi_star: float) -> float:
    """sum_ij s_i t_j Omega*_ij over all pairs, from the two backgrounds."""
    mean = float(own.double_dagger @ its.double_dagger) + own.nu + its.nu
    return -lambda_of(xi_star) * expected_square(own, its) + star_constant(xi_star) - mean / 2


def update_xi_star(xi_star: float, own: Background, its: Background, observed_square: float, observed: float) -> float:
    """The shared xi*: root mean square of the energy over unobserved pairs, weighted by s_i t_j.

    `observed_square` is sum t_j S2_j and `observed` sum t_j S0_j. Where nothing is unobserved xi* stays.
    """
    unobserved = 1.0 - observed
    if unobserved < 1e-12:
        return xi_star
    return float(np.sqrt(max(expected_square(own, its) - observed_square, 0.0) / unobserved))
