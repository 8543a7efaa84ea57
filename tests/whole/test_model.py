"""Answers of a fitted model, against the dense reference's formulas."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
import zarr
from helpers.dense import dense_conditional, dense_energy, dense_sigma
from helpers.stores import dense_state, fitted_arrays, make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.settings import Settings


def test_conditional_is_the_papers_and_sums_to_one(small_model):
    state = dense_state(small_model)
    for user in (0, 17, 699):
        p = small_model.conditional(user)
        assert p.sum() == pytest.approx(1, abs=1e-12)
        assert np.allclose(p.to_numpy(), dense_conditional(state, user), rtol=2e-5)
        assert p.index.tolist() == small_model.counts.item_ids.tolist()


def test_probability_has_sigma_and_sd_of_pairs(small_model):
    state = dense_state(small_model)
    _, variance = dense_energy(state)
    table = small_model.probability([3, 5, 8], [1, 2, 80])
    assert table.columns.tolist() == ["user", "item", "sigma", "sd", "low", "high"]
    assert np.allclose(table["sigma"], dense_sigma(state)[[3, 5, 8], [1, 2, 80]], rtol=1e-5)
    assert np.allclose(table["sd"], np.sqrt(variance[[3, 5, 8], [1, 2, 80]]), rtol=1e-5)
    assert len(small_model.probability(3, [1, 2, 80])) == 3
    with pytest.raises(ps.InputError, match="2 users and 3 items do not make pairs"):
        small_model.probability([1, 2], [1, 2, 3])


@pytest.mark.parametrize("popularity", [0, 0.25, 0.5, 1])
def test_recommendations_are_the_best_unseen_items(small_model, popularity):
    users = [0, 5, 300]
    scores = small_model.scores(users, popularity=popularity).astype(float)
    seen = small_model.counts.to_scipy()[users].toarray() > 0
    scores[seen] = -1
    table = small_model.recommend(users, n=7, popularity=popularity)
    assert table.columns.tolist() == ["user", "item", "rank", "probability", "sigma", "sd", "low", "high"]
    for k, user in enumerate(users):
        mine = table[table["user"] == user]
        assert mine["rank"].tolist() == list(range(1, 8))
        assert mine["item"].tolist() == np.argsort(-scores[k], kind="stable")[:7].tolist()
        assert np.allclose(mine["probability"], small_model.conditional(user)[mine["item"]], rtol=1e-4)
        assert np.allclose(mine["sigma"], small_model.probability(user, mine["item"].tolist())["sigma"], rtol=1e-5)


def test_recommend_gives_exactly_n_or_all_that_are_left(small_model):
    seen = int((small_model.counts.to_scipy()[[4]].toarray() > 0).sum())
    assert len(small_model.recommend(4, n=1000)) == 90 - seen
    assert len(small_model.recommend(4, n=1000, exclude_seen=False)) == 90
    table = small_model.recommend([4, 9], n=3, items=[1, 2, 3, 4, 5, 6, 7, 8], exclude_seen=False)
    assert set(table["item"]) <= set(range(1, 9))
    assert len(table) == 6


def test_equal_scores_come_in_the_items_order(tmp_path):
    dense = np.ones((4, 12))
    dense[:, 6:] = 0
    counts = make_store(dense, tmp_path / "c.zarr")
    model = ps.PairedSymbols(factors=2).fit(counts, tmp_path / "m.zarr", sweeps=0, progress=False)
    scores = model.scores([0])[0]
    table = model.recommend([0], n=6)
    wanted = [j for j in np.argsort(-scores, kind="stable") if j >= 6]
    assert table["item"].tolist() == wanted


def test_all_users_to_parquet_equal_one_by_one(small_model, tmp_path):
    rows = small_model.recommend_all(tmp_path / "top.parquet", n=5)
    table = pd.read_parquet(tmp_path / "top.parquet")
    assert rows == len(table) == 5 * 700
    single = small_model.recommend(list(range(700)), n=5)
    for column in ("user", "item", "rank"):
        assert (table[column].to_numpy() == single[column].to_numpy()).all()
    assert np.allclose(table["sigma"], single["sigma"])
    with pytest.raises(ps.StoreError, match="exists already"):
        small_model.recommend_all(tmp_path / "top.parquet")


def test_own_labels_in_and_out(tmp_path):
    frame = pd.DataFrame({"who": ["ann", "bob", "bob", "eve"], "what": ["x y", "ä/ö", "x y", "zz"]})
    counts = ps.ingest(frame, tmp_path / "c.zarr", user="who", item="what")
    model = ps.PairedSymbols(factors=2).fit(counts, tmp_path / "m.zarr", sweeps=3, progress=False)
    table = model.recommend(["eve", "ann"], n=5)
    assert table["user"].tolist() == ["eve", "eve", "ann", "ann"]
    assert set(table[table["user"] == "eve"]["item"]) == {"x y", "ä/ö"}
    assert model.conditional("ann").index.tolist() == ["x y", "zz", "ä/ö"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.recommend([1, 7000, 8000]), r"unknown user labels: 7000, 8000; the store knows 700 users"),
        (lambda m: m.recommend("bob"), "unknown user label: bob"),
        (lambda m: m.recommend(1, items=[99999]), "unknown item label: 99999"),
        (lambda m: m.conditional(-1), "unknown user label: -1"),
        (lambda m: m.recommend(1, n=0), "n must be a whole number, at least 1"),
        (lambda m: m.recommend(1, popularity=1.5), "popularity must be a number from 0"),
    ],
)
def test_bad_questions_get_one_clear_sentence(small_model, call, words):
    with pytest.raises(ps.InputError, match=words):
        call(small_model)


def test_not_fitted_says_so():
    with pytest.raises(ps.InputError, match="not fitted yet"):
        ps.PairedSymbols().recommend(1)


def test_xarray_holds_every_array_lazily_with_labels(small_model):
    data = small_model.to_xarray()
    arrays = fitted_arrays(small_model)
    for side in ("user", "item"):
        for name in ("mean", "precision", "bias", "bias_precision", "selection", "background"):
            variable = data[f"{side}_{name}"]
            assert variable.dims[0] == side
            assert hasattr(variable.data, "dask")
            assert (variable.to_numpy() == arrays[f"{side}s/{name}"]).all()
    assert data.attrs["sweep"] == 5
    assert data["user_mean"].sel(user=17).shape == (4,)
    assert data.attrs["elbo"] == small_model.history["elbo"].iloc[-1]


def test_plain_zarr_reads_both_stores(small, small_model):
    commit = small_model._fitted
    group = zarr.open_group(f"{small_model.path}/{commit.folder}", mode="r")
    for path, array in fitted_arrays(small_model).items():
        assert (group[path][:] == array).all()
    assert group["users/mean"].metadata.dimension_names == ("user", "factor")
    counts = zarr.open_group(small.path, mode="r")
    assert (counts["users/label"][:] == small.user_ids).all()
    assert (counts["items/marginal"][:] == small.to_scipy().sum(0)).all()


def test_a_loaded_model_answers_the_same(small_model):
    loaded = ps.load(small_model.path)
    assert loaded.get_params() == Settings(**small_model.get_params()).to_dict()
    assert loaded.recommend([1, 2]).equals(small_model.recommend([1, 2]))
    assert loaded.history.equals(small_model.history)
    assert ps.load(small_model.path, sweep=4).history["sweep"].iloc[-1] == 4
    with pytest.raises(ps.StoreError, match="sweeps 0 to 5, not 9"):
        ps.load(small_model.path, sweep=9)
    with pytest.raises(ps.StoreError, match="removed"):
        ps.load(small_model.path, sweep=1)


def test_stores_can_move_together_and_apart(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    counts = make_store(random_counts(30, 20, 0.3), here / "c.zarr")
    ps.PairedSymbols(factors=2).fit(counts, here / "m.zarr", sweeps=1, progress=False)
    shutil.move(here, there)
    assert len(ps.load(there / "m.zarr").recommend(1, n=2)) == 2
    shutil.move(there / "c.zarr", tmp_path / "elsewhere.zarr")
    with pytest.raises(ps.StoreError, match=r"counts store .* cannot be opened .* load\(\.\.\., counts="):
        ps.load(there / "m.zarr").recommend(1, n=2)
    assert len(ps.load(there / "m.zarr", counts=tmp_path / "elsewhere.zarr").recommend(1, n=2)) == 2
    other = make_store(random_counts(30, 20, 0.3, seed=1), tmp_path / "other.zarr")
    with pytest.raises(ps.StoreError, match="not the counts store"):
        ps.load(there / "m.zarr", counts=other)


def test_loading_what_is_no_model_says_so(tmp_path, small):
    with pytest.raises(ps.StoreError, match="there is no model store at"):
        ps.load(tmp_path / "nothing.zarr")
    with pytest.raises(ps.StoreError, match="not a model store"):
        ps.load(small.path)


def test_params_habits():
    model = ps.PairedSymbols(factors=7)
    assert model.get_params()["factors"] == 7
    assert model.set_params(factors=8, tau_u=1.0).factors == 8
    with pytest.raises(ps.InputError, match="no setting 'fators'"):
        model.set_params(fators=3)
    assert "factors=8" in repr(model)
