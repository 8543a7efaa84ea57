"""Kernels of tags: prior means that they mix to, and updates or draws of their effects, tag by tag."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .accelerate import compiled

# fmt: off


@compiled
def mix_tags(indptr: Any, tags: Any, weights: Any, table: Any, out: Any) -> None:
    """out[r] = sum_f x_rf table[f] over the tags f of row r."""
    columns = table.shape[1]
    for r in range(indptr.size - 1):
        for k in range(columns):
            out[r, k] = 0.0
        for p in range(indptr[r], indptr[r + 1]):
            f, x = tags[p], weights[p]
            for k in range(columns):
                out[r, k] += x * table[f, k]


@compiled
def take_off_tags(indptr: Any, symbols: Any, weights: Any, effects: Any, residual: Any) -> None:
    """residual[j] -= sum_f x_jf h_f over some tags f, which have symbols[indptr[f]:indptr[f + 1]]."""
    columns = effects.shape[1]
    for f in range(indptr.size - 1):
        for p in range(indptr[f], indptr[f + 1]):
            j, x = symbols[p], weights[p]
            for k in range(columns):
                residual[j, k] -= x * effects[f, k]


@compiled
def sum_squares(indptr: Any, symbols: Any, weights: Any, tau: Any, out: Any) -> None:
    """out[f] = sum_j tau_j x_jf^2."""
    for f in range(indptr.size - 1):
        total = 0.0
        for p in range(indptr[f], indptr[f + 1]):
            total += tau[symbols[p]] * weights[p] * weights[p]
        out[f] = total


@compiled
def update_tags(
    indptr: Any, symbols: Any, weights: Any, tau: Any, gamma: Any, precision: Any, effects: Any, residual: Any
) -> None:
    """One update of the effects h_f of some tags, one after another; `residual` is v_j - sum_f x_jf h_f throughout.

    The maximum over h_f with all else held is h_f + (sum_j tau_j x_jf residual_j - gamma_f h_f) / precision_f.
    """
    columns = effects.shape[1]
    step = np.empty(columns)
    for f in range(indptr.size - 1):
        for k in range(columns):
            step[k] = -gamma[f] * effects[f, k]
        for p in range(indptr[f], indptr[f + 1]):
            j = symbols[p]
            pull = tau[j] * weights[p]
            for k in range(columns):
                step[k] += pull * residual[j, k]
        for k in range(columns):
            step[k] /= precision[f]
            effects[f, k] += step[k]
        for p in range(indptr[f], indptr[f + 1]):
            j, x = symbols[p], weights[p]
            for k in range(columns):
                residual[j, k] -= x * step[k]


@compiled
def draw_tags(
    indptr: Any, symbols: Any, weights: Any, scales: Any, gamma: Any, squares: Any, noise: Any, effects: Any,
    residual: Any,
) -> None:
    """Draw the effects h_f of some tags, one after another; `residual` is v_j - mu - sum_f x_jf h_f throughout.

    On axes where the symbols' precision is diagonal, `scales`, trait k of h_f is normal with the precision
    gamma_f + scale_k sum_j x_jf^2 (`squares`) about its maximum, as in `update_tags`; `noise` are standard normals.
    """
    columns = effects.shape[1]
    step = np.empty(columns)
    for f in range(indptr.size - 1):
        for k in range(columns):
            step[k] = 0.0
        for p in range(indptr[f], indptr[f + 1]):
            j, x = symbols[p], weights[p]
            for k in range(columns):
                step[k] += x * residual[j, k]
        for k in range(columns):
            precision = gamma[f] + scales[k] * squares[f]
            mean = (scales[k] * step[k] - gamma[f] * effects[f, k]) / precision
            step[k] = mean + noise[f, k] / math.sqrt(precision)
            effects[f, k] += step[k]
        for p in range(indptr[f], indptr[f + 1]):
            j, x = symbols[p], weights[p]
            for k in range(columns):
                residual[j, k] -= x * step[k]
