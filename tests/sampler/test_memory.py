"""A chain keeps within its memory budget, and the projection is no guess."""

from __future__ import annotations

import pytest
from helpers.memory import peak

import pairsym_dask as ps
from pairsym_dask.run.memory import MIB
from pairsym_dask.sampler.plan import DrawPlan
from pairsym_dask.settings import Settings

pytestmark = pytest.mark.draws


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "items", "pairs", "factors"), [(200_000, 3_000, 600_000, 40), (50_000, 30_000, 500_000, 20)]
)
def test_peak_memory_is_at_most_the_projection_and_not_far_below_it(tmp_path, users, items, pairs, factors):
    counts = ps.simulate(tmp_path / "counts.zarr", users=users, items=items, pairs=pairs, random_state=0)
    plan = DrawPlan.make(counts, Settings(factors=factors, censored_ratio=2.0, inference="gibbs"))
    projection = plan.peak_bytes(2, plan.count(plan.short))
    fit = ["fit", counts.path, "--factors", factors, "--censored-ratio", 2, "--inference", "gibbs"]
    peak(*fit, tmp_path / "warm.zarr", "--sweeps", 1)  # compiles what is not cached yet, which takes memory of its own
    limits = ["--sweeps", 2, "--threads", 2, "--memory", f"{projection // MIB + 1}MiB"]
    used = peak(*fit, tmp_path / "model.zarr", *limits) - peak()
    assert 0.5 * projection <= used <= projection
