"""Shared data of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers.stores import make_store, random_counts
from numba import config

import pairsym_dask as ps
from pairsym_dask.model import PairedSymbols

# One thread pool of numba or BLAS must not slow the small arrays of the tests down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SLOW = {"draws", "cluster", "s3", "clouds", "notebooks", "docs", "study", "slow", "long"}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is not of a slow kind is quick, so that nobody needs to say so."""
    for item in items:
        if not SLOW & {marker.name for marker in item.iter_markers()}:
            item.add_marker("quick")


def pytest_sessionstart() -> None:
    """Where two processes share the tests, they share the first compilation, too: nothing is compiled twice at once."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker in ("gw0", "gw1") and not config.DISABLE_JIT:
        with TemporaryDirectory() as folder:
            counts = make_store(random_counts(40, 20, 0.2, seed=0), Path(folder) / "counts.zarr")
            model = ps.PairedSymbols(factors=4, dtype="float32" if worker == "gw0" else "float64")
            model.fit(counts, Path(folder) / "model.zarr", sweeps=1, progress=False)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real pairs, named by PAIRSYM_DATA."""
    place = os.environ.get("PAIRSYM_DATA")
    if not place or not Path(place).is_dir():
        pytest.skip("PAIRSYM_DATA names no folder of real pairs")
    return Path(place)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two workers in processes of their own, for all tests that only need some."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> ps.Counts:
    """A small store with several blocks on both sides."""
    return make_store(random_counts(700, 90, 0.2, seed=3), tmp_path_factory.mktemp("small") / "counts.zarr")


@pytest.fixture(scope="session")
def small_model(small: ps.Counts, tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    path = tmp_path_factory.mktemp("small-model") / "model.zarr"
    return ps.PairedSymbols(factors=4, selection="constant").fit(small, path, sweeps=5, progress=False)
