"""Efficiency against workers, on a real dask scheduler with hundreds of workers whose kernels sleep.

    python workflows/benchmark_cluster.py --shape 1e9,1e7,1e11 --factors 20,64 --workers 16,64,256,512
    python workflows/benchmark_cluster.py --shape phone-apps --factors 20,64 --workers 16,64,256,512

What is real: the plan, the graphs of a whole sweep, their keys, manifests and small results; dask's scheduler, client
and workers, all in this process and on one event loop. What is simulated (`simulated_cluster.py`), by the clock alone:

- arithmetic: a task sleeps as long as the cost model says on one core; where the weights of pairs are not at hand, a
  step takes as long as the sums did, which made them;
- the store: what a task reads and writes at --store bytes a second a worker, both together. Beside arithmetic goes what
  tasks read ahead (all but the first block's or the first group's) and what they write (all but the last shard's); the
  table of the short side is waited for. What a worker has read stays on its shelf as far as its budget goes;
- the network: arrays leave a worker, and come to one, at --network bytes a second, each way one after the other, while
  workers compute; one that sends to ten others is busy; manifests come with the task, small results take no time;
- the scheduler: --task seconds of its one core for every finished task (`benchmark_scheduler.py` measures them);
- the driver: its own processor time, twice the pickling of graphs, and the unpickling of results.

The sweep is the second one of two, as all but the first of a fit are: dask knows how long tasks take, workers have the
table that the sweep before ended with, and what else their shelves keep. Nobody really waits: the event loop has a
clock of its own (`simulated_time.py`), which jumps to the next one to wake where all sleep. Processor time of the
simulation itself does not count, nor does other work on the machine, but for the driver's share; nothing is committed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
from dataclasses import replace
from typing import Any

from simulated_time import ASIDE, CLOCK, QUIET, Jumping, Loop, Timing

import benchmarking  # isort: skip
import dask
from distributed import Client
from simulated_cluster import DIGEST, KEPT, SITES, Receiving, Simulated, Site, Sweep, make_job, run_sweep

from pairsym_dask.pairs.simulate import PRESETS
from pairsym_dask.report.projection import Rates, in_shards
from pairsym_dask.settings import Settings
from pairsym_dask.sweep.costs import sweep_seconds
from pairsym_dask.sweep.plan import Plan
from pairsym_dask.sweep.room import make_room


def measure(options: argparse.Namespace, workers: int, factors: int) -> dict[str, Any]:
    if options.shape in PRESETS:
        users, items, pairs = PRESETS[options.shape]
    else:
        users, items, pairs = (round(float(number)) for number in options.shape.split(","))
    settings = Settings(factors=factors)
    plan = in_shards(Plan.of_shape(users, items, pairs, settings), settings, Rates())
    job = make_job(plan, settings, make_room(plan, options.memory, 1, workers), options.network, options.store)
    SITES.clear()
    listed = (key for spec in job.specs.values() for key in spec.keys()) if job.shards is None else job.shards.keys()
    manifest = dict.fromkeys(listed, (8, DIGEST))
    took, before = Sweep(), (0.0, 0.0, 0)

    def totals() -> tuple[float, float, int]:
        here = SITES.values()
        return sum(s.came for s in here), sum(s.read for s in here), sum(s.again for s in here)

    async def run() -> None:
        nonlocal took, before
        loop = asyncio.get_running_loop()
        async with Timing(protocol="inproc", dashboard_address=None, dashboard=False) as scheduler:
            crew = [Receiving(scheduler.address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(workers)]
            await asyncio.gather(*crew)
            for worker in crew:
                ASIDE.watch(worker.executors["default"])  # for tasks that are no coroutines
                SITES[worker.address] = Site()
                SITES[worker.address].whole = f"{job.sweep - 1}" if KEPT else None
            async with Client(scheduler.address, asynchronous=True) as client:
                executor = Simulated(loop, client, workers)
                for sweep in (1, 2):
                    before = totals()
                    took = await asyncio.to_thread(run_sweep, replace(job, sweep=sweep), executor, manifest)
            await asyncio.gather(*(worker.close() for worker in crew))

    with dask.config.set(QUIET), asyncio.Runner(loop_factory=lambda: Loop(Jumping())) as runner:
        runner.run(run())
    arithmetic = sum(sweep_seconds(plan).values())
    came, read, again = (after - then for after, then in zip(totals(), before, strict=True))
    line = {
        "shape": [users, items, pairs], "factors": factors, "workers": workers, "task": CLOCK.task,
        "tasks": took.tasks, "arithmetic": arithmetic, "wall": took.wall,
        "efficiency": arithmetic / (workers * took.wall), "graph_bytes": took.sent, "travelled": came, "read": read,
        "weighed_again": again, "store": options.store, "network": options.network, "memory": options.memory,
        "graphs": took.graphs, "spent": took.spent, "objects": len(manifest), "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"{options.shape:14} K = {factors:3}, {workers:4} workers: {took.tasks:8,} tasks, {arithmetic:9.1f} core-s, "
        f"{took.wall:8.1f} s, efficiency {line['efficiency']:6.1%}, {took.sent / 1e6:.0f} MB of graphs, "
        f"{came / 1e9:.1f} GB between workers, {read / 1e12:.2f} TB read, weights made again for {again} tasks, "
        f"load {line['load']:.1f}",
    )
    for name, seconds in took.graphs.items():  # seconds of a worker on average, the rest is waiting
        spent = took.spent[name].values()
        kinds = (sum(one[k] for one in spent) / workers for k in (1, 2, 3))
        print(
            f"  {name:12} {seconds:6.2f} s: "
            + ", ".join(
                f"{kind} {some:.2f}" for kind, some in zip(("arithmetic", "store", "network"), kinds, strict=True)
            ),
            flush=True,
        )
        if options.tasks:
            for task, (many, *rest, _, first, last) in took.spent[name].items():
                each = ", ".join(f"{one / workers:.2f}" for one in rest)
                print(f"    {task:18} {many:6.0f} tasks, {each}, from {first:.2f} to {last:.2f}", flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1e9,1e7,1e11", help="users,items,pairs, or a preset of `ps.simulate`")
    parser.add_argument("--factors", default="64", help="K, several by commas")
    parser.add_argument("--workers", default="16,64,256,512")
    parser.add_argument("--memory", default="16GiB", help="budget of a worker")
    parser.add_argument("--task", type=float, default=0.8e-3, help="seconds of the scheduler, a task")
    parser.add_argument("--network", type=float, default=1e9, help="bytes a second into a worker")
    parser.add_argument("--store", type=float, default=1e9, help="bytes a second of a worker's store")
    parser.add_argument("--tasks", action="store_true", help="show every kind of task: arithmetic, store, network")
    parser.add_argument("--name", default="cluster", help="of the file of results")
    parser.add_argument("--results", default="workflows/results")
    options = parser.parse_args()
    CLOCK.task, CLOCK.network = options.task, options.network
    logging.getLogger("distributed").setLevel(logging.ERROR)
    gc.disable()  # full collections of hundreds of schedulers' and workers' objects would be most of the real time
    lines = [
        measure(options, int(workers), int(factors))
        for factors in options.factors.split(",")
        for workers in options.workers.split(",")
    ]
    benchmarking.save(options.name, {"load": os.getloadavg()[0], "lines": lines}, options.results)


if __name__ == "__main__":
    main()
