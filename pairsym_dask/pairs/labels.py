"""Labels: small dictionaries of pieces, merged by hash, then put in order range by range to number the rows.

No task and no driver holds all labels of a side. Parts of equal hash are merged and sorted by themselves; labels that a
sample says are spread evenly cut the sorted parts into ranges, and what all parts hold of a range is sorted together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..kernels.keys import PARTS, integer_parts, order_by_part, parse_integers, text_parts
from ..store.labels import place_of
from ..store.scratch import Scratch, Stored
from .checks import INTEGER, TEXT, text_buffers
from .runs import Side, make_ranges
from .writing import Stages

SAMPLE = 2**14  # labels of pieces, repeated ones included, that are looked at to spread ranges, at least


@dataclass(frozen=True)
class Dictionary:
    """Distinct labels of a piece, ordered by the part that their hash puts them in."""

    starts: np.ndarray  # where each part begins
    labels: Stored  # integers, or lengths of texts
    data: Stored | None  # bytes of texts
    data_starts: np.ndarray | None  # where each part's bytes begin
    pairs: Stored  # how many pairs each label has
    whole: bool  # integers, or texts that are all written as such

    def parts(self, first: int, stop: int) -> Entries:
        rows = slice(int(self.starts[first]), int(self.starts[stop]))
        data = None
        if self.data is not None and self.data_starts is not None:
            data = self.data[int(self.data_starts[first]) : int(self.data_starts[stop])]
        return Entries(self.labels[rows], data, self.pairs[rows])


@dataclass(frozen=True, slots=True)
class Entries:
    """Some labels with the number of their pairs."""

    labels: Stored
    data: Stored | None
    pairs: Stored

    def read(self, scratch: Scratch, kind: str) -> pa.Array:
        """The labels; texts as the integers that they are, where that is what they are."""
        values = scratch.read(self.labels)
        if self.data is None:
            return pa.array(values)
        offsets = np.zeros(values.size + 1, np.int64)
        np.cumsum(values, out=offsets[1:])
        data = scratch.read(self.data)
        if kind == INTEGER:
            return pa.array(parse_integers(offsets, data))
        return pa.LargeStringArray.from_buffers(values.size, pa.py_buffer(offsets), pa.py_buffer(data))


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
        return stored[0], Dictionary(starts, stored[2], None, None, stored[1], True)
    offsets, data = text_buffers(distinct.take(pa.array(order)))
    whole = parse_integers(offsets, data) is not None
    stored = scratch.write(key, codes, pairs, np.diff(offsets).astype(np.uint32), data[: offsets[-1]])
    return stored[0], Dictionary(starts, stored[2], stored[3], offsets[starts], stored[1], whole)


@dataclass(frozen=True)
class Merged:
    """Distinct labels of some parts over all pieces, in order."""

    entries: Entries
    places: Stored  # of every piece's labels, piece after piece, among the distinct ones
    cuts: np.ndarray  # where each range begins, and the end
    data_cuts: np.ndarray | None  # the same of the bytes

    def range(self, k: int) -> Entries:
        entries, rows = self.entries, slice(int(self.cuts[k]), int(self.cuts[k + 1]))
        data = None
        if entries.data is not None and self.data_cuts is not None:
            data = entries.data[int(self.data_cuts[k]) : int(self.data_cuts[k + 1])]
        return Entries(entries.labels[rows], data, entries.pairs[rows])


def merge_labels(scratch: Scratch, key: str, dictionaries: list[Entries], kind: str, bounds: pa.Array) -> Merged:
    """Task: the distinct labels of the same parts of all pieces, and where the ranges that begin at `bounds` do."""
    labels = pa.concat_arrays([entries.read(scratch, kind) for entries in dictionaries])
    encoded = labels.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    distinct = encoded.dictionary.take(order)
    ranks = np.empty(len(distinct), np.uint32)
    ranks[order.to_numpy()] = np.arange(len(distinct), dtype=np.uint32)
    places = ranks[encoded.indices.to_numpy()]
    del labels, encoded, order, ranks
    pairs = np.concatenate([scratch.read(entries.pairs) for entries in dictionaries])
    sums = np.bincount(places, weights=pairs, minlength=len(distinct)).astype(np.int64)
    inner = [place_of(distinct, bound) for bound in bounds.to_pylist()]
    cuts = np.array([0, *inner, len(distinct)], np.int64)
    if kind == INTEGER:
        stored = scratch.write(key, sums, distinct.to_numpy(), places)
        return Merged(Entries(stored[1], None, stored[0]), stored[2], cuts, None)
    offsets, data = text_buffers(distinct)
    lengths = np.diff(offsets).astype(np.uint32)
    stored = scratch.write(key, sums, lengths, places, data[offsets[0] : offsets[-1]])
    return Merged(Entries(stored[1], stored[3], stored[0]), stored[2], cuts, offsets[cuts] - offsets[0])


@dataclass(frozen=True)
class Range:
    """Labels of consecutive rows, in order."""

    first: int  # row
    labels: Stored  # integers, or offsets of texts, one more than rows
    data: Stored | None
    rows: Stored  # row numbers of what was merged, part after part
    starts: np.ndarray  # rows at which a task's worth of pairs begins


def sort_range(scratch: Scratch, key: str, first: int, parts: list[Entries], kind: str, pairs: int) -> Range:
    """Task: put the labels of a range in order, the first at row `first`; starts of rows with so many pairs each."""
    labels = pa.concat_arrays([entries.read(scratch, kind) for entries in parts])
    order = pc.array_sort_indices(labels).to_numpy()
    labels = labels.take(pa.array(order))
    rows = np.empty(order.size, np.uint32)
    rows[order] = np.arange(first, first + order.size, dtype=np.uint32)
    sums = np.concatenate([scratch.read(entries.pairs) for entries in parts])[order]
    starts = first + make_ranges(sums, pairs)[:-1]
    if kind == INTEGER:
        stored = scratch.write(key, rows, labels.to_numpy())
        return Range(first, stored[1], None, stored[0], starts)
    offsets, data = text_buffers(labels)
    stored = scratch.write(key, rows, offsets - offsets[0], data[offsets[0] : offsets[-1]])
    return Range(first, stored[1], stored[2], stored[0], starts)


def find_rows(scratch: Scratch, key: str, places: Stored, rows: list[Stored]) -> Stored:
    """Task: row numbers of all pieces' labels of a merged part."""
    table = np.concatenate([scratch.read(part) for part in rows])
    return scratch.write(key, table[scratch.read(places)])[0]


class RankedLabels:
    """All labels of one side in order, in scratch until a slice of them is wanted."""

    def __init__(self, scratch: Scratch, ranges: list[Range], kind: str, size: int) -> None:
        self.scratch, self.ranges, self.size = scratch, ranges, size
        self.dtype = np.dtype(np.int64 if kind == INTEGER else object)

    def __getitem__(self, part: slice) -> np.ndarray:
        first, stop, _ = part.indices(self.size)
        ends = [*(one.first for one in self.ranges[1:]), self.size]
        parts = [np.empty(0, self.dtype)]
        for one, end in zip(self.ranges, ends, strict=True):
            start, last = max(first, one.first), min(stop, end)
            if start < last:
                parts.append(self._read(one, start - one.first, last - one.first))
        return np.concatenate(parts)

    def _read(self, one: Range, first: int, stop: int) -> np.ndarray:
        if one.data is None:
            return self.scratch.read(one.labels[first:stop])
        offsets = self.scratch.read(one.labels[first : stop + 1])
        data = self.scratch.read(one.data[int(offsets[0]) : int(offsets[-1])])
        buffers = pa.py_buffer(offsets - offsets[0]), pa.py_buffer(data)
        texts = pa.LargeStringArray.from_buffers(stop - first, *buffers)
        return np.asarray(texts.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Ranked:
    """All labels of one side in order, and how to get from a piece's codes to their rows."""

    labels: RankedLabels
    starts: np.ndarray  # rows at which a task's worth of pairs begins, and the end
    rows: list[tuple[list[int], Stored]]  # of each merged part: where the pieces' row numbers begin, and those

    @property
    def size(self) -> int:
        return self.labels.size

    def side(self, piece: int, codes: Stored) -> Side:
        return Side(codes, tuple(rows[starts[piece] : starts[piece + 1]] for starts, rows in self.rows))


def rank_labels(dictionaries: list[Dictionary], side: str, kind: str, stages: Stages, scratch: Scratch) -> Ranked:
    """Merge the pieces' dictionaries and number the labels in their order."""
    scratch.make("labels")
    scratch.make("ordered")
    if kind != TEXT:  # text of CSV files is what all of it is written as
        kind = INTEGER if all(one.whole for one in dictionaries) else TEXT
    sizes = np.sum([np.diff(one.starts) for one in dictionaries], axis=0)
    bounds = _bounds(dictionaries, sizes, kind, stages.rows, scratch)
    spans = list(itertools.pairwise(make_ranges(sizes, stages.rows).tolist()))
    merged: list[Merged] = stages.run(
        f"merge-{side[:-1]}-labels",
        merge_labels,
        (
            (scratch, f"labels/{side}-{k}", [one.parts(*span) for one in dictionaries], kind, bounds)
            for k, span in enumerate(spans)
        ),
    )
    # No range is empty: the label that it begins at is one of its own.
    firsts = [0, *np.cumsum(np.sum([np.diff(one.cuts) for one in merged], axis=0)).tolist()]
    ranges: list[Range] = stages.run(
        f"sort-{side[:-1]}-labels",
        sort_range,
        (
            (scratch, f"ordered/{side}-{k}", first, [one.range(k) for one in merged], kind, stages.rows)
            for k, first in enumerate(firsts[:-1])
        ),
    )
    tasks, before = [], np.zeros(len(ranges), np.int64)
    for m, one in enumerate(merged):
        after = before + np.diff(one.cuts)
        rows = [found.rows[int(a) : int(b)] for found, a, b in zip(ranges, before, after, strict=True)]
        tasks.append((scratch, f"labels/{side}-rows-{m}", one.places, rows))
        before = after
    resolved: list[Stored] = stages.run(f"number-{side[:-1]}-labels", find_rows, tasks)
    starts = [np.cumsum([0, *(int(d.starts[stop] - d.starts[first]) for d in dictionaries)]) for first, stop in spans]
    return Ranked(
        RankedLabels(scratch, ranges, kind, firsts[-1]),
        np.concatenate([*(one.starts for one in ranges), [firsts[-1]]]),
        [(begins.tolist(), rows) for begins, rows in zip(starts, resolved, strict=True)],
    )


def _bounds(dictionaries: list[Dictionary], sizes: np.ndarray, kind: str, rows: int, scratch: Scratch) -> pa.Array:
    """Labels at which ranges of about `rows` distinct labels begin, the first range's excepted.

    The first parts, being parts by hash, are a fair sample of the distinct labels.
    """
    none = pa.array([], pa.int64() if kind == INTEGER else pa.large_string())
    if sizes.sum() <= rows:
        return none
    parts = min(int(np.searchsorted(np.cumsum(sizes), SAMPLE)) + 1, PARTS)
    found = [one.parts(0, parts).read(scratch, kind) for one in dictionaries]
    sample = pc.unique(pa.concat_arrays(found))
    sample = sample.take(pc.array_sort_indices(sample))
    ranges = -(-len(sample) * PARTS // (parts * rows))
    if ranges < 2:
        return none
    at = np.unique(np.arange(1, ranges) * len(sample) // ranges)
    return sample.take(pa.array(at[at > 0]))
