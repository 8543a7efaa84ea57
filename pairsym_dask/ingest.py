"""`ingest`: a pile of pairs into a counts store, without ever holding them all.

Files and frames are parsed in parts; each task puts aside its pairs as small codes with a dictionary of the labels
they stand for. The dictionaries are merged by hash, part by part, then put in order: that gives every label its row
number. The rest (sorting, adding up, tiles) is `assemble`'s.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from .assemble import Piece, Side, Steps, group_pieces, long_side, make_ranges, write_store
from .counts import MARK, Counts, begin
from .grouping import PARTS, integer_parts, order_by_part, parse_integers, text_parts
from .plan import parse_memory
from .scratch import Scratch, Stored
from .sources import (
    CSV_TEXT,
    INTEGER,
    WHOLE_LIMIT,
    Batch,
    Columns,
    CsvPart,
    FramePart,
    ParquetPart,
    Part,
    check_numbers,
    file_parts,
    find_files,
    frame_parts,
    has_quotes,
    text_buffers,
)
from .spec import SIDES, InputError, MemoryBudgetError
from .storage import LocalStorage, Storage, open_storage, without_credentials

FAILED = "parse/failed"  # flag of a task that met bad input, so that the others need not go on


def ingest(
    source: Any,
    path: str | os.PathLike[str],
    user: Any = "user",
    item: Any = "item",
    count: Any = None,
    *,
    client: Any = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Counts:
    """Make a counts store at `path` from pairs.

    `source` is a path, folder or glob of Parquet, CSV or TSV files (also .gz), a list of them, a pandas, arrow or
    dask frame, or a scipy.sparse or `sparse` matrix (users x items, labels 0, 1, .., empty rows and columns kept).
    `user`, `item` and `count` name columns; without `count` each row is one pair. Repeated pairs are added up, zeros
    dropped. Labels are integers or strings; those of CSV files are integers when all of them are written as such.
    The same pairs make the same store, however they come. `memory` bounds what the tasks of a process hold ("1GiB").
    """
    options = dict(storage_options or {})
    steps = Steps(client, threads, memory, progress)
    if _is_matrix(source):
        with _writing(path, options) as storage:
            return _ingest_matrix(source, steps, steps.scratch(storage))
    columns = Columns(user, item, count)
    if len(set(columns.names)) < len(columns.names):
        raise InputError(f"user, item and count must be different columns, not {', '.join(map(repr, columns.names))}")
    parts, there, name = _find_parts(source, columns, steps, options)
    if count is None and "count" in there and "count" not in columns.names:
        warnings.warn(
            f'the column "count" of {name} is not used: each row is one pair; give count="count" to use it',
            UserWarning,
            stacklevel=2,
        )
    with _writing(path, options) as storage:
        scratch = steps.scratch(storage)
        parsed = _parse(parts, columns, steps, scratch)
        if not parsed:
            raise InputError(f"no pairs in {name}")
        kinds = {side: _one_kind(parsed, side, columns) for side in SIDES}
        ranked = {side: _rank_labels(parsed, side, kinds[side], steps, scratch, memory) for side in SIDES}
        shape = ranked["users"].size, ranked["items"].size
        pieces = [
            Piece({side: ranked[side].side(k, piece.codes[side]) for side in SIDES}, piece.counts)
            for k, piece in enumerate(parsed)
        ]
        exact = all(piece.whole for piece in parsed) and sum(piece.total for piece in parsed) < WHOLE_LIMIT
        long = long_side(*shape)
        runs = group_pieces(steps, scratch, long, pieces, ranked[long].pairs, exact)
        scratch.remove("parse")
        scratch.remove("labels")
        labels = {side: ranked[side].labels for side in SIDES}
        del ranked, pieces, parsed
        return write_store(steps, scratch, shape, runs, labels, name)


@contextlib.contextmanager
def _writing(path: Any, options: dict[str, Any]) -> Iterator[Storage]:
    """A new store's folder; bad input leaves nothing of it behind."""
    storage = open_storage(path, options)
    new = not (isinstance(storage, LocalStorage) and storage.root.exists())
    begin(storage)
    try:
        yield storage
    except InputError:
        for folder in storage.folders():
            storage.remove(folder)
        storage.remove(MARK)
        if new and isinstance(storage, LocalStorage):
            storage.root.rmdir()
        raise


# Sources ------------------------------------------------------------------------------------------------------------


def _find_parts(
    source: Any, columns: Columns, steps: Steps, options: dict[str, Any]
) -> tuple[list[Any], set[Any], str]:
    """Parts to parse (or dask's delayed partitions), all names of columns, and what the source is called."""
    if isinstance(source, (pd.DataFrame, pa.Table, pa.RecordBatch)):
        parts, there = frame_parts(source, "the frame", columns, steps.rows)
        return list(parts), set(there), "the frame"
    if hasattr(source, "to_delayed") and hasattr(source, "columns"):
        columns.check(list(source.columns), "the dask frame")
        return list(source[columns.names].to_delayed()), set(source.columns), "the dask frame"
    listed = source if isinstance(source, (list, tuple)) else [source]
    if not listed or not all(isinstance(one, (str, os.PathLike)) for one in listed):
        raise InputError(
            f"pairs cannot be read from a {type(source).__name__}; give paths, a pandas, arrow or dask frame, "
            "or a sparse matrix"
        )
    files: list[Part] = []
    there_all: set[Any] = set()
    for file in find_files(source, options):
        parts, there = file_parts(file, columns, steps.rows, options)
        files += parts
        there_all |= set(there)
    names = [without_credentials(os.fspath(one)) if "://" in os.fspath(one) else os.fspath(one) for one in listed]
    return _join_quoted(files, steps), there_all, ", ".join(names)


def _join_quoted(parts: list[Part], steps: Steps) -> list[Part]:
    """CSV files with quotes become one part each: a line break inside quotes does not end a row."""
    blocks = [part for part in parts if isinstance(part, CsvPart) and part.stop is not None]
    found = steps.run("scan-csv", has_quotes, [(block,) for block in blocks])
    quoted = {block.name for block, quotes in zip(blocks, found, strict=True) if quotes}
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, CsvPart) and part.name in quoted:
            if part.start == 0:
                kept.append(replace(part, stop=None))
        else:
            kept.append(part)
    return kept


def _one_kind(parsed: list[Parsed], side: str, columns: Columns) -> str:
    """The kind of labels that all pieces have."""
    first = parsed[0]
    for piece in parsed:
        _check_kinds(side, columns, (first.kinds[side], first.name), (piece.kinds[side], piece.name))
    return first.kinds[side]


def _check_kinds(side: str, columns: Columns, one: tuple[str, str], two: tuple[str, str]) -> None:
    if one[0] != two[0]:
        held = f"{one[0]} and {two[0]} in {one[1]}"
        if one[1] != two[1]:
            held = f"{one[0]} in {one[1]} and {two[0]} in {two[1]}"
        raise InputError(
            f"labels of mixed types: column {columns.names[SIDES.index(side)]!r} holds {held}; "
            "make them all integers or all strings"
        )


# Parsing ------------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Parsed:
    """One piece as the parser leaves it."""

    name: str
    kinds: dict[str, str]
    codes: dict[str, Stored]
    dictionaries: dict[str, Dictionary]
    counts: Stored | None
    whole: bool
    total: int  # of whole counts


def _parse(parts: list[Any], columns: Columns, steps: Steps, scratch: Scratch) -> list[Parsed]:
    scratch.make("parse")
    text = _kinds_of_text(parts, columns)
    if parts and not isinstance(parts[0], Part):
        graph: dict[Any, Any] = {}
        keys = []
        for k, delayed in enumerate(parts):
            graph.update(delayed.__dask_graph__())
            keys.append(f"parse-pairs-{steps.attempt}-{k}")
            task = steps.task(_parse_partition, scratch, f"parse/{k}", columns, f"partition {k}", steps.rows, text)
            graph[keys[-1]] = (task, delayed.key)
        results = steps.run_graph("parse-pairs", graph, keys)
    else:
        tasks = [(scratch, f"parse/{k}", bin_, steps.rows, text) for k, bin_ in enumerate(_bins(parts, steps.rows))]
        results = steps.run("parse-pairs", parse_pairs, tasks)
    for result in results:
        if isinstance(result, InputError):
            raise result
    return [piece for result in results for piece in result]


def _kinds_of_text(parts: list[Any], columns: Columns) -> tuple[str, str]:
    """What CSV labels are taken for: what the Parquet files beside them hold, else to be seen at the end."""
    found: list[tuple[str, str] | None] = [None, None]
    for part in parts:
        for k, side in enumerate(SIDES):
            kind = part.kinds[k] if isinstance(part, ParquetPart) else None
            if kind is not None:
                before = found[k] or (kind, part.name)
                _check_kinds(side, columns, before, (kind, part.name))
                found[k] = before
    return tuple(CSV_TEXT if known is None else known[0] for known in found)  # type: ignore[return-value]


def _bins(parts: list[Part], rows: int) -> Iterator[list[Part]]:
    """Small parts together, so that many small files do not make as many tasks."""
    held: list[Part] = []
    for part in parts:
        if held and sum(other.rows for other in held) + part.rows > rows:
            yield held
            held = []
        held.append(part)
    if held:
        yield held


def parse_pairs(
    scratch: Scratch, key: str, parts: list[Part], rows: int, text: tuple[str, str]
) -> list[Parsed] | InputError:
    """Task: read parts, check them, and put pieces of about `rows` pairs aside."""
    pieces: list[Parsed] = []
    held: list[Batch] = []
    try:
        for part in parts:
            for batch in part.batches(max(rows // 4, 1), text):
                if scratch.flagged(FAILED):
                    return []
                held.append(batch)
                if held[0].kinds != batch.kinds or sum(len(one.users) for one in held) >= rows:
                    ready = held if held[0].kinds == batch.kinds else held[:-1]
                    pieces.append(_put_piece(scratch, f"{key}-{len(pieces)}", ready))
                    held = held[len(ready) :]
        if held:
            pieces.append(_put_piece(scratch, f"{key}-{len(pieces)}", held))
    except InputError as error:
        # Returned, not raised: every task ends by itself, and no one writes into a folder that is being removed.
        scratch.flag(FAILED)
        return error
    return pieces


def _parse_partition(
    scratch: Scratch, key: str, columns: Columns, name: str, rows: int, text: tuple[str, str], frame: pd.DataFrame
) -> list[Parsed] | InputError:
    return parse_pairs(scratch, key, [FramePart(name, columns, len(frame), frame)], rows, text)


def _put_piece(scratch: Scratch, key: str, batches: list[Batch]) -> Parsed:
    codes, dictionaries = {}, {}
    for side in SIDES:
        labels = pa.concat_arrays([getattr(batch, side) for batch in batches])
        codes[side], dictionaries[side] = _encode(scratch, f"{key}-{side}", labels)
    counts, stored, whole, total = None, None, True, sum(len(batch.users) for batch in batches)
    if batches[0].counts is not None:
        counts = np.concatenate([batch.counts for batch in batches if batch.counts is not None])
        whole = counts.dtype.kind == "u"
        total = int(counts.sum(dtype=np.float64)) if whole else 0
        (stored,) = scratch.write(f"{key}-counts", counts)
    kinds = dict(zip(SIDES, batches[0].kinds, strict=True))
    return Parsed(batches[0].name, kinds, codes, dictionaries, stored, whole, total)


def _encode(scratch: Scratch, key: str, labels: pa.Array) -> tuple[Stored, Dictionary]:
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


# Labels -------------------------------------------------------------------------------------------------------------


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


def _rank_labels(parsed: list[Parsed], side: str, kind: str, steps: Steps, scratch: Scratch, memory: Any) -> Ranked:
    """Merge the pieces' dictionaries and number the labels in their order."""
    scratch.make("labels")
    dictionaries = [piece.dictionaries[side] for piece in parsed]
    sizes = np.sum([np.diff(one.starts) for one in dictionaries], axis=0)
    cuts = make_ranges(sizes, steps.rows)
    ranges = [(int(first), int(stop)) for first, stop in itertools.pairwise(cuts)]
    tasks = [
        (scratch, f"labels/{side}-{k}", [one.parts(*parts) for one in dictionaries]) for k, parts in enumerate(ranges)
    ]
    merged: list[Merged] = steps.run("merge-labels", merge_labels, tasks)
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


# Matrices -----------------------------------------------------------------------------------------------------------


def _is_matrix(source: Any) -> bool:
    return scipy.sparse.issparse(source) or type(source).__module__.split(".")[0] == "sparse"


def _ingest_matrix(matrix: Any, steps: Steps, scratch: Scratch) -> Counts:
    users, items, numbers, shape = _coordinates(matrix)
    scratch.make("parse")
    tasks = []
    for k, first in enumerate(range(0, numbers.size, steps.rows)):
        part = slice(first, first + steps.rows)
        tasks.append((scratch, f"parse/{k}", users[part], items[part], numbers[part]))
    results = steps.run("parse-pairs", put_coordinates, tasks)
    for result in results:
        if isinstance(result, InputError):
            raise result
    pieces = [piece for piece, _, _ in results if piece.counts.size]
    if not pieces:
        raise InputError("no pairs in the matrix")
    long = long_side(*shape)
    pairs = np.bincount(users if long == "users" else items, minlength=max(shape))
    exact = all(whole for _, whole, _ in results) and sum(total for _, _, total in results) < WHOLE_LIMIT
    runs = group_pieces(steps, scratch, long, pieces, pairs, exact)
    scratch.remove("parse")
    labels = {"users": np.arange(shape[0]), "items": np.arange(shape[1])}
    return write_store(steps, scratch, shape, runs, labels, "a sparse matrix")


def _coordinates(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    if len(matrix.shape) != 2:
        raise InputError(f"a matrix of pairs has two dimensions, users x items, not {len(matrix.shape)}")
    if scipy.sparse.issparse(matrix):
        found = matrix.tocoo(copy=False)
        users, items, numbers = found.row, found.col, found.data
    else:
        found = matrix.asformat("coo")
        if found.fill_value != 0:
            raise InputError(f"a matrix of pairs must be 0 where nothing is stored, not {found.fill_value}")
        users, items, numbers = found.coords[0], found.coords[1], found.data
    if numbers.dtype.kind not in "biuf":
        raise InputError(f"counts must be numbers: the matrix holds {numbers.dtype}")
    return users, items, numbers.astype(np.uint8) if numbers.dtype.kind == "b" else numbers, matrix.shape


def put_coordinates(
    scratch: Scratch, key: str, users: np.ndarray, items: np.ndarray, numbers: np.ndarray
) -> tuple[Piece, bool, int] | InputError:
    """Task: check some entries of a matrix and put them aside."""
    try:
        counts = check_numbers(numbers, lambda k: f"entry ({users[k]}, {items[k]}) of the matrix")
    except InputError as error:
        return error
    kept = counts > 0
    counts = counts[kept]
    stored = scratch.write(key, users[kept].astype(np.uint32), items[kept].astype(np.uint32), counts)
    whole = counts.dtype.kind == "u"
    total = int(counts.sum(dtype=np.float64)) if whole else 0
    return Piece({"users": Side(stored[0]), "items": Side(stored[1])}, stored[2]), whole, total
