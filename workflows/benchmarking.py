"""What the benchmarks share: interleaved runs, medians and spreads, memory, machine, results as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("pairsym_dask", "implicit", "cmfrec", "pyspark", "numpy", "numba", "dask", "zarr", "pyarrow")


QUIET = 0.5  # load average below which a machine does nothing else


def look_at_load() -> float:
    """The load average when a run starts; said aloud where it spoils the ratios."""
    load = os.getloadavg()[0]
    if load >= QUIET:
        print(
            f"the load average is {load:.2f}: other work slows contenders unequally; ratios want it below {QUIET}",
            file=sys.stderr,
        )
    return round(load, 2)


def machine() -> dict[str, Any]:
    """Processor, cores, memory and versions."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        name = next((line.split(":", 1)[1].strip() for line in cpuinfo.open() if line.startswith("model name")), name)
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    return {
        "date": date.today().isoformat(),
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "versions": versions,
    }


def interleave(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, dict[str, float]]:
    """Run contenders in turn, so that a noisy minute hurts all; each returns its seconds. Median and spread."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in contenders.items():
            seconds[name].append(run())
            print(f"  round {number + 1}: {name:32s} {seconds[name][-1]:8.3f} s", file=sys.stderr, flush=True)
    return {
        name: {"median": statistics.median(values), "least": min(values), "most": max(values), "rounds": rounds}
        for name, values in seconds.items()
    }


def timed(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


class Peak:
    """Peak resident memory of this process above what it had at the start, sampled."""

    def __enter__(self) -> Peak:
        self._process, self._stop = psutil.Process(), threading.Event()
        self.start = self.most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.most = max(self.most, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mib(self) -> float:
        return (self.most - self.start) / 2**20


def run_alone(command: list[str]) -> tuple[dict[str, Any], float]:
    """Run a Python command in a process of its own; the JSON of its last line and its peak memory in MiB."""
    process = psutil.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    most = 0
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
    reader.start()
    while process.poll() is None:
        try:
            most = max(most, process.memory_info().rss)
        except psutil.Error:
            pass
        time.sleep(0.01)
    reader.join()
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return json.loads(lines[-1]), most / 2**20


def save(name: str, results: dict[str, Any], folder: str) -> None:
    """Write results beside the machine they come from."""
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    print(f"written to {path}", file=sys.stderr)
