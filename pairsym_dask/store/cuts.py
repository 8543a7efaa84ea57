"""How the pairs of a counts store are cut into tiles and chunks.

The shape and the number of pairs say how, as if pairs were spread evenly. Where they are not, so that a tile would hold
many times its share, tiles are cut finer (`finer`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..settings import other
from .arrays import ArraySpec

LABELS = 65_536  # labels a chunk
PAIRS = 2**18  # pairs a chunk, at most
SHORT_BLOCK = 16_384  # rows a block on the short side, at most
LONG_BLOCK = 32_768


@dataclass(frozen=True)
class Cut:
    """How one order of the pairs is cut into tiles: blocks of rows x spans of columns."""

    side: str
    rows: int
    columns: int
    block: int
    span: int

    @cached_property
    def blocks(self) -> int:
        return -(-self.rows // self.block)

    @cached_property
    def groups(self) -> int:
        return -(-self.columns // self.span)

    @cached_property
    def tiles(self) -> int:
        return self.blocks * self.groups

    def row_range(self, block: int) -> tuple[int, int]:
        return block * self.block, min((block + 1) * self.block, self.rows)

    def column_range(self, group: int) -> tuple[int, int]:
        return group * self.span, min((group + 1) * self.span, self.columns)

    def tile(self, block: int, group: int) -> int:
        return block * self.groups + group


def _power_of_two(x: float) -> int:
    return 1 << max(0, round(float(np.log2(max(x, 1.0)))))


def long_side(users: int, items: int) -> str:
    """The side that is cut into whole rows."""
    return "users" if users >= items else "items"


def make_cuts(users: int, items: int, pairs: int) -> dict[str, Cut]:
    """Tiles of both orders of pairs that are spread evenly, from the shape and their number alone.

    The longer side is cut into blocks of rows over all columns; the shorter side into blocks of rows x groups of
    the longer side's blocks, because its rows are few and heavy.

    >>> make_cuts(620_000, 12_000, 5_500_000)["users"].block
    32768
    """
    size = {"users": users, "items": items}
    long = long_side(users, items)
    short = other(long)
    target = min(max(pairs / 16, 2.0**12), 2.0**18)
    block = min(max(_power_of_two(target * size[long] / max(pairs, 1)), 64), LONG_BLOCK)
    block = min(block, size[long])
    long_cut = Cut(long, size[long], size[short], block, size[short])
    short_block = min(SHORT_BLOCK, size[short])
    row_blocks = -(-size[short] // short_block)
    tasks = max(8.0, pairs / 2**20)
    groups = min(max(1, int(np.ceil(tasks / row_blocks))), long_cut.blocks)
    span = -(-long_cut.blocks // groups) * block
    return {long: long_cut, short: Cut(short, size[short], size[long], short_block, min(span, size[long]))}


@dataclass(frozen=True)
class Tile:
    """Pairs of one tile: row r has `indices[indptr[r]:indptr[r + 1]]`, columns counted over the whole store."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # uint32
    counts: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.indptr.nbytes + self.indices.nbytes + self.counts.nbytes)

    def check(self, columns: tuple[int, int]) -> None:
        """ValueError unless columns lie within a range and rise in every row, and counts are finite and above 0.

        Kernels follow columns into tables without looking; `indptr` is known to end with the number of pairs.
        """
        indices, counts = self.indices, self.counts
        if not indices.size:
            return
        if indices.min() < columns[0] or indices.max() >= columns[1]:
            raise ValueError(f"columns must be from {columns[0]} to {columns[1] - 1}")
        # Columns may fail to rise only where a row begins.
        starts = self.indptr[:-1][np.diff(self.indptr) > 0][1:]
        falls = np.count_nonzero(indices[1:] <= indices[:-1])
        if falls != np.count_nonzero(indices[starts] <= indices[starts - 1]):
            raise ValueError("columns must rise in every row")
        if not (counts.min() > 0 and counts.max() < np.inf):
            raise ValueError("counts must be finite and above 0")


@dataclass(frozen=True)
class Layout:
    """Arrays of a counts store before its size in chunks is known; enough to write any tile."""

    users: int
    items: int
    pairs: int
    count_dtype: str
    block: int | None = None  # rows of the long side, where they are fewer than of an even spread
    span: int | None = None  # columns of the short side, likewise

    @cached_property
    def long(self) -> str:
        """The side that is cut into whole rows."""
        return long_side(self.users, self.items)

    @cached_property
    def even(self) -> dict[str, Cut]:
        """Tiles of so many pairs that are spread evenly."""
        return make_cuts(self.users, self.items, self.pairs)

    @cached_property
    def cuts(self) -> dict[str, Cut]:
        long, short = self.even[self.long], self.even[other(self.long)]
        if self.block is not None:
            long = replace(long, block=self.block)
        return {long.side: long, short.side: short if self.span is None else replace(short, span=self.span)}

    @cached_property
    def chunk(self) -> int:
        """Pairs a chunk; the long side's tiles are written before the short side's span is known."""
        tiles = max(self.cuts[self.long].tiles, self.even[other(self.long)].tiles)
        return min(PAIRS, max(1024, _power_of_two(self.pairs / tiles)))

    def pair_arrays(self, side: str, slots: int) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
        """index, count and length of one order; `slots` chunks for the fullest tile."""
        cut = self.cuts[side]
        shape, chunks = (cut.tiles, slots * self.chunk), (1, self.chunk)
        names = ("tile", "pair")
        return (
            ArraySpec(f"by_{side[:-1]}/index", shape, chunks, "uint32", names, compressed=True),
            ArraySpec(f"by_{side[:-1]}/count", shape, chunks, self.count_dtype, names, compressed=True),
            ArraySpec(
                f"by_{side[:-1]}/length", (cut.tiles, cut.block), (1, cut.block), "uint32", ("tile", "row"), True
            ),
        )

    def slots(self, pairs: int) -> int:
        return -(-pairs // self.chunk)

    def marginal(self, side: str) -> ArraySpec:
        cut = self.cuts[side]
        return ArraySpec(
            f"{side}/marginal", (cut.rows,), (cut.block,), "float64", (side[:-1],), True, "finite and not below 0"
        )

    def label(self, side: str, dtype: str) -> ArraySpec:
        rows = self.cuts[side].rows
        return ArraySpec(f"{side}/label", (rows,), (min(LABELS, rows),), dtype, (side[:-1],), True, "rising")


def label_ends(label: ArraySpec) -> ArraySpec:
    """First and last label of each chunk of labels."""
    shape = (label.count, 2)
    return ArraySpec(f"{label.path}_ends", shape, shape, label.dtype, ("chunk", "end"), True)
