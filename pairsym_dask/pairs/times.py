"""Times of events: how they are read, which of them are wanted, and how much an old one still counts.

Times are microseconds since 1970 in UTC. A row of age T - t counts for count * 2^(-(T - t) / half_life): half as much
for every half-life between its time t and T, the latest time among the rows, or the present that is given. The exponent
ends at -1000, so that the oldest event keeps a count above zero and its symbols stay.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError

SECOND = 1_000_000  # microseconds
LAST = 100_000_000_000  # seconds: the year 5138; larger numbers are milliseconds or something else
HALVINGS = 1000.0  # at most
NEVER = np.iinfo(np.int64).min  # the time of a row that has none
_NUMBER = r"^[+-]?\d+(\.\d*)?$"


@dataclass(frozen=True)
class Span:
    """Which times are wanted: from the first on, before the last; None is no limit."""

    first: int | None = None
    before: int | None = None

    def __str__(self) -> str:
        """Words before the name of a source."""
        first = "" if self.first is None else f"from {as_words(self.first)} on "
        return first + ("" if self.before is None else f"before {as_words(self.before)} ")

    def wanted(self, times: np.ndarray) -> np.ndarray:
        mask = np.ones(times.size, bool)
        if self.first is not None:
            mask &= times >= self.first
        if self.before is not None:
            mask &= times < self.before
        return mask


ALWAYS = Span()


@dataclass(frozen=True)
class Fading:
    """How much less an old event counts."""

    half_life: int  # microseconds
    present: int

    def __str__(self) -> str:
        return f"half-life {pd.Timedelta(self.half_life, 'us')} before {as_words(self.present)}"

    def weigh(self, counts: np.ndarray | None, times: np.ndarray) -> np.ndarray:
        """Counts (None: one each) of events at some times, as they count at the present."""
        halvings = np.minimum((self.present - times) / self.half_life, HALVINGS)
        weights = np.exp2(-halvings)
        return weights if counts is None else np.maximum(counts * weights, np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class HalfLife:
    """A half-life that was asked for, and the present that ages are counted from; None: the latest time there is."""

    length: int  # microseconds
    present: int | None = None

    @staticmethod
    def read(time: Any, half_life: Any, now: Any = None) -> HalfLife | None:
        """What people give; None for no half-life."""
        if half_life is None:
            if now is not None:
                raise InputError("now is what a half-life counts from: it needs half_life")
            return None
        if time is None:
            raise InputError("half_life needs the times of events: name their column with time")
        return HalfLife(a_length("half_life", half_life), None if now is None else a_time("now", now))

    def follow(self, faded: tuple[int, int] | None, name: str) -> None:
        """Refuse a store among the sources that fades by another half-life."""
        if faded is not None and faded[0] != self.length:
            raise InputError(
                f"the counts of {name} fade with a half-life of {pd.Timedelta(faded[0], 'us')}, "
                f"not of {pd.Timedelta(self.length, 'us')}; give the same, or ingest the events again"
            )

    def fading(self, latest: int) -> Fading:
        """How events fade, the latest of which is known by now."""
        if self.present is not None and self.present < latest:
            raise InputError(
                f"the latest event, of {as_words(latest)}, is after the present that is given, "
                f"{as_words(self.present)}; give a later one, or leave later events out"
            )
        return Fading(self.length, latest if self.present is None else self.present)


def read_times(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Times of a column, and which of its values are none; missing ones are NEVER in both.

    >>> times, wrong = read_times(pa.array(["1970-01-01T00:00:01", "2", "soon", "1970-01-01T02:00:00+02:00"]))
    >>> times.tolist()[:2], times.tolist()[3], wrong.tolist()
    ([1000000, 2000000], 0, [False, False, True, False])
    """
    kind, missing = values.type, np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = getattr(kind, "tz", None)
        stamps = values.cast(pa.timestamp("us", zone), safe=False)
        times = stamps.cast(pa.int64()).fill_null(NEVER).to_numpy()
        return times, np.zeros(times.size, bool)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _of_seconds(values.cast(pa.float64()), missing)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return np.full(len(values), NEVER), ~missing
    text = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
    number = pc.match_substring_regex(text, _NUMBER).fill_null(False)
    times, wrong = _of_seconds(pc.if_else(number, text, None).cast(pa.float64()), missing)
    written = ~number.to_numpy(zero_copy_only=False) & ~missing
    if written.any():
        stamps = pd.to_datetime(text.filter(pa.array(written)).to_pandas(), format="ISO8601", utc=True, errors="coerce")
        times[written] = stamps.dt.as_unit("us").astype("int64")
        wrong[written] = stamps.isna()
        times[wrong] = NEVER
    return times, wrong


def _of_seconds(values: pa.Array, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    seconds = values.to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(invalid="ignore"):
        right = np.abs(seconds) <= LAST
        times = np.where(right, np.round(np.where(right, seconds, 0) * SECOND), NEVER).astype(np.int64)
    return times, ~right & ~missing & ~np.isnan(seconds)


def a_time(name: str, value: Any) -> int:
    """A point in time that people give: text, a date, a timestamp, or seconds since 1970."""
    if isinstance(value, bool) or value is None:
        raise _no_time(name, value)
    if isinstance(value, (int, float, np.integer, np.floating)):
        array = pa.array([float(value)])
    elif isinstance(value, str):
        if re.fullmatch(r"\s*\d{4}\s*", value):  # a year to people, seconds to a column
            raise InputError(f'{name} must be a whole date, such as "{value.strip()}-01-01", not {value!r}')
        array = pa.array([value])
    else:
        try:
            array = pa.array([pd.Timestamp(value)])
        except (TypeError, ValueError):
            raise _no_time(name, value) from None
    times, _ = read_times(array)
    if times[0] == NEVER:
        raise _no_time(name, value)
    return int(times[0])


def _no_time(name: str, value: Any) -> InputError:
    return InputError(f'{name} must be a time such as "2024-12-31" or seconds since 1970, not {value!r}')


def a_length(name: str, value: Any) -> int:
    """A length of time in microseconds.

    >>> a_length("half_life", "30D") == a_length("half_life", datetime.timedelta(days=30)) == 30 * 24 * 3600 * SECOND
    True
    >>> a_length("half_life", "30d") == a_length("half_life", "30D")
    True
    """
    if isinstance(value, str):  # pandas wants these two large
        value = re.sub(r"(?<=[\d\s])[dw]$", lambda unit: unit[0].upper(), value.strip())
    bare = isinstance(value, str) and re.fullmatch(_NUMBER, value.strip())  # nanoseconds to pandas, days to people
    if isinstance(value, (str, datetime.timedelta, np.timedelta64)) and not bare:
        try:
            length = pd.Timedelta(value)
            if length > pd.Timedelta(0):
                return max(1, int(length / pd.Timedelta(1, "us")))
        except (ValueError, TypeError):
            pass
    raise InputError(f'{name} must be a length of time such as "30D" or "12h", not {value!r}')


def as_words(time: int) -> str:
    """A time as people write it.

    >>> as_words(1_500_000)
    '1970-01-01T00:00:01.500000'
    """
    return np.datetime_as_string(np.datetime64(time, "us")).removesuffix(".000000")
