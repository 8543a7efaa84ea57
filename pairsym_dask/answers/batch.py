"""Recommendations for every user, a block at a time, straight to Parquet files or into one CSV file."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import InputError, StoreError
from ..run.execute import run_tasks
from ..store.commit import Commit
from ..store.counts import MARK, Counts
from ..store.counts_writer import claim
from ..store.disk import partial_name
from ..store.ours import Names
from ..store.storage import Storage, is_local, local_path, open_storage
from .draws import predictor_once
from .predict import Newcomers, audience_of
from .query import Query
from .titles import read_titles, with_titles

UNFINISHED = b"Recommendations are being written here, or their writer was interrupted.\n"
NAMES: Names = {r"part-\d{5,}\.(parquet|csv)": None}


@dataclass(frozen=True)
class Order:
    """What is wanted of every block of users."""

    commits: Sequence[Commit]  # the fitted sweep, or the draws
    counts: Counts
    storage: Storage
    query: Query
    csv: bool = False  # parts of a CSV file to come, else Parquet files
    items: Newcomers | None = None  # candidates beside the store's items
    users: Newcomers | None = None  # after the store's: the last part is theirs
    titles: pd.DataFrame | None = None  # joined to the lists


def recommend_block(order: Order, block: int) -> int:
    """Task: the best items of one block of users as one Parquet file; its rows."""
    predictor = predictor_once(order.commits, order.counts).wider(order.items)
    if block == order.counts.cuts["users"].blocks and order.users is not None:
        users = audience_of(order.users)
    else:
        first, stop = order.counts.cuts["users"].row_range(block)
        users = predictor.stored(np.arange(first, stop)).part(slice(None), order.query.exclude_seen)
    lists = predictor.lists(users, order.query)
    if order.titles is not None:
        lists = with_titles(lists, order.titles)
    arrow = pa.Table.from_pandas(lists, preserve_index=False)
    sink = pa.BufferOutputStream()
    if order.csv:
        pa.csv.write_csv(arrow, sink, pa.csv.WriteOptions(include_header=block == 0, quoting_style="needed"))
    else:
        pq.write_table(arrow, sink, compression="zstd")
    order.storage.write(part_key(block, order.csv), sink.getvalue())
    return arrow.num_rows


def part_key(block: int, csv: bool) -> str:
    return f"part-{block:05d}.{'csv' if csv else 'parquet'}"


def recommend_all(
    commits: Sequence[Commit],
    counts: Counts,
    path: str | os.PathLike[str],
    query: Query,
    *,
    client: Any = None,
    threads: int | None = None,
    on_done: Callable[[int], None] | None = None,
    storage_options: dict[str, Any] | None = None,
    items: Newcomers | None = None,
    users: Newcomers | None = None,
    titles: Any = None,
) -> int:
    """Write a folder of Parquet files, one a block of users, or one file when its name ends in .csv; its rows.

    An unfinished folder is begun again; the parts of a CSV file are gathered in a folder beside it.
    """
    target = os.fspath(path)
    ending = PurePath(target).suffix.lower()
    if ending not in ("", ".csv", ".parquet"):
        raise InputError(f"lists are written as one .csv file or as a folder of .parquet files, not as {target!r}")
    csv = ending == ".csv"
    if csv and _exists(target, storage_options):
        raise StoreError(f"{target} exists already; remove it first, or give another path")
    storage = open_storage(f"{target}.parts" if csv else path, storage_options)
    claim(storage, "folder of recommendations", UNFINISHED, NAMES)
    table = None if titles is None else read_titles(titles)
    order = Order(commits, counts, storage, query, csv, items, users, table)
    blocks = range(counts.cuts["users"].blocks + (users is not None))
    run = uuid.uuid4().hex[:12]  # a cluster that still knows an earlier call's keys would not run these
    rows = run_tasks(
        [(f"recommend-users-{run}-{block}", recommend_block, (order, block)) for block in blocks],
        client=client, threads=threads, on_done=on_done,
    )  # fmt: skip
    storage.sync()
    if csv:
        _gather(storage, target, len(blocks), storage_options or {})
    storage.remove(MARK)
    if csv:
        storage.remove_root()
    return sum(rows)


def _exists(target: str, options: dict[str, Any] | None) -> bool:
    if is_local(target):
        return os.path.exists(local_path(target))
    folder, _, name = target.rpartition("/")
    return open_storage(folder, options).exists(name)


def _gather(storage: Storage, target: str, parts: int, options: dict[str, Any]) -> None:
    """One file of all parts; it has its name only when it is whole."""
    if is_local(target):
        partial = partial_name(Path(local_path(target)))
        with open(partial, "wb") as file:
            for block in range(parts):
                file.write(storage.read(part_key(block, True)))
        os.replace(partial, local_path(target))
    else:
        with fsspec.open(target, "wb", **options) as file:
            for block in range(parts):
                file.write(storage.read(part_key(block, True)))
    for block in range(parts):
        storage.remove(part_key(block, True))
