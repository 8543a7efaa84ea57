"""Half-sweeps of blocks in memory: what tasks do between reading and writing.

Every draw comes from a stream by (seed, sweep, purpose, side, row), whatever the block it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..kernels.draws import TOTALS, add_own_pairs, add_their_pairs, draw_statistics_size, fill_draw_table
from ..kernels.layout import padded_width, row_offsets
from ..kernels.random import alias_table
from ..kernels.row_draws import draw_rows
from ..kernels.streams import draw_gammas, stream_key
from ..settings import SIDES, Settings
from ..store.cuts import Tile
from .hyper import Prior
from .plan import ROWS

# Purposes of streams.
PAIRS, TRAITS, SELECTION, PRIOR, BIAS_PRIOR, START, TWOS, STEPS, WEIGHTS, CHOICE, MIXTURE = range(11)
TAGS, TAG_BIASES, RELEVANCE, TAG_START, NEWCOMERS = range(11, 16)

NO_CENTRES = np.empty((0, 0))  # of rows whose prior means are all that of their side


@dataclass(frozen=True)
class Keys:
    """Keys of one sweep's streams."""

    seed: int
    sweep: int

    def of(self, purpose: int, side: str) -> np.uint64:
        return stream_key(self.seed, self.sweep, 2 * purpose + SIDES.index(side))


@dataclass(frozen=True)
class Drawn:
    """One draw of a block of symbols: traits, biases, and Gamma numbers that make pi or psi over their sum.

    Where selection has several components there is a Gamma number for each: (symbols, components).
    """

    traits: np.ndarray
    bias: np.ndarray
    selection: np.ndarray

    @property
    def chosen(self) -> np.ndarray:
        """Selection (symbols, components), also of one component."""
        return self.selection.reshape(self.bias.size, -1)

    def table(self, width: int) -> np.ndarray:
        table = np.empty(self.bias.size * width, self.traits.dtype)
        fill_draw_table(self.traits, self.bias, width, table)
        return table


@dataclass(frozen=True)
class ProposedSide:
    """A side as rows of the other one propose from it: its draw table, and alias tables of its selection.

    There is an alias table for each component, one after another; where there are several, `chances` (symbols,
    components) are what they are made of.
    """

    table: np.ndarray
    kept: np.ndarray
    alias: np.ndarray
    chances: np.ndarray

    @staticmethod
    def make(drawn: Drawn, factors: int, selection: np.ndarray | None = None) -> ProposedSide:
        """Of a draw; proposed by its own selection, or by another one."""
        weights = (drawn.selection if selection is None else selection).reshape(drawn.bias.size, -1)
        chances = [weight / weight.sum() for weight in np.ascontiguousarray(weights.T)]
        kept, alias = (np.concatenate(parts) for parts in zip(*map(alias_table, chances), strict=True))
        several = np.stack(chances, 1) if len(chances) > 1 else np.empty((0, 1))
        return ProposedSide(drawn.table(padded_width(factors)), kept, alias, several)

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.kept.nbytes + self.alias.nbytes + self.chances.nbytes


def draw_own(
    keys: Keys, settings: Settings, side: str, first: int, old: Drawn, rates: np.ndarray, tile: Tile,
    columns: ProposedSide, prior: Prior, complain: Callable[[int], None], centres: np.ndarray = NO_CENTRES,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """New traits and biases of a block of the long side, its pairs by row and component, and the totals of its pairs.

    `rates` (rows, components) are expected proposals; `complain` is told a row that cannot be drawn; `centres` (rows,
    K + 1) are what tags add to the prior means of traits and biases.
    """
    factors, dtype = settings.factors, settings.dtype
    width, size = padded_width(factors), draw_statistics_size(factors)
    n = old.bias.size
    table, precision, right = old.table(width), *prior.joint()
    traits, bias = np.empty((n, factors), dtype), np.empty(n, dtype)
    pairs, totals = np.zeros((n, settings.components), np.int64), np.zeros(TOTALS)
    stats = np.empty((min(n, ROWS), size), dtype)
    for start in range(0, n, ROWS):
        rows = slice(start, min(start + ROWS, n))
        some = stats[: rows.stop - start]
        add_own_pairs(
            keys.of(PAIRS, side), first + start, rates[rows], tile.indptr[start : rows.stop + 1], tile.indices,
            tile.counts, columns.kept, columns.alias, columns.chances, table[start * width : rows.stop * width],
            columns.table, factors, some, pairs[rows], totals,
        )  # fmt: skip
        failed = draw_rows(
            keys.of(TRAITS, side), first + start, some, row_offsets(width), factors, settings.biases, precision, right,
            centres[rows], traits[rows], bias[rows],
        )  # fmt: skip
        if failed >= 0:
            complain(start + failed)
    return traits, bias, pairs, totals


def gather(
    keys: Keys, settings: Settings, side: str, first: int, long: Drawn, rates: np.ndarray, tile: Tile,
    columns: ProposedSide, start: int, buffer: int, stats: np.ndarray, pairs: np.ndarray, totals: np.ndarray,
) -> None:  # fmt: skip
    """Add a block of the long side's pairs to the statistics and pairs of the short `side` from `start` on."""
    add_their_pairs(
        keys.of(PAIRS, side), first, rates, tile.indptr, tile.indices, tile.counts, columns.kept, columns.alias,
        columns.chances, long.table(padded_width(settings.factors)), columns.table, settings.factors, start, buffer,
        stats, pairs, totals,
    )  # fmt: skip


def draw_gathered(
    keys: Keys, settings: Settings, side: str, first: int, stats: np.ndarray, prior: Prior,
    complain: Callable[[int], None], centres: np.ndarray = NO_CENTRES,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """New traits and biases of a block of the short side from its statistics."""
    n, factors, dtype = stats.shape[0], settings.factors, settings.dtype
    traits, bias = np.empty((n, factors), dtype), np.empty(n, dtype)
    failed = draw_rows(
        keys.of(TRAITS, side), first, stats, row_offsets(padded_width(factors)), factors, settings.biases,
        *prior.joint(), centres, traits, bias,
    )  # fmt: skip
    if failed >= 0:
        complain(failed)
    return traits, bias


def draw_selection(keys: Keys, settings: Settings, side: str, first: int, pairs: np.ndarray) -> np.ndarray:
    """Gamma(alpha + pairs) numbers of a block's rows and components: divided by their sum, a Dirichlet draw."""
    out = np.empty(pairs.shape)
    draw_gammas(keys.of(SELECTION, side), first, settings.alpha + pairs, out)
    return out[:, 0] if settings.components == 1 else out
