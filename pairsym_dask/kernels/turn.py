"""Rows of a table on other axes: traits times an orthogonal matrix, all else as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled
from .gradients import fill_matrix, matrix_stride, multiply
from .layout import empty_table
from .outer import stride_of
from .simd import LANES, WIDEST, aligned, keep, load, number, pointer, put, splat, store


def turned_table(table: np.ndarray, axes: np.ndarray, factors: int) -> np.ndarray:
    """A table whose rows' traits are those of `table` times `axes` (width, width), which is zero beyond the traits."""
    width = axes.shape[0]
    out = empty_table(table.size // (2 * width), width, str(table.dtype))
    _turn_rows(table, axes.reshape(-1), width, factors, out)
    return out


# fmt: off


@compiled
def _turn_rows(table: Any, axes: Any, width: int, factors: int, out: Any) -> None:
    n, stride = table.size // (2 * width), stride_of(width)
    matrix = np.zeros(width * matrix_stride(width) + WIDEST, table.dtype)
    vectors, products = np.zeros(LANES * stride + WIDEST, table.dtype), np.zeros(LANES * stride + WIDEST, table.dtype)
    matrix_, vectors_, products_ = aligned(matrix), aligned(vectors), aligned(products)
    table_, out_ = pointer(table), pointer(out)
    zero = splat(number(table_, 0.0))
    fill_matrix(pointer(axes), width, matrix_)
    for i in range(0, n, LANES):
        rows = min(LANES, n - i)
        for lane in range(LANES):
            for k in range(0, width, LANES):
                place = (i + lane) * 2 * width + k
                store(vectors_, lane * stride + k, load(table_, place) if lane < rows else zero)
        multiply(matrix_, vectors_, 0, width, factors, products_)
        for lane in range(rows):
            o = (i + lane) * 2 * width
            for k in range(0, width, LANES):
                store(out_, o + k, load(products_, lane * stride + k))
                store(out_, o + width + k, load(table_, o + width + k))
            for k in range(factors, factors + 2):
                put(out_, o + k, table[o + k])
    keep(matrix)
    keep(vectors)
    keep(products)
