"""From pairs in any order to runs: distinct pairs of ranges of the long side's rows, in order.

Pairs come as *pieces* (row numbers in scratch, in any order). They are dealt out to ranges of the long side's rows, and
each range is sorted and added up into a *run*. No task holds more than a few million pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.keys import SHIFT, add_repeats, order_by_part, row_lengths
from ..settings import other
from ..store.scratch import Scratch, Stored
from .times import Fading
from .writing import Stages


@dataclass(frozen=True)
class Side:
    """Row numbers of one side's symbols in a piece: codes, and what each code means (nothing: the row itself)."""

    codes: Stored
    rows: tuple[Stored, ...] | None = None  # row numbers of consecutive codes

    def read(self, scratch: Scratch) -> np.ndarray:
        codes = scratch.read(self.codes)
        if self.rows is None:
            return codes
        return np.asarray(np.concatenate([scratch.read(rows) for rows in self.rows])[codes])


@dataclass(frozen=True)
class Piece:
    """Some pairs, in any order, with repetitions."""

    sides: dict[str, Side]
    counts: Stored | None  # None: one each
    times: Stored | None = None
    fading: Fading | None = None  # how counts become less with time

    def read_counts(self, scratch: Scratch) -> np.ndarray | None:
        counts = None if self.counts is None else scratch.read(self.counts)
        if self.fading is None or self.times is None:
            return counts
        return self.fading.weigh(counts, scratch.read(self.times))


@dataclass(frozen=True)
class Dealt:
    """Keys (within their range) and counts of a piece, range by range."""

    keys: Stored
    counts: Stored | None
    offsets: np.ndarray


@dataclass(frozen=True)
class Run:
    """Distinct pairs of a range of the long side's rows, in order; keys count rows from the range's first."""

    first: int
    rows: int
    keys: Stored
    counts: Stored | None  # None: one each
    lengths: Stored
    largest: float
    whole: bool


def make_ranges(pairs_a_row: np.ndarray, pairs: int) -> np.ndarray:
    """Starts of ranges of rows, the end included, with about so many pairs each.

    >>> make_ranges(np.array([3, 1, 1, 9, 1]), 4)
    array([0, 2, 3, 4, 5])
    """
    ends = np.cumsum(pairs_a_row, dtype=np.int64)
    total = int(ends[-1])
    cuts = np.searchsorted(ends, np.arange(1, -(-total // pairs), dtype=np.int64) * pairs, side="left") + 1
    heavy = np.flatnonzero(pairs_a_row >= pairs)  # a row of its own, not on top of others
    return np.unique(np.concatenate([[0], cuts, heavy, heavy + 1, [ends.size]]))


def deal_pairs(scratch: Scratch, key: str, piece: Piece, long: str, starts: np.ndarray) -> Dealt:
    """Task: bring a piece's pairs of the same range together."""
    rows, columns = piece.sides[long].read(scratch), piece.sides[other(long)].read(scratch)
    part = np.searchsorted(starts, rows, side="right") - 1
    order, offsets = order_by_part(part, starts.size - 1)
    keys = (rows - starts[part]).astype(np.uint64)
    keys <<= SHIFT
    keys |= columns.astype(np.uint64)
    arrays = [keys[order]]
    counts = piece.read_counts(scratch)
    if counts is not None:
        arrays.append(counts[order])
    stored = scratch.write(key, *arrays)
    return Dealt(stored[0], stored[1] if len(stored) > 1 else None, offsets)


def group_pairs(scratch: Scratch, key: str, first: int, rows: int, parts: list[Any], exact: bool, limit: int) -> Run:
    """Task: sort and add up the pairs of a range; `exact` when all counts are whole and their sums too."""
    held: list[tuple[np.ndarray, np.ndarray | None]] = []
    size = 0
    for keys, counts in parts:
        held.append((scratch.read(keys), None if counts is None else scratch.read(counts)))
        size += keys.size
        if exact and size > limit:  # a heavy row: what is there is added up before more is read
            held = [add_repeats(*_joined(held, exact))]
            size = held[0][0].size
            limit = max(limit, 2 * size)
    joined = _joined(held, exact)
    held.clear()
    return write_run(scratch, key, first, rows, *add_repeats(*joined))


def _joined(held: list[tuple[np.ndarray, np.ndarray | None]], exact: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Keys and counts in one array each; no counts where all are one."""
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in held)])
    if all(counts is None for _, counts in held):
        return keys, None
    values = [np.ones(keys.size, np.uint8) if counts is None else counts for keys, counts in held]
    return keys, np.concatenate(values, dtype=np.int64 if exact else np.float64, casting="unsafe")


def write_run(scratch: Scratch, key: str, first: int, rows: int, keys: np.ndarray, counts: np.ndarray) -> Run:
    """Put a run aside: distinct keys in order, rows counted from `first`."""
    largest = float(counts.max(initial=0))
    whole = counts.dtype.kind in "iu" or bool(largest < 2**53 and (counts == np.floor(counts)).all())
    arrays = [row_lengths(keys, rows), keys]
    if not (whole and largest == 1):
        arrays.append(counts.astype(np.min_scalar_type(int(largest))) if whole else counts)
    stored = scratch.write(key, *arrays)
    return Run(first, rows, stored[1], stored[2] if len(stored) > 2 else None, stored[0], largest, whole)


def group_pieces(
    stages: Stages, scratch: Scratch, long: str, pieces: list[Piece], starts: np.ndarray, exact: bool
) -> list[Run]:
    """Runs from pieces; `starts` are the long side's rows at which a task's worth of pairs begins, and the end."""
    scratch.make("dealt")
    tasks: list[Any] = [(scratch, f"dealt/{k}", piece, long, starts) for k, piece in enumerate(pieces)]
    dealt_pieces: list[Dealt] = stages.run("deal-pairs", deal_pairs, tasks)
    scratch.make("runs")
    tasks = []
    for k in range(starts.size - 1):
        parts = []
        for dealt in dealt_pieces:
            part = slice(int(dealt.offsets[k]), int(dealt.offsets[k + 1]))
            if part.stop > part.start:
                parts.append((dealt.keys[part], None if dealt.counts is None else dealt.counts[part]))
        first, stop = int(starts[k]), int(starts[k + 1])
        tasks.append((scratch, f"runs/{k}", first, stop - first, parts, exact, 4 * stages.rows))
    runs = stages.run(f"group-{long}", group_pairs, tasks)
    scratch.remove("dealt")
    return runs
