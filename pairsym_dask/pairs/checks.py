"""Checks of labels and counts: what may not be in a store is refused here, by file and row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..kernels.keys import parse_integers

INTEGER, TEXT, CSV_TEXT = "integers", "strings", "text"  # CSV text may turn out to be integers, all of it or none
LABEL_BYTES = 16_000  # chunks of longer labels would not be read back
WHOLE_LIMIT = 2**53  # up to here sums of whole numbers are exact in float64


@dataclass(frozen=True)
class RowNames:
    """Names rows in messages."""

    name: str
    words: Callable[[int], str]  # of a row, from its place in the batch

    def __call__(self, k: int) -> str:
        return self.words(int(k))


def check_labels(values: Any, side: str, column: Any, at: RowNames) -> tuple[pa.Array, str]:
    """Labels as int64 or large_string, and which of the two; `column` and `at` serve the messages."""
    values = plain(values)
    if values.null_count:
        where = at(int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]))
        raise InputError(f"labels must not be missing: {where} has no {side}")
    kind = values.type
    if pa.types.is_integer(kind):
        try:
            return values.cast(pa.int64()), INTEGER
        except pa.ArrowInvalid:
            k = int(np.flatnonzero(values.to_numpy() > np.iinfo(np.int64).max)[0])
            raise InputError(f"labels must be below 2**63: {at(k)} has {side} {values[k]}") from None
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binary = (pa.types.is_binary, pa.types.is_large_binary)
    if any(test(kind) for test in (*text, *binary)):
        try:
            values = values.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise InputError(f"labels must be UTF-8 text: column {column!r} of {at.name} is not") from None
        long = pc.greater(pc.binary_length(values), LABEL_BYTES)
        if pc.any(long).as_py():
            where = at(pc.index(long, True).as_py())
            raise InputError(f"labels must be at most {LABEL_BYTES} bytes long: {where} has a longer {side}")
        return values, TEXT
    if pa.types.is_null(kind) and not len(values):
        return values.cast(pa.int64()), INTEGER
    raise InputError(f"labels must be integers or strings: column {column!r} of {at.name} holds {kind}")


def integers_of(values: pa.Array, side: str, at: RowNames) -> pa.Array:
    """CSV text as the integers that it must be, because other files hold integers."""
    numbers = parse_integers(*text_buffers(values))
    if numbers is None:
        for k, text in enumerate(values.to_pylist()):
            if parse_integers(*text_buffers(pa.array([text], pa.large_string()))) is None:
                raise InputError(f"labels of mixed types: {side}s are integers elsewhere, but {at(k)} has {text!r}")
    return pa.array(numbers)


def text_buffers(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes of a large_string array: text k is `data[offsets[k]:offsets[k + 1]]`."""
    _, offsets, data = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    found = np.frombuffer(offsets, np.int64, len(values) + 1, offset=8 * values.offset)
    return found, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)


def check_counts(values: Any, column: Any, at: RowNames) -> np.ndarray:
    """Finite numbers from 0 on; whole ones as the smallest unsigned type, fractions as float64."""
    values = plain(values)
    if values.null_count:
        k = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"counts must be positive numbers: {at(k)} has none (null or NaN)")
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        try:
            numbers = pc.utf8_trim_whitespace(values).cast(pa.float64())
        except pa.ArrowInvalid:
            k = next(k for k, text in enumerate(values.to_pylist()) if not _is_number(text))
            raise InputError(f"counts must be numbers: {at(k)} has count {values[k].as_py()!r}") from None
        for k in np.flatnonzero(numbers.to_numpy() >= WHOLE_LIMIT).tolist():
            text = values[k].as_py().strip()
            if text.isdigit() and int(text) > WHOLE_LIMIT:
                raise _too_large(at(k), text)
        values = numbers
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InputError(f"counts must be numbers: column {column!r} of {at.name} holds {kind}, from {at(0)} on")
    return check_numbers(values.to_numpy(zero_copy_only=False), at)


def check_numbers(numbers: np.ndarray, at: Callable[[int], str]) -> np.ndarray:
    """Finite numbers from 0 on, whole ones as the smallest unsigned type, others as float64."""
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float64, copy=False)
        bad = ~np.isfinite(numbers)
        if bad.any():
            k = int(bad.argmax())
            raise InputError(f"counts must be finite: {at(k)} has count {numbers[k]}")
    bad = numbers < 0
    if bad.any():
        k = int(bad.argmax())
        raise InputError(f"counts must be positive: {at(k)} has count {numbers[k]}")
    largest = numbers.max(initial=0)
    if numbers.dtype.kind != "f" and largest > WHOLE_LIMIT:
        k = int((numbers > WHOLE_LIMIT).argmax())
        raise _too_large(at(k), numbers[k])
    if numbers.dtype.kind == "f" and (largest >= WHOLE_LIMIT or (numbers != np.floor(numbers)).any()):
        return numbers
    return numbers.astype(np.min_scalar_type(int(largest)))


def _too_large(where: str, count: Any) -> InputError:
    return InputError(
        f"whole counts must be at most 2**53, beyond which their sums are not exact: {where} has count {count}; "
        "give floats if they need not be"
    )


def _is_number(text: str) -> bool:
    try:
        pa.array([text]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def plain(values: Any) -> pa.Array:
    """A column as one array of values, not of codes."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string_view(values.type):  # as polars has them: few of arrow's functions take views
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def whole_labels(values: pa.Array) -> pa.Array:
    """Labels that are floats only because one is missing among whole numbers, as those whole numbers.

    >>> whole_labels(pa.array([7.0, None, float("nan")])).to_pylist(), whole_labels(pa.array([7.5])).to_pylist()
    ([7, None, None], [7.5])
    """
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    missing = np.isnan(numbers)
    numbers = np.where(missing, 0, numbers)
    if (numbers != np.floor(numbers)).any() or np.abs(numbers).max(initial=0) > WHOLE_LIMIT:
        return values
    return pa.array(numbers.astype(np.int64), mask=missing)


def from_pandas(values: pd.Series, column: Any, name: str, first: int = 0) -> pa.Array:
    """A column of labels as arrow sees it; `first` is the number of its first row."""
    try:
        return pa.Array.from_pandas(values)
    except UnicodeEncodeError:
        k = next(k for k, value in enumerate(values) if isinstance(value, str) and not _is_unicode(value))
        raise InputError(
            f"labels must be text that UTF-8 can write: row {first + k} of {name} has {values.iloc[k]!a} in column "
            f"{column!r}, with half of a surrogate pair"
        ) from None
    except OverflowError:
        raise InputError(f"labels must be within 64 bits: column {column!r} of {name} holds larger integers") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        found = pd.api.types.infer_dtype(values, skipna=True)
        raise InputError(
            f"labels of mixed types: column {column!r} of {name} holds {found} values; "
            "make them all integers or all strings"
        ) from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def numbers_from_pandas(values: pd.Series, name: str) -> pa.Array:
    """A column of counts as arrow sees it."""
    try:
        return pa.Array.from_pandas(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        if all(isinstance(value, (int, float, np.number)) and not isinstance(value, bool) for value in values):
            raise InputError(f"counts must be numbers within 64 bits: {name} holds larger ones") from None
        # Words among numbers: as text, of which each is looked at.
        return pa.array(
            [None if value is None or value != value else str(value) for value in values], pa.large_string()
        )
