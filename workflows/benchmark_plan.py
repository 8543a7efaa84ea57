"""What `pairsym plan` says of a sweep beside what was measured, for five shapes: seconds and peak memory.

    python workflows/benchmark_plan.py             # rates as they are written
    python workflows/benchmark_plan.py --measure   # rates of this machine

Every fit runs in a process of its own; its seconds are the median of its later sweeps, its peak is above an idle
interpreter.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile

import benchmarking
import numpy as np
import psutil

import pairsym_dask as ps

SHAPES = [  # users, items, pairs, K, selection, threads, memory
    (620_000, 12_000, 5_500_000, 20, "counts", 2, "2GiB"),
    (620_000, 12_000, 5_500_000, 64, "counts", 2, "3GiB"),
    (620_000, 12_000, 5_500_000, 20, "constant", 1, "512MiB"),
    (100_000, 100_000, 2_000_000, 32, "counts", 2, "2GiB"),
    (20_000, 5_000, 2_000_000, 64, "constant", 2, "2GiB"),
]


def one(store: str, options: dict[str, object], folder: str) -> None:
    """A fit in this process, as JSON on the last line."""
    import distributed  # noqa: F401  (part of an idle interpreter)

    where = {name: options.pop(name) for name in ("threads", "memory")}
    seconds: list[float] = []
    model = ps.PairedSymbols(**options)  # type: ignore[arg-type]
    idle = psutil.Process().memory_info().rss / 2**20
    note = lambda sweep, elbo, took: seconds.append(took)  # noqa: E731
    model.fit(store, f"{folder}/model.zarr", sweeps=5, progress=False, callback=note, **where)  # type: ignore[arg-type]
    print(json.dumps({"seconds": float(np.median(seconds[1:])), "idle": idle}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="rates of this machine")
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one[0], json.loads(arguments.one[1]), arguments.one[2])
        return
    load, lines = benchmarking.look_at_load(), []
    for users, items, pairs, factors, selection, threads, memory in SHAPES:
        folder = tempfile.mkdtemp(prefix="pairsym-plan-")
        try:
            counts = ps.simulate(f"{folder}/counts.zarr", users=users, items=items, pairs=pairs)
            options = {"factors": factors, "selection": selection, "threads": threads, "memory": memory}
            said = ps.plan(counts, measured=arguments.measure, **options).sweep
            found, peak = benchmarking.run_alone([__file__, "--one", counts.path, json.dumps(options), folder])
        finally:
            shutil.rmtree(folder)
        line = {
            "shape": [users, items, counts.nnz], **options, "seconds": found["seconds"], "said": said.seconds,
            "peak": peak - found["idle"], "said_peak": said.memory / 2**20,
        }  # fmt: skip
        lines.append(line)
        print(
            f"{users:,} x {items:,}, {counts.nnz:,} pairs, K = {factors}, {selection}, {threads} threads, {memory}: "
            f"{line['said']:.2f} s said, {line['seconds']:.2f} measured ({line['seconds'] / line['said']:.2f}); "
            f"peak {line['said_peak']:.0f} MiB said, {line['peak']:.0f} measured "
            f"({line['peak'] / line['said_peak']:.2f})",
            flush=True,
        )
    benchmarking.save("plan", {"load": load, "measured": arguments.measure, "lines": lines}, arguments.results)


if __name__ == "__main__":
    main()
