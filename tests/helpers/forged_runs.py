"""Runs of forgeries in child processes, and what became of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from helpers import forged_child

TESTS = Path(__file__).parents[1]


@dataclass
class Outcome:
    """What forgeries did to their reader."""

    forgeries: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    grown: int = 0  # bytes of resident memory beyond a warm process, at most
    slowest: float = 0.0

    def add(self, line: dict) -> None:
        self.forgeries += 1
        self.kinds.update(line["done"])
        self.found.update(line["found"])
        self.raw += [f"forgery {line['end']} ({', '.join(line['done'])}), {wrong}" for wrong in line["wrong"]]
        self.grown = max(self.grown, line["grown"])
        self.slowest = max(self.slowest, line["seconds"])

    def lost(self, number: int, status: int) -> None:
        """A forgery that ended its process."""
        self.forgeries += 1
        hang = -status in (signal.SIGALRM, signal.SIGPROF)
        (self.hangs if hang else self.crashes).append(f"forgery {number} ended its process with status {status}")

    def __str__(self) -> str:
        lines = [
            f"{self.forgeries} forgeries of {len(self.kinds)} kinds: {len(self.crashes)} crashes, {len(self.hangs)} "
            f"hangs, {len(self.raw)} raw errors; at most {self.grown / 2**20:.0f} MiB more memory, "
            f"{self.slowest:.1f} s for the slowest"
        ]
        names = sorted({name.rpartition(": ")[0] for name in self.found})
        for name in names:
            answered, refused = self.found[f"{name}: answered"], self.found[f"{name}: refused"]
            lines.append(f"  {name}: {answered} answered, {refused} refused")
        return "\n".join(lines)


def run(folder: Path, first: int, stop: int, processes: int = 1) -> Outcome:
    """Make and use forgeries first to stop - 1, from sound stores that are made in the folder."""
    (folder / "base").mkdir(exist_ok=True)
    if not (folder / "base/model.zarr").exists():
        forged_child.make(folder / "base")
    outcome = Outcome()
    bounds = [first + (stop - first) * k // processes for k in range(processes + 1)]
    with ThreadPoolExecutor(processes) as pool:
        for lines in pool.map(lambda k: _run(folder, bounds[k], bounds[k + 1], outcome), range(processes)):
            for line in lines:
                outcome.add(line)
    return outcome


def _run(folder: Path, first: int, stop: int, outcome: Outcome) -> list[dict]:
    """One process after another, each beginning where the last one was lost."""
    lines: list[dict] = []
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    while first < stop:
        command = [sys.executable, "-m", "helpers.forged_child", str(folder), str(first), str(stop)]
        child = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        said = [json.loads(line) for line in child.stdout.splitlines()]
        assert said, child.stderr[-3000:]
        lines += [line for line in said if "end" in line]
        if child.returncode == 0:
            break
        last = said[-1].get("begin")
        assert last is not None, child.stderr[-3000:]
        if child.returncode > 0:
            raise AssertionError(f"forgery {last} could not be made: {child.stderr[-3000:]}")
        outcome.lost(last, child.returncode)
        first = last + 1
    return lines
