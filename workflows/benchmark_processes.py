"""Seconds a sweep on two threads against worker processes on the same two cores; the same bits.

    python workflows/benchmark_processes.py --factors 20 --rounds 4

Every contender goes on with a fit of its own, three sweeps a round; the median of the last two counts. Processes are
real workers of a `LocalCluster`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import benchmarking
from distributed import Client, LocalCluster

import pairsym_dask as ps

WAYS = {"2 x 1": (2, 1), "1 x 2": (1, 2)}  # worker processes, threads of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="xbox-movies")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    load = benchmarking.look_at_load()
    folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    try:
        counts = ps.simulate(folder / "counts.zarr", preset=arguments.preset, scale=arguments.scale, random_state=0)
        with ExitStack() as stack:
            clients = {"threads": None}
            for name, (processes, threads) in WAYS.items():
                cluster = LocalCluster(
                    n_workers=processes, threads_per_worker=threads, dashboard_address=":0", memory_limit=0
                )
                clients[name] = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
            done = dict.fromkeys(clients, 0)

            def one(name: str) -> float:
                """Three more sweeps of a fit; workers read and decode in the first."""
                seconds: list[float] = []
                done[name] += 3
                model = ps.PairedSymbols(factors=arguments.factors)
                model.fit(
                    counts, folder / f"{name}.zarr", sweeps=done[name], threads=2, client=clients[name], progress=False,
                    callback=lambda sweep, bound, took: seconds.append(took),
                )  # fmt: skip
                return statistics.median(seconds[1:])

            for name in clients:
                one(name)  # compiles
            runs = {name: (lambda name=name: one(name)) for name in clients}
            results = benchmarking.interleave(runs, arguments.rounds)
        bounds = {name: ps.load(folder / f"{name}.zarr").history["elbo"].tolist() for name in done}
        same = all(bound == bounds["threads"] for bound in bounds.values())
    finally:
        shutil.rmtree(folder)
    for name, found in results.items():
        ratio = found["median"] / results["threads"]["median"]
        print(
            f"{name:8s} {found['median']:.3f} s ({found['least']:.3f} to {found['most']:.3f}), {ratio:.2f} of threads"
        )
    print(f"bounds {'the same to the last bit' if same else 'DIFFER'}; load average at the start {load}")
    benchmarking.save(
        f"processes-k{arguments.factors}", {"load": load, "same": same, "results": results}, arguments.results
    )


if __name__ == "__main__":
    main()
