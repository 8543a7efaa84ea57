"""Widths and the packed layout of tables and statistics, see `kernels`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import config

from .simd import LANES, WIDEST


def padded_width(factors: int) -> int:
    """K + 2 rounded up to whole vectors."""
    return -(-(factors + 2) // LANES) * LANES


def empty_table(rows: int, width: int, dtype: str) -> np.ndarray:
    """A flat table that begins on a cache line, so that no vector of a row lies on two."""
    table = np.empty(rows * 2 * width + WIDEST, dtype)
    start = -table.ctypes.data % 64 // table.itemsize
    return table[start : start + rows * 2 * width]


# Where rows of a table lie that is in one piece, see `side_by_side`.
WHOLE = np.array([0, 63, 0])


def side_by_side(first: int, rows: int, tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Tables of consecutive blocks of `rows` rows, from row `first` on, for kernels: the first one, and `parts`.

    `parts` holds the first row, the binary logarithm of `rows` (63 for one block), and each table's distance from the
    first one beyond that of a table in one piece, so that nothing is copied where `rows` is a power of two, as they
    are in all stores that this package writes: row r is at `(r - first) * stride + parts[2 + (r - first >> log)]`.
    """
    if len(tables) == 1:
        return tables[0], np.array([first, 63, 0])
    if rows & (rows - 1) or config.DISABLE_JIT:  # type: ignore[attr-defined]
        return np.concatenate(tables), np.array([first, 63, 0])
    begin = tables[0].ctypes.data
    apart = [table.ctypes.data - begin for table in tables]
    full, itemsize = tables[0].size, tables[0].itemsize
    return tables[0], np.array([first, rows.bit_length() - 1, *(d // itemsize - b * full for b, d in enumerate(apart))])


def row_offsets(width: int) -> np.ndarray:
    """Where row r of the packed triangle starts, such that entry (r, c) with c >= r is at `offset[r] + c`."""
    offsets, start = np.zeros(width, np.int64), 0
    for panel in range(0, width, LANES):
        for r in range(panel, panel + LANES):
            offsets[r] = start - panel
            start += width - panel
    return offsets


def triangle_size(width: int) -> int:
    panels = width // LANES
    return LANES * LANES * panels * (panels + 1) // 2


def statistics_size(factors: int) -> int:
    """Numbers a row in packed statistics: triangle, sum W v, sum c/2 z."""
    width = padded_width(factors)
    return triangle_size(width) + 2 * width
