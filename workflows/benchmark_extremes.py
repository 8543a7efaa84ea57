"""Shapes that break planners: very long and thin, both sides long, one enormous row, many factors.

    python workflows/benchmark_extremes.py [--only thin square row factors] [--memory 4GiB]

Each is fitted for two sweeps in a process of its own, with a memory budget: seconds, peak memory, the planner's words.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import benchmark_scale
import benchmarking
import numpy as np
import pandas as pd

import pairsym_dask as ps
from pairsym_dask.report.info import describe_plan
from pairsym_dask.settings import Settings
from pairsym_dask.sweep.plan import Plan


def one_heavy_user(folder: Path, items: int, users: int, pairs: int) -> ps.Counts:
    """Random pairs, and one user who has every item."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": np.concatenate([np.zeros(items, np.int64), rng.integers(1, users, pairs)]),
            "item": np.concatenate([np.arange(items), (rng.random(pairs) ** 2 * items).astype(np.int64)]),
        }
    )
    return ps.ingest(frame, folder / "row.zarr", progress=False)


# name: (how to make it, factors)
SHAPES = {
    "thin": (lambda folder: ps.simulate(folder / "thin.zarr", users=10**7, items=50, pairs=3 * 10**7), 20),
    "square": (lambda folder: ps.simulate(folder / "square.zarr", users=10**6, items=10**6, pairs=2 * 10**7), 20),
    "row": (lambda folder: one_heavy_user(folder, 10**5, 10**5, 2 * 10**6), 20),
    "factors": (lambda folder: ps.simulate(folder / "factors.zarr", preset="xbox-movies", scale=0.1), 128),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    lines = {}
    folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    try:
        for name in arguments.only:
            make, factors = SHAPES[name]
            counts = make(folder)
            print(name, *describe_plan(Plan.make(counts, Settings(factors=factors))), sep="\n")
            lines[name] = benchmark_scale.measure(counts, factors, 2, arguments.memory, folder)
            shutil.rmtree(counts.path)
        benchmarking.save("extremes", {"lines": lines}, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
