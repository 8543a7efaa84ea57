"""The n best items of many users: blocked products, and items taken in order of popularity so that most are skipped.

A score sigma(x_ij) E[psi_j]^g is below E[psi_j]^g. Once a user's n-th best score is above that for the most popular
item not yet looked at, nothing that follows can enter the list; a block of users stops when all of its users have.
Odds, compared as x_ij + g log E[psi_j], have no such limit: all items are looked at, by one product where the posterior
has no temperature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .accelerate import compiled
from .logistic import exp_minus, moderate
from .simd import LANES, add, div, hsum, load, maximum, mul, number, pointer, splat, store, sub, where_negative

USERS = 256  # users of a block
SLAB = 1024  # items that are scored at a time
GLANCE = 4 * LANES  # scores that are compared with a list's last one together


@dataclass(frozen=True)
class Ordered:
    """Items by falling popularity, as matrices for blocked products."""

    item: np.ndarray  # store positions
    mean: np.ndarray  # (K + 2, J): means, biases, ones
    variance: np.ndarray  # (2 K + 2, J): variances, squared means, variances of the bias, ones
    weight: np.ndarray  # E[psi]^g, or its log where odds are ranked
    temperature: float  # how often variances count; below 1 odds are ranked

    @staticmethod
    def make(items: Any, weight: np.ndarray, temperature: float, dtype: np.dtype | type) -> Ordered:
        """Padded to whole vectors with items at position J that no mask allows."""
        order = np.lexsort((np.arange(weight.size), -weight))
        pad = -order.size % LANES
        chosen = items.take(order)
        mean = np.vstack([chosen.mean.T, chosen.bias[None], np.ones((1, order.size), dtype)])
        variance_side = np.vstack(
            [chosen.variance.T, chosen.mean.T**2, chosen.bias_variance[None], np.ones((1, order.size), dtype)]
        )
        return Ordered(
            np.r_[order, np.full(pad, order.size)],
            np.pad(mean.astype(dtype, copy=False), ((0, 0), (0, pad))),
            np.pad(variance_side.astype(dtype, copy=False), ((0, 0), (0, pad))),
            np.pad(weight[order], (0, pad)).astype(dtype),
            temperature,
        )


def left_sides(users: Any) -> tuple[np.ndarray, np.ndarray]:
    """Users' side of the products: [m, 1, b] and [m^2 + v, v, 1, w]."""
    ones = np.ones((len(users), 1), users.mean.dtype)
    mean = np.hstack([users.mean, ones, users.bias[:, None]])
    variance_side = np.hstack([users.mean**2 + users.variance, users.variance, ones, users.bias_variance[:, None]])
    return mean, variance_side


def best_items(
    left: np.ndarray,
    variance_side: np.ndarray,
    ordered: Ordered,
    n: int,
    indptr: np.ndarray,
    seen: np.ndarray,
    allowed: np.ndarray,
    bend: Callable[[np.ndarray, np.ndarray, slice, np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Store positions (users, n) of the best items, best first, equal scores by position; -1 where none is left.

    `left` and `variance_side` are the users' side of the products. `bend(mean, variance, rows, items)` makes other
    energies of a slab's, which are then known for certain; without it sigma is averaged over their posterior.
    `seen[indptr[u]:indptr[u + 1]]` are sorted positions that user u does not want; `allowed` (J + 1) masks positions,
    the last one False.
    """
    total = left.shape[0]
    best, scores = np.full((total, n), -1, np.int64), np.full((total, n), -np.inf, left.dtype)
    odds, certain = ordered.temperature < 1, bend is None and ordered.temperature == 0
    for first in range(0, total, USERS):
        rows = slice(first, min(first + USERS, total))
        for at in range(0, ordered.item.size, SLAB):
            slab = slice(at, min(at + SLAB, ordered.item.size))
            if not odds and (scores[rows, -1] > ordered.weight[at]).all():
                break
            mean = left[rows] @ ordered.mean[:, slab]
            variance = mean if certain else variance_side[rows] @ ordered.variance[:, slab]
            if bend is not None:
                mean, variance = bend(mean, variance, rows, ordered.item[slab]), np.zeros_like(variance)
            _take_best(
                mean, variance, ordered.weight[slab], ordered.item[slab], indptr[first:], seen, allowed,
                ordered.temperature, odds, best[rows], scores[rows],
            )  # fmt: skip
    return best


@compiled
def _take_best(
    mean: Any, variance: Any, weight: Any, item: Any, indptr: Any, seen: Any, allowed: Any, temperature: float,
    odds: bool, best: Any, scores: Any,
) -> None:  # fmt: skip
    """Enter a slab's items into the users' lists; `mean` is overwritten with scores."""
    n = best.shape[1]
    users, items = mean.shape
    mean_, variance_, weight_ = pointer(mean), pointer(variance), pointer(weight)
    one, zero, counted = splat(number(mean_, 1.0)), splat(number(mean_, 0.0)), splat(number(mean_, temperature))
    for u in range(users):
        row = u * items
        last = scores[u, n - 1]
        for first in range(0, items, GLANCE):
            stop = min(first + GLANCE, items)
            if not odds and weight[first] < last:
                break  # weights fall: nothing that follows reaches the list
            top = splat(number(mean_, -np.inf))
            for j in range(first, stop, LANES):
                if odds:
                    x = load(mean_, row + j)
                    if temperature > 0:
                        x = moderate(x, mul(counted, load(variance_, row + j)), mean_)
                    score = add(x, load(weight_, j))
                else:
                    x = moderate(load(mean_, row + j), load(variance_, row + j), mean_)
                    e, _ = exp_minus(maximum(x, sub(zero, x)), mean_)
                    # sigma(x) is 1 / (1 + e) with e = exp(-|x|) for x >= 0, and e / (1 + e) below
                    upper = div(one, add(one, e))
                    score = mul(where_negative(x, mul(e, upper), upper), load(weight_, j))
                store(mean_, row + j, score)
                top = maximum(top, score)
            if hsum(where_negative(sub(top, splat(last)), zero, one)) == 0.0:
                continue  # none of them reaches the list: as good as always
            for k in range(first, stop):
                score = mean[u, k]
                if score < last or (score == last and item[k] > best[u, n - 1] >= 0):
                    continue
                if not allowed[item[k]] or _holds(seen, indptr[u], indptr[u + 1], item[k]):
                    continue
                p = n - 1
                while p > 0 and (score > scores[u, p - 1] or (score == scores[u, p - 1] and item[k] < best[u, p - 1])):
                    scores[u, p], best[u, p] = scores[u, p - 1], best[u, p - 1]
                    p -= 1
                scores[u, p], best[u, p] = score, item[k]
                last = scores[u, n - 1]


@compiled
def _holds(values: Any, start: int, stop: int, value: int) -> bool:
    """Whether a sorted slab holds a value."""
    end = stop
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] < value:
            start = middle + 1
        else:
            stop = middle
    return bool(start < end and values[start] == value)
