"""Kills of a fit and of a chain with tags: no committed sweep is lost, no bit differs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
import scipy.sparse
from helpers.faults import FaultyDisk, all_bits, in_child, operations, quick_folder, run_fit, tiny_counts, using

import pairsym_dask as ps
from pairsym_dask.sampler.chain import sample
from pairsym_dask.settings import Settings
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify

pytestmark = pytest.mark.slow

STEP = 31  # every so many operations
CHAIN = Settings(factors=2, inference="gibbs")


@pytest.fixture(scope="module")
def folder(layout: str) -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.mark.parametrize("fault", ["before", "torn"])
@pytest.mark.parametrize("kind", ["fit", "chain"])
def test_killed_with_tags_both_go_on_to_the_same_bits(folder: Path, kind: str, fault: str) -> None:
    name = f"{kind}-{fault}"
    counts = tiny_counts(folder / f"{name}-counts.zarr")
    links = scipy.sparse.csr_array(np.random.default_rng(0).random((11, 5)) < 0.5).astype(float)
    tags = {"items": ps.ingest_tags(links, folder / f"{name}-tags.zarr")}

    def fit(path: Path) -> None:
        if kind == "fit":
            run_fit(counts, path, tags=tags)
            return
        with dask.config.set(scheduler="synchronous"):
            sample(counts, CHAIN, ModelStore(path), sweeps=3, burn=0, thin=1, tags=tags)

    fit(folder / f"{name}.zarr")
    reference = all_bits(folder / f"{name}.zarr")
    many = len(operations(lambda: fit(folder / f"{name}-counted.zarr")))
    struck = 0
    for at in range(2, many, min(STEP, many // 5)):
        path = folder / f"{name}-{at}.zarr"

        def work(path: Path = path, at: int = at) -> None:
            with using(FaultyDisk(fault, at)):
                fit(path)

        status = in_child(work)
        assert status in (0, -9)
        struck += status == -9
        if ModelStore(path).is_model():
            found = all_bits(path)
            assert found == reference[: len(found)]
        fit(path)
        assert all_bits(path) == reference
        assert verify(path).sound, str(verify(path))
        shutil.rmtree(path)
    assert struck > 2
