"""Pairs whose users and items come in order of activity: the fullest tiles, seconds and memory of a sweep, by cuts.

    python workflows/benchmark_uneven.py [--users 1e6] [--items 5e4] [--pairs 2e7] [--power 3] [--memory 1GiB]

The first of n users or items have a share (k / n) ^ (1 / power) of the pairs. The same pairs are cut as if they were
spread evenly, and by how they are; each is fitted in a process of its own.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import benchmark_scale
import benchmarking
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pairsym_dask as ps
from pairsym_dask.settings import SIDES
from pairsym_dask.store import finer

ROWS = 1_000_000  # of a row group


def write_pairs(path: Path, users: int, items: int, pairs: int, power: float) -> None:
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema([("user", pa.int64()), ("item", pa.int64())])) as writer:
        for first in range(0, pairs, ROWS):
            n = min(ROWS, pairs - first)
            columns = [pa.array((rng.random(n) ** power * rows).astype(np.int64)) for rows in (users, items)]
            writer.write_table(pa.table(columns, names=["user", "item"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=float, default=1e6)
    parser.add_argument("--items", type=float, default=5e4)
    parser.add_argument("--pairs", type=float, default=2e7)
    parser.add_argument("--power", type=float, default=3)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=4)
    parser.add_argument("--memory", help="budget of ingests and fits")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    folder, lines, most = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-")), {}, finer.FINER
    try:
        shape = (int(arguments.users), int(arguments.items), int(arguments.pairs))
        write_pairs(folder / "pairs.parquet", *shape, arguments.power)
        for name, finer.FINER in (("even", 1), ("by pairs", most)):
            began = time.perf_counter()
            counts = ps.ingest(folder / "pairs.parquet", folder / f"{name}.zarr", memory=arguments.memory)
            line = {"ingest": time.perf_counter() - began, "files": len(counts.record["files"])}
            for side in SIDES:
                tiles = counts.record["tiles"][side]
                line[side] = {"tiles": len(tiles), "fullest": max(tiles), "rows": counts.cuts[side].block}
            print(name, line, flush=True)
            fitted = benchmark_scale.measure(counts, arguments.factors, arguments.sweeps, arguments.memory, folder)
            lines[name] = {**line, **fitted}
            shutil.rmtree(counts.path)
        benchmarking.save("uneven", {"lines": lines}, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
