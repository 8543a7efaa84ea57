"""Parts: some rows of a file, a frame or a store that one task reads, checked row by row.

Every part gives batches of (users, items, counts, times): labels as arrow int64 or large_string arrays without nulls,
counts as numpy numbers above zero, or None for one each, times in microseconds where a column has them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..errors import InputError
from ..options import one_of
from ..settings import SIDES, other
from ..store.counts import Counts
from ..store.secrets import without_credentials
from .checks import (
    INTEGER,
    TEXT,
    RowNames,
    check_counts,
    check_labels,
    from_pandas,
    integers_of,
    numbers_from_pandas,
)
from .faults import Fault, Faults, sift
from .times import ALWAYS, Span

# What the two labels and the number of a row are called, by what a store holds.
WORDS = {"pairs": ("user", "item", "count"), "tags": ("symbol", "tag", "weight")}
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}


@dataclass(frozen=True)
class Reading:
    """How text is read, and what becomes of rows that cannot be counted."""

    invalid: str = "error"
    separator: str | None = None  # of CSV files; None: found in the header
    encoding: str | None = None  # None: found in the first bytes
    decimal: str = "."

    def __post_init__(self) -> None:
        one_of("invalid", self.invalid, ("error", "drop"))
        one_of("decimal", self.decimal, (".", ","))
        if self.separator is not None:
            separator = SEPARATORS.get(self.separator, self.separator)
            if not isinstance(separator, str) or len(separator) != 1:
                words = ", ".join(SEPARATORS)
                raise InputError(f"separator must be one character or one of {words}, not {self.separator!r}")
            object.__setattr__(self, "separator", separator)


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read, and how."""

    user: Any
    item: Any
    count: Any
    reading: Reading = Reading()
    time: Any = None
    span: Span = ALWAYS  # rows outside it are not wanted
    holds: str = "pairs"  # or "tags"

    def __post_init__(self) -> None:
        called = self.words if self.time is None else (*self.words, "time")
        words = f"{', '.join(called[:-1])} and {called[-1]}"
        for name in self.names:
            if not isinstance(name, Hashable):
                raise InputError(f"{words} must each name one column, not {name!r}")
        if len(set(self.names)) < len(self.names):
            named = ", ".join(map(repr, self.names))
            raise InputError(f"{words} must be different columns, not {named}")

    @property
    def names(self) -> list[Any]:
        """Wanted columns, in the order in which parts give them."""
        return [self.user, self.item, *(name for name in (self.count, self.time) if name is not None)]

    @property
    def words(self) -> tuple[str, str, str]:
        """What messages call the columns."""
        return WORDS[self.holds]

    def check(self, there: list[Any], name: str) -> None:
        for role, column in zip((*self.words, "time"), (self.user, self.item, self.count, self.time), strict=True):
            if column is not None and there.count(column) != 1:
                fault = "no column" if column not in there else "more than one column"
                words = [repr(one) if str(one) != str(one).strip() else str(one) for one in there]
                raise InputError(
                    f"{fault} {column!r} in {name}; there are: {', '.join(words) or 'none'}; "
                    f"name the {role}s' with {role}= (--{role})"
                )


@dataclass(frozen=True)
class Batch:
    """Checked pairs of some consecutive rows."""

    kinds: tuple[str, str]
    users: pa.Array
    items: pa.Array
    counts: np.ndarray | None
    times: np.ndarray | None
    name: str


@dataclass(frozen=True, repr=False)
class Part:
    """Some rows of one file or frame."""

    name: str
    columns: Columns
    rows: int  # about

    def read(self, rows: int, faults: Faults) -> Iterator[tuple[int, list[Any]]]:
        """First row's number and columns (user, item, count, time) of batches of at most about `rows` rows."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_credentials(self.name)!r})"  # dask logs a failed task's arguments

    def batches(self, rows: int, text: tuple[str, str], faults: Faults) -> Iterator[Batch]:
        """Checked batches of rows that can be counted, others go to `faults`; `text`: what CSV text is taken for."""
        for first, columns in self.read(rows, faults):
            faults.rows += len(columns[0]) if self.rows_are_read else 0
            columns, times, found = sift(
                columns, self.columns.reading.decimal, self.counted, self.timed, self.columns.words, self.is_csv
            )
            for kind, (number, k, value) in found.items():
                faults.add(kind, Fault(number, self, first + k, value))
            if times is not None and not (wanted := self.columns.span.wanted(times)).all():
                faults.outside += int((~wanted).sum())
                times, columns = times[wanted], [values.filter(pa.array(wanted)) for values in columns]
            at = RowNames(self.name, partial(self._where_after, first))
            labels, kinds = [], []
            for side in range(2):
                values, kind = check_labels(columns[side], self.columns.words[side], self.columns.names[side], at)
                if self.is_csv:
                    kind = text[side]
                    if kind == INTEGER:
                        values = integers_of(values, self.columns.words[side], at)
                labels.append(values)
                kinds.append(kind)
            counts = check_counts(columns[2], self.columns.count, at) if self.counted else None
            if len(labels[0]):
                yield Batch((kinds[0], kinds[1]), labels[0], labels[1], counts, times, self.name)

    @property
    def is_csv(self) -> bool:
        return False

    @property
    def rows_are_read(self) -> bool:
        """Whether rows are those of somebody's file or frame, to be told as such."""
        return True

    @property
    def counted(self) -> bool:
        """Whether there is a column of counts."""
        return self.columns.count is not None

    @property
    def timed(self) -> bool:
        """Whether there is a column of times."""
        return self.columns.time is not None

    def where(self, index: int | None) -> str:
        """A row of this part in words."""
        return f"row {index} of {self.name}"

    def _where_after(self, first: int, k: int) -> str:
        return self.where(first + k)

    def without_rows(self) -> Part:
        """A part that names rows and holds none."""
        return self


@dataclass(frozen=True, repr=False)
class FramePart(Part):
    """A slice of a pandas frame or an arrow table."""

    frame: Any
    first: int = 0

    def without_rows(self) -> Part:
        return replace(self, frame=None)

    def read(self, rows: int, faults: Faults) -> Iterator[tuple[int, list[Any]]]:
        for start in range(0, len(self.frame), rows):
            if isinstance(self.frame, pd.DataFrame):
                part = self.frame.iloc[start : start + rows]
                columns = [
                    from_pandas(part[column], column, self.name, self.first + start)
                    for column in self.columns.names[:2]
                ]
                columns += [numbers_from_pandas(part[column], self.name) for column in self.columns.names[2:]]
            else:
                part = self.frame.slice(start, rows)
                columns = [part.column(column) for column in self.columns.names]
            yield self.first + start, columns


def frame_parts(frame: Any, name: str, columns: Columns, rows: int) -> tuple[list[Part], list[Any]]:
    """Parts of a frame in memory."""
    there = list(frame.columns) if isinstance(frame, pd.DataFrame) else list(frame.schema.names)
    columns.check(there, name)
    parts: list[Part] = []
    for first in range(0, len(frame), rows):
        if isinstance(frame, pd.DataFrame):
            piece = frame.iloc[first : first + rows][columns.names]
        else:
            piece = frame.select(columns.names).slice(first, rows)
        parts.append(FramePart(name, columns, len(piece), piece, first))
    return parts, there


@dataclass(frozen=True, repr=False)
class StorePart(Part):
    """A block of an existing counts store: whole rows of its long side."""

    counts: Counts
    side: str
    block: int

    @property
    def kinds(self) -> tuple[str, str]:
        return store_kinds(self.counts)

    @property
    def rows_are_read(self) -> bool:
        return False

    @property
    def counted(self) -> bool:
        return True

    def read(self, rows: int, faults: Faults) -> Iterator[tuple[int, list[Any]]]:
        counts, short = self.counts, other(self.side)
        first, stop = counts.cuts[self.side].row_range(self.block)
        tile = counts.read_tile(self.side, self.block, 0)
        labels = {
            self.side: counts.columns[self.side].arrow(first, stop),
            short: counts.columns[short].arrow(0, counts.cuts[short].rows),
        }
        codes = {self.side: np.repeat(np.arange(stop - first), np.diff(tile.indptr)), short: tile.indices}
        for start in range(0, tile.indices.size, rows):
            part = slice(start, start + rows)
            columns = [labels[side].take(pa.array(codes[side][part])) for side in SIDES]
            columns.append(pa.array(tile.counts[part]))
            if self.timed and counts.faded is not None:
                # A faded count is as good as one event of that weight at the store's present.
                columns.append(pa.array(np.full(len(columns[0]), counts.faded[1]), pa.timestamp("us")))
            yield start, columns


def store_parts(counts: Counts, columns: Columns) -> list[Part]:
    """Parts of an existing counts store."""
    if columns.time is not None and counts.faded is None:
        raise InputError(f"{counts.path} holds pairs without their times; give the events it was made of")
    side = "users" if counts.shape[0] >= counts.shape[1] else "items"
    blocks = range(counts.cuts[side].blocks)
    return [StorePart(counts.path, columns, counts.tile_pairs(side, b, 0), counts, side, b) for b in blocks]


def store_kinds(counts: Counts) -> tuple[str, str]:
    """What the labels of a store are, users first."""
    users, items = (INTEGER if counts.record["labels"][side] == "int64" else TEXT for side in SIDES)
    return users, items
