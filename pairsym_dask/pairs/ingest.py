"""`ingest`: a pile of pairs into a counts store, without ever holding them all.

Files and frames are parsed in parts; each task puts aside its pairs as small codes with a dictionary of the labels
they stand for. The dictionaries are merged by hash, part by part, then put in order: that gives every label its row
number. The rest (sorting, adding up, tiles) is `assemble`'s.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
from dask.base import is_dask_collection

from ..errors import InputError, MemoryBudgetError
from ..settings import SIDES
from ..store.counts import MARK, Counts
from ..store.counts_writer import begin
from ..store.cuts import LABELS
from ..store.local import LocalStorage
from ..store.remote import without_credentials
from ..store.scratch import Scratch, Stored
from ..store.storage import Storage, is_local, open_storage
from .assemble import Piece, Side, Steps, group_pieces, long_side, write_store
from .checks import CSV_TEXT, TEXT, WHOLE_LIMIT, check_numbers
from .labels import Dictionary, encode_labels, rank_labels
from .sources import (
    Batch,
    Columns,
    CsvPart,
    FramePart,
    ParquetPart,
    Part,
    StorePart,
    arrow_labels,
    file_parts,
    find_files,
    frame_parts,
    has_quotes,
    opened,
    store_kinds,
    store_parts,
)

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
    dask frame, or a scipy.sparse or `sparse` matrix (users x items, labels 0, 1, .., empty rows and columns kept), or a
    counts store, whose symbols are all kept; a list may hold several of these, matrices excepted.
    `user`, `item` and `count` name columns; without `count` each row is one pair. Repeated pairs are added up, zeros
    dropped. Labels are integers or strings; those of CSV files are integers when all of them are written as such.
    The same pairs make the same store, however they come. `memory` bounds what the tasks of a process hold ("1GiB").
    """
    where = {"client": client, "threads": threads, "memory": memory, "progress": progress}
    return write_pairs(source, path, Columns(user, item, count), dict(storage_options or {}), **where)


def write_pairs(
    source: Any, path: Any, columns: Columns, options: dict[str, Any], remark: str = "", *, memory: Any, **where: Any
) -> Counts:
    """`ingest`, with a remark at the end of what the store says about its source."""
    steps = Steps(memory=memory, **where)
    with _writing(path, options) as storage:
        scratch = steps.scratch(storage)
        if _is_matrix(source):
            return _ingest_matrix(source, steps, scratch)
        found = _find_sources(source, columns, steps, options)
        if columns.count is None and "count" in found.there and "count" not in columns.names:
            warnings.warn(
                f'the column "count" of {found.name} is not used: each row is one pair; give count="count" to use it',
                UserWarning,
                stacklevel=3,
            )
        parsed = _parse(found, columns, steps, scratch)
        if not any(piece.codes["users"].size for piece in parsed):
            raise InputError(f"no pairs in {found.name}")
        return _ingest_parsed(parsed, columns, steps, scratch, memory, found.name + remark)


def _ingest_parsed(
    parsed: list[Parsed], columns: Columns, steps: Steps, scratch: Scratch, memory: Any, name: str
) -> Counts:
    ranked = {}
    for side in SIDES:
        kind = _one_kind(parsed, side, columns)
        ranked[side] = rank_labels([piece.dictionaries[side] for piece in parsed], side, kind, steps, scratch, memory)
    shape = ranked["users"].size, ranked["items"].size
    pieces = [
        Piece({side: ranked[side].side(k, piece.codes[side]) for side in SIDES}, piece.counts)
        for k, piece in enumerate(parsed)
        if piece.codes["users"].size
    ]
    exact = all(piece.whole for piece in parsed) and sum(piece.total for piece in parsed) < WHOLE_LIMIT
    long = long_side(*shape)
    runs = group_pieces(steps, scratch, long, pieces, ranked[long].pairs, exact)
    scratch.remove("parse")
    scratch.remove("labels")
    labels = {side: ranked[side].labels for side in SIDES}
    del ranked, pieces
    return write_store(steps, scratch, shape, runs, labels, name)


@contextlib.contextmanager
def _writing(path: Any, options: dict[str, Any]) -> Iterator[Storage]:
    """A new store's folder; bad input leaves nothing of it behind."""
    storage = open_storage(path, options)
    new = not (isinstance(storage, LocalStorage) and storage.root.exists())
    begin(storage)
    try:
        yield storage
    except (InputError, MemoryBudgetError):
        for folder in storage.folders():
            storage.remove(folder)
        storage.remove(MARK)
        if new and isinstance(storage, LocalStorage):
            storage.root.rmdir()
        raise


# Sources ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a source turns out to be: parts of stores, parts of files and frames, dask frames."""

    stores: list[Counts]
    stored: list[Part]
    parts: list[Part]
    partitions: list[Partitions]
    there: set[Any]  # names of columns
    name: str


def _find_sources(source: Any, columns: Columns, steps: Steps, options: dict[str, Any]) -> Found:
    listed = list(source) if isinstance(source, (list, tuple)) else [source]
    found = Found([], [], [], [], set(), "")
    paths, names = [], []
    for one in (opened(one, options) for one in listed):
        if isinstance(one, Counts):
            found.stores.append(one)
            found.stored.extend(store_parts(one, columns))
            names.append(one.path)
        elif isinstance(one, (pd.DataFrame, pa.Table, pa.RecordBatch)):
            parts, there = frame_parts(one, "the frame", columns, steps.rows)
            found.parts.extend(parts)
            found.there.update(there)
            names.append("the frame")
        elif is_dask_collection(one) and hasattr(one, "columns"):
            columns.check(list(one.columns), "the dask frame")
            wanted = one[columns.names].optimize()
            found.partitions.append(Partitions(dict(wanted.__dask_graph__()), list(wanted.__dask_keys__())))
            found.there.update(one.columns)
            names.append("the dask frame")
        elif isinstance(one, (str, os.PathLike)):
            paths.append(one)
            text = os.fspath(one)
            names.append(text if is_local(text) else without_credentials(text))
        else:
            raise _unreadable(one)
    if not names:
        raise _unreadable(source)
    files: list[Part] = []
    for file in find_files(paths, options) if paths else []:
        parts, there = file_parts(file, columns, steps.rows, options)
        files += parts
        found.there.update(there)
    found.parts.extend(_join_quoted(files, steps))
    return replace(found, name=", ".join(names))


def _unreadable(source: Any) -> InputError:
    return InputError(
        f"pairs cannot be read from a {type(source).__name__}; give paths, a pandas, arrow or dask frame, "
        "or a sparse matrix"
    )


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
class Partitions:
    """A dask frame: its graph, and the keys of its partitions."""

    graph: dict[Any, Any]
    keys: list[Any]


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


def _parse(found: Found, columns: Columns, steps: Steps, scratch: Scratch) -> list[Parsed]:
    scratch.make("parse")
    results: list[list[Parsed] | InputError] = []
    text = _kinds_of_text([*found.stored, *found.parts], columns)
    # Apart from each other: a store's pairs have counts, others need not.
    for name, parts in (("stored", found.stored), ("given", found.parts)):
        bins = enumerate(_bins(parts, steps.rows))
        tasks = [(scratch, f"parse/{name}-{k}", some, steps.rows, text) for k, some in bins]
        results += steps.run("parse-pairs", parse_pairs, tasks)
    for n, partitions in enumerate(found.partitions):
        graph, wanted = dict(partitions.graph), []
        for k, partition in enumerate(partitions.keys):
            wanted.append(steps.key("parse-pairs", k))
            arguments = scratch, f"parse/{n}-{k}", columns, f"partition {k} of the dask frame", steps.rows
            graph[wanted[-1]] = (steps.task(_parse_partition, *arguments), partition)
        results += steps.run_graph("parse-pairs", graph, wanted)
    for n, store in enumerate(found.stores):
        chunks = range(-(-max(store.shape) // LABELS))
        labels = [(scratch, f"parse/labels-{n}-{k}", store, k) for k in chunks]
        results += [[piece] for piece in steps.run("read-labels", put_labels, labels)]
    for result in results:
        if isinstance(result, InputError):
            raise result
    return [piece for result in results for piece in result]  # type: ignore[union-attr]


def put_labels(scratch: Scratch, key: str, counts: Counts, chunk: int) -> Parsed:
    """Task: put some labels of a store aside, without pairs, so that symbols that have none stay."""
    codes, dictionaries = {}, {}
    for side in SIDES:
        rows = counts.cuts[side].rows
        labels = arrow_labels(counts.some_labels(side, min(chunk * LABELS, rows), min((chunk + 1) * LABELS, rows)))
        all_codes, dictionary = encode_labels(scratch, f"{key}-{side}", labels)
        (none,) = scratch.write(f"{key}-{side}-pairs", np.zeros(len(labels), np.uint32))
        codes[side], dictionaries[side] = all_codes[:0], replace(dictionary, pairs=none)
    kinds = dict(zip(SIDES, store_kinds(counts), strict=True))
    return Parsed(counts.path, kinds, codes, dictionaries, None, True, 0)


def _kinds_of_text(parts: list[Part], columns: Columns) -> tuple[str, str]:
    """What CSV labels are taken for: what stores and Parquet files beside them hold, else to be seen at the end."""
    found: list[tuple[str, str] | None] = [None, None]
    for part in parts:
        for k, side in enumerate(SIDES):
            kind = part.kinds[k] if isinstance(part, (ParquetPart, StorePart)) else None
            if kind is not None:
                before = found[k] or (kind, part.name)
                _check_kinds(side, columns, before, (kind, part.name))
                found[k] = before
    return tuple(CSV_TEXT if known is None else known[0] for known in found)  # type: ignore[return-value]


def _bins(parts: list[Part], rows: int) -> Iterator[list[Part]]:
    """Small parts together, so that many small files do not make as many tasks."""
    held: list[Part] = []
    size = 0
    for part in parts:
        if held and size + part.rows > rows:
            yield held
            held, size = [], 0
        held.append(part)
        size += part.rows
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
    scratch: Scratch, key: str, columns: Columns, name: str, rows: int, frame: pd.DataFrame
) -> list[Parsed] | InputError:
    return parse_pairs(scratch, key, [FramePart(name, columns, len(frame), frame)], rows, (TEXT, TEXT))


def _put_piece(scratch: Scratch, key: str, batches: list[Batch]) -> Parsed:
    codes, dictionaries = {}, {}
    for side in SIDES:
        labels = pa.concat_arrays([getattr(batch, side) for batch in batches])
        codes[side], dictionaries[side] = encode_labels(scratch, f"{key}-{side}", labels)
    counts, stored, whole, total = None, None, True, sum(len(batch.users) for batch in batches)
    if batches[0].counts is not None:
        counts = np.concatenate([batch.counts for batch in batches if batch.counts is not None])
        whole = counts.dtype.kind == "u"
        total = int(counts.sum(dtype=np.float64)) if whole else 0
        (stored,) = scratch.write(f"{key}-counts", counts)
    kinds = dict(zip(SIDES, batches[0].kinds, strict=True))
    return Parsed(batches[0].name, kinds, codes, dictionaries, stored, whole, total)


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
