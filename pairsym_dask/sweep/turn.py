"""The axes that a cold sweep by gradients turns to.

Without variances in the updates, and with prior precisions that are the same for all traits of a symbol, the model does
not know its axes: both sides may be turned alike. On the axes of the short side's background its part of every long
row's precision is diagonal: a step towards the solution costs what the row's pairs cost, and nothing for all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from ..kernels.layout import padded_width
from .background import Background


@dataclass(frozen=True)
class Turn:
    """Axes of a sweep; what the generation in the folder `before` holds is turned when it is read."""

    before: str
    axes: np.ndarray  # (width, width), zero beyond the traits
    base: Background  # of the short side, turned

    @staticmethod
    def of(base: Background, before: str, dtype: str) -> Turn:
        """The axes of a background, and itself on them."""
        k, width = base.factors, padded_width(base.factors)
        square = base.square
        with threadpool_limits(1, "blas"):  # the same bits whatever the number of threads
            spectrum, axes = np.linalg.eigh(square[:k, :k])
            # A table holds the axes in its own type: what is turned by them is turned by exactly these.
            whole = np.zeros((width, width), dtype)
            whole[:k, :k] = axes[:, ::-1]
            square[:k, k:] = whole[:k, :k].T.astype(np.float64) @ square[:k, k:]
        square[:k, :k] = np.diag(np.maximum(spectrum[::-1], 0.0))
        return Turn(before, whole, Background.of_square(k, square, base.variances))
