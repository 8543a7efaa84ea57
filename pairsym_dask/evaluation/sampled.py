"""Scores of held-out pairs from draws, averaged over them; a source of ranks as `ranks.Committed` is for a fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..answers.draws import DrawPredictor, SymbolDraws, predictor_once
from ..store.commit import Commit
from ..store.counts import Counts
from .ranks import ByExponents


@dataclass(frozen=True)
class Sampled(ByExponents):
    """The draws of a chain, ranking by mean sigma * E[psi]^exponent for one or several exponents."""

    commits: tuple[Commit, ...]
    counts: Counts
    exponents: tuple[float, ...]

    def load(self, counts: Counts, positions: np.ndarray) -> tuple[DrawPredictor, SymbolDraws]:
        predictor = predictor_once(self.commits, self.counts)
        assert isinstance(predictor, DrawPredictor)
        return predictor, predictor.users(positions)

    def score(
        self, loaded: tuple[DrawPredictor, SymbolDraws], part: slice, row: np.ndarray, item: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        predictor, users = loaded
        sigma, p, offered = predictor.averages(users.take(part))
        return [sigma * offered**g for g in self.exponents], np.log(p[row, item])

    def shared_bytes(self, items: int) -> int:
        return len(self.commits) * items * self._symbol_bytes()

    def row_bytes(self) -> int:
        return 2 * len(self.commits) * self._symbol_bytes()

    def _symbol_bytes(self) -> int:
        settings = self.commits[-1].settings
        return (settings.factors + 1) * np.dtype(settings.dtype).itemsize + 8 * settings.components
