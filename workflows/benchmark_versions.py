"""This version against another one on this machine: ingest, sweeps, `recommend_all`, `recommend`, in turn.

    git worktree add ../before <commit>
    python workflows/benchmark_versions.py ../before --rounds 3

Every round runs each version in a process of its own, on stores that the version has made itself of the same Parquet
file (the shape of xbox-movies x 0.1). What is compared is medians of all rounds; both need the same dependencies.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import benchmarking
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SWEEPS = 4  # of a round; the first one reads tiles and tables that a long fit has in memory
ASKED = 2_000  # users of one `recommend`


def write_pairs(path: Path, scale: float) -> None:
    """An event a row, in no order: as many users, items and pairs as xbox-movies has, times a scale."""
    rng = np.random.default_rng(0)
    pairs, users, items = int(5.55e7 * scale), int(6.2e6 * scale), 12_000
    user, item = rng.integers(0, users, pairs), (rng.random(pairs) ** 3 * items).astype(np.int64)
    pq.write_table(pa.table({"user": user, "item": item}), path)


def one(folder: Path, factors: list[int]) -> None:
    """One round of the version that is on the path, in this process: seconds by name as JSON on the last line."""
    import pairsym_dask as ps

    seconds, source, top = {}, folder.parent / "pairs.parquet", folder / "top.parquet"
    first = not (folder / "counts.zarr").exists()
    if not first:
        shutil.rmtree(folder / "again.zarr", ignore_errors=True)
        ps.ingest(pd.DataFrame({"user": [1], "item": [1]}), folder / "again.zarr")  # imports and compiled code
        shutil.rmtree(folder / "again.zarr")
    target = folder / ("counts.zarr" if first else "again.zarr")
    began = time.perf_counter()
    ps.ingest(source, target)
    seconds["ingest"] = time.perf_counter() - began
    counts = ps.open_counts(folder / "counts.zarr")
    for width in factors:
        path = folder / f"model-{width}.zarr"
        done = 0 if first else len(ps.load(path).history) - 1
        model = ps.PairedSymbols(factors=width).fit(counts, path, sweeps=done + SWEEPS, threads=2, progress=False)
        seconds[f"sweep, K = {width}"] = statistics.median(model.history["seconds"][-SWEEPS + 1 :])
    model = ps.load(folder / f"model-{factors[0]}.zarr")
    shutil.rmtree(top, ignore_errors=True)
    seconds["recommend_all"] = benchmarking.timed(lambda: model.recommend_all(top, threads=2))
    users = counts.labels("users")[:ASKED]
    times = [benchmarking.timed(lambda: model.recommend(users, n=10)) for _ in range(4)]
    seconds[f"recommend, {ASKED:,} users"] = statistics.median(times[1:])
    print(json.dumps({"package": ps.__file__, "seconds": seconds}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--factors", type=int, nargs="+", default=[20, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:  # `before` is the folder to work in
        one(arguments.before, arguments.factors)
        return
    versions = {"before": arguments.before.resolve(), "now": Path(__file__).resolve().parents[1]}
    if not (versions["before"] / "pairsym_dask").is_dir():
        parser.error(f"{versions['before']} holds no pairsym_dask")
    load, work = benchmarking.look_at_load(), Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    found: dict[str, dict[str, list[float]]] = {name: {} for name in versions}
    try:
        write_pairs(work / "pairs.parquet", arguments.scale)
        for number in range(arguments.rounds + 1):  # the first round compiles and makes stores
            for name, checkout in versions.items():
                (work / name).mkdir(exist_ok=True)
                os.environ["PYTHONPATH"] = str(checkout)
                command = [__file__, str(work / name), "--one", "--factors", *map(str, arguments.factors)]
                result, _ = benchmarking.run_alone(command)
                if checkout not in Path(result["package"]).parents:
                    raise SystemExit(f"{result['package']} was run instead of {checkout}")
                for what, took in result["seconds"].items() if number else ():
                    found[name].setdefault(what, []).append(took)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    medians = {name: {what: statistics.median(took) for what, took in each.items()} for name, each in found.items()}
    ratios = {what: now / medians["before"][what] for what, now in medians["now"].items()}
    for what, ratio in ratios.items():
        print(f"{what:24s} before {medians['before'][what]:6.3f} s, now {medians['now'][what]:6.3f} s: {ratio:.2f}")
    print(f"load average at the start {load}")
    benchmarking.save(
        "versions", {"load": load, "scale": arguments.scale, "seconds": found, "ratios": ratios}, arguments.results
    )


if __name__ == "__main__":
    main()
