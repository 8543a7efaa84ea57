"""Shifts of selection against bias for blocks in memory, before their half-sweep: see `kernels/shifts.py`.

Rows of the long side shift in twos within their block, the short side's in twos of all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.layout import padded_width
from ..kernels.shifts import accept_shifts, propose_shifts, weigh_shifts
from ..settings import Settings
from ..store.cuts import Tile
from .halves import CHOICE, STEPS, TWOS, WEIGHTS, Columns, Drawn, Keys
from .hyper import Prior


@dataclass(frozen=True)
class Shifting:
    """The short side while it may shift: its steps, and itself as it is proposed from, by the larger selections."""

    steps: np.ndarray
    columns: Columns
    mass: float  # what the larger selections sum to, over what selection does

    @staticmethod
    def make(keys: Keys, settings: Settings, side: str, old: Drawn, counts: np.ndarray) -> Shifting:
        steps = propose(keys, side, 0, old, counts)
        most = larger(old, steps)
        mass = float(most.sum() / old.selection.sum())
        return Shifting(steps, Columns.make(old, settings.factors, most), mass)

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes + self.steps.nbytes


def propose(keys: Keys, side: str, first: int, old: Drawn, counts: np.ndarray) -> np.ndarray:
    """Steps t of a group of rows from `first` on."""
    steps = np.empty(counts.size)
    propose_shifts(keys.of(TWOS, side), keys.of(STEPS, side), first, counts.astype(float), old.selection, steps)
    return steps


def larger(old: Drawn, steps: np.ndarray) -> np.ndarray:
    """The larger of selection before and after a step."""
    return np.asarray(old.selection * np.exp(np.maximum(-steps, 0.0)))


def accept(
    keys: Keys, settings: Settings, side: str, first: int, old: Drawn, steps: np.ndarray, weights: np.ndarray,
    prior: Prior,
) -> np.ndarray:  # fmt: skip
    """The steps that are taken, 0 for the others."""
    taken = steps.copy()
    accept_shifts(
        keys.of(TWOS, side), keys.of(CHOICE, side), first, taken, weights, settings.alpha, old.bias, prior.bias_mean,
        prior.bias_precision,
    )  # fmt: skip
    return taken


def shifted(old: Drawn, steps: np.ndarray) -> Drawn:
    """Rows after their steps."""
    return Drawn(old.traits, (old.bias + steps).astype(old.bias.dtype), old.selection * np.exp(-steps))


def shift_rows(
    keys: Keys, settings: Settings, side: str, first: int, old: Drawn, counts: np.ndarray, scale: float, tile: Tile,
    columns: Columns, prior: Prior,
) -> np.ndarray:  # fmt: skip
    """The steps that a block of the long side takes; `scale` times selection are expected proposals."""
    steps, weights = propose(keys, side, first, old, counts), np.zeros(counts.size)
    weigh_shifts(
        keys.of(WEIGHTS, side), first, scale * larger(old, steps), tile.indptr, tile.indices, tile.counts,
        columns.kept, columns.alias, old.table(padded_width(settings.factors)), columns.table, settings.factors, steps,
        True, weights,
    )  # fmt: skip
    return accept(keys, settings, side, first, old, steps, weights, prior)


def weigh_columns(
    keys: Keys, settings: Settings, side: str, first: int, long: Drawn, scale: float, tile: Tile, shifting: Shifting,
    weights: np.ndarray,
) -> None:  # fmt: skip
    """Add what a block of the long side says of the steps of the short `side`."""
    weigh_shifts(
        keys.of(WEIGHTS, side), first, scale * shifting.mass * long.selection, tile.indptr, tile.indices, tile.counts,
        shifting.columns.kept, shifting.columns.alias, long.table(padded_width(settings.factors)),
        shifting.columns.table, settings.factors, shifting.steps, False, weights,
    )  # fmt: skip
