"""What one table of the short side a machine saves and costs: sweeps of two worker processes with and without.

python workflows/benchmark_machine.py [--users 400000] [--items 200000] [--pairs 4e6] [--factors 64] [--sweeps 13]

In turn, for times; with `--ways own` or `--ways shared` all sweeps are of one kind, for memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse
from distributed import Client, LocalCluster

import pairsym_dask as ps
from pairsym_dask.run.bundles import Hands
from pairsym_dask.run.execute import Executor


def memory() -> dict[str, int]:
    """In a worker: its bytes of all kinds, by the kernel's own count."""
    with open("/proc/self/smaps_rollup") as file:
        fields = [line.split() for line in file.readlines()[1:]]
    kinds = {words[0][:-1]: 1024 * int(words[1]) for words in fields}
    return {
        "rss": kinds["Rss"],
        "pss": kinds["Pss"],
        "uss": kinds["Private_Clean"] + kinds["Private_Dirty"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("users", 400_000), ("items", 200_000), ("pairs", 4e6), ("factors", 64), ("sweeps", 13)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--memory", default="2GiB", help="budget of a worker")
    parser.add_argument("--ways", choices=["turns", "own", "shared"], default="turns")
    given = parser.parse_args()
    users, items, pairs = int(given.users), int(given.items), int(given.pairs)
    folder = Path(tempfile.mkdtemp(prefix="pairsym-machine-", dir="."))
    rng = np.random.default_rng(0)
    places = rng.integers(0, users, pairs), (items * rng.random(pairs) ** 2).astype(np.int64)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    used: dict[bool, list[dict[str, int]]] = {True: [], False: []}
    shared = False
    hands = Executor.hands

    def in_turn(self: Executor) -> Hands:
        nonlocal shared
        shared = not shared if given.ways == "turns" else given.ways == "shared"
        return replace(hands(self), crowded=shared)

    Executor.hands = in_turn  # type: ignore[method-assign]
    try:
        counts = ps.ingest(scipy.sparse.csr_matrix((np.ones(pairs), places), (users, items)), folder / "counts.zarr")
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
            Client(cluster) as client,
        ):

            def after(sweep: int, bound: float, took: float) -> None:
                found = client.run(memory).values()
                total = {kind: sum(each[kind] for each in found) for kind in ("rss", "pss", "uss")}
                words = ", ".join(f"{kind} {value / 2**20:.0f} MiB" for kind, value in total.items())
                print(
                    f"sweep {sweep} {'shared' if shared else 'own':6}: {took:.2f} s; both workers {words}", flush=True
                )
                if sweep > 2:  # kernels are compiled, shelves are full
                    seconds[shared].append(took)
                    used[shared].append(total)

            model = ps.PairedSymbols(factors=int(given.factors))
            model.fit(counts, folder / "m.zarr", sweeps=int(given.sweeps), memory=given.memory, progress=False,
                      callback=after)  # fmt: skip
    finally:
        shutil.rmtree(folder)
    for way, taken in seconds.items():
        if taken:
            kinds = {
                kind: statistics.median(each[kind] for each in used[way]) / 2**20 for kind in ("rss", "pss", "uss")
            }
            words = ", ".join(f"{kind} {value:.0f} MiB" for kind, value in kinds.items())
            print(f"{'shared' if way else 'own'}: median sweep {statistics.median(taken):.2f} s; both workers {words}")
    if seconds[True] and seconds[False]:
        print(f"ratio {statistics.median(seconds[True]) / statistics.median(seconds[False]):.3f}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
