"""A chain within a memory budget, killed with SIGKILL again and again and resumed: does it end with the same bits?

One process samples undisturbed; another one is killed at a moment taken at random and started again with the same call,
until it has been killed as often as asked for; then it may finish. Every file of the last sweep is compared.

python workflows/draw_kills.py --scale 0.1 --kills 20
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import benchmarking
import numpy as np

import pairsym_dask as ps

PROGRAM = """
import sys, warnings
import distributed
import pairsym_dask as ps, pairsym_dask.cli, pairsym_dask.model
counts, path, sweeps, ratio, budget = sys.argv[1:]
if path:
    warnings.simplefilter("ignore")
    model = ps.PairedSymbols(factors=20, censored_ratio=float(ratio), inference="gibbs")
    model.fit(counts, path, sweeps=int(sweeps), burn=0, thin=10**6, memory=budget, progress=False)
"""


def peak_of(process: int) -> float:
    """The most memory that a process has had so far, in MiB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def run(arguments: list[str], seconds: float | None) -> tuple[bool, float, float]:
    """Run the program, killed after so many seconds; whether it was killed, its peak in MiB, and how long it took."""
    began, most = time.perf_counter(), 0.0
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments]) as process:
        while process.poll() is None:
            most = max(most, peak_of(process.pid))
            if seconds is not None and time.perf_counter() - began > seconds:
                process.send_signal(signal.SIGKILL)
                process.wait()
            time.sleep(0.02)
    if process.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"the chain ended with {process.returncode}")
    return process.returncode != 0, most, time.perf_counter() - began


def last_files(path: Path) -> dict[str, Any]:
    """Sizes and digests of all files of a store's last sweep, read and checked."""
    model = ps.load(path)
    commit = model._fitted
    for spec in commit.arrays.values():
        commit.sealed.read_array(spec)
    return dict(commit.record["files"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1, help="of xbox-movies")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=12)
    parser.add_argument("--censored-ratio", type=float, default=2.0)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    folder, rng = Path(tempfile.mkdtemp(prefix="pairsym-kills-")), np.random.default_rng(0)
    try:
        counts = ps.simulate(folder / "counts.zarr", "xbox-movies", scale=arguments.scale, random_state=0)
        how = [str(arguments.sweeps), str(arguments.censored_ratio), arguments.memory]
        _, idle, starting = run([counts.path, "", *how], None)
        _, used, seconds = run([counts.path, str(folder / "whole.zarr"), *how], None)
        print(f"undisturbed: {seconds:.0f} s, peak {used - idle:.0f} MiB beyond an idle interpreter")
        kills, most, path = 0, used, folder / "hunted.zarr"
        sweep = (seconds - starting) / (arguments.sweeps + 1)
        while kills < arguments.kills:
            # while it imports, or somewhere within the first sweep of this life or the next
            wait = 0.5 * starting + rng.random() * (0.5 * starting + 1.2 * sweep)
            killed, peak, _ = run([counts.path, str(path), *how], wait)
            kills, most = kills + killed, max(most, peak)
            at = len(list((path / "commits").glob("*.json"))) - 1 if (path / "commits").exists() else -1
            print(
                f"life {kills}: {'killed' if killed else 'finished'} after {wait:.1f} s, {at} sweeps committed",
                flush=True,
            )
            if not killed:
                break
        run([counts.path, str(path), *how], None)
        same = last_files(path) == last_files(folder / "whole.zarr")
        results = {
            "scale": arguments.scale, "pairs": counts.nnz, "shape": list(counts.shape), "sweeps": arguments.sweeps,
            "censored_ratio": arguments.censored_ratio, "memory": arguments.memory, "kills": kills,
            "same_bits": same, "peak_mib": most - idle,
        }  # fmt: skip
        print(results)
        benchmarking.save("draw_kills", results, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
