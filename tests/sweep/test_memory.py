"""A memory budget holds: peak resident memory of a real process against the budget and the projection."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

import pairsym_dask as ps
from pairsym_dask.run.memory import MIB
from pairsym_dask.settings import Settings
from pairsym_dask.sweep.plan import Plan

IDLE = "import pairsym_dask.cli, pairsym_dask.model, distributed, time; time.sleep(0.5)"


def peak(*command):
    """Peak resident bytes of a process and its children."""
    process, most = psutil.Popen([sys.executable, *map(str, command)], env=dict(os.environ)), 0
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            most = max(most, sum(member.memory_info().rss for member in family))
        except psutil.Error:
            pass
        time.sleep(0.005)
    assert process.returncode == 0
    return most


@pytest.mark.slow
def test_peak_memory_stays_within_budget_and_projection(tmp_path):
    counts = ps.simulate(tmp_path / "counts.zarr", users=300_000, items=3_000, pairs=1_500_000, random_state=0)
    plan = Plan.make(counts, Settings())
    assert plan.generation_bytes() > 50 * MIB  # more than the budget leaves for it
    idle = peak("-c", IDLE)
    budget = plan.peak_bytes(2)
    fit = ["-m", "pairsym_dask.cli", "fit", counts.path]
    peak(*fit, tmp_path / "warm.zarr", "--sweeps", 1)  # compiles what is not cached yet, which takes memory of its own
    limits = ["--sweeps", 2, "--threads", 2, "--memory", f"{budget // MIB}MiB"]
    used = peak(*fit, tmp_path / "model.zarr", *limits) - idle
    assert used <= budget


def test_projection_grows_with_factors_and_tasks():
    from pairsym_dask.store.cuts import make_cuts

    cuts = make_cuts(620_000, 12_000, 5_500_000)
    tiles = {"users": 300_000, "items": 900_000}
    small, large = (Plan(cuts, k, 4, tiles, 1, 5_500_000) for k in (20, 64))
    assert small.task_bytes() < large.task_bytes()
    assert small.peak_bytes(1) < small.peak_bytes(2)
