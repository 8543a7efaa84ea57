"""Splits by the times of events: train on what came before, test on what came after.

Counts stores hold no times, so these splits begin with the events themselves, whatever `ingest` takes. Events are read
in parts and put aside with their times; no task holds more than its share, the driver a few numbers a user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from .. import options
from ..errors import InputError
from ..kernels.keys import LOW, SHIFT
from ..settings import SIDES, other
from ..store.counts import Counts
from ..store.cuts import long_side
from ..store.scratch import Scratch, Stored
from ..store.secrets import hidden
from .ingest import Placed, group, parse_some, place, tell, warn_unused, write_placed
from .matrices import is_matrix
from .parts import Columns, Reading
from .runs import Piece, Side
from .sources import Found, find_sources, list_sources
from .splits import pair_numbers
from .times import NEVER, HalfLife, Span, a_time, as_words
from .writing import Stages, writing


def split_by_time(
    source: Any,
    path: str | os.PathLike[str],
    at: Any,
    user: Any = "user",
    item: Any = "item",
    count: Any = None,
    *,
    time: Any = "time",
    until: Any = None,
    half_life: Any = None,
    repeats: bool = False,
    unknown: str = "skip",
    invalid: str = "error",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    client: Any = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> tuple[Counts, pd.DataFrame]:
    """Train on events before a point in time, hold out what came after: the split that a served model lives through.

    Parameters
    ----------
    source : path, frame or list
        Events, as `ingest` takes them; counts stores and matrices have no times.
    path : path
        Where the store of events before `at` goes.
    at : str, timestamp, or seconds since 1970
        The point in time; UTC where no zone is given.
    user, item, count : column names
        Without `count` each row is one pair. Repeated pairs are added up.
    time : column name
        Times of events, as in `ingest`.
    until : str or timestamp, optional
        Hold out events before this only.
    half_life : str or timedelta, optional
        Training counts fade with their age at `at`, as in `ingest`.
    repeats : bool
        Hold out also pairs that the training store has already, which are no news.
    unknown : {"skip", "keep"}
        Pairs of users or items that were not known before `at` are left out, or kept, and then `evaluate` wants
        ``unknown="skip"``.
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
    Counts, pandas.DataFrame
        The training store, and the distinct later pairs: user, item. The frame's `attrs` say how many were left out as
        `repeated` and as `unknown`.

    Examples
    --------
    >>> events = [("ann", "go", "2024-01-01"), ("bob", "chess", "2024-01-02"), ("ann", "chess", "2024-02-01")]
    >>> train, held_out = ps.split_by_time(events, "train.zarr", "2024-02-01")
    >>> train.nnz, held_out.values.tolist()
    (2, [['ann', 'chess']])
    """
    options.one_of("unknown", unknown, ("skip", "keep"))
    cut = a_time("at", at)
    end = None if until is None else a_time("until", until)
    if end is not None and end <= cut:
        raise InputError(f"until must be after at, {as_words(cut)}, not {as_words(end)}")
    fade = HalfLife.read(time, half_life, at if half_life is not None else None)
    columns = Columns(user, item, count, Reading(invalid, separator, encoding, decimal), _wanted(time), Span(None, cut))
    stages = Stages(client, threads, memory, progress)
    with _events(source, path, columns, stages, dict(storage_options or {})) as (found, scratch):
        later = _later_pairs(found, replace(columns, span=Span(cut, end)), stages, scratch)
        parsed, faults = parse_some(found, columns, stages, scratch)
        placed = place(parsed, columns, stages, scratch, fade)
        name = f"{found.name} before {as_words(cut)}"
        train = write_placed(placed, stages, scratch, name if placed.fading is None else f"{name} ({placed.fading})")
        tell(stages, found, faults, train)
    return train, _news(train, later, repeats, unknown == "keep")


def leave_last_out(
    source: Any,
    path: str | os.PathLike[str],
    user: Any = "user",
    item: Any = "item",
    count: Any = None,
    *,
    time: Any = "time",
    half_life: Any = None,
    random_state: int = 0,
    invalid: str = "error",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    client: Any = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> tuple[Counts, pd.DataFrame]:
    """Hold out the last pair of each user who has two or more: the one with the latest event, with all its counts.

    Other users' events after a held-out one stay in training: `split_by_time` is the stricter split.

    Parameters
    ----------
    source : path, frame or list
        Events, as `ingest` takes them; counts stores and matrices have no times.
    path : path
        Where the training store goes. It keeps every symbol.
    user, item, count : column names
        Without `count` each row is one pair. Repeated pairs are added up.
    time : column name
        Times of events, as in `ingest`.
    half_life : str or timedelta, optional
        Training counts fade with their age at the latest event, as in `ingest`.
    random_state : int
        Chooses among pairs of the same time.
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
    Counts, pandas.DataFrame
        The training store, and the held-out pairs: user, item.

    Examples
    --------
    >>> events = [("ann", "go", "2024-01-01"), ("bob", "chess", "2024-01-02"), ("ann", "chess", "2024-02-01")]
    >>> train, held_out = ps.leave_last_out(events, "train.zarr")
    >>> held_out.values.tolist()
    [['ann', 'chess']]
    """
    seed = options.seed(random_state)
    fade = HalfLife.read(time, half_life)
    columns = Columns(user, item, count, Reading(invalid, separator, encoding, decimal), _wanted(time))
    stages = Stages(client, threads, memory, progress)
    with _events(source, path, columns, stages, dict(storage_options or {})) as (found, scratch):
        parsed, faults = parse_some(found, columns, stages, scratch)
        placed = place(parsed, columns, stages, scratch, fade)
        held, rest = _take_last(placed, stages, scratch, seed)
        user_row = np.flatnonzero(held >= 0)
        if not user_row.size:
            raise InputError(f"nothing can be held out of {found.name}: no user has two distinct pairs")
        name = f"{found.name} without the last pair of each user, random_state {seed}"
        train = write_placed(rest, stages, scratch, name if placed.fading is None else f"{name} ({placed.fading})")
        tell(stages, found, faults, train)
    rows = {"users": user_row, "items": held[user_row]}
    return train, pd.DataFrame({side[:-1]: train.label_rows(side, rows[side]) for side in SIDES})


def _wanted(time: Any) -> Any:
    if time is None:
        raise InputError("time must name the column of times")
    return time


@contextmanager
def _events(
    source: Any, path: Any, columns: Columns, stages: Stages, options: dict[str, Any]
) -> Iterator[tuple[Found, Scratch]]:
    """What the events are in, read once, and scratch beside a store that is begun."""
    listed = source if isinstance(source, (list, tuple)) else [source]
    with hidden(listed, options), writing(path, options) as storage:
        scratch = stages.scratch(storage)
        if any(is_matrix(one) for one in listed):
            raise InputError("the entries of a matrix have no times; give the events themselves")
        found = find_sources(list_sources(source, columns, options), columns, stages, options)
        if found.stores:
            raise InputError(f"{found.stores[0].path} holds pairs without their times; give the events it was made of")
        warn_unused(found, columns, stacklevel=5)
        yield found, scratch


# Later pairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaterPairs:
    """Distinct pairs by label: row numbers in the labels of their own."""

    rows: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]


def _later_pairs(found: Found, columns: Columns, stages: Stages, scratch: Scratch) -> LaterPairs:
    """Distinct pairs of the events that are held out."""
    parts = [replace(part, columns=columns) for part in found.parts]
    parsed, _ = parse_some(replace(found, parts=parts), columns, stages, scratch)
    placed = place(parsed, columns, stages, scratch)
    long = long_side(*placed.shape)
    pairs: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    for run in group(placed, stages, scratch):
        keys = scratch.read(run.keys)
        pairs[long].append((keys >> SHIFT).astype(np.int64) + run.first)
        pairs[other(long)].append((keys & LOW).astype(np.int64))
    scratch.remove("runs")
    rows = {side: np.concatenate(pairs[side]) for side in SIDES}
    return LaterPairs(rows, {side: placed.labels[side][:] for side in SIDES})


def _news(train: Counts, later: LaterPairs, repeats: bool, keep_unknown: bool) -> pd.DataFrame:
    """Later pairs that are worth ranking, in order."""
    places = {side: _find(train, side, later.labels[side])[later.rows[side]] for side in SIDES}
    known = (places["users"] >= 0) & (places["items"] >= 0)
    repeated = np.zeros(known.size, bool)
    if not repeats:
        repeated[known] = _are_there(train, places["users"][known], places["items"][known])
    kept = np.flatnonzero(~repeated & (known | keep_unknown))
    kept = kept[np.lexsort((later.rows["items"][kept], later.rows["users"][kept]))]
    if keep_unknown:
        frame = pd.DataFrame({s[:-1]: _like(train, s, later.labels[s])[later.rows[s][kept]] for s in SIDES})
    else:
        frame = pd.DataFrame({s[:-1]: train.label_rows(s, places[s][kept]) for s in SIDES})
    frame.attrs |= {"repeated": int(repeated.sum()), "unknown": 0 if keep_unknown else int((~known).sum())}
    return frame


def _like(train: Counts, side: str, labels: np.ndarray) -> np.ndarray:
    """Labels of later events as the training store has them: a CSV column may be all numbers after a time, or before.

    Whole numbers are taken for such only when they are written as they are printed, so that nothing is lost.
    """
    if (labels.dtype == object) == (train.record["labels"][side] != "int64"):
        return labels
    return np.array([str(label) for label in labels.tolist()], object)


def _find(train: Counts, side: str, labels: np.ndarray) -> np.ndarray:
    """Rows of labels in the training store, -1 for unknown ones."""
    if train.record["labels"][side] == "int64" and labels.dtype == object:
        known = {str(label): row for row, label in enumerate(train.labels(side).tolist())}
        return np.array([known.get(label, -1) for label in labels.tolist()], np.int64)
    return train.find(side, _like(train, side, labels))


def _are_there(counts: Counts, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Which pairs of rows a store has, read block by block."""
    cut, there = counts.cuts["users"], np.zeros(users.size, bool)
    block = users // cut.block
    for b in np.unique(block):
        tile, here = counts.rows("users", int(b)), np.flatnonzero(block == b)
        row = np.repeat(np.arange(tile.indptr.size - 1), np.diff(tile.indptr)).astype(np.uint64)
        keys = (row << SHIFT) | tile.indices.astype(np.uint64)
        mine = ((users[here] - b * cut.block).astype(np.uint64) << SHIFT) | items[here].astype(np.uint64)
        there[here] = np.isin(mine, keys)
    return there


# Last pairs ---------------------------------------------------------------------------------------------------------


def _take_last(placed: Placed, stages: Stages, scratch: Scratch, seed: int) -> tuple[np.ndarray, Placed]:
    """The item of each user's last pair, -1 for users with one pair only; and the pieces without these pairs."""
    users = placed.shape[0]
    scratch.make("last")
    tasks: list[Any] = [(scratch, f"last/{k}", piece, seed) for k, piece in enumerate(placed.pieces)]
    time, number = np.full(users, NEVER), np.zeros(users, np.uint64)
    held = np.full(users, -1, np.int64)
    for found in stages.run("find-last", find_last, tasks):
        user, item, when, lot = (scratch.read(part) for part in found)
        later = (when > time[user]) | ((when == time[user]) & (lot > number[user]))
        row = user[later]
        time[row], number[row], held[row] = when[later], lot[later], item[later]
    (stored,) = scratch.write("last/held", held)
    others = np.zeros(users, bool)
    tasks = [(scratch, f"last/others-{k}", piece, stored) for k, piece in enumerate(placed.pieces)]
    for rows in stages.run("find-others", find_others, tasks):
        others[scratch.read(rows)] = True
    held[~others] = -1
    (stored,) = scratch.write("last/taken", held)
    tasks = [(scratch, f"last/rest-{k}", piece, stored) for k, piece in enumerate(placed.pieces)]
    rest = stages.run("take-out-last", without_last, tasks)
    return held, replace(placed, pieces=[piece for piece in rest if piece.sides["users"].codes.size])


def find_last(scratch: Scratch, key: str, piece: Piece, seed: int) -> tuple[Stored, ...]:
    """Task: the last pair of each user of a piece, and the number that decides between pairs of the same time."""
    assert piece.times is not None
    users, items = (piece.sides[side].read(scratch).astype(np.int64) for side in SIDES)
    times, numbers = scratch.read(piece.times), pair_numbers(seed, users, items)
    order = np.lexsort((numbers, times, users))
    last = order[np.append(np.diff(users[order]) > 0, True)]
    return scratch.write(key, users[last], items[last], times[last], numbers[last])


def find_others(scratch: Scratch, key: str, piece: Piece, held: Stored) -> Stored:
    """Task: users of a piece who have another pair than their last."""
    users, items = (piece.sides[side].read(scratch).astype(np.int64) for side in SIDES)
    return scratch.write(key, np.unique(users[scratch.read(held)[users] != items]))[0]


def without_last(scratch: Scratch, key: str, piece: Piece, held: Stored) -> Piece:
    """Task: a piece without its users' last pairs."""
    rows = {side: piece.sides[side].read(scratch) for side in SIDES}
    kept = scratch.read(held)[rows["users"]] != rows["items"]
    arrays = [rows[side][kept] for side in SIDES]
    assert piece.times is not None
    arrays.append(scratch.read(piece.times)[kept])
    if piece.counts is not None:
        arrays.append(scratch.read(piece.counts)[kept])
    stored = scratch.write(key, *arrays)
    sides = {side: Side(stored[k]) for k, side in enumerate(SIDES)}
    return Piece(sides, stored[3] if len(stored) > 3 else None, stored[2], piece.fading)
