"""Tags as prior means: against the dense reference, with a bound that never falls, resumed to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from helpers.dense import Levers, dense_start, discounted
from helpers.dense_tags import start_tags, tagged_bound, tagged_sweep
from helpers.stores import fitted_arrays, make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.model import PairedSymbols
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep import fit as fit_module
from pairsym_dask.sweep import plan as plan_module
from pairsym_dask.sweep import start, tag_prior
from pairsym_dask.sweep.tags import PASSES

OFF = {"prior_growth": 0.0, "background_users": 1.0, "background_items": 1.0, "temperature": 1.0, "discount": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "full messages": {"selection": "bayes", "tau_v": 0.5},
    "no biases": {"selection": "bayes", "biases": False},
    "constant messages": {"selection": "constant"},
    "levers": {"selection": "counts", **OFF, "prior_growth": 0.7, "background_users": 0.3, "background_items": 0.5,
               "temperature": 0.2, "discount": 0.3, "censored_ratio": 8.0, "tau_u": 1.0, "tau_v": 1.5},
    "lists": {"selection": "counts", "censored_ratio": 8.0},
}  # fmt: skip


def random_links(symbols: int, tags: int, seed: int) -> np.ndarray:
    """Weights of some tags of most symbols; the first symbols have none."""
    rng = np.random.default_rng(seed)
    links = (rng.random((symbols, tags)) < 0.2) * rng.uniform(0.5, 3.0, (symbols, tags))
    links[:5] = 0
    return links


def make_tags(links: np.ndarray, path: Path, strangers: int = 0) -> ps.Tags:
    """A tag store of dense weights, with some symbols that no counts store knows."""
    extra = np.zeros((strangers, links.shape[1]))
    extra[:, 0] = 1
    return ps.ingest_tags(scipy.sparse.csr_array(np.vstack([links, extra])), path)


def fit(
    dense: np.ndarray, links: dict[str, np.ndarray], folder: Path, sweeps: int, name: str = "model.zarr", **given: Any
) -> PairedSymbols:
    counts = folder / "counts.zarr"
    if not counts.exists():
        make_store(dense, counts)
    tags = {}
    for side, one in links.items():
        path = folder / f"{side}.zarr"
        tags[f"{side[:-1]}_tags"] = path if path.exists() else make_tags(one, path, 3)
    return ps.PairedSymbols(**given).fit(counts, folder / name, sweeps=sweeps, progress=False, **tags)


@pytest.fixture(params=[(150, 40), (35, 130)], ids=["many users", "many items"])
def dense(request: Any) -> np.ndarray:
    counts = random_counts(*request.param, 0.15, seed=4)
    counts[3], counts[:, 5] = 0, 0  # a user and an item without pairs
    return counts


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("sides", [("items",), ("users", "items")], ids=["item tags", "both"])
def test_tags_equal_the_dense_reference(name, sides, dense, tmp_path):
    links = {side: random_links(n, 12, 7) for side, n in zip(("users", "items"), dense.shape, strict=True)}
    links = {side: links[side] for side in sides}
    model = fit(dense, links, tmp_path, 4, factors=5, dtype="float64", **SETTINGS[name])
    given = model._fitted.settings
    counts = discounted(dense, given.discount) if given.discount else dense
    levers = Levers(given.prior_growth, given.background_users, given.background_items, given.temperature)
    means = {
        f"{side[:-1]}_mean": start.start_scale(5) * start.starting_normals(0, side, 0, n, 5)
        for side, n in zip(("users", "items"), dense.shape, strict=True)
    }
    common = {
        "censored_ratio": given.censored_ratio, "alpha": given.alpha, "biases": given.biases,
        "selection": given.selection, "levers": levers,
    }  # fmt: skip
    state = dense_start(counts, **means, **common)
    taus = {"tau_u": given.tau_u, "tau_v": given.tau_v, "tau_b": given.tau_b}
    tags = {side: start_tags(one, 5, given.tau_b, given.biases) for side, one in links.items()}
    bounds = [tagged_bound(state, tags, counts, **common, **taus)]
    for _ in range(4):
        state, tags = tagged_sweep(state, tags, counts, PASSES, **common, **taus)
        bounds.append(tagged_bound(state, tags, counts, **common, **taus))
    np.testing.assert_allclose(model.history["elbo"], bounds, rtol=1e-9)
    for path, array in fitted_arrays(model).items():
        group, array_name = path.split("/")
        if path == "users/next":
            continue
        own = tags[f"{group.removesuffix('_tags')}s"] if group.endswith("_tags") else state
        wanted = getattr(own, array_name if own is not state else f"{group[:-1]}_{array_name}")
        np.testing.assert_allclose(
            array, wanted, rtol=1e-7, atol=1e-8 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        )


@pytest.mark.parametrize("name", ["full messages", "no biases", "levers", "lists"])
@pytest.mark.parametrize("solver", ["cholesky", "gradients"])
def test_the_bound_never_falls_with_tags(name, solver, dense, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "choose_solver", lambda *_: solver)
    links = {side: random_links(n, 12, 7) for side, n in zip(("users", "items"), dense.shape, strict=True)}
    model = fit(dense, links, tmp_path, 25, factors=5, dtype="float64", **SETTINGS[name])
    bound = model.history["elbo"].to_numpy()
    assert (np.diff(bound) >= -1e-10 * np.abs(bound[1:])).all()
    assert model._fitted.record["solver"].startswith(solver)


def test_gradients_reach_what_solving_reaches(dense, tmp_path, monkeypatch):
    """Steps from turned axes or not, gathered or in cache, to the same maximum with tags as without."""
    links = {side: random_links(n, 12, 7) for side, n in zip(("users", "items"), dense.shape, strict=True)}
    bounds = {}
    for solver in ("cholesky", "gradients"):
        monkeypatch.setattr(plan_module, "choose_solver", lambda *_, solver=solver: solver)
        model = fit(dense, links, tmp_path, 80, f"{solver}.zarr", factors=5, dtype="float64", **SETTINGS["lists"])
        bounds[solver] = model.history["elbo"].iloc[-1]
    assert bounds["gradients"] == pytest.approx(bounds["cholesky"], rel=2e-4)


@pytest.mark.parametrize("name", ["full messages", "lists"])
def test_a_resumed_fit_with_tags_has_the_same_bits(name, dense, tmp_path):
    links = {"items": random_links(dense.shape[1], 12, 7)}
    whole = fit(dense, links, tmp_path, 4, factors=5, **SETTINGS[name])
    fit(dense, links, tmp_path, 2, "parts.zarr", factors=5, **SETTINGS[name])
    parts = fit(dense, links, tmp_path, 4, "parts.zarr", factors=5, **SETTINGS[name])
    for path, array in fitted_arrays(whole).items():
        assert (fitted_arrays(parts)[path] == array).all(), path
    assert verify(tmp_path / "parts.zarr").sound


@pytest.mark.cluster
def test_a_cluster_fits_tags_to_the_same_bits(dense, tmp_path, cluster):
    from distributed import Client

    links = {side: random_links(n, 12, 7) for side, n in zip(("users", "items"), dense.shape, strict=True)}
    here = fit(dense, links, tmp_path, 3, factors=5, **SETTINGS["lists"])
    with Client(cluster):
        there = fit(dense, links, tmp_path, 3, "cluster.zarr", factors=5, **SETTINGS["lists"])
    for path, array in fitted_arrays(here).items():
        assert (fitted_arrays(there)[path] == array).all(), path


def test_a_store_of_growing_pulls_goes_on_with_them(dense, tmp_path, monkeypatch):
    """The first stores with tags do not say `fades`: there tags pull at a symbol with its own prior precision."""
    links = {"items": random_links(dense.shape[1], 12, 7)}
    new = fit(dense, links, tmp_path, 4, "new.zarr", factors=5, **SETTINGS["lists"])
    with monkeypatch.context() as then:
        then.setattr(fit_module, "fading_of", lambda *_: False)
        whole = fit(dense, links, tmp_path, 4, "whole.zarr", factors=5, **SETTINGS["lists"])
        fit(dense, links, tmp_path, 2, "parts.zarr", factors=5, **SETTINGS["lists"])
    parts = fit(dense, links, tmp_path, 4, "parts.zarr", factors=5, **SETTINGS["lists"])
    assert "fades" not in parts._fitted.tags["items"]
    assert new._fitted.tags["items"]["fades"]
    for path, array in fitted_arrays(whole).items():
        assert (fitted_arrays(parts)[path] == array).all(), path
    assert (fitted_arrays(new)["items/mean"] != fitted_arrays(whole)["items/mean"]).any()
    assert verify(tmp_path / "parts.zarr").sound
    assert verify(tmp_path / "new.zarr").sound


def test_traits_worked_on_in_groups_have_the_same_bits(dense, tmp_path, monkeypatch):
    links = {"items": random_links(dense.shape[1], 12, 7)}
    whole = fit(dense, links, tmp_path, 2, factors=5, **SETTINGS["lists"])
    monkeypatch.setattr(tag_prior, "RESIDUALS", 8 * 2 * dense.shape[1])
    groups = fit(dense, links, tmp_path, 2, "groups.zarr", factors=5, **SETTINGS["lists"])
    for path, array in fitted_arrays(whole).items():
        assert (fitted_arrays(groups)[path] == array).all(), path


def test_other_tags_and_other_labels_are_refused_in_a_sentence(dense, tmp_path):
    links = {"items": random_links(dense.shape[1], 12, 7)}
    fit(dense, links, tmp_path, 1, factors=3)
    other = make_tags(random_links(dense.shape[1], 12, 8), tmp_path / "other.zarr")
    model = ps.PairedSymbols(factors=3)
    with pytest.raises(
        StoreError, match=r"holds a fit with item tags of items.zarr, and those of .*other.zarr are given"
    ):
        model.fit(tmp_path / "counts.zarr", tmp_path / "model.zarr", sweeps=2, item_tags=other, progress=False)
    with pytest.raises(StoreError, match=r"holds a fit with item tags of items.zarr, and none are given"):
        model.fit(tmp_path / "counts.zarr", tmp_path / "model.zarr", sweeps=2, progress=False)
    text = ps.ingest_tags([("a", "x"), ("b", "y")], tmp_path / "text.zarr")
    with pytest.raises(InputError, match=r"are whole numbers, but the symbols of .*text.zarr are strings"):
        model.fit(tmp_path / "counts.zarr", tmp_path / "new.zarr", item_tags=text, progress=False)
    far = ps.ingest_tags([(10**6, "x")], tmp_path / "far.zarr")
    with pytest.raises(InputError, match=r"no symbol of .*far.zarr is among the items"):
        model.fit(tmp_path / "counts.zarr", tmp_path / "new.zarr", item_tags=far, progress=False)
    with pytest.raises(InputError, match="holds tags, not pairs"):
        model.fit(text.path, tmp_path / "new.zarr", progress=False)
    with pytest.raises(StoreError, match="is a store of pairs, not of tags"):
        model.fit(tmp_path / "counts.zarr", tmp_path / "new.zarr", item_tags=tmp_path / "counts.zarr", progress=False)
