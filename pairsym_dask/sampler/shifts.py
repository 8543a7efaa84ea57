"""Shifts of selection against energies for blocks in memory, before their half-sweep: see `kernels/shifts.py`.

Rows of the long side shift in twos within their block, the short side's in twos of all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.layout import padded_width
from ..kernels.shifts import accept_shifts, measure_rows, propose_shifts, weigh_shifts
from ..kernels.wishart import solve_definite
from ..settings import Settings
from ..store.cuts import Tile
from .halves import CHOICE, NO_CENTRES, STEPS, TWOS, WEIGHTS, Drawn, Keys, ProposedSide
from .hyper import Prior


def has_shifts(settings: Settings) -> bool:
    """Whether symbols shift: there are biases, and one component, whose selection of two symbols together can stay."""
    return settings.biases and settings.components == 1


@dataclass(frozen=True)
class Slope:
    """Along which line [traits, bias] of a side step: the one that costs its prior least.

    With z = [mean traits of the other side, 1] and the prior N(m, S) of [traits, bias] a step of t adds
    t S z / z^T S z: then the effect z^T [traits, bias], the energy with an average symbol, grows by t, and its prior is
    N(z^T m, z^T S z).
    """

    to: np.ndarray  # z
    along: np.ndarray  # S z / z^T S z
    mean: float
    precision: float

    @staticmethod
    def make(own: Prior, other: Prior) -> Slope:
        to = np.append(other.mean, 1.0)
        along, square = other.mean.copy(), own.precision.copy()
        solve_definite(square, along)
        along = np.append(along, 1.0 / own.bias_precision)
        variance = float((to * along).sum())
        mean = float((to * np.append(own.mean, own.bias_mean)).sum())
        return Slope(to, along / variance, mean, 1.0 / variance)

    def effects(self, table: np.ndarray) -> np.ndarray:
        """What the energies of a side's symbols are with an average one of the other side."""
        return self._measure(table, np.concatenate([self.to[:-1], [0.0, 1.0]]))

    def leans(self, table: np.ndarray) -> np.ndarray:
        """How much the energies with symbols of the other side grow by a step of one."""
        return self._measure(table, np.append(self.along, 0.0))

    def _measure(self, table: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Products of table rows [traits, one, bias] with weights."""
        width = padded_width(self.to.size - 1)
        out = np.empty(table.size // width)
        measure_rows(table, width, weights, out)
        return out

    def shifted(self, old: Drawn, steps: np.ndarray) -> Drawn:
        """Rows after their steps."""
        return Drawn(
            (old.traits + np.outer(steps, self.along[:-1])).astype(old.traits.dtype),
            (old.bias + steps * self.along[-1]).astype(old.bias.dtype),
            old.selection * np.exp(-steps),
        )


@dataclass(frozen=True)
class Shifting:
    """The short side while it may shift: its steps, and itself as it is proposed from, by the larger selections."""

    steps: np.ndarray
    columns: ProposedSide
    mass: float  # what the larger selections sum to, over what selection does

    @staticmethod
    def make(keys: Keys, settings: Settings, side: str, old: Drawn, counts: np.ndarray) -> Shifting:
        steps = propose(keys, side, 0, old, counts)
        most = larger(old, steps)
        mass = float(most.sum() / old.selection.sum())
        return Shifting(steps, ProposedSide.make(old, settings.factors, most), mass)

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
    keys: Keys, settings: Settings, side: str, first: int, table: np.ndarray, steps: np.ndarray, ratios: np.ndarray,
    slope: Slope, centres: np.ndarray = NO_CENTRES,
) -> np.ndarray:  # fmt: skip
    """The steps that are taken, 0 for the others; `centres` as in `draw_own`."""
    taken, effects = steps.copy(), slope.effects(table)
    if centres.size:
        effects -= (centres * slope.to).sum(1)
    accept_shifts(
        keys.of(TWOS, side), keys.of(CHOICE, side), first, taken, ratios, settings.alpha, effects,
        slope.mean, slope.precision,
    )  # fmt: skip
    return taken


def shift_rows(
    keys: Keys, settings: Settings, side: str, first: int, old: Drawn, counts: np.ndarray, scale: float, tile: Tile,
    columns: ProposedSide, slope: Slope, centres: np.ndarray = NO_CENTRES,
) -> np.ndarray:  # fmt: skip
    """The steps that a block of the long side takes; `scale` times selection are expected proposals."""
    steps, ratios = propose(keys, side, first, old, counts), np.zeros(counts.size)
    table = old.table(padded_width(settings.factors))
    weigh_shifts(
        keys.of(WEIGHTS, side), first, scale * larger(old, steps), tile.indptr, tile.indices, tile.counts,
        columns.kept, columns.alias, table, columns.table, settings.factors, steps,
        slope.leans(columns.table), True, ratios,
    )  # fmt: skip
    return accept(keys, settings, side, first, table, steps, ratios, slope, centres)


def weigh_columns(
    keys: Keys, settings: Settings, side: str, first: int, long: Drawn, scale: float, tile: Tile, shifting: Shifting,
    slope: Slope, ratios: np.ndarray,
) -> None:  # fmt: skip
    """Add what a block of the long side says of the steps of the short `side`."""
    table = long.table(padded_width(settings.factors))
    weigh_shifts(
        keys.of(WEIGHTS, side), first, scale * shifting.mass * long.selection, tile.indptr, tile.indices, tile.counts,
        shifting.columns.kept, shifting.columns.alias, table, shifting.columns.table, settings.factors, shifting.steps,
        slope.leans(table), False, ratios,
    )  # fmt: skip
