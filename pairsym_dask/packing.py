"""Widths and the packed layout of tables and statistics, see `kernels`."""

from __future__ import annotations

import numpy as np

from .simd import LANES


def padded_width(factors: int) -> int:
    """K + 2 rounded up to whole vectors."""
    return -(-(factors + 2) // LANES) * LANES


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
