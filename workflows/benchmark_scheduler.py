"""What a task costs dask's scheduler: processor time of one in a process of its own, with many workers over TCP.

    python workflows/benchmark_scheduler.py --workers 16,64,256

All workers share one more process, whose tasks do nothing. *flat* tasks wait for nothing but the job that all share,
*tree* is the same with sums of 16 of them. Heartbeats of the workers count as long as a graph takes.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import benchmarking
import psutil
from distributed import Client, Worker, as_completed

from pairsym_dask.run.graph import Graph
from pairsym_dask.run.placement import as_sent

TASKS = 4000


def nothing(job: Any, *arguments: Any) -> list[float]:
    return [0.0]


async def work(address: str, many: int) -> None:
    crew = [Worker(address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(many)]
    for k in range(0, many, 16):
        await asyncio.gather(*crew[k : k + 16])
    await asyncio.Event().wait()


def measure(many: int) -> list[dict[str, Any]]:
    folder, started = tempfile.mkdtemp(prefix="pairsym-scheduler-"), []
    place = Path(folder) / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    try:
        started.append(subprocess.Popen([*command, "--no-dashboard", "--scheduler-file", str(place)], **quiet))
        while not place.exists():
            time.sleep(0.1)
        with Client(scheduler_file=str(place)) as client:
            address = client.scheduler.address
            started.append(subprocess.Popen([sys.executable, __file__, "--serve", address, str(many)], **quiet))
            client.wait_for_workers(many)
            return [one(client, psutil.Process(started[0].pid), many, kind) for kind in ("flat", "tree") * 2]
    finally:
        for process in started:
            process.terminate()


def one(client: Client, scheduler: psutil.Process, many: int, kind: str) -> dict[str, Any]:
    graph = Graph(uuid.uuid4().hex, {"what": "all share"})
    keys = [graph.add("update", k, nothing, graph.job, "a" * 100) for k in range(TASKS)]
    if kind == "tree":
        keys = [graph.tree("sum", k, nothing, keys[k : k + 16], 8) for k in range(0, TASKS, 16)]
    before, began = scheduler.cpu_times(), time.perf_counter()
    futures = client.get(as_sent(graph.nodes, {}), keys, sync=False)
    for _ in as_completed(futures):
        pass
    after, seconds = scheduler.cpu_times(), time.perf_counter() - began
    took = (after.user + after.system - before.user - before.system) / graph.tasks
    print(
        f"{many:4} workers, {kind}: {graph.tasks} tasks in {seconds:.1f} s, {1e3 * took:.2f} ms of the scheduler each"
    )
    return {"workers": many, "kind": kind, "tasks": graph.tasks, "seconds": seconds, "task": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="16,64,256")
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(work(options.serve[0], int(options.serve[1])))
        return
    load = benchmarking.look_at_load()
    lines = [line for many in options.workers.split(",") for line in measure(int(many))]
    benchmarking.save("scheduler", {"load": load, "lines": lines}, options.results)


if __name__ == "__main__":
    main()
