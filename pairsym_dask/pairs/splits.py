"""Training stores with some distinct pairs held out, block by block.

Each distinct pair has a random number, a hash of (random_state, user, item), and each user a limit; pairs whose number
is below their user's limit are held out. So the split depends neither on blocks nor on the scheduler. The training
store keeps every symbol of its parent, also one that loses all its pairs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import options
from ..errors import InputError
from ..kernels.keys import SHIFT
from ..kernels.random import number_pairs
from ..settings import SIDES
from ..store.counts import Counts, open_counts
from ..store.cuts import Tile, long_side
from ..store.scratch import Scratch, Stored
from .assemble import write_store
from .runs import Run, write_run
from .writing import Stages, writing

ALL = np.uint64(2**64 - 1)


def leave_one_out(
    counts: Counts | str | os.PathLike[str],
    path: str | os.PathLike[str],
    random_state: int = 0,
    *,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> tuple[Counts, pd.DataFrame]:
    """Hold out one distinct pair, with all its counts, of each user who has two or more.

    Parameters
    ----------
    counts : Counts or path
        The store to split.
    path : path
        Where the training store goes. It keeps every symbol.
    random_state : int
        Seed. The split depends on it and the pairs alone.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    memory : int or str, optional
        Budget of a process, such as "2GiB"; half of what is free by default.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Counts, pandas.DataFrame
        The training store, and the held-out pairs: user, item.

    Examples
    --------
    >>> train, held_out = ps.leave_one_out("plays.zarr", "train.zarr")
    >>> train.nnz, len(held_out)
    (3, 3)
    """
    return _split(counts, path, None, random_state, client, threads, memory, storage_options)


def split_by_fraction(
    counts: Counts | str | os.PathLike[str],
    path: str | os.PathLike[str],
    fraction: float = 0.1,
    random_state: int = 0,
    *,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> tuple[Counts, pd.DataFrame]:
    """Hold out each distinct pair, with all its counts, with a probability; every user keeps at least one.

    Parameters
    ----------
    counts : Counts or path
        The store to split.
    path : path
        Where the training store goes. It keeps every symbol.
    fraction : float
        The probability, between 0 and 1.
    random_state : int
        Seed. The split depends on it and the pairs alone.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    memory : int or str, optional
        Budget of a process, such as "2GiB"; half of what is free by default.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Counts, pandas.DataFrame
        The training store, and the held-out pairs: user, item.

    Examples
    --------
    >>> train, held_out = ps.split_by_fraction("plays.zarr", "train.zarr", 0.4)
    >>> train.nnz + len(held_out)
    6
    """
    return _split(
        counts, path, options.fraction("fraction", fraction), random_state, client, threads, memory, storage_options
    )


def _split(
    counts: Counts | str | os.PathLike[str],
    path: str | os.PathLike[str],
    fraction: float | None,
    random_state: int,
    client: Any,
    threads: int | None,
    memory: int | str | None,
    storage_options: dict[str, Any] | None,
) -> tuple[Counts, pd.DataFrame]:
    seed = options.seed(random_state)
    parent = open_counts(counts, storage_options)
    stages = Stages(client, threads, memory, False)
    with writing(path, dict(storage_options or {})) as storage:
        scratch = stages.scratch(storage)
        parts = _take_out(parent, stages, scratch, fraction, seed)
        user, item = (np.concatenate([getattr(part, name) for part in parts]) for name in ("user", "item"))
        if user.size == 0:
            why = (
                "no user has two distinct pairs" if fraction is None else f"no pair fell into a fraction of {fraction}"
            )
            raise InputError(f"nothing can be held out of {parent.path}: {why}")
        what = "one pair of each user" if fraction is None else f"a fraction of {fraction}"
        source = f"{parent.path} without {what}, random_state {seed}"
        runs = [part.run for part in parts]
        train = write_store(stages, scratch, parent.shape, runs, parent.columns, source, faded=parent.faded)
    order = np.lexsort((item, user))
    held = {"users": user[order], "items": item[order]}
    held_out = pd.DataFrame({side[:-1]: parent.label_rows(side, held[side]) for side in SIDES})
    return train, held_out


def _take_out(parent: Counts, stages: Stages, scratch: Scratch, fraction: float | None, seed: int) -> list[SplitBlock]:
    """Both stages: the users' limits, then the blocks of the long side without what is below them."""
    scratch.make("limits")
    blocks = range(parent.cuts["users"].blocks)
    choosing = [(scratch, f"limits/{b}", parent, b, fraction, seed) for b in blocks]
    limits: list[Stored] = stages.run("choose-held-out", write_limits, choosing)
    scratch.make("runs")
    long = long_side(*parent.shape)
    # A block of users needs its own limits; a block of items those of all users, who are then the short side.
    taking = [
        (scratch, f"runs/{b}", parent, long, b, [limits[b]] if long == "users" else limits, seed)
        for b in range(parent.cuts[long].blocks)
    ]
    parts: list[SplitBlock] = stages.run("take-out-held-out", write_split_block, taking)
    scratch.remove("limits")
    return parts


@dataclass(frozen=True)
class SplitBlock:
    """A block of the long side after its held-out pairs are taken out: the rest as a run, and the pairs."""

    run: Run
    user: np.ndarray
    item: np.ndarray


def pair_numbers(seed: int, user: np.ndarray, item: np.ndarray) -> np.ndarray:
    """A random uint64 for each pair; no two pairs have the same under one seed, because every step is a bijection."""
    key = (user.astype(np.uint64) << SHIFT) | item.astype(np.uint64)
    with np.errstate(over="ignore"):  # the generator counts modulo 2**64
        number_pairs(np.uint64(seed), key)
    return key


def _rows(tile: Tile, first: int) -> np.ndarray:
    return first + np.repeat(np.arange(tile.indptr.size - 1), np.diff(tile.indptr))


def write_limits(scratch: Scratch, key: str, counts: Counts, block: int, fraction: float | None, seed: int) -> Stored:
    """Task: the limits of a block of users."""
    cut = counts.cuts["users"]
    first, stop = cut.row_range(block)
    pairs = np.zeros(stop - first, np.int64)
    smallest, largest = np.full(stop - first, ALL), np.zeros(stop - first, np.uint64)
    for group in range(cut.groups):
        tile = counts.read_tile("users", block, group)
        row = _rows(tile, 0)
        numbers = pair_numbers(seed, first + row, tile.indices)
        pairs += np.diff(tile.indptr)
        np.minimum.at(smallest, row, numbers)
        np.maximum.at(largest, row, numbers)
    if fraction is None:
        limits = np.where(pairs >= 2, smallest + np.uint64(1), np.uint64(0))  # the smallest number alone is below
    else:
        limits = np.minimum(largest, np.uint64(int(fraction * 2**64)))  # the largest number is never below
    return scratch.write(key, limits)[0]


def write_split_block(
    scratch: Scratch, key: str, counts: Counts, long: str, block: int, limits: list[Stored], seed: int
) -> SplitBlock:
    """Task: take the held-out pairs out of a block of the long side."""
    first, stop = counts.cuts[long].row_range(block)
    tile = counts.read_tile(long, block, 0)
    row = _rows(tile, 0)
    user, item = (first + row, tile.indices) if long == "users" else (tile.indices, first + row)
    limit = np.concatenate([scratch.read(part) for part in limits])[row if long == "users" else user]
    held = pair_numbers(seed, user, item) < limit
    keys = (row[~held].astype(np.uint64) << SHIFT) | tile.indices[~held].astype(np.uint64)
    run = write_run(scratch, key, first, stop - first, keys, tile.counts[~held])
    return SplitBlock(run, user[held].astype(np.uint32), item[held].astype(np.uint32))
