"""Ingest of very many distinct string labels, and `recommend` of three users from that store: peaks of memory.

python workflows/benchmark_labels.py --users 2e6 2e7 2e8 --memory 1GiB
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
ITEMS = 1_000
PRIME = 982_451_653  # no divisor of the numbers of users: its multiples modulo users are all of them, in no order


def labels_of(users: np.ndarray) -> pa.Array:
    """Thirteen characters each, the first four of them the same."""
    text = np.empty((users.size, 13), np.uint8)
    text[:, :4] = np.frombuffer(b"user", np.uint8)
    text[:, 4:] = users[:, None] // 10 ** np.arange(8, -1, -1) % 10 + ord("0")
    offsets = np.arange(users.size + 1, dtype=np.int32) * 13
    return pa.StringArray.from_buffers(users.size, pa.py_buffer(offsets), pa.py_buffer(text))


def write_pairs(path: Path, users: int) -> None:
    """A pair of every user, in no order."""
    rng = np.random.default_rng(0)
    schema = pa.schema([("user", pa.string()), ("item", pa.int64())])
    with pq.ParquetWriter(path, schema, use_dictionary=["item"]) as writer:
        for first in range(0, users, ROWS):
            user = np.arange(first, min(first + ROWS, users)) * PRIME % users
            item = (rng.random(user.size) ** 3 * ITEMS).astype(np.int64)
            writer.write_table(pa.table([labels_of(user), pa.array(item)], schema=schema))


def tell(began: float, idle: float, **found: object) -> None:
    print(json.dumps({"seconds": time.perf_counter() - began, "idle": idle, **found}))


def step(name: str, folder: Path, memory: str | None) -> None:
    """One step in this process; seconds as JSON on the last line."""
    import distributed  # noqa: F401  (part of an idle interpreter)

    ps.ingest  # noqa: B018  (imports)
    idle = psutil.Process().memory_info().rss / 2**20
    began = time.perf_counter()
    if name == "ingest":
        counts = ps.ingest(folder / "pairs.parquet", folder / "counts.zarr", memory=memory)
        tell(began, idle, pairs=counts.nnz, labels=counts.shape[0])
    elif name == "fit":
        model = ps.PairedSymbols(factors=2).fit(folder / "counts.zarr", folder / "model.zarr", sweeps=1, progress=False)
        tell(began, idle, sweeps=len(model.history))
    elif name == "find":
        counts = ps.open_counts(folder / "counts.zarr")
        opened, users = time.perf_counter() - began, counts.shape[0]
        rows = np.array([1, users // 2, users - 2])
        wanted = labels_of(rows).to_pylist()
        found = counts.positions("users", wanted)
        assert found.tolist() == rows.tolist()
        assert counts.label_rows("users", rows).tolist() == wanted
        tell(began, idle, open=opened)
    else:
        model = ps.load(folder / "model.zarr")
        opened, users = time.perf_counter() - began, model.counts.shape[0]
        top = model.recommend(labels_of(np.array([1, users // 2, users - 2])).to_pylist(), n=10)
        assert len(top) == 30
        tell(began, idle, open=opened)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=float, nargs="+", default=[2e6, 2e7, 2e8])
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--steps", nargs="+", default=["ingest", "find", "fit", "recommend"])
    parser.add_argument("--folder", help="for the files; a temporary one by default")
    parser.add_argument("--name", default="labels", help="of the results")
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        step(arguments.one[0], Path(arguments.one[1]), arguments.memory)
        return
    load, results = benchmarking.look_at_load(), {}
    for users in map(int, arguments.users):
        folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-", dir=arguments.folder))
        try:
            write_pairs(folder / "pairs.parquet", users)
            found = results[str(users)] = {"file": (folder / "pairs.parquet").stat().st_size}
            for name in arguments.steps:
                command = [__file__, "--memory", arguments.memory, "--one", name, str(folder)]
                result, peak = benchmarking.run_alone(command)
                found[name] = {**result, "peak": peak}
                rate = f", {users / result['seconds'] / 1e6:.2f} million pairs a second" if name == "ingest" else ""
                print(
                    f"{users:12,d} users: {name:10s} {result['seconds']:8.2f} s{rate}, peak {peak:.0f} MiB "
                    f"(idle {result['idle']:.0f})",
                    flush=True,
                )
                said = {"memory": arguments.memory, "load": load, "labels": results}
                benchmarking.save(arguments.name, said, arguments.results)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
