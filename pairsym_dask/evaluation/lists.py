"""The lists that users would get: their first unseen items, how novel these are, and which items turn up at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.accelerate import compiled


def information(marginal: np.ndarray) -> np.ndarray:
    """Bits that an item's turning up says, -log2 of its share of the training counts; one count more for every item."""
    c = marginal + 1.0
    return np.asarray(np.log2(c.sum()) - np.log2(c))


def describe_lists(
    scores: np.ndarray, seen: np.ndarray, cutoffs: tuple[int, ...], bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Novelty (cut-offs, users) and the items that turn up in any of the lists (cut-offs, items), by cut-off.

    Equal scores are taken by position, as in `recommend`; `seen` masks what may not be in a list.
    """
    users, items = scores.shape
    best = best_unseen(scores, seen, min(max(cutoffs, default=0), items))
    novelty, covered = np.empty((len(cutoffs), users)), np.zeros((len(cutoffs), items), bool)
    for k, n in enumerate(cutoffs):
        part = best[:, :n]
        there = part >= 0
        novelty[k] = np.where(there, bits[part], 0.0).sum(1) / there.sum(1)
        covered[k, part[there]] = True
    return novelty, covered


@compiled
def mark_seen(seen: Any, rows: Any, indptr: Any, indices: Any) -> None:
    """Mark a tile's pairs in a mask of users: line u is row `rows[u]` of the tile."""
    for u in range(seen.shape[0]):
        for k in range(indptr[rows[u]], indptr[rows[u] + 1]):
            seen[u, indices[k]] = True


@compiled
def best_unseen(scores: Any, seen: Any, n: int) -> Any:
    """The n best unseen columns of each row, best first, equal scores by position; -1 where none is left.

    A heap a row, the worst of the chosen on top: most columns cost one comparison.
    """
    users, items = scores.shape
    best = np.full((users, n), -1, np.int64)
    value, where = np.empty(n, scores.dtype), np.empty(n, np.int64)
    for u in range(users):
        size = 0
        for j in range(items):
            if seen[u, j]:
                continue
            x = scores[u, j]
            if size < n:
                p = size
                size += 1
                while p > 0 and not _is_worse(value[(p - 1) // 2], where[(p - 1) // 2], x, j):
                    value[p], where[p] = value[(p - 1) // 2], where[(p - 1) // 2]
                    p = (p - 1) // 2
                value[p], where[p] = x, j
            elif n > 0 and x > value[0]:  # among equals the earlier column is there already
                _sink(value, where, size, x, j)
        while size > 0:
            size -= 1
            best[u, size] = where[0]
            if size > 0:
                _sink(value, where, size, value[size], where[size])
    return best


@compiled
def _is_worse(x: Any, j: int, y: Any, k: int) -> bool:
    return bool(x < y or (x == y and j > k))


@compiled
def _sink(value: Any, where: Any, size: int, x: Any, j: int) -> None:
    """Put (x, j) in place of the heap's top."""
    p = 0
    while True:
        child = 2 * p + 1
        if child >= size:
            break
        right = child + 1
        if right < size and _is_worse(value[right], where[right], value[child], where[child]):
            child = right
        if not _is_worse(value[child], where[child], x, j):
            break
        value[p], where[p] = value[child], where[child]
        p = child
    value[p], where[p] = x, j
