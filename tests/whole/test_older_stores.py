"""Stores written by the version before open, verify and go on to the same bits.

`fixtures/v1` was made by version 0.1.0 before the package was cut into rooms: a counts store, and a model store of
three committed sweeps with the attempt at a fourth that was killed. `expected.json` holds what that version made of
them: recommendations at the third sweep, digests and the bound after five.

`fixtures/v2` is a counts store of version 2, of pairs in order of activity (made with `finer.FEW` at 256, so that it is
small), and what two sweeps made of it when that version was new.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import llvmlite.binding
import numpy as np
import pandas as pd
import pytest

import pairsym_dask as ps
from pairsym_dask.store.finer import listed
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
FINER = FIXTURES.parent / "v2"
FINER_EXPECTED = json.loads((FINER / "expected.json").read_text())
ABANDONED = "generation-00004-2c9135e2ada6"
# Fused multiply-adds and numpy's vectorised logarithms round differently from one type of CPU to another; the bits
# were written down on one with AVX-512.
SAME_BITS = llvmlite.binding.get_host_cpu_features().get("avx512f", False)


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES, tmp_path / "v1")
    for path in (tmp_path / "v1" / "model.zarr" / ABANDONED).rglob("*"):
        os.utime(path, (0, 0))  # a fresh copy of the repository is as young as an attempt that is still running
    return tmp_path / "v1"


def test_an_older_counts_store_opens_and_verifies(stores: Path) -> None:
    counts = ps.open_counts(stores / "counts.zarr")
    assert counts.digest == EXPECTED["counts"]
    assert verify(stores / "counts.zarr").sound
    assert counts.to_scipy().sum() == counts.total


def test_an_older_model_opens_at_its_last_commit_and_verifies(stores: Path) -> None:
    model = ps.load(stores / "model.zarr")
    assert model.history["sweep"].iloc[-1] == EXPECTED["sweep"]
    assert model.history["elbo"].iloc[-1] == float.fromhex(EXPECTED["elbo"])
    assert model.counts.digest == EXPECTED["counts"]
    report = verify(stores / "model.zarr")
    assert report.sound
    assert report.files > len(EXPECTED["after_five"]["files"])


def test_an_older_model_recommends_the_same(stores: Path) -> None:
    wanted = pd.DataFrame(EXPECTED["recommend"])
    answer = ps.load(stores / "model.zarr").recommend(list(wanted["user"].unique()), n=3)
    assert answer[["user", "item", "rank"]].to_dict("list") == wanted[["user", "item", "rank"]].to_dict("list")
    for column in ("probability", "sigma", "sd", "low", "high"):
        np.testing.assert_allclose(answer[column], wanted[column], rtol=1e-6 if SAME_BITS else 1e-5)


def test_an_older_half_finished_fit_goes_on_to_the_same_bits(stores: Path) -> None:
    assert (stores / "model.zarr" / ABANDONED).is_dir()
    model = ps.load(stores / "model.zarr").fit(stores / "counts.zarr", stores / "model.zarr", sweeps=5, progress=False)
    assert not (stores / "model.zarr" / ABANDONED).exists()
    (commit,) = [commit for commit in ModelStore(stores / "model.zarr").commits() if commit.sweep == 5]
    bound = float.fromhex(EXPECTED["after_five"]["elbo"])
    files = {key: check for key, (_, check) in commit.record["files"].items()}
    assert files.keys() == EXPECTED["after_five"]["files"].keys()
    if SAME_BITS:
        assert files == EXPECTED["after_five"]["files"]
        assert model.history["elbo"].iloc[-1] == bound
    else:
        assert model.history["elbo"].iloc[-1] == pytest.approx(bound, rel=1e-5)
    assert verify(stores / "model.zarr").sound


def test_a_counts_store_of_finer_cuts_opens_verifies_and_is_fitted_to_the_same_bits(tmp_path: Path) -> None:
    counts = ps.open_counts(FINER / "counts.zarr")
    assert counts.record["version"] == 2
    assert counts.digest == FINER_EXPECTED["counts"]
    assert listed(counts.layout) == FINER_EXPECTED["cuts"]
    assert verify(FINER / "counts.zarr").sound
    model = ps.PairedSymbols(factors=2).fit(counts, tmp_path / "model.zarr", sweeps=2, progress=False)
    wanted, commit = FINER_EXPECTED["after_two"], ModelStore(tmp_path / "model.zarr").commits()[-1]
    files = {key: check for key, (_, check) in commit.record["files"].items()}
    assert files.keys() == wanted["files"].keys()
    assert model.history["elbo"].iloc[-1] == pytest.approx(float.fromhex(wanted["elbo"]), rel=1e-5)
    if SAME_BITS:
        assert files == wanted["files"]
        assert model.history["elbo"].iloc[-1] == float.fromhex(wanted["elbo"])
