"""Pairs a second from Parquet into a counts store, with whole numbers and with strings as labels, and peak memory.

python workflows/benchmark_ingest.py --pairs 5.6e7 --memory 1GiB
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import benchmarking
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import pairsym_dask as ps

ROWS = 1_000_000  # of a row group


def write_pairs(path: Path, pairs: int, text: bool) -> None:
    """Pairs of xbox-movies' shape in random order, an event a row."""
    rng = np.random.default_rng(0)
    users, items = max(1, int(pairs * 6.2e6 / 5.6e7)), 12_000
    kind = pa.string() if text else pa.int64()
    with pq.ParquetWriter(path, pa.schema([("user", kind), ("item", kind)])) as writer:
        for first in range(0, pairs, ROWS):
            n = min(ROWS, pairs - first)
            user, item = rng.integers(0, users, n), (rng.random(n) ** 3 * items).astype(np.int64)
            columns = [pa.array(user), pa.array(item)]
            if text:
                columns = [
                    pa.array(np.char.add("user-", user.astype(str)).tolist()),
                    pa.array(np.char.add("item-", item.astype(str)).tolist()),
                ]
            writer.write_table(pa.table(columns, schema=pa.schema([("user", kind), ("item", kind)])))


def one(source: str, store: str, memory: str | None) -> None:
    """An ingest in this process; seconds as JSON on the last line."""
    import distributed  # noqa: F401  (part of an idle interpreter)

    ps.ingest  # noqa: B018  (imports)
    idle = psutil.Process().memory_info().rss / 2**20
    began = time.perf_counter()
    counts = ps.ingest(source, store, memory=memory)
    print(json.dumps({"seconds": time.perf_counter() - began, "pairs": counts.nnz, "idle": idle}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=float, default=5.6e7)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(*arguments.one, arguments.memory)
        return
    folder, results = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-")), {}
    try:
        for name, text in (("whole numbers", False), ("strings", True)):
            source = folder / "pairs.parquet"
            write_pairs(source, int(arguments.pairs), text)
            command = [__file__, "--memory", arguments.memory, "--one", str(source), str(folder / "counts.zarr")]
            result, peak = benchmarking.run_alone(command)
            rate = arguments.pairs / result["seconds"]
            results[name] = {**result, "rows": int(arguments.pairs), "rows a second": rate, "peak": peak}
            print(
                f"{name:14s} {rate / 1e6:.2f} million pairs a second ({result['seconds']:.1f} s), "
                f"peak {peak:.0f} MiB (idle {result['idle']:.0f}), file {source.stat().st_size / 1e6:.0f} MB",
                flush=True,
            )
            shutil.rmtree(folder / "counts.zarr")
        benchmarking.save("ingest", {"memory": arguments.memory, "ingest": results}, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
