"""A memory budget holds for workers of a cluster that give up the short side's table to gather."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import pairsym_dask as ps
from pairsym_dask.run.memory import MIB
from pairsym_dask.settings import Settings
from pairsym_dask.sweep.job import is_scattered
from pairsym_dask.sweep.plan import Plan
from pairsym_dask.sweep.room import make_room


def _most() -> int:
    """Peak resident bytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (most,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return 1024 * int(most)


def _import() -> None:
    import pairsym_dask.sweep.fit  # noqa: F401


@pytest.mark.cluster
@pytest.mark.slow
def test_workers_that_keep_rows_for_the_steps_stay_within_their_budget(tmp_path: Path) -> None:
    counts = ps.simulate(tmp_path / "counts.zarr", users=400_000, items=40_000, pairs=3_000_000, random_state=0)
    plan = Plan.make(counts, Settings(factors=64))
    budget = plan.peak_bytes(1, 2) + 160 * MIB
    room = make_room(plan, budget, 1, 2)
    assert is_scattered(plan, room)
    assert room.rows(1) > 0
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        ps.PairedSymbols(factors=64).fit(
            counts, tmp_path / "warm.zarr", sweeps=1, memory=budget, client=client, progress=False
        )  # compiles what is not cached yet
        client.restart()
        client.run(_import)
        idle = client.run(_most)
        ps.PairedSymbols(factors=64).fit(
            counts, tmp_path / "model.zarr", sweeps=2, memory=budget, client=client, progress=False
        )
        used = client.run(_most)
    assert used.keys() == idle.keys()
    for worker, most in used.items():
        assert most - idle[worker] <= budget, (worker, most - idle[worker], budget)
