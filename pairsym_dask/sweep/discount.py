"""A discount of the pairs of very active symbols: the fit counts c_ij (c_i c_j)^-w, scaled so that they sum to D.

The counts store stays as it is: tiles are discounted when they are decoded. What each symbol's pairs then sum to is
measured in one pass over the pairs before a fit, kept for the short side and summed up again for the long one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import NumericError
from ..kernels.keys import add_columns, discount_counts
from ..settings import other
from ..store.counts import Counts
from ..store.cuts import Tile


def factor_of(marginal: np.ndarray, exponent: float) -> np.ndarray:
    """c_i^-w; a symbol without pairs has none to discount."""
    return np.asarray(np.maximum(marginal, np.finfo(float).tiny) ** -exponent)


@dataclass(frozen=True)
class Discount:
    exponent: float  # w
    scale: float
    short_marginal: np.ndarray  # discounted sums of the short side's rows

    @staticmethod
    def measure(exponent: float, total: float, short: np.ndarray, sums: np.ndarray) -> Discount:
        """From the short side's marginals and its rows' sums of c_ij c_i^-w over the long side's i."""
        discounted = factor_of(short, exponent) * sums
        discounted[short == 0] = 0.0
        whole = float(np.sum(discounted))
        scale = total / whole if whole > 0 else np.inf
        if not 0 < scale < np.inf:
            raise NumericError(
                f"discounted by {exponent} the counts sum to {whole}, which nothing scales to their total of {total}; "
                "verify the counts store, or fit with discount=0.0"
            )
        return Discount(exponent, scale, scale * discounted)

    def tile(self, counts: Counts, tile: Tile, side: str, block: int, group: int, dtype: str) -> Tile:
        """A tile with discounted counts."""
        its, (first, stop) = other(side), counts.cuts[side].column_range(group)
        step = counts.cuts[its].block
        columns = [counts.marginal(its, b) for b in range(first // step, -(-stop // step))]
        return self.weighed(tile, counts.marginal(side, block), np.concatenate(columns), first // step * step, dtype)

    def weighed(self, tile: Tile, row: np.ndarray, column: np.ndarray, first: int, dtype: str) -> Tile:
        """A tile with discounted counts, from the marginals of its rows and of its columns from `first` on."""
        out = np.empty(tile.counts.size, dtype)
        discount_counts(
            tile.indptr, tile.indices, tile.counts, factor_of(row, self.exponent), factor_of(column, self.exponent),
            first, self.scale, out,
        )  # fmt: skip
        return Tile(tile.indptr, tile.indices, out)


def column_sums(counts: Counts, tile: Tile, side: str, block: int, exponent: float) -> np.ndarray:
    """Sums of c_ij c_i^-w over a tile's rows i, for every column of the store."""
    out = np.zeros(counts.cuts[other(side)].rows)
    add_columns(tile.indptr, tile.indices, tile.counts, factor_of(counts.marginal(side, block), exponent), out)
    return out
