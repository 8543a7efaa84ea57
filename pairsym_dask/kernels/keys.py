"""Numba helpers that put pairs in order: hashing labels, spreading over ranges, adding up, cutting tiles.

A pair is one number, its *key*: row of the long side << 32 | row of the short side, so that sorting pairs is
sorting numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled

PART_BITS = 10
PARTS = 1 << PART_BITS  # parts that labels are spread over by their hash
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


@compiled
def _hash_text(offsets: Any, data: Any, out: Any) -> None:
    for n in range(out.size):
        h: Any = 18652613  # the usual start, in 31 bits
        for k in range(offsets[n], offsets[n + 1]):
            h = ((h ^ np.int64(data[k])) * 16777619) & 0x7FFFFFFF  # 31 bits: products stay below 2**63
        h = ((h ^ (h >> 15)) * 739982445) & 0x7FFFFFFF
        out[n] = h >> (31 - PART_BITS)


def text_parts(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Which part each text belongs to: n of `data[offsets[n]:offsets[n + 1]]`."""
    out = np.empty(offsets.size - 1, np.uint16)
    _hash_text(offsets, data, out)
    return out


def integer_parts(values: np.ndarray) -> np.ndarray:
    """Which part each integer belongs to; neighbours fall far apart."""
    golden, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(64 - PART_BITS)
    return ((values.astype(np.int64).view(np.uint64) * golden) >> shift).astype(np.uint16)


@compiled
def _order_by_part(parts: Any, offsets: Any, order: Any) -> None:
    for n in range(parts.size):
        offsets[parts[n] + 1] += 1
    for p in range(offsets.size - 1):
        offsets[p + 1] += offsets[p]
    cursor = offsets.copy()
    for n in range(parts.size):
        order[cursor[parts[n]]] = n
        cursor[parts[n]] += 1


def order_by_part(parts: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Stable order that brings equal parts together, and where each part begins (number + 1 offsets)."""
    offsets, order = np.zeros(number + 1, np.int64), np.empty(parts.size, np.int64)
    _order_by_part(parts, offsets, order)
    return order, offsets


@compiled
def _parse_integers(offsets: Any, data: Any, out: Any) -> bool:
    for n in range(out.size):
        k, stop = offsets[n], offsets[n + 1]
        negative = k < stop and data[k] == 45
        if negative:
            k += 1
        digits = stop - k
        if digits < 1 or digits > 19 or (data[k] == 48 and (digits > 1 or negative)):
            return False
        value: Any = 0  # counted downwards: the lowest int64 has no positive twin
        for at in range(k, stop):
            digit = np.int64(data[at]) - 48
            if digit < 0 or digit > 9:
                return False
            if value < -922337203685477580 or (value == -922337203685477580 and digit > (8 if negative else 7)):
                return False
            value = value * 10 - digit
        out[n] = value if negative else -value
    return True


def parse_integers(offsets: np.ndarray, data: np.ndarray) -> np.ndarray | None:
    """Integers written in texts, or None unless every text is exactly how its int64 is written ("007" is not)."""
    out = np.empty(offsets.size - 1, np.int64)
    return out if _parse_integers(offsets, data, out) else None


@compiled
def _count_equal(keys: Any, sums: Any) -> int:
    n = -1
    for k in range(keys.size):
        if n >= 0 and keys[k] == keys[n]:
            sums[n] += 1
        else:
            n += 1
            keys[n] = keys[k]
            sums[n] = 1
    return n + 1


@compiled
def _sum_equal(keys: Any, counts: Any) -> int:
    n, k = 0, 0
    while k < keys.size:
        stop = k + 1
        while stop < keys.size and keys[stop] == keys[k]:
            stop += 1
        if stop > k + 1:
            counts[k:stop].sort()  # the bits of a sum of fractions must not depend on the order of the rows
        total = counts[k]
        for at in range(k + 1, stop):
            total += counts[at]
        keys[n] = keys[k]
        counts[n] = total
        n += 1
        k = stop
    return n


def add_repeats(keys: np.ndarray, counts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in order and the sum of their counts (None: one each); works in place where it can."""
    if counts is None:
        keys.sort()
        sums = np.empty(keys.size, np.int64)
        n = _count_equal(keys, sums)
        return keys[:n], sums[:n]
    # Sums of fractions depend on their order: the same ones are always added up from the smallest.
    order = np.lexsort((counts, keys)) if counts.dtype.kind == "f" else np.argsort(keys)
    keys, counts = keys[order], counts[order]
    n = _sum_equal(keys, counts)
    return keys[:n], counts[:n]


@compiled
def _row_lengths(keys: Any, lengths: Any) -> None:
    for k in range(keys.size):
        lengths[keys[k] >> SHIFT] += 1


def row_lengths(keys: np.ndarray, rows: int) -> np.ndarray:
    """Pairs of each row of the long side."""
    lengths = np.zeros(rows, np.uint32)
    _row_lengths(keys, lengths)
    return lengths


@compiled
def _sum_rows(indptr: Any, counts: Any, out: Any) -> None:
    for r in range(out.size):
        total = 0.0
        for k in range(indptr[r], indptr[r + 1]):
            total += counts[k]
        out[r] = total


def sum_rows(indptr: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum of each row's counts, added in the order they stand."""
    out = np.empty(indptr.size - 1)
    _sum_rows(indptr, counts, out)
    return out


@compiled
def _turn(keys: Any, counts: Any, first: int, indptr: Any, indices: Any, turned: Any) -> None:
    for k in range(keys.size):
        indptr[np.int64(keys[k] & LOW) - first + 1] += 1
    for r in range(indptr.size - 1):
        indptr[r + 1] += indptr[r]
    cursor = indptr[:-1].copy()
    for k in range(keys.size):
        row = np.int64(keys[k] & LOW) - first
        at = cursor[row]
        cursor[row] += 1
        indices[at] = keys[k] >> SHIFT
        turned[at] = counts[k]


def turn(keys: np.ndarray, counts: np.ndarray, first: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr, indices and counts by rows of the short side, from pairs ordered by the long side."""
    indptr = np.zeros(rows + 1, np.int64)
    indices, turned = np.empty(keys.size, np.uint32), np.empty_like(counts)
    _turn(keys, counts, first, indptr, indices, turned)
    return indptr, indices, turned


@compiled
def discount_counts(
    indptr: Any, indices: Any, counts: Any, row: Any, column: Any, first: int, scale: float, out: Any
) -> None:
    """Counts times scale times a factor of their row and one of their column; columns are counted from `first`."""
    for r in range(indptr.size - 1):
        for k in range(indptr[r], indptr[r + 1]):
            out[k] = counts[k] * (scale * (row[r] * column[indices[k] - first]))


@compiled
def add_columns(indptr: Any, indices: Any, counts: Any, row: Any, out: Any) -> None:
    """Add every pair's count times its row's factor to its column's place in `out`."""
    for r in range(indptr.size - 1):
        for k in range(indptr[r], indptr[r + 1]):
            out[indices[k]] += counts[k] * row[r]
