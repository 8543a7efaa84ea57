"""Finer cuts, where pairs are spread unevenly: old users or popular items come first, say.

Tiles are regular, so the fullest decides for all. A side is cut finer while its fullest tile holds more than tasks
should: it takes memory, and all wait for whoever has it. But not much finer than an even spread would be, because
blocks cost files and time in every sweep, and no finer than helps: rows that are heavy by themselves stay as they are.
All is counted in whole numbers, from the pairs alone: the same pairs are cut in the same way wherever they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..settings import other
from .cuts import Layout

FINER = 4  # times as many tiles as of an even spread, at most
TILES = 2**15  # of a side, at most, where an even spread has not more
LEAST_ROWS = 64  # of the long side a block, at least
FEW = 2**22  # pairs of a tile that nothing is cut finer for: 20 MiB and more, a second at K = 64


def blocks_of(layout: Layout) -> list[int]:
    """Rows that a block of the long side may have: those of an even spread, then half as many, ..."""
    even = layout.even[layout.long]
    found, most = [even.block], min(FINER * even.blocks, max(TILES, even.blocks))
    while found[-1] % 2 == 0 and found[-1] >= 2 * LEAST_ROWS and -(-even.rows // (found[-1] // 2)) <= most:
        found.append(found[-1] // 2)
    return found


def spans_of(layout: Layout) -> list[int]:
    """Columns that a group of the short side may have, given blocks of the long side: whole blocks, fewer and fewer."""
    even, long = layout.even[other(layout.long)], layout.cuts[layout.long]
    found, groups = [even.span], 2 * even.groups
    while groups <= long.blocks and even.blocks * groups <= min(FINER * even.tiles, max(TILES, even.tiles)):
        found.append(min(-(-long.blocks // groups) * long.block, even.columns))
        groups *= 2
    return found


def layouts(even: Layout) -> Iterator[Layout]:
    """Every way in which pairs of a shape may be cut; the first is that of an even spread."""
    for block in blocks_of(even):
        cut = _with(even, block=block)
        for span in spans_of(cut):
            yield _with(cut, span=span)


def as_recorded(even: Layout, cuts: dict[str, list[int]], version: int) -> Layout | None:
    """The layout with such blocks and spans; none where no rule gives them in a record of this version."""
    for layout in layouts(even):
        if listed(layout) == cuts and format_version(layout) == version:
            return layout
    return None


def listed(layout: Layout) -> dict[str, list[int]]:
    """Block and span of both sides, as records have them."""
    return {side: [cut.block, cut.span] for side, cut in layout.cuts.items()}


def format_version(layout: Layout) -> int:
    """Version of the format that a layout needs: readers of the first know even spreads only."""
    return 1 if layout.block is layout.span is None else 2


def cut_rows(even: Layout, pairs: np.ndarray) -> Layout:
    """With blocks of the long side of which none is too full, from the pairs of each of the smallest there may be."""
    choices, cut = blocks_of(even), even.even[even.long]
    fullest = [int(_joined(pairs, -(-block // choices[-1])).max()) for block in choices]
    share = -(-even.pairs * cut.block // cut.rows)
    return _with(even, block=_first_enough(choices, fullest, share))


def cut_columns(layout: Layout, pairs: np.ndarray) -> Layout:
    """With spans of the short side of which no tile is too full, from pairs by block of the long and of the short."""
    choices, cut, block = spans_of(layout), layout.even[other(layout.long)], layout.cuts[layout.long].block
    fullest = [int(_joined(pairs, -(-span // block)).max()) for span in choices]
    share = -(-layout.pairs * cut.block * cut.span // (cut.rows * cut.columns))
    return _with(layout, span=_first_enough(choices, fullest, share))


def _first_enough(choices: list[int], fullest: list[int], share: int) -> int:
    """The coarsest whose tiles are not too full, or about as good as the finest; an even spread has `share` in each."""
    enough = max(FEW, 2 * share, fullest[-1] + fullest[-1] // 8)
    return next(choice for choice, held in zip(choices, fullest, strict=True) if held <= enough)


def _joined(pairs: np.ndarray, step: int) -> np.ndarray:
    return np.add.reduceat(pairs, np.arange(0, len(pairs), step), axis=0, dtype=np.int64)


def _with(layout: Layout, block: int | None = None, span: int | None = None) -> Layout:
    """A layout with another block or span; that of an even spread goes without saying."""
    if block is not None:
        return replace(layout, block=None if block == layout.even[layout.long].block else block)
    return replace(layout, span=None if span == layout.even[other(layout.long)].span else span)
