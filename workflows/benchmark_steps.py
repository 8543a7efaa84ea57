"""Where a sweep's time goes, step by step, and whether all threads are at work: from dask's own profile.

    python workflows/benchmark_steps.py --factors 20

A step lasts from the start of its first task to the end of its last; `busy` is the share of that time that the threads
spent in tasks. What lies between the steps is the driver's work on one core.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import benchmarking
import numpy as np
from dask.diagnostics import Profiler

import pairsym_dask as ps

# Tasks that run side by side, as one step.
STEPS = {
    "update-users": "update users",
    "select-items": "select items",
    "add-selection": "select items",
    "take-selection": "select items",
    "observe-items": "select items",
    "weigh-items": "weigh items",
    "gather-items": "update items",
    "pick-items": "update items",
    "add-items": "update items",
    "begin": "update items",
    "direction": "update items",
    "step": "update items",
    "update-items": "update items",
    "finish-users": "bound",
}


def step_of(key: object) -> str | None:
    """The step that a task belongs to, by its name without numbers."""
    name = re.split(r"-\d|-[0-9a-f]{8}", str(key[0] if isinstance(key, tuple) else key))[0]
    return STEPS.get(re.sub("-(sums|step)$", "", name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="xbox-movies")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--memory", help="budget of the fit")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    between = []
    try:
        counts = ps.simulate(folder / "counts.zarr", preset=arguments.preset, scale=arguments.scale, random_state=0)
        with Profiler() as profile:

            def note(sweep: int, elbo: float, seconds: float) -> None:
                spans: dict[str, list] = defaultdict(list)
                for task in profile.results:
                    if (step := step_of(task.key)) is not None:
                        spans[step].append((task.start_time, task.end_time))
                profile.clear()
                if sweep == 1:
                    return  # the first one compiles, and decodes tiles
                total = 0.0
                for step, times in spans.items():
                    wall = max(end for _, end in times) - min(start for start, _ in times)
                    lines[step].append((wall, sum(end - start for start, end in times) / wall / arguments.threads))
                    total += wall
                between.append(seconds - total)

            ps.PairedSymbols(factors=arguments.factors).fit(
                counts, folder / "model.zarr", sweeps=arguments.sweeps, memory=arguments.memory,
                threads=arguments.threads, progress=False, callback=note,
            )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = {step: dict(zip(("seconds", "busy"), np.median(times, 0).tolist())) for step, times in lines.items()}  # noqa: B905
    table["between the steps"] = {"seconds": float(np.median(between)), "busy": 1 / arguments.threads}
    for step, line in table.items():
        print(f"{step:18s} {line['seconds']:7.3f} s, threads busy {line['busy']:.0%}")
    benchmarking.save(f"steps-k{arguments.factors}", {"steps": table, **vars(arguments)}, arguments.results)


if __name__ == "__main__":
    main()
