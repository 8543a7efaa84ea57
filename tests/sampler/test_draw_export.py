"""Chains of several seeds side by side, and what arviz makes of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.stores import make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.errors import InputError
from pairsym_dask.model import PairedSymbols
from pairsym_dask.sampler.diagnose import effective_draws, split_r_hat

pytestmark = [pytest.mark.draws, pytest.mark.filterwarnings("ignore:the chain has not settled")]


def fitted(folder: Path, counts: ps.Counts, seed: int, sweeps: int = 60, **settings) -> PairedSymbols:
    chain = ps.PairedSymbols(**{"factors": 2, "inference": "gibbs", "random_state": seed} | settings)
    name = f"model-{seed}-{sweeps}-{len(settings)}.zarr"
    return chain.fit(counts, folder / name, sweeps=sweeps, burn=20, thin=1, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chains")


@pytest.fixture(scope="module")
def chains(folder: Path) -> list[PairedSymbols]:
    counts = make_store(random_counts(60, 12, 0.4, seed=4), folder / "counts.zarr")
    return [fitted(folder, counts, seed) for seed in (3, 5)]


def test_chains_of_several_seeds_are_joined_along_chain(chains):
    one, two = chains
    data = one.to_xarray(two)
    assert data.chain.values.tolist() == [3, 5]
    assert data.user_traits.dims == ("chain", "draw", "user", "factor")
    assert data.sel(chain=5, drop=True).equals(two.to_xarray().isel(chain=0, drop=True))


def test_arviz_finds_the_same_diagnostics(chains):
    az = pytest.importorskip("arviz")
    data = chains[0].to_arviz(chains[1])
    assert {"posterior", "sample_stats"} <= set(data.groups() if hasattr(data, "groups") else data.children)
    trace = np.asarray(data["sample_stats"]["log_likelihood"])
    assert trace.shape == (2, 40)
    assert float(az.rhat(trace, method="split")) == pytest.approx(split_r_hat(trace), rel=1e-6)
    assert float(az.ess(trace, method="mean")) == pytest.approx(effective_draws(trace), rel=0.25)


def test_chains_that_do_not_belong_together_are_refused(chains, folder):
    one, counts = chains[0], chains[0].counts
    other = make_store(random_counts(60, 12, 0.4, seed=5), folder / "other.zarr")
    for chain, words in [
        (one, "it is the same chain"),
        (fitted(folder, counts, 7, 30), "has 10 draws up to sweep 30"),
        (fitted(folder, counts, 8, 22, alpha=2.0), "has alpha=2.0"),
        (fitted(folder, other, 9, 22), "is of other pairs"),
    ]:
        with pytest.raises(InputError, match=words):
            one.to_xarray(chain)


def test_without_arviz_a_sentence_says_so(chains, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InputError, match="to_arviz needs arviz, which is not installed"):
        chains[0].to_arviz()
