"""Small stores and fitted arrays that many tests share, and how far a fit is from the dense reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import pairsym_dask as ps
from helpers.dense import DenseState, Levers, dense_bound, dense_start, dense_sweep, discounted, mirrored
from pairsym_dask.model import PairedSymbols
from pairsym_dask.sweep import start

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
    """The dense reference after some sweeps from the model's own start, and its bound.

    A model that updates items first is the reference with users called items.
    """
    users, items = dense.shape
    given = model._fitted.settings
    if given.discount:
        dense = discounted(dense, given.discount)
    means = {
        side: start.start_scale(given.factors) * start.starting_normals(given.random_state, side, 0, n, given.factors)
        for side, n in (("users", users), ("items", items))
    }
    levers = Levers(given.prior_growth, given.background_users, given.background_items, given.temperature)
    common = {
        "censored_ratio": given.censored_ratio, "alpha": given.alpha, "biases": given.biases,
        "selection": given.selection, "levers": levers,
    }  # fmt: skip
    state = dense_start(dense, user_mean=means["users"], item_mean=means["items"], **common)
    settings = common | {"tau_u": given.tau_u, "tau_v": given.tau_v, "tau_b": given.tau_b}
    if str(model._fitted.record["solver"]).endswith("items first"):
        exchanged = {"tau_u": given.tau_v, "tau_v": given.tau_u}
        sides = replace(levers, background_users=given.background_items, background_items=given.background_users)
        state = mirrored(state)
        for _ in range(sweeps):
            state = dense_sweep(state, dense.T, **settings | exchanged | {"levers": sides})
        state = mirrored(state)
    else:
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


def dense_state(model: PairedSymbols) -> DenseState:
    """A fitted model's state as the dense reference has it."""
    arrays = {path.replace("s/", "_", 1): array.astype(float) for path, array in fitted_arrays(model).items()}
    arrays.pop("user_next")
    return DenseState(**arrays, xi_star=model._fitted.scalar("xi_star"))
