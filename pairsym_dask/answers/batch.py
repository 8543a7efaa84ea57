"""Recommendations for every user, a block at a time, straight to Parquet files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..run.execute import run_tasks
from ..store.commit import Commit
from ..store.counts import MARK, Counts
from ..store.counts_writer import claim
from ..store.ours import Names
from ..store.storage import Storage, open_storage
from .draws import predictor_once
from .query import Query

UNFINISHED = b"Recommendations are being written here, or their writer was interrupted.\n"
NAMES: Names = {r"part-\d{5,}\.parquet": None}


@dataclass(frozen=True)
class Order:
    """What is wanted of every block of users."""

    commits: Sequence[Commit]  # the fitted sweep, or the draws
    counts: Counts
    storage: Storage
    query: Query


def recommend_block(order: Order, block: int) -> int:
    """Task: the best items of one block of users as one Parquet file; its rows."""
    predictor = predictor_once(order.commits, order.counts)
    first, stop = order.counts.cuts["users"].row_range(block)
    users = predictor.stored(np.arange(first, stop)).part(slice(None), order.query.exclude_seen)
    arrow = pa.Table.from_pandas(predictor.lists(users, order.query), preserve_index=False)
    sink = pa.BufferOutputStream()
    pq.write_table(arrow, sink, compression="zstd")
    order.storage.write(f"part-{block:05d}.parquet", sink.getvalue())
    return arrow.num_rows


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
) -> int:
    """Write a folder of Parquet files, one a block of users; an unfinished one is begun again. The number of rows."""
    storage = open_storage(path, storage_options)
    claim(storage, "folder of recommendations", UNFINISHED, NAMES)
    order = Order(commits, counts, storage, query)
    blocks = range(counts.cuts["users"].blocks)
    run = uuid.uuid4().hex[:12]  # a cluster that still knows an earlier call's keys would not run these
    rows = run_tasks(
        [(f"recommend-users-{run}-{block}", recommend_block, (order, block)) for block in blocks],
        client=client, threads=threads, on_done=on_done,
    )  # fmt: skip
    storage.sync()
    storage.remove(MARK)
    return sum(rows)
