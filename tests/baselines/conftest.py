"""Pairs and fitted systems that the baselines' tests share."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from helpers.systems import blocks, frame_of

import pairsym_dask as ps


@pytest.fixture(scope="session")
def matrix() -> scipy.sparse.csr_matrix:
    return blocks(60, 40, 6, 0)


@pytest.fixture(scope="session")
def counts(matrix: scipy.sparse.csr_matrix, tmp_path_factory: pytest.TempPathFactory) -> ps.Counts:
    return ps.ingest(frame_of(matrix), tmp_path_factory.mktemp("pairs") / "pairs.zarr", count="count")


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[ps.Counts, scipy.sparse.csr_matrix, np.ndarray]:
    """A training store, its matrix, and one held-out item a user."""
    train = blocks(300, 120, 12, 1).tolil()
    rng = np.random.default_rng(2)
    held_out = np.zeros(300, np.int64)
    for i in range(300):
        held_out[i] = rng.choice(train.rows[i])
        train[i, held_out[i]] = 0
    train = train.tocsr()
    return ps.ingest(train, tmp_path_factory.mktemp("train") / "train.zarr"), train, held_out
