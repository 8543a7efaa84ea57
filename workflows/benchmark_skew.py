"""Ids sorted by popularity: the heaviest tile against the mean one, and seconds a sweep, by rows a block of users.

python workflows/benchmark_skew.py --rows 32768 4096 --rounds 3
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import benchmarking
import numpy as np
import pandas as pd

import pairsym_dask as ps
from pairsym_dask.store import cuts

USERS, ITEMS = 620_000, 12_000


def pairs_of(pairs: int, ordered: bool) -> pd.DataFrame:
    """Users with pairs in proportion to rank ** -0.7; the most active come first, or the ranks are shuffled."""
    rng = np.random.default_rng(0)
    share = np.arange(1, USERS + 1) ** -0.7
    each = np.clip(np.round(share / share.sum() * pairs), 1, ITEMS // 4).astype(np.int64)
    user = np.repeat(np.arange(USERS) if ordered else rng.permutation(USERS), each)
    return pd.DataFrame({"user": user, "item": (rng.random(user.size) ** 2 * ITEMS).astype(np.int64)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=float, default=5.5e6)
    parser.add_argument("--rows", type=int, nargs="+", default=[32_768, 4_096], help="a block, at most")
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    load, folder = benchmarking.look_at_load(), Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    found: dict[str, Any] = {}
    try:
        for order in ("shuffled", "sorted"):
            frame = pairs_of(int(arguments.pairs), order == "sorted")
            for rows in arguments.rows:
                cuts.LONG_BLOCK = rows
                counts = ps.ingest(frame, folder / f"{order}-{rows}.zarr")
                tiles = np.array(counts.record["tiles"]["users"])
                found[f"{order}, {rows} rows"] = {
                    "pairs": counts.nnz,
                    "tiles": tiles.size,
                    "files": len(counts.record["files"]),
                    "heaviest / mean": float(tiles.max() / tiles.mean()),
                    "share of the heaviest": float(tiles.max() / tiles.sum()),
                }

        def sweep(name: str) -> float:
            order, rows = name.removesuffix(" rows").split(", ")
            cuts.LONG_BLOCK = int(rows)
            target = folder / "model.zarr"
            model = ps.PairedSymbols(factors=arguments.factors).fit(
                folder / f"{order}-{rows}.zarr", target, sweeps=4, progress=False
            )
            seconds = model.history["seconds"].iloc[2:].min()
            shutil.rmtree(target)
            return float(seconds)

        sweep(next(iter(found)))  # compiles
        times = benchmarking.interleave({name: lambda name=name: sweep(name) for name in found}, arguments.rounds)
        for name, one in found.items():
            one["seconds a sweep"] = times[name]
            print(f"{name:24s}", one, flush=True)
        benchmarking.save("skew", {"load": load, "factors": arguments.factors, "skew": found}, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
