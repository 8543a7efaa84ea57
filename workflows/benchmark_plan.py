"""What `pairsym plan` says of a sweep beside what was measured, for five shapes: seconds and peak memory.

    python workflows/benchmark_plan.py             # rates as they are written
    python workflows/benchmark_plan.py --measure   # rates of this machine
    python workflows/benchmark_plan.py --refit     # the constants of `sweep/costs.py`, fitted to this machine

Every fit runs in a process of its own, after another one that compiles what is not compiled yet; its seconds are the
median of its later sweeps, its peak is above an idle interpreter. --refit times the tasks of small fits on one thread
by what they do, and finds the constants by least squares of relative errors, none of them below 0.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import benchmarking
import numpy as np
import psutil
from scipy.optimize import nnls

import pairsym_dask as ps
from pairsym_dask.settings import Settings
from pairsym_dask.sweep import steps, tasks
from pairsym_dask.sweep.costs import FINISH, GATHER, SELECT, STEP, UPDATE, family
from pairsym_dask.sweep.plan import Plan

SHAPES = [  # users, items, pairs, K, selection, threads, memory
    (620_000, 12_000, 5_500_000, 20, "counts", 2, "2GiB"),
    (620_000, 12_000, 5_500_000, 64, "counts", 2, "3GiB"),
    (620_000, 12_000, 5_500_000, 20, "constant", 1, "512MiB"),
    (100_000, 100_000, 2_000_000, 32, "counts", 2, "2GiB"),
    (20_000, 5_000, 2_000_000, 64, "constant", 2, "2GiB"),
]
FITTED = [
    (620_000, 12_000, 5_500_000),
    (20_000, 5_000, 1_500_000),
    (100_000, 90_000, 1_000_000),
]  # few, many pairs a row
KINDS = [("counts", (10, 20, 28)), ("constant", (10, 20, 28)), ("counts", (40, 64, 128)), ("constant", (40, 64, 128))]
# What tasks are part of which pass; updates of the short side are gathered, whether at a time or in parts.
PASSES = {
    "update_block": UPDATE, "gather_statistics": GATHER, "solve_block": GATHER, "select_tile": SELECT,
    "finish_block": FINISH, "gather_sums": GATHER, "begin_block": GATHER, "settle_block": GATHER,
    "gather_products": STEP, "step_block": STEP,
}  # fmt: skip


def one(store: str, options: dict[str, object], folder: str, sweeps: int) -> None:
    """A fit in this process, as JSON on the last line."""
    import distributed  # noqa: F401  (part of an idle interpreter)

    where = {name: options.pop(name) for name in ("threads", "memory")}
    seconds: list[float] = []
    model = ps.PairedSymbols(**options)  # type: ignore[arg-type]
    idle = psutil.Process().memory_info().rss / 2**20
    note = lambda sweep, elbo, took: seconds.append(took)  # noqa: E731
    path = f"{folder}/model-{sweeps}.zarr"
    model.fit(store, path, sweeps=sweeps, progress=False, callback=note, **where)  # type: ignore[arg-type]
    print(json.dumps({"seconds": float(np.median(seconds[1:] or seconds)), "idle": idle}))


def compare(measured: bool) -> list[dict[str, Any]]:
    """All shapes, a line each."""
    lines, stores = [], {}
    folder = tempfile.mkdtemp(prefix="pairsym-plan-")
    try:
        for number, (users, items, pairs, factors, selection, threads, memory) in enumerate(SHAPES):
            shape = users, items, pairs
            if shape not in stores:
                path = f"{folder}/counts-{number}.zarr"
                stores[shape] = ps.simulate(path, users=users, items=items, pairs=pairs)
            counts = stores[shape]
            options = {"factors": factors, "selection": selection, "threads": threads, "memory": memory}
            said = ps.plan(counts, measured=measured, **options).sweep
            place = tempfile.mkdtemp(dir=folder)
            for sweeps in (1, 5):  # the first one compiles, which takes memory of its own
                found, peak = benchmarking.run_alone(
                    [__file__, "--one", counts.path, json.dumps(options), place, str(sweeps)]
                )
            shutil.rmtree(place)
            line = {
                "shape": [users, items, counts.nnz], **options, "seconds": found["seconds"], "said": said.seconds,
                "peak": peak - found["idle"], "said_peak": said.memory / 2**20,
            }  # fmt: skip
            lines.append(line)
            print(
                f"{users:,} x {items:,}, {counts.nnz:,} pairs, K = {factors}, {selection}, {threads} threads, "
                f"{memory}: {line['said']:.2f} s said, {line['seconds']:.2f} measured, ratio "
                f"{line['said'] / line['seconds']:.2f}; peak {line['said_peak']:.0f} MiB said, {line['peak']:.0f} "
                f"measured, ratio {line['said_peak'] / line['peak']:.2f}",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)
    return lines


class Timer:
    """Seconds of the tasks of a fit on one thread, by the pass that they are part of."""

    def __init__(self, long: str) -> None:
        self.long, self.seconds = long, defaultdict(float)

    def wrap(self, name: str, task: Callable[..., Any]) -> Callable[..., Any]:
        alone = getattr(task, "__wrapped__", task)  # the task that it is a part of has its place in the process

        def run(job: Any, *arguments: Any) -> Any:
            kind = GATHER if name == "update_block" and arguments[0] != self.long else PASSES[name]
            began = time.perf_counter()
            found = alone(job, *arguments)
            self.seconds[kind] += time.perf_counter() - began
            return found

        return run


def time_passes(counts: Any, settings: dict[str, Any], folder: str) -> tuple[Plan, dict[str, float]]:
    """Least seconds of each pass over some sweeps."""
    plan = Plan.make(counts, Settings(**settings))
    timer, found = Timer(plan.long), []
    where = {name: module for module in (tasks, steps) for name in PASSES if hasattr(module, name)}
    kept = {name: getattr(module, name) for name, module in where.items()}

    def note(*_: Any) -> None:
        found.append(dict(timer.seconds))
        timer.seconds.clear()

    try:
        for name, module in where.items():
            setattr(module, name, timer.wrap(name, kept[name]))
        path = tempfile.mkdtemp(dir=folder)
        ps.PairedSymbols(**settings).fit(
            counts, f"{path}/model.zarr", sweeps=4, progress=False, threads=1, memory="8GiB", callback=note
        )
    finally:
        for name, module in where.items():
            setattr(module, name, kept[name])
    shutil.rmtree(path)
    return plan, {kind: min(sweep[kind] for sweep in found[1:]) for kind in found[-1]}


def refit() -> dict[str, dict[str, list[float]]]:
    """Constants of `COSTS` by family and pass: a pair, its K, its K^2; a row, its K, its K^2; nanoseconds."""
    rows: dict[tuple[str, str], list[tuple[list[float], float]]] = defaultdict(list)
    folder = tempfile.mkdtemp(prefix="pairsym-refit-")
    try:
        for number, (users, items, pairs) in enumerate(FITTED):
            counts = ps.simulate(f"{folder}/counts-{number}.zarr", users=users, items=items, pairs=pairs)
            for selection, many in KINDS:
                for k in many:
                    plan, seconds = time_passes(counts, {"factors": k, "selection": selection}, folder)
                    for kind, took in seconds.items():
                        n = plan.cuts[plan.short if kind in (GATHER, STEP) else plan.long].rows
                        passes = plan.short_steps if kind == STEP else 1
                        terms = [plan.pairs, plan.pairs * k, plan.pairs * k**2, n, n * k, n * k**2]
                        rows[family(plan), kind].append((terms, 1e9 * took / passes))
                    print(f"{users:,} x {items:,}, {counts.nnz:,} pairs, K = {k}, {selection}: {seconds}", flush=True)
    finally:
        shutil.rmtree(folder)
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for (name, kind), measured in sorted(rows.items()):
        terms, took = np.array([t for t, _ in measured]), np.array([s for _, s in measured])
        constants, _ = nnls(terms / took[:, None], np.ones(took.size))  # relative errors
        worst = np.abs(terms @ constants / took - 1).max()
        found[name][kind] = [float(f"{constant:.3g}") for constant in constants]
        print(f"{name:10} {kind:8} {tuple(found[name][kind])}, at most {worst:.0%} off")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="rates of this machine")
    parser.add_argument("--refit", action="store_true", help="print the constants of the cost model for this machine")
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        store, options, folder, sweeps = arguments.one
        one(store, json.loads(options), folder, int(sweeps))
        return
    load = benchmarking.look_at_load()
    if arguments.refit:
        benchmarking.save("costs", {"load": load, "costs": refit()}, arguments.results)
        return
    lines = compare(arguments.measure)
    benchmarking.save("plan", {"load": load, "measured": arguments.measure, "lines": lines}, arguments.results)


if __name__ == "__main__":
    main()
