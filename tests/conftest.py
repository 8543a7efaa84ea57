"""Shared data and helpers of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from dense import DenseState, dense_bound, dense_start, dense_sweep

import pairsym_dask as ps
from pairsym_dask import tasks
from pairsym_dask.model import PairedSymbols

# One thread pool of numba or BLAS must not slow the small arrays of the tests down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ARRAYS = ("mean", "precision", "bias", "bias_precision", "selection", "background")


def random_counts(users: int, items: int, density: float, seed: int = 0, most: int = 4) -> np.ndarray:
    """A dense matrix of counts with empty rows and columns left as they fall."""
    rng = np.random.default_rng(seed)
    return (rng.random((users, items)) < density) * rng.integers(1, most + 1, (users, items)).astype(float)


def make_store(dense: np.ndarray, path: Path) -> ps.Counts:
    """A counts store of a dense matrix, empty rows and columns kept."""
    import scipy.sparse

    return ps.ingest(scipy.sparse.csr_array(dense), path)


def fitted_arrays(model: PairedSymbols) -> dict[str, np.ndarray]:
    commit = model._fitted
    return {path: commit.sealed.read_array(spec) for path, spec in commit.arrays.items()}


def reference(dense: np.ndarray, model: PairedSymbols, sweeps: int) -> tuple[DenseState, float]:
    """The dense reference after some sweeps from the model's own start, and its bound."""
    users, items = dense.shape
    start = {
        side: tasks.START_SCALE * tasks.starting_normals(model.random_state, side, 0, n, model.factors)
        for side, n in (("users", users), ("items", items))
    }
    common = {"censored_ratio": model.censored_ratio, "alpha": model.alpha, "biases": model.biases}
    state = dense_start(dense, user_mean=start["users"], item_mean=start["items"], **common)
    settings = common | {"tau_u": model.tau_u, "tau_v": model.tau_v, "tau_b": model.tau_b, "selection": model.selection}
    for _ in range(sweeps):
        state = dense_sweep(state, dense, **settings)
    return state, dense_bound(state, dense, **settings)


def largest_difference(model: PairedSymbols, state: DenseState) -> float:
    """Largest difference over largest value, array by array; the worst."""
    worst = 0.0
    for path, array in fitted_arrays(model).items():
        if path == "users/next":
            continue
        side, name = path.split("/")
        wanted = getattr(state, f"{side[:-1]}_{name}")
        if not model.biases and name.startswith("bias"):
            assert (array == wanted).all()
            continue
        worst = max(worst, float(np.abs(array - wanted).max() / np.abs(wanted).max()))
    return worst


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
