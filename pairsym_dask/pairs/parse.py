"""Parsing: each task puts its parts' pairs aside as small codes with a dictionary of the labels they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa

from ..errors import InputError
from ..settings import SIDES
from ..store.counts import Counts
from ..store.scratch import Scratch, Stored
from .checks import CSV_TEXT, TEXT
from .faults import Faults
from .files import ParquetPart
from .labels import Dictionary, encode_labels
from .parts import Batch, Columns, FramePart, Part, StorePart, store_kinds
from .sources import Found
from .writing import Stages

FAILED = "parse/failed"  # flag of a task that met bad input, so that the others need not go on


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
    times: Stored | None = None
    latest: int | None = None  # of the times


def parse(found: Found, columns: Columns, stages: Stages, scratch: Scratch) -> tuple[list[Parsed], Faults]:
    """Pieces of all sources, and rows that cannot be counted."""
    scratch.make("parse")
    results: list[tuple[list[Parsed], Faults] | InputError] = []
    text = _kinds_of_text([*found.stored, *found.parts], columns)
    # Apart from each other: a store's pairs have counts, others need not.
    for name, parts in (("stored", found.stored), ("given", found.parts)):
        bins = enumerate(_bins(parts, stages.rows))
        tasks = [(scratch, f"parse/{name}-{k}", some, stages.rows, text) for k, some in bins]
        results += stages.run("parse-pairs", parse_pairs, tasks)
    for n, partitions in enumerate(found.partitions):
        graph, wanted = dict(partitions.graph), []
        for k, partition in enumerate(partitions.keys):
            wanted.append(stages.key("parse-pairs", k))
            arguments = scratch, f"parse/{n}-{k}", columns, f"partition {k} of the dask frame", stages.rows
            graph[wanted[-1]] = (stages.task(_parse_partition, *arguments), partition)
        results += stages.run_graph("parse-pairs", graph, wanted)
    for n, store in enumerate(found.stores):
        firsts = range(0, max(store.shape), stages.rows)
        labels = [(scratch, f"parse/labels-{n}-{k}", store, first, stages.rows) for k, first in enumerate(firsts)]
        results += [([piece], Faults()) for piece in stages.run("read-labels", put_labels, labels)]
    pieces, faults = [], Faults()
    for result in results:
        if isinstance(result, InputError):
            raise result
        pieces += result[0]
        faults.merge(result[1])
    if columns.reading.invalid == "error":
        faults.check()
    return pieces, faults


def put_labels(scratch: Scratch, key: str, counts: Counts, first: int, size: int) -> Parsed:
    """Task: put some labels of a store aside, without pairs, so that symbols that have none stay."""
    codes, dictionaries = {}, {}
    for side in SIDES:
        column = counts.columns[side]
        labels = column.arrow(min(first, len(column)), min(first + size, len(column)))
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


def one_kind(parsed: list[Parsed], side: str, columns: Columns) -> str:
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
) -> tuple[list[Parsed], Faults] | InputError:
    """Task: read parts, check them, and put pieces of about `rows` pairs aside."""
    pieces: list[Parsed] = []
    held: list[Batch] = []
    faults = Faults()
    try:
        for part in parts:
            for batch in part.batches(max(rows // 4, 1), text, faults):
                if scratch.flagged(FAILED):
                    return [], faults
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
    return pieces, faults


def _parse_partition(
    scratch: Scratch, key: str, columns: Columns, name: str, rows: int, frame: pd.DataFrame
) -> tuple[list[Parsed], Faults] | InputError:
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
    found = [batch.times for batch in batches if batch.times is not None]
    if not found:
        return Parsed(batches[0].name, kinds, codes, dictionaries, stored, whole, total)
    times = np.concatenate(found)
    (kept,) = scratch.write(f"{key}-times", times)
    return Parsed(batches[0].name, kinds, codes, dictionaries, stored, whole, total, kept, int(times.max()))
