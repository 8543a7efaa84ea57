"""Pairs of some rows of a counts store, wherever they lie, reading only their blocks."""

from __future__ import annotations

import numpy as np

from .counts import Counts
from .cuts import Tile


def pairs_of(counts: Counts, side: str, positions: np.ndarray) -> Tile:
    """Pairs of rows of a side, in the given order; a row at -1 has none."""
    cut = counts.cuts[side]
    block = positions // cut.block
    lengths, parts = np.zeros(positions.size, np.int64), []
    for b in np.unique(block[positions >= 0]):
        tile, here = counts.rows(side, int(b)), np.flatnonzero(block == b)
        start = tile.indptr[positions[here] - b * cut.block]
        lengths[here] = tile.indptr[positions[here] - b * cut.block + 1] - start
        parts.append((here, start, tile))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices, values = np.empty(indptr[-1], np.uint32), np.empty(indptr[-1], counts.layout.count_dtype)
    for here, start, tile in parts:
        # Row by row, so that rows of several blocks may come in any order.
        n = lengths[here]
        within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        to, source = np.repeat(indptr[here], n) + within, np.repeat(start, n) + within
        indices[to], values[to] = tile.indices[source], tile.counts[source]
    return Tile(indptr, indices, values)
