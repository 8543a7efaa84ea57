"""A memory budget holds, and its projection is no guess: peak resident memory of a real process against both."""

from __future__ import annotations

import pytest
from helpers.memory import peak

import pairsym_dask as ps
from pairsym_dask.run.memory import MIB
from pairsym_dask.settings import Settings
from pairsym_dask.store.cuts import make_cuts
from pairsym_dask.sweep.plan import Plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "items", "pairs", "factors"), [(300_000, 3_000, 1_500_000, 64), (60_000, 50_000, 2_000_000, 20)]
)
def test_peak_memory_is_at_most_the_projection_and_not_far_below_it(tmp_path, users, items, pairs, factors):
    counts = ps.simulate(tmp_path / "counts.zarr", users=users, items=items, pairs=pairs, random_state=0)
    plan = Plan.make(counts, Settings(factors=factors))
    projection = plan.peak_bytes(2)
    fit = ["fit", counts.path, "--factors", factors]
    peak(*fit, tmp_path / "warm.zarr", "--sweeps", 1)  # compiles what is not cached yet, which takes memory of its own
    # A budget of just the projection leaves no room for what may be kept between sweeps.
    limits = ["--sweeps", 2, "--threads", 2, "--memory", f"{projection // MIB + 1}MiB"]
    used = peak(*fit, tmp_path / "model.zarr", *limits) - peak()
    # Six shapes of 20 to 64 factors, float32 and float64, one to four threads took 0.81 to 0.98 of their projections.
    assert 0.65 * projection <= used <= projection


def test_projection_grows_with_factors_and_tasks():
    cuts = make_cuts(620_000, 12_000, 5_500_000)
    tiles = {"users": 300_000, "items": 900_000}
    small, large = (Plan(cuts, k, 4, tiles, 1, 5_500_000) for k in (20, 64))
    assert small.task_bytes() < large.task_bytes()
    assert small.peak_bytes(1) < small.peak_bytes(2)
