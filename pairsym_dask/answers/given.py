"""Pairs of users from outside the store, as people give them: labels, and items that the store knows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from ..kernels.keys import LOW, SHIFT, add_repeats, row_lengths
from ..pairs.checks import TEXT
from ..pairs.faults import Faults
from ..pairs.frames import as_frame, items_of_one_user
from ..pairs.parts import Columns, frame_parts, store_kinds
from ..store.counts import Counts
from ..store.cuts import Tile

BLOCK_USERS, BLOCK_PAIRS = 1024, 2**16  # of a task, about


def read_pairs(frame: Any, counts: Counts, columns: Columns) -> tuple[np.ndarray, Tile]:
    """Labels of the users of a frame, and their pairs with items that the store knows, added up."""
    given, frame = frame, as_frame(items_of_one_user(frame, columns), columns)
    if frame is None:
        raise InputError(
            f"fold_in takes a list of {columns.words[1]}s, or a frame with columns "
            f"{' and '.join(map(repr, columns.names))}, not a {type(given).__name__}"
        )
    parts, there = frame_parts(frame, "the frame", columns, max(1, len(frame)))
    if columns.count is None and "count" in there and "count" not in columns.names:
        warnings.warn(
            'the column "count" of the frame is not used: each row is one pair; give count="count" to use it',
            UserWarning,
            stacklevel=4,
        )
    faults = Faults()
    batches = [batch for part in parts for batch in part.batches(part.rows, (TEXT, TEXT), faults)]
    faults.check()
    if not batches:
        raise InputError("no pairs in the frame: there is nobody to fold in")
    (batch,) = batches
    _, kind = store_kinds(counts)
    if batch.kinds[1] != kind:
        raise InputError(
            f"labels of another type: column {columns.item!r} of the frame holds {batch.kinds[1]}, "
            f"the {columns.words[1]}s of {counts.path} are {kind}"
        )
    users, items = batch.users.dictionary_encode(), batch.items.dictionary_encode()
    labels, named = (_numpy(side.dictionary) for side in (users, items))
    user, item = (side.indices.to_numpy().astype(np.int64) for side in (users, items))
    position = counts.find("items", named)
    known = position[item] >= 0
    strangers = np.setdiff1d(np.arange(labels.size), user[known])
    if strangers.size:
        raise InputError(
            f"{some_words(labels[strangers], 'user')} cannot be folded in without a single known {columns.words[1]}; "
            f"the store knows {counts.shape[1]} {columns.words[1]}s, "
            f"for instance {counts.some_labels('items', 0, 1)[0]!r}"
        )
    if not known.all():
        warnings.warn(
            f"{int((~known).sum())} of {known.size} pairs are left out, because the store does not know "
            f"{some_words(named[position < 0], columns.words[1])}",
            UserWarning,
            stacklevel=4,
        )
    keys = user[known].astype(np.uint64) << SHIFT
    keys |= position[item[known]].astype(np.uint64)
    numbers = None if batch.counts is None else batch.counts[known]
    if numbers is not None:
        numbers = numbers.astype(np.int64 if numbers.dtype.kind == "u" else np.float64)
    keys, sums = add_repeats(keys, numbers)
    if sums.dtype.kind == "i":
        sums = sums.astype(np.min_scalar_type(int(sums.max())))
    indptr = np.concatenate([[0], np.cumsum(row_lengths(keys, labels.size), dtype=np.int64)])
    return labels, Tile(indptr, (keys & LOW).astype(np.uint32), sums)


def _numpy(labels: pa.Array) -> np.ndarray:
    return np.asarray(labels.to_numpy(zero_copy_only=False))


def some_words(labels: np.ndarray, name: str = "") -> str:
    """A few labels by name, and how many more there are."""
    text = ", ".join(repr(label) for label in labels[:5].tolist())
    more = f" and {labels.size - 5} more" if labels.size > 5 else ""
    return f"{name}{'s' if labels.size > 1 else ''} {text}{more}" if name else f"{text}{more}"


def blocks_of(indptr: np.ndarray) -> Any:
    """Ranges of rows, each of not too many users or pairs."""
    first, n = 0, indptr.size - 1
    while first < n:
        stop = int(np.searchsorted(indptr, indptr[first] + BLOCK_PAIRS, side="right")) - 1
        stop = min(max(stop, first + 1), first + BLOCK_USERS, n)
        yield first, stop
        first = stop


def cut_rows(pairs: Tile, first: int, stop: int) -> Tile:
    start, end = pairs.indptr[first], pairs.indptr[stop]
    return Tile(pairs.indptr[first : stop + 1] - start, pairs.indices[start:end], pairs.counts[start:end])
