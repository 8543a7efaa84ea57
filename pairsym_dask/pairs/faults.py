"""Rows that cannot be counted: of which kinds, how many, and where the first of each is.

One rule for files and frames: a row needs a user, an item and, where there is a column of counts, a finite number above
zero. Rows that lack one are an error that lists them, or left out where that is asked for, and then reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from .checks import plain, whole_labels
from .times import NEVER, read_times

if TYPE_CHECKING:
    from .parts import Part

ODD = "with another number of columns"
COMMA = "with a comma in the {}"
UNREADABLE = "with a time that cannot be read"
_WITH_COMMA = r"^[+-]?\d*,\d+$"
_FINER = re.compile(r"\d{12,}(\.\d*)?")  # a time in milliseconds or smaller units
_NUMBER = r"^(?i)[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)$"


@dataclass(frozen=True)
class Fault:
    """Rows of one kind: how many, and the first of them."""

    rows: int
    part: Part
    index: int | None  # in the part; None for a row of another length
    value: str  # what stands there, where it is something

    def words(self) -> str:
        where = self.part.where(self.index)
        return f"{self.value!r} in {where}" if self.value else where


@dataclass
class Faults:
    """Rows that were read, and those among them that cannot be counted."""

    rows: int = 0
    outside: int = 0  # rows that could be counted, at times that are not wanted
    found: dict[str, Fault] = field(default_factory=dict)

    def add(self, kind: str, fault: Fault) -> None:
        known = self.found.get(kind)
        first = fault if known is None else known
        rows = fault.rows + (0 if known is None else known.rows)
        self.found[kind] = Fault(rows, first.part.without_rows(), first.index, first.value)

    def merge(self, other: Faults) -> None:
        """Take in what was found in later rows."""
        self.rows += other.rows
        self.outside += other.outside
        for kind, fault in other.found.items():
            self.add(kind, fault)

    @property
    def left_out(self) -> int:
        return sum(fault.rows for fault in self.found.values())

    @property
    def _has_commas(self) -> bool:
        return any(kind.startswith(COMMA.format("")) for kind in self.found)

    def summary(self) -> str:
        """How many rows of each kind, in words."""
        return ", ".join(f"{fault.rows:,} {kind}" for kind, fault in self.found.items())

    def check(self) -> None:
        """Refuse them all in one sentence."""
        if not self.found:
            return
        kinds = ", ".join(f"{fault.rows:,} {kind} (first: {fault.words()})" for kind, fault in self.found.items())
        hints = 'read decimal commas with decimal="," (--decimal ,), ' if self._has_commas else ""
        if UNREADABLE in self.found and _FINER.fullmatch(self.found[UNREADABLE].value):
            hints += "divide times so that they are seconds since 1970 (milliseconds by 1000), "
        raise InputError(
            f"{self.left_out:,} of {self.rows:,} rows cannot be counted: {kinds}; {hints}"
            'mend them, or leave them out with invalid="drop" (--invalid drop)'
        )


def sift(
    columns: list[Any], decimal: str, counted: bool, timed: bool, words: tuple[str, str, str], blanks: bool = False
) -> tuple[list[Any], np.ndarray | None, dict[str, tuple[int, int, str]]]:
    """Columns (user, item, count) and times without rows that cannot be counted.

    And of each kind of these rows: how many, the first, its value; `words` are what the columns are called. With
    `blanks`, labels of nothing but white space are none: a text file has no other way to say so.
    """
    columns, number = [plain(values) for values in columns], words[2]
    columns[:2] = map(whole_labels, columns[:2])
    bad = np.zeros(len(columns[0]), bool)
    found: dict[str, tuple[int, int, str]] = {}

    def note(kind: str, mask: np.ndarray, values: Any = None) -> None:
        mask = mask & ~bad
        if mask.any():
            k = int(mask.argmax())
            value = "" if values is None else values[k]
            found[kind] = (int(mask.sum()), k, str(value.as_py() if isinstance(value, pa.Scalar) else value))
            bad[mask] = True

    for side, word in enumerate(words[:2]):
        kind = f"without {'an' if word == 'item' else 'a'} {word}"
        if blanks:
            note(kind, _blanks(columns[side]))
        elif columns[side].null_count:
            note(kind, _nulls(columns[side]))
    times = None
    if timed:
        stamps = columns.pop()
        times, wrong = read_times(stamps)
        note(UNREADABLE, wrong, stamps)
        note("without a time", times == NEVER)
    if counted:
        written = values = columns[2]
        if values.null_count:
            note(f"without a {number}", _nulls(values))
        if _is_text(values.type):
            values = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
            if decimal != ".":
                values = pc.replace_substring(values, decimal, ".")
            columns[2] = values
            right = pc.fill_null(pc.match_substring_regex(values, _NUMBER), True)
            wrong = ~right.to_numpy(zero_copy_only=False)
            if wrong.any():
                note(COMMA.format(number), wrong & _matches(values, _WITH_COMMA), written)
                note(f"with a {number} that is no number", wrong, written)
            values = pc.if_else(right, values, None).cast(pa.float64())
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            numbers = values.to_numpy(zero_copy_only=False)
            with np.errstate(invalid="ignore"):
                if numbers.dtype.kind == "f":
                    note(f"without a {number}", np.isnan(numbers))
                    note(f"with an infinite {number}", np.isinf(numbers), written)
                note(f"with a negative {number}", numbers < 0, written)
                note(f"with a {number} of zero", numbers == 0)
    if bad.any():
        kept = pa.array(~bad)
        columns = [values.filter(kept) for values in columns]
        times = None if times is None else times[~bad]
    return columns, times, found


def _nulls(values: pa.Array) -> np.ndarray:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _blanks(values: pa.Array) -> np.ndarray:
    nothing = pc.or_(pc.equal(pc.binary_length(values), 0), pc.utf8_is_space(values))
    return np.asarray(pc.fill_null(nothing, True).to_numpy(zero_copy_only=False))


def _matches(values: pa.Array, pattern: str) -> np.ndarray:
    found = pc.fill_null(pc.match_substring_regex(values, pattern), False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
