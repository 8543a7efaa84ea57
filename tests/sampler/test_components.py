"""Selection by a mixture: every answer against the same quantity found draw by draw, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import dask
import numpy as np
import pandas as pd
import pytest
from helpers.faults import all_bits
from helpers.stores import make_store, random_counts
from scipy.special import expit

import pairsym_dask as ps
from pairsym_dask.errors import InputError
from pairsym_dask.model import PairedSymbols
from pairsym_dask.sampler import chain, plan
from pairsym_dask.settings import Settings
from pairsym_dask.store.records import commit_record
from pairsym_dask.store.verify import verify

pytestmark = [pytest.mark.draws, pytest.mark.filterwarnings("ignore:the chain has not settled")]
SETTINGS = {"factors": 2, "censored_ratio": 2.0, "inference": "gibbs", "components": 3, "random_state": 3}


@pytest.fixture(scope="module", params=["tall", "wide"])
def model(request, tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    """Users propose in the one, items in the other."""
    path = tmp_path_factory.mktemp("components")
    dense = random_counts(200, 24, 0.3, seed=4)
    counts = make_store(dense if request.param == "tall" else dense.T, path / "counts.zarr")
    return ps.PairedSymbols(**SETTINGS).fit(counts, path / "model.zarr", sweeps=24, burn=8, thin=4, progress=False)


@pytest.fixture(scope="module")
def dense(model: PairedSymbols) -> tuple[np.ndarray, np.ndarray]:
    """Energies and sum_n w_in psi_jn (draws, users, items) from the Dataset."""
    data = model.to_xarray().isel(chain=0).compute()
    traits = np.einsum("duk,djk->duj", data.user_traits.astype(float), data.item_traits.astype(float))
    energy = traits + data.user_bias.values[:, :, None] + data.item_bias.values[:, None]
    return energy, np.einsum("dun,djn->duj", data.user_selection.values, data.item_selection.values)


def test_a_dataset_has_components_whose_selection_sums_to_one(model):
    data = model.to_xarray()
    assert data.user_selection.dims == ("chain", "draw", "user", "component")
    assert np.allclose(data.user_selection.sum(["user", "component"]), 1)
    assert np.allclose(data.item_selection.sum("item"), 1)
    assert verify(model.path).sound


def test_components_become_different(model):
    psi = model.to_xarray().item_selection.isel(chain=0, draw=-1).values
    assert np.abs(psi[:, 0] - psi[:, 1]).sum() > 0.2


def test_the_traced_likelihood_is_that_of_observed_pairs(model, dense):
    """Of the state between the halves: near that of the committed one."""
    energy, offered = dense
    counts = model.counts.to_scipy().toarray()
    joint = expit(energy) * offered
    wanted = (counts * np.log(joint / joint.sum((1, 2), keepdims=True))).sum((1, 2)) / counts.sum()
    found = model.draws["log_likelihood"].to_numpy()
    assert np.abs(found - wanted).max() < 0.1
    assert abs(found.mean() - wanted.mean()) < 0.05


def test_conditional_and_lists_are_by_what_each_user_is_offered(model, dense):
    energy, offered = dense
    user = model.counts.user_ids[7]
    p = expit(energy[:, 7]) * offered[:, 7]
    wanted = (p / p.sum(1, keepdims=True)).mean(0)
    assert np.allclose(model.conditional(user), wanted, atol=1e-6)
    psi = (offered / offered.sum(2, keepdims=True)).mean(0)[7]
    for popularity in (0.0, 1.0):
        score = expit(energy[:, 7]).mean(0) * psi**popularity
        best = model.counts.item_ids[np.argsort(-score, kind="stable")[:5]]
        found = model.recommend(user, n=5, exclude_seen=False, popularity=popularity)
        assert found["item"].tolist() == best.tolist()
        assert np.allclose(found["probability"], wanted[model.counts.positions("items", found["item"])], atol=1e-6)


def test_users_for_an_item_are_normalised_over_all_users(model, dense):
    energy, offered = dense
    item = model.counts.item_ids[3]
    found = model.recommend_users(item, n=6, exclude_seen=False, popularity=1.0)
    p = expit(energy[:, :, 3]) * offered[:, :, 3]
    wanted = (p / p.sum(1, keepdims=True)).mean(0)
    assert np.allclose(found["probability"], wanted[model.counts.positions("users", found["user"])], rtol=1e-5)


def test_held_out_pairs_are_scored_by_the_mean_conditional(model, dense):
    energy, offered = dense
    p = expit(energy) * offered
    p = (p / p.sum(2, keepdims=True)).mean(0)
    users, matrix = np.array([2, 9]), model.counts.to_scipy().toarray()
    items = np.array([np.flatnonzero(matrix[user] == 0)[0] for user in users])
    unseen = pd.DataFrame({"user": model.counts.user_ids[users], "item": model.counts.item_ids[items]})
    assert model.score(unseen) == pytest.approx(np.log(p[users, items]).mean(), abs=1e-5)
    calibrated = ps.calibrate(model, unseen).reliability
    assert calibrated is not None
    assert calibrated.bins["predicted"].sum() == pytest.approx(1.0)


def test_new_users_are_folded_in_and_explained(model, tmp_path):
    items = model.counts.item_ids[[0, 1, 2]]
    folded = model.fold_in(pd.DataFrame({"user": "new", "item": items}))
    assert len(model.recommend(folded, n=3)) == 3
    assert model.conditional(folded).sum() == pytest.approx(1.0)
    known = model.counts.user_ids[4]
    explained = model.explain(known, items[0])
    assert explained.energy == pytest.approx(explained.frame["energy"].sum(), abs=1e-6)
    model.report(tmp_path / "report.html")


def test_blocks_bundles_and_resumes_change_no_bits(tmp_path, monkeypatch):
    counts = make_store(random_counts(500, 200, 0.1, seed=1), tmp_path / "counts.zarr")
    monkeypatch.setattr(plan, "STATISTICS", 2**13)

    def run(name: str, sweeps: int = 3) -> None:
        with dask.config.set(scheduler="synchronous"):
            chain.sample(counts, Settings(**SETTINGS), chain.ModelStore(tmp_path / name), sweeps=sweeps, burn=0, thin=1)

    run("whole.zarr")
    make_room = chain.make_room
    monkeypatch.setattr(chain, "make_room", lambda *a: replace(make_room(*a), bundle=1, cache=0, tasks=1))
    run("single.zarr", 1)
    run("single.zarr", 3)
    assert all_bits(tmp_path / "single.zarr") == all_bits(tmp_path / "whole.zarr")


def test_a_chain_starts_from_one_with_other_components(model, tmp_path):
    one = ps.PairedSymbols(**SETTINGS | {"components": 1})
    one.fit(model.counts, tmp_path / "one.zarr", sweeps=2, burn=1, thin=1, start=model, progress=False)
    three = ps.PairedSymbols(**SETTINGS)
    three.fit(model.counts, tmp_path / "three.zarr", sweeps=2, burn=1, thin=1, start=one, progress=False)
    assert three.to_xarray().sizes["component"] == 3
    same = ps.PairedSymbols(**SETTINGS)
    same.fit(model.counts, tmp_path / "same.zarr", sweeps=2, start=model, keep=1, progress=False)
    first = same._commits[0].sealed.read_array(same._commits[0].arrays["items/selection"])
    last = model._fitted.sealed.read_array(model._fitted.arrays["items/selection"])
    assert np.array_equal(first, last)


def test_components_that_cannot_be_are_refused_in_one_sentence():
    for settings, words in [
        ({"inference": "gibbs", "components": 0}, "components must be a whole number, at least 1"),
        ({"inference": "gibbs", "components": 1.5}, "components must be a whole number"),
        ({"components": 2}, "components=2 needs inference='gibbs'"),
    ]:
        with pytest.raises(InputError, match=words):
            Settings(**settings)


def test_a_record_of_more_components_than_it_has_numbers_for_is_refused(model):
    record = {**model._fitted.record, "settings": {**model._fitted.record["settings"], "components": 10**12}}
    with pytest.raises(ps.DamagedStoreError, match="a number for each of 1000000000000 components"):
        commit_record(record, "a record")
