"""`ingest`: a pile of pairs into a counts store, without ever holding them all.

Files and frames are parsed in parts; each task puts aside its pairs as small codes with a dictionary of the labels
they stand for. The dictionaries are merged by hash, part by part, then put in order, range by range: that gives every
label its row number. The rest (sorting, adding up, tiles) is `runs`' and `assemble`'s.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..settings import SIDES
from ..store.counts import Counts
from ..store.cuts import long_side
from ..store.scratch import Scratch
from ..store.secrets import hidden
from .assemble import write_store
from .checks import WHOLE_LIMIT
from .faults import Faults
from .labels import rank_labels
from .matrices import ingest_matrix, is_matrix
from .parse import Parsed, one_kind, parse
from .parts import WORDS, Columns, Reading
from .runs import Piece, Run, group_pieces
from .sources import Found, find_sources
from .times import Fading, HalfLife
from .writing import Stages, writing


def ingest(
    source: Any,
    path: str | os.PathLike[str],
    user: Any = "user",
    item: Any = "item",
    count: Any = None,
    *,
    time: Any = None,
    half_life: Any = None,
    now: Any = None,
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
    """Make a counts store from pairs.

    Parameters
    ----------
    source : path, frame, matrix, store or list
        A path, folder or glob of Parquet, CSV or TSV files (also .gz), or a list of them; a frame of pandas, arrow,
        polars
        or dask, anything else with arrow's stream protocol, a dict of columns or a list of tuples; a scipy.sparse or
        `sparse` matrix (users x items, labels 0, 1, .., empty rows and columns kept, stored zeros not); or a counts
        store,
        whose symbols are all kept. A list may hold several of these, matrices excepted.
    path : path
        Where the store goes. The same pairs make the same store, however they come.
    user, item, count : column names
        Without `count` each row is one pair. Repeated pairs are added up. Labels are integers
        or strings; those of CSV files are integers when all of them are written as such.
    time : column name, optional
        Times of events, for `half_life`: timestamps, dates, ISO 8601 text or seconds since 1970; UTC where no zone is
        given.
    half_life : str or timedelta, optional
        Such as "30D": a row counts for count * 2^(-age / half_life). Counts are then no whole numbers.
    now : str or timestamp, optional
        What ages are counted from; the latest time there is by default.
    invalid : {"error", "drop"}
        Rows without a user or an item, or whose count is missing, no number, infinite, negative or zero, cannot be
        counted: an error that says how many there are of each kind and where the first ones stand, or left out, and
        the store's source says how many.
    separator, encoding : str, optional
        Of CSV files; found where they are not given: comma, semicolon, tab, pipe; UTF-8, UTF-16, cp1252.
    decimal : {".", ","}
        What stands before the decimals of counts.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    memory : int or str, optional
        Budget of a process, such as "2GiB"; half of what is free by default.
    progress : bool
        Print a summary at the end.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Counts
        The store, open.

    Examples
    --------
    >>> pairs = [("ann", "go"), ("ann", "chess"), ("bob", "go"), ("bob", "go")]
    >>> counts = ps.ingest(pairs, "pairs.zarr")
    >>> counts.shape, counts.nnz, counts.total
    ((2, 2), 3, 4.0)
    """
    where = {"client": client, "threads": threads, "memory": memory, "progress": progress}
    fade = HalfLife.read(time, half_life, now)
    if fade is None and time is not None:
        raise InputError("time is for half_life here; split_by_time and leave_last_out take it without")
    columns = Columns(user, item, count, Reading(invalid, separator, encoding, decimal), time)
    return write_pairs(source, path, columns, dict(storage_options or {}), half_life=fade, **where)


def write_pairs(
    source: Any,
    path: Any,
    columns: Columns,
    options: dict[str, Any],
    remark: str = "",
    *,
    half_life: HalfLife | None = None,
    memory: Any,
    **where: Any,
) -> Counts:
    """`ingest`, with a remark at the end of what the store says about its source."""
    stages = Stages(memory=memory, **where)
    listed = source if isinstance(source, (list, tuple)) else [source]
    with hidden(listed, options), writing(path, options) as storage:
        scratch = stages.scratch(storage)
        if is_matrix(source):
            if half_life is not None:
                raise InputError("the entries of a matrix have no times; give the events themselves for half_life")
            return ingest_matrix(source, stages, scratch)
        found = find_sources(source, columns, stages, options)
        warn_unused(found, columns, stacklevel=4)
        _check_faded(found, half_life)
        parsed, faults = parse_some(found, columns, stages, scratch)
        placed = place(parsed, columns, stages, scratch, half_life)
        if half_life is None and found.stores:  # a copy stays what it was
            placed = replace(placed, faded=found.stores[0].faded)
        name = found.name + (f" (left out: {faults.summary()})" if faults.found else "")
        if placed.fading is not None:
            name += f" ({placed.fading})"
        counts = write_placed(placed, stages, scratch, name + remark, columns.holds)
        tell(stages, found, faults, counts)
        return counts


def _check_faded(found: Found, half_life: HalfLife | None) -> None:
    """Stores whose counts fade are added to events that fade alike."""
    for store in found.stores:
        if half_life is not None:
            half_life.follow(store.faded, store.path)
        elif store.faded is not None and (found.parts or found.partitions or len(found.stores) > 1):
            raise InputError(
                f"the counts of {store.path} fade with the age of events; name the times of what is added with time, "
                "and give half_life"
            )


def warn_unused(found: Found, columns: Columns, stacklevel: int) -> None:
    """A column named count that nobody asked for is worth a word."""
    if columns.count is None and "count" in found.there and "count" not in columns.names:
        warnings.warn(
            f'the column "count" of {found.name} is not used: each row is one pair; give count="count" to use it',
            UserWarning,
            stacklevel=stacklevel,
        )


def parse_some(found: Found, columns: Columns, stages: Stages, scratch: Scratch) -> tuple[list[Parsed], Faults]:
    """Pieces of all sources, and what was left out of them; that there are none is an error."""
    parsed, faults = parse(found, columns, stages, scratch)
    if not any(piece.codes["users"].size for piece in parsed):
        raise InputError(f"no pairs {columns.span}in {found.name}{_left_out(faults)}")
    return parsed, faults


def _left_out(faults: Faults) -> str:
    return f", {faults.left_out:,} left out ({faults.summary()})" if faults.found else ""


def tell(stages: Stages, found: Found, faults: Faults, counts: Counts) -> None:
    """The summary at the end."""
    users, items = counts.shape
    one, two = WORDS[counts.holds][:2]
    stages.tell(
        f"{found.name}: {faults.rows:,} rows read{_left_out(faults)}; {counts.nnz:,} distinct pairs of "
        f"{users:,} {one}s and {items:,} {two}s"
    )


@dataclass(frozen=True)
class Placed:
    """Pieces whose symbols have their row numbers, and all labels."""

    pieces: list[Piece]
    labels: dict[str, Any]
    starts: dict[str, np.ndarray]  # rows at which a task's worth of pairs begins, and the end
    exact: bool  # counts are whole, and so are their sums
    fading: Fading | None
    faded: tuple[int, int] | None = None  # what the store is to remember of it

    @property
    def shape(self) -> tuple[int, int]:
        return self.labels["users"].size, self.labels["items"].size


def place(
    parsed: list[Parsed],
    columns: Columns,
    stages: Stages,
    scratch: Scratch,
    half_life: HalfLife | None = None,
) -> Placed:
    """Number the symbols of parsed pieces in the order of their labels."""
    ranked = {}
    for side in SIDES:
        kind = one_kind(parsed, side, columns)
        ranked[side] = rank_labels([piece.dictionaries[side] for piece in parsed], side, kind, stages, scratch)
    fading = None
    if half_life is not None:
        fading = half_life.fading(max(piece.latest for piece in parsed if piece.latest is not None))
    pieces = [
        Piece({side: ranked[side].side(k, piece.codes[side]) for side in SIDES}, piece.counts, piece.times, fading)
        for k, piece in enumerate(parsed)
        if piece.codes["users"].size
    ]
    whole = all(piece.whole for piece in parsed) and sum(piece.total for piece in parsed) < WHOLE_LIMIT
    labels, starts = ({side: getattr(ranked[side], name) for side in SIDES} for name in ("labels", "starts"))
    faded = None if fading is None else (fading.half_life, fading.present)
    return Placed(pieces, labels, starts, whole and fading is None, fading, faded)


def group(placed: Placed, stages: Stages, scratch: Scratch) -> list[Run]:
    """Distinct pairs of placed pieces, in order; what led to them is removed from scratch."""
    long = long_side(*placed.shape)
    runs = group_pieces(stages, scratch, long, placed.pieces, placed.starts[long], placed.exact)
    scratch.remove("parse")
    scratch.remove("labels")
    return runs


def write_placed(placed: Placed, stages: Stages, scratch: Scratch, name: str, holds: str = "pairs") -> Counts:
    """The store of placed pieces."""
    runs = group(placed, stages, scratch)
    return write_store(stages, scratch, placed.shape, runs, placed.labels, name, faded=placed.faded, holds=holds)
