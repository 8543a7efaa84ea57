"""`ingest`: a pile of pairs into a counts store, without ever holding them all.

Files and frames are parsed in parts; each task puts aside its pairs as small codes with a dictionary of the labels
they stand for. The dictionaries are merged by hash, part by part, then put in order: that gives every label its row
number. The rest (sorting, adding up, tiles) is `runs`' and `assemble`'s.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from ..errors import InputError
from ..settings import SIDES
from ..store.counts import Counts
from ..store.scratch import Scratch
from ..store.secrets import hidden
from .assemble import write_store
from .checks import WHOLE_LIMIT
from .labels import rank_labels
from .matrices import ingest_matrix, is_matrix
from .parse import Parsed, one_kind, parse
from .parts import Columns, Reading
from .runs import Piece, group_pieces, long_side
from .sources import find_sources
from .writing import Stages, writing


def ingest(
    source: Any,
    path: str | os.PathLike[str],
    user: Any = "user",
    item: Any = "item",
    count: Any = None,
    *,
    invalid: str = "error",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    client: Any = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Counts:
    """Make a counts store at `path` from pairs.

    `source` is a path, folder or glob of Parquet, CSV or TSV files (also .gz), a list of them; a frame of pandas,
    arrow, polars or dask, anything else with arrow's stream protocol, a dict of columns or a list of tuples; a
    scipy.sparse or `sparse` matrix (users x items, labels 0, 1, .., empty rows and columns kept, stored zeros not); or
    a counts store, whose symbols are all kept. A list may hold several of these, matrices excepted.
    `user`, `item` and `count` name columns; without `count` each row is one pair. Repeated pairs are added up.
    Labels are integers or strings; those of CSV files are integers when all of them are written as such.
    The same pairs make the same store, however they come. `memory` bounds what the tasks of a process hold ("1GiB").

    A row without a user or an item, or whose count is missing, no number, infinite, negative or zero, cannot be
    counted: such rows are an error that says how many there are of each kind and where the first ones stand;
    `invalid="drop"` leaves them out, and the store's source says how many. Separator (",", ";", tab, "|") and encoding
    (UTF-8, UTF-16, cp1252) of CSV files are found; `separator` and `encoding` name them where that fails,
    `decimal=","` reads counts such as 1,5. With `progress` a summary is printed at the end.
    """
    where = {"client": client, "threads": threads, "memory": memory, "progress": progress}
    columns = Columns(user, item, count, Reading(invalid, separator, encoding, decimal))
    return write_pairs(source, path, columns, dict(storage_options or {}), **where)


def write_pairs(
    source: Any, path: Any, columns: Columns, options: dict[str, Any], remark: str = "", *, memory: Any, **where: Any
) -> Counts:
    """`ingest`, with a remark at the end of what the store says about its source."""
    stages = Stages(memory=memory, **where)
    listed = source if isinstance(source, (list, tuple)) else [source]
    with hidden(listed, options), writing(path, options) as storage:
        scratch = stages.scratch(storage)
        if is_matrix(source):
            return ingest_matrix(source, stages, scratch)
        found = find_sources(source, columns, stages, options)
        if columns.count is None and "count" in found.there and "count" not in columns.names:
            warnings.warn(
                f'the column "count" of {found.name} is not used: each row is one pair; give count="count" to use it',
                UserWarning,
                stacklevel=3,
            )
        parsed, faults = parse(found, columns, stages, scratch)
        left_out = f", {faults.left_out:,} left out ({faults.summary()})" if faults.found else ""
        if not any(piece.codes["users"].size for piece in parsed):
            raise InputError(f"no pairs in {found.name}{left_out}")
        name = found.name + (f" (left out: {faults.summary()})" if faults.found else "")
        counts = _ingest_parsed(parsed, columns, stages, scratch, memory, name + remark)
        users, items = counts.shape
        stages.tell(
            f"{found.name}: {faults.rows:,} rows read{left_out}; {counts.nnz:,} distinct pairs of {users:,} users and "
            f"{items:,} items"
        )
        return counts


def _ingest_parsed(
    parsed: list[Parsed], columns: Columns, stages: Stages, scratch: Scratch, memory: Any, name: str
) -> Counts:
    ranked = {}
    for side in SIDES:
        kind = one_kind(parsed, side, columns)
        ranked[side] = rank_labels([piece.dictionaries[side] for piece in parsed], side, kind, stages, scratch, memory)
    shape = ranked["users"].size, ranked["items"].size
    pieces = [
        Piece({side: ranked[side].side(k, piece.codes[side]) for side in SIDES}, piece.counts)
        for k, piece in enumerate(parsed)
        if piece.codes["users"].size
    ]
    exact = all(piece.whole for piece in parsed) and sum(piece.total for piece in parsed) < WHOLE_LIMIT
    long = long_side(*shape)
    runs = group_pieces(stages, scratch, long, pieces, ranked[long].pairs, exact)
    scratch.remove("parse")
    scratch.remove("labels")
    labels = {side: ranked[side].labels for side in SIDES}
    del ranked, pieces
    return write_store(stages, scratch, shape, runs, labels, name)
