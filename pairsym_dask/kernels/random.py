"""Numba helpers that draw: a counter-based generator; draws from psi by an alias table, shown or censored."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled
from .keys import LOW, SHIFT

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)


@compiled
def _mix(z: Any) -> Any:
    """splitmix64's finaliser: every bit of the answer depends on every bit of the question."""
    z = (z ^ (z >> _30)) * _ONE
    z = (z ^ (z >> _27)) * _TWO
    return z ^ (z >> _31)


@compiled
def number_pairs(seed: Any, keys: Any) -> None:
    """Turn keys into random numbers, in place; every step is a bijection, so that no two keys get the same one."""
    salt = _mix(seed)
    for k in range(keys.size):
        keys[k] = _mix(_mix(keys[k] ^ salt) + salt)


@compiled
def fill_normals(seed: Any, stream: int, first: int, deviation: float, out: Any) -> None:
    """Fill rows with normals that depend on seed, stream and row number alone (Box and Muller)."""
    rows, columns = out.shape
    start = _mix(_mix(seed) + np.uint64(stream))
    stride = np.uint64(columns + columns % 2)
    for r in range(rows):
        at = start + (np.uint64(first) + np.uint64(r)) * stride * _GOLDEN
        for k in range(0, columns, 2):
            at += _GOLDEN
            chance = (np.float64(_mix(at) >> _11) + 0.5) * 2.0**-53
            at += _GOLDEN
            angle = 2.0 * np.pi * (np.float64(_mix(at) >> _11) * 2.0**-53)
            radius = deviation * np.sqrt(-2.0 * np.log(chance))
            out[r, k] = radius * np.cos(angle)
            if k + 1 < columns:
                out[r, k + 1] = radius * np.sin(angle)


@compiled
def fill_normals_at(seed: Any, stream: int, rows: Any, columns: Any, out: Any) -> None:
    """Fill (rows, columns) with normals that depend on seed, stream, row and column numbers (below 2**31) alone."""
    start = _mix(_mix(seed) + np.uint64(stream))
    for r in range(rows.size):
        row = start + (rows[r] << SHIFT) * _GOLDEN
        for c in range(columns.size):
            at = row + np.uint64(2) * columns[c] * _GOLDEN
            chance = (np.float64(_mix(at) >> _11) + 0.5) * 2.0**-53
            angle = 2.0 * np.pi * (np.float64(_mix(at + _GOLDEN) >> _11) * 2.0**-53)
            out[r, c] = np.sqrt(-2.0 * np.log(chance)) * np.cos(angle)


@compiled
def _alias(weights: Any, kept: Any, alias: Any) -> None:
    n = weights.size
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    smalls, larges = 0, 0
    for j in range(n):
        kept[j] = weights[j] * n
        alias[j] = j
        if kept[j] < 1.0:
            small[smalls] = j
            smalls += 1
        else:
            large[larges] = j
            larges += 1
    while smalls > 0 and larges > 0:
        smalls -= 1
        j, rich = small[smalls], large[larges - 1]
        alias[j] = rich
        kept[rich] -= 1.0 - kept[j]
        if kept[rich] < 1.0:
            larges -= 1
            small[smalls] = rich
            smalls += 1
    for k in range(smalls):  # rounding left these just below one
        kept[small[k]] = 1.0
    for k in range(larges):
        kept[large[k]] = 1.0


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's table: cell j is j with probability kept[j], else alias[j]; weights sum to one."""
    kept, alias = np.empty(weights.size), np.empty(weights.size, np.uint32)
    _alias(weights, kept, alias)
    return kept, alias


@compiled
def draw_items(
    seed: Any, indptr: Any, traits: Any, bias: Any, item_traits: Any, item_bias: Any, kept: Any, alias: Any, out: Any
) -> None:
    """Fill `out` with items of p(j | i), proportional to psi_j sigma(u_i.v_j + b_i + b_j), for users seed[2] + r.

    Items are drawn from psi until one is shown. User i's numbers come from a generator of its own.
    """
    items = np.uint64(item_bias.size)
    factors = traits.shape[1]
    start = _mix(_mix(seed[0]) + seed[1])
    for r in range(indptr.size - 1):
        state = _mix(start + (seed[2] + np.uint64(r)) * _GOLDEN)
        for d in range(indptr[r], indptr[r + 1]):
            while True:
                state += _GOLDEN
                bits = _mix(state)
                j = np.int64(((bits >> SHIFT) * items) >> SHIFT)
                if np.float64(bits & LOW) * 2.0**-32 >= kept[j]:
                    j = np.int64(alias[j])
                a, b, c, e = bias[r], item_bias[j], np.float32(0.0), np.float32(0.0)
                k = 0
                while k + 4 <= factors:  # four sums at a time: one alone waits for each addition
                    a += traits[r, k] * item_traits[j, k]
                    b += traits[r, k + 1] * item_traits[j, k + 1]
                    c += traits[r, k + 2] * item_traits[j, k + 2]
                    e += traits[r, k + 3] * item_traits[j, k + 3]
                    k += 4
                while k < factors:
                    a += traits[r, k] * item_traits[j, k]
                    k += 1
                state += _GOLDEN
                chance = np.float64(_mix(state) >> _11) * 2.0**-53
                if chance * (1.0 + np.exp(-np.float64((a + b) + (c + e)))) < 1.0:
                    out[d] = j
                    break


@compiled
def _fold(drawn: Any, indptr: Any, keys: Any, counts: Any) -> int:
    n = 0
    for r in range(indptr.size - 1):
        mine = drawn[indptr[r] : indptr[r + 1]]
        if mine.size > 64:
            mine.sort()
        else:  # most users have few
            for k in range(1, mine.size):
                item, at = mine[k], k
                while at > 0 and mine[at - 1] > item:
                    mine[at] = mine[at - 1]
                    at -= 1
                mine[at] = item
        row = np.uint64(r) << SHIFT
        for k in range(mine.size):
            if k > 0 and mine[k] == mine[k - 1]:
                counts[n - 1] += np.uint32(1)
            else:
                keys[n] = row | np.uint64(mine[k])
                counts[n] = 1
                n += 1
    return n


def fold_draws(drawn: np.ndarray, indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys (row << 32 | item) in order and how often each was drawn; sorts `drawn` row by row."""
    keys, counts = np.empty(drawn.size, np.uint64), np.empty(drawn.size, np.uint32)
    n = _fold(drawn, indptr, keys, counts)
    return keys[:n], counts[:n]


@compiled
def give_draws(
    first: int, drawn: Any, indptr: Any, missing: Any, target: Any, counts: Any, given: Any, done: int
) -> int:
    """Give draws of users from `first` on to missing items, each from its target user on; how many have one now."""
    for r in range(indptr.size - 1):
        for k in range(indptr[r], indptr[r + 1]):
            if done == missing.size or target[done] > first + r:
                break
            if counts[drawn[k]] > 1:
                counts[drawn[k]] -= 1
                counts[missing[done]] = 1
                given[done, 0], given[done, 1] = first + r, k - indptr[r]
                given[done, 2], given[done, 3] = missing[done], drawn[k]
                done += 1
    return done
