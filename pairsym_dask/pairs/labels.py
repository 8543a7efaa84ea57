"""Labels: small dictionaries of pieces, merged by hash, part by part, then put in order to number the rows.

Strings stay in arrow's form; the driver holds all labels of a side once or twice, no task more than its share.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import MemoryBudgetError
from ..kernels.keys import PARTS, integer_parts, order_by_part, parse_integers, text_parts
from ..run.memory import parse_memory
from ..store.scratch import Scratch, Stored
from .checks import CSV_TEXT, INTEGER, text_buffers
from .runs import Side, make_ranges
from .writing import Stages


@dataclass(frozen=True)
class Dictionary:
    """Distinct labels of a piece, ordered by the part that their hash puts them in."""

    starts: np.ndarray  # where each part begins
    labels: Stored  # integers, or lengths of texts
    data: Stored | None  # bytes of texts
    data_starts: np.ndarray | None  # where each part's bytes begin
    pairs: Stored  # how many pairs each label has

    def parts(self, first: int, stop: int) -> Entries:
        rows = slice(int(self.starts[first]), int(self.starts[stop]))
        data = None
        if self.data is not None and self.data_starts is not None:
            data = self.data[int(self.data_starts[first]) : int(self.data_starts[stop])]
        return Entries(self.labels[rows], data, self.pairs[rows])


@dataclass(frozen=True)
class Entries:
    """Some labels with the number of their pairs."""

    labels: Stored
    data: Stored | None
    pairs: Stored

    def read(self, scratch: Scratch) -> pa.Array:
        values = scratch.read(self.labels)
        if self.data is None:
            return pa.array(values)
        offsets = np.zeros(values.size + 1, np.int64)
        np.cumsum(values, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(scratch.read(self.data))]
        return pa.LargeStringArray.from_buffers(values.size, buffers[1], buffers[2])


def encode_labels(scratch: Scratch, key: str, labels: pa.Array) -> tuple[Stored, Dictionary]:
    """Put codes and dictionary of a column aside; a code is a place in the dictionary."""
    encoded = labels.dictionary_encode()
    distinct = encoded.dictionary
    numbers = distinct.to_numpy() if pa.types.is_integer(distinct.type) else None
    parts = text_parts(*text_buffers(distinct)) if numbers is None else integer_parts(numbers)
    order, starts = order_by_part(parts, PARTS)
    places = np.empty(order.size, np.uint32)
    places[order] = np.arange(order.size, dtype=np.uint32)
    codes = places[encoded.indices.to_numpy()]
    pairs = np.bincount(codes, minlength=order.size).astype(np.uint32)
    if numbers is not None:
        stored = scratch.write(key, codes, pairs, numbers[order])
        return stored[0], Dictionary(starts, stored[2], None, None, stored[1])
    offsets, data = text_buffers(distinct.take(pa.array(order)))
    stored = scratch.write(key, codes, pairs, np.diff(offsets).astype(np.uint32), data[: offsets[-1]])
    return stored[0], Dictionary(starts, stored[2], stored[3], offsets[starts], stored[1])


@dataclass(frozen=True)
class Merged:
    """Distinct labels of some parts over all pieces."""

    entries: Entries
    places: Stored  # of every piece's labels, piece after piece, among the distinct ones


def merge_labels(scratch: Scratch, key: str, dictionaries: list[Entries]) -> Merged:
    """Task: the distinct labels of the same parts of all pieces."""
    labels = pa.concat_arrays([entries.read(scratch) for entries in dictionaries])
    encoded = labels.dictionary_encode()
    distinct = encoded.dictionary
    places = encoded.indices.to_numpy()
    pairs = np.concatenate([scratch.read(entries.pairs) for entries in dictionaries])
    sums = np.bincount(places, weights=pairs, minlength=len(distinct)).astype(np.int64)
    if pa.types.is_integer(distinct.type):
        stored = scratch.write(key, sums, distinct.to_numpy(), places.astype(np.uint32))
        return Merged(Entries(stored[1], None, stored[0]), stored[2])
    offsets, data = text_buffers(distinct)
    stored = scratch.write(key, sums, np.diff(offsets), places.astype(np.uint32), data[offsets[0] : offsets[-1]])
    return Merged(Entries(stored[1], stored[3], stored[0]), stored[2])


@dataclass(frozen=True)
class Ranked:
    """All labels of one side in order, and how to get from a piece's codes to their rows."""

    labels: Any
    pairs: np.ndarray  # of each label
    rows: list[tuple[Merged, list[int], Stored]]  # of each merged part: starts of the pieces' places, row numbers

    @property
    def size(self) -> int:
        return int(self.pairs.size)

    def side(self, piece: int, codes: Stored) -> Side:
        return Side(codes, tuple((m.places[s[piece] : s[piece + 1]], rows) for m, s, rows in self.rows))


class TextColumn:
    """Strings that stay in arrow's form until a slice of them is wanted."""

    dtype = np.dtype(object)

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    def __getitem__(self, part: slice) -> np.ndarray:
        return np.asarray(self.values[part].to_numpy(zero_copy_only=False))


def rank_labels(
    dictionaries: list[Dictionary], side: str, kind: str, stages: Stages, scratch: Scratch, memory: Any
) -> Ranked:
    """Merge the pieces' dictionaries and number the labels in their order."""
    scratch.make("labels")
    sizes = np.sum([np.diff(one.starts) for one in dictionaries], axis=0)
    cuts = make_ranges(sizes, stages.rows)
    ranges = [(int(first), int(stop)) for first, stop in itertools.pairwise(cuts)]
    tasks = [
        (scratch, f"labels/{side}-{k}", [one.parts(*parts) for one in dictionaries]) for k, parts in enumerate(ranges)
    ]
    merged: list[Merged] = stages.run(f"merge-{side[:-1]}-labels", merge_labels, tasks)
    _check_memory(merged, side, memory)
    labels, order = _in_order([one.entries.read(scratch) for one in merged], kind)
    rows = np.empty(order.size, np.uint32)
    rows[order] = np.arange(order.size, dtype=np.uint32)
    (stored,) = scratch.write(f"labels/{side}-rows", rows)
    pairs = np.concatenate([scratch.read(one.entries.pairs) for one in merged])[order]
    found, at = [], 0
    for one, (first, stop) in zip(merged, ranges, strict=True):
        size = one.entries.pairs.size
        starts = np.cumsum([0, *(int(d.starts[stop] - d.starts[first]) for d in dictionaries)]).tolist()
        found.append((one, starts, stored[at : at + size]))
        at += size
    return Ranked(labels, pairs, found)


def _in_order(distinct: list[pa.Array], kind: str) -> tuple[Any, np.ndarray]:
    """Labels in order, and the order."""
    values = pa.concat_arrays(distinct)
    distinct.clear()
    numbers = values.to_numpy() if kind == INTEGER else None
    if kind == CSV_TEXT:
        numbers = parse_integers(*text_buffers(values))
    if numbers is not None:
        order = np.argsort(numbers)
        return numbers[order], order
    places = pc.array_sort_indices(values)
    return TextColumn(values.take(places)), places.to_numpy()


def _check_memory(merged: list[Merged], side: str, memory: Any) -> None:
    budget = parse_memory(memory)
    size = sum(one.entries.labels.size for one in merged)
    data = sum(one.entries.data.size for one in merged if one.entries.data is not None)
    needed = 3 * (8 * size + data)  # as found, in order, and the order
    if budget is not None and needed > budget:
        raise MemoryBudgetError(
            f"a memory budget of {budget} bytes is too small for the labels: {size} {side} "
            f"x 8 bytes + {data} bytes of text, three times = {needed} bytes"
        )
