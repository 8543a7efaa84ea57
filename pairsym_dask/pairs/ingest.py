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
from .parts import Columns
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
        parsed = parse(found, columns, stages, scratch)
        if not any(piece.codes["users"].size for piece in parsed):
            raise InputError(f"no pairs in {found.name}")
        return _ingest_parsed(parsed, columns, stages, scratch, memory, found.name + remark)


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
