"""Shared data of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.stores import make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.model import PairedSymbols

# One thread pool of numba or BLAS must not slow the small arrays of the tests down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SLOW = {"cluster", "s3", "notebooks", "docs", "study", "slow", "long"}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is not of a slow kind is quick, so that nobody needs to say so."""
    for item in items:
        if not SLOW & {marker.name for marker in item.iter_markers()}:
            item.add_marker("quick")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real pairs, named by PAIRSYM_DATA."""
    place = os.environ.get("PAIRSYM_DATA")
    if not place or not Path(place).is_dir():
        pytest.skip("PAIRSYM_DATA names no folder of real pairs")
    return Path(place)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> ps.Counts:
    """A small store with several blocks on both sides."""
    return make_store(random_counts(700, 90, 0.2, seed=3), tmp_path_factory.mktemp("small") / "counts.zarr")


@pytest.fixture(scope="session")
def small_model(small: ps.Counts, tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    path = tmp_path_factory.mktemp("small-model") / "model.zarr"
    return ps.PairedSymbols(factors=4).fit(small, path, sweeps=5, progress=False)
