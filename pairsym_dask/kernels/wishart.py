"""Draws of a normal's mean and precision from their Normal-Wishart posterior, in plain loops: the same bits always."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled
from .simd import keep, pointer
from .streams import STREAM, begin_stream, gamma, normal

# fmt: off


@compiled
def factor_lower(square: Any) -> bool:
    """Cholesky factor C, C C^T = square, in place below the diagonal; whether there is one."""
    n = square.shape[0]
    for j in range(n):
        for i in range(j, n):
            total = square[i, j]
            for k in range(j):
                total -= square[i, k] * square[j, k]
            if i == j:
                if not (total > 0.0 and total < np.inf):
                    return False
                square[j, j] = math.sqrt(total)
            else:
                square[i, j] = total / square[j, j]
        for k in range(j + 1, n):
            square[j, k] = 0.0
    return True


@compiled
def solve_definite(square: Any, right: Any) -> bool:
    """square^-1 right in place of `right`, `square` overwritten; whether it was positive definite."""
    n = square.shape[0]
    if not factor_lower(square):
        return False
    for i in range(n):
        for k in range(i):
            right[i] -= square[i, k] * right[k]
        right[i] /= square[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            right[i] -= square[k, i] * right[k]
        right[i] /= square[i, i]
    return True


@compiled
def draw_normal_wishart(
    key: Any, scatter: Any, freedom: float, strength: float, centre: Any, mean: Any, precision: Any
) -> bool:
    """precision ~ Wishart(scatter^-1, freedom), mean ~ N(centre, (strength precision)^-1); whether that was possible.

    With C C^T = scatter and Bartlett's A, precision is B B^T with B = C^-T A, so that mean is
    centre + C A^-T e / sqrt(strength). `scatter` is overwritten.
    """
    n = scatter.shape[0]
    words = np.empty(STREAM, np.uint64)
    stream = pointer(words)
    begin_stream(stream, key, 0)
    if not factor_lower(scatter):
        return False
    bartlett, root = np.zeros((n, n)), np.empty(n)
    for i in range(n):
        bartlett[i, i] = math.sqrt(2.0 * gamma(stream, 0.5 * (freedom - i)))
        for j in range(i):
            bartlett[i, j] = normal(stream)
        root[i] = normal(stream)
    keep(words)
    for i in range(n - 1, -1, -1):  # A^T x = e
        for k in range(i + 1, n):
            root[i] -= bartlett[k, i] * root[k]
        root[i] /= bartlett[i, i]
    for i in range(n):
        total = 0.0
        for k in range(i + 1):
            total += scatter[i, k] * root[k]
        mean[i] = centre[i] + total / math.sqrt(strength)
    for j in range(n):  # C^T B = A, column by column in place
        for i in range(n - 1, -1, -1):
            for k in range(i + 1, n):
                bartlett[i, j] -= scatter[k, i] * bartlett[k, j]
            bartlett[i, j] /= scatter[i, i]
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(n):
                total += bartlett[i, k] * bartlett[j, k]
            precision[i, j] = total
            precision[j, i] = total
    return True


@compiled
def draw_normal_gamma(key: Any, shape: float, rate: float, strength: float, centre: float) -> Any:
    """precision ~ Gamma(shape, rate), mean ~ N(centre, 1 / (strength precision)); mean and precision."""
    words = np.empty(STREAM, np.uint64)
    stream = pointer(words)
    begin_stream(stream, key, 0)
    precision = gamma(stream, shape) / rate
    mean = centre + normal(stream) / math.sqrt(strength * precision)
    keep(words)
    return mean, precision
