"""What lists of a fit are ranked by: the one place that decides.

A posterior at temperature 1 is taken at its word: p(shown) E[psi]^g. One that was made cold for the sake of lists
(T < 1) has energies so far apart that sigma is next to 1 for a whole list, and popularity alone would order it: there
the odds of being shown take the place of the probability, exp(x) E[psi]^g, and variances count T times, as they did in
the updates. Odds are compared by their logs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.logistic import moderated
from ..settings import Settings


@dataclass(frozen=True)
class Ranking:
    temperature: float = 1.0

    @staticmethod
    def of(settings: Settings) -> Ranking:
        return Ranking(settings.temperature)

    @property
    def by_odds(self) -> bool:
        return self.temperature < 1

    def weights(self, popularity: np.ndarray, exponent: float) -> np.ndarray:
        """What popularity brings to the scores, as a factor; to odds, whose logs are compared, as a summand."""
        return np.asarray(exponent * np.log(popularity) if self.by_odds else popularity**exponent)

    def scores(
        self, mean: np.ndarray, variance: np.ndarray, popularity: np.ndarray, exponents: tuple[float, ...]
    ) -> list[np.ndarray]:
        """Scores from means and variances of energies, a matrix or row for each exponent of popularity."""
        x = moderated(mean, variance if self.temperature == 1 else self.temperature * variance)
        likes = x if self.by_odds else np.asarray(1 / (1 + np.exp(-x)))
        weights = [self.weights(popularity, g).astype(likes.dtype) for g in exponents]
        return [likes + w if self.by_odds else likes * w for w in weights]
