"""Symbols with tags and no pairs are answered for like others; tags are told and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.stores import fitted_arrays

import pairsym_dask as ps
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.model import PairedSymbols
from pairsym_dask.store.verify import verify

GENRES = 6
SETTINGS: dict[str, dict[str, Any]] = {
    "lists": {"factors": 6, "censored_ratio": 5.0},
    "model": {"factors": 6, "selection": "constant", "dtype": "float64"},
}


def tastes(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Pairs of users with items of their genre, and the genres of all items and users: also of some without pairs."""
    rng = np.random.default_rng(seed)
    users, items = 90, 60
    kind_u, kind_i = np.arange(users) % GENRES, np.arange(items) % GENRES
    odds = np.where(kind_u[:, None] == kind_i, 0.5, 0.02)
    user, item = np.nonzero(rng.random((users, items)) < odds)
    pairs = pd.DataFrame({"user": [f"u{k:02d}" for k in user], "item": [f"i{k:02d}" for k in item]})
    seen = pairs[~(pairs["user"] >= "u80") & ~(pairs["item"] >= "i50")]  # ten of each side have no pair
    of_items = pd.DataFrame({"item": [f"i{k:02d}" for k in range(items)], "tag": [f"g{k}" for k in kind_i]})
    of_users = pd.DataFrame({"user": [f"u{k:02d}" for k in range(users)], "tag": [f"g{k}" for k in kind_u]})
    return seen, of_items, of_users


@pytest.fixture(scope="module", params=SETTINGS)
def tagged(request: Any, tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    pairs, of_items, of_users = tastes()
    folder = tmp_path_factory.mktemp("tagged")
    ps.ingest(pairs, folder / "counts.zarr")
    ps.ingest_tags(of_items, folder / "items.zarr")
    ps.ingest_tags(of_users, folder / "users.zarr", symbol="user")
    ps.PairedSymbols(**SETTINGS[request.param]).fit(
        folder / "counts.zarr", folder / "model.zarr", sweeps=12, progress=False, item_tags=folder / "items.zarr",
        user_tags=folder / "users.zarr",
    )  # fmt: skip
    return ps.load(folder / "model.zarr")


def genre(label: str) -> int:
    return int(label[1:]) % GENRES


def test_new_items_are_found_by_their_tags(tagged):
    new = tagged.new_symbols()
    assert new.tolist() == [f"i{k}" for k in range(50, 60)]
    top = tagged.recommend(["u00", "u01", "u02"], n=2, items=new)
    hits = [genre(user) == genre(item) for user, item in zip(top["user"], top["item"], strict=True) if genre(item) < 4]
    assert all(genre(user) == genre(item) for user, item in top.loc[top["rank"] == 1, ["user", "item"]].to_numpy())
    assert len(hits)
    assert (top["low"] < top["sigma"]).all()
    assert (top["sigma"] < top["high"]).all()


def test_new_items_and_old_ones_stand_in_one_list(tagged):
    chosen = ["i00", "i54", "i01", "i55"]  # genres 0, 0, 1, 1
    top = tagged.recommend("u00", n=4, items=chosen, exclude_seen=False)
    assert set(top["item"]) == set(chosen)
    assert top["probability"].between(0, 1).all()
    again = tagged.probability("u00", chosen).set_index("item")["sigma"]
    np.testing.assert_allclose(top.set_index("item")["sigma"][chosen], again[chosen], rtol=1e-6)


def test_new_items_are_less_certain_and_are_explored(tagged):
    found = tagged.probability("u00", ["i00", "i54"]).set_index("item")
    assert found.loc["i54", "sd"] > found.loc["i00", "sd"]
    drawn = [
        tagged.recommend("u00", n=10, items=tagged.new_symbols(), strategy="thompson", random_state=k) for k in range(5)
    ]
    assert len({tuple(one["item"]) for one in drawn}) > 1


def test_the_prior_of_a_new_item_is_that_of_its_tags(tagged):
    """q(v_j) = N(sum_f x_jf E[h_f], 1/tau + sum_f x_jf^2 Var[h_f]); an item has one tag, and the level."""
    arrays = fitted_arrays(tagged)
    one = tagged._tags["items"].symbols(tagged._tags["items"].find(np.array(["i54"], object)))
    np.testing.assert_allclose(one.mean[0], arrays["item_tags/mean"][[0, -1]].sum(0), rtol=1e-5, atol=1e-6)
    tau = tagged._tags["items"].tau
    spread = (1 / arrays["item_tags/precision"][[0, -1]]).sum()
    np.testing.assert_allclose(one.variance[0], 1 / tau + spread, rtol=1e-6)
    if tagged.prior_growth == 0:
        assert tau == tagged.tau_v


def test_new_items_have_one_length_in_lists_alone(tagged):
    tags = tagged._tags["items"]
    rows = tags.find(tagged.new_symbols())
    plain, ranked = (np.linalg.norm(one.mean, axis=1) for one in (tags.symbols(rows), tags.newcomers(rows)))
    if tagged.temperature == 1:
        assert (plain == ranked).all()
    else:
        np.testing.assert_allclose(ranked, tags.length, rtol=1e-5)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    """Items of six genres with fifteen random tags more, each of twenty items."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("noisy")
    kind_u, kind_i = np.arange(200) % GENRES, np.arange(120) % GENRES
    user, item = np.nonzero(rng.random((200, 120)) < np.where(kind_u[:, None] == kind_i, 0.3, 0.02))
    counts = ps.ingest(pd.DataFrame({"user": user, "item": item})[item < 100], folder / "counts.zarr")
    links = [pd.DataFrame({"item": np.arange(120), "tag": [f"g{k}" for k in kind_i]})]
    links += [pd.DataFrame({"item": rng.choice(120, 20, replace=False), "tag": f"a{k}"}) for k in range(15)]
    tags = ps.ingest_tags(pd.concat(links), folder / "tags.zarr")
    model = ps.PairedSymbols(factors=24, censored_ratio=5.0, dtype="float64")
    return model.fit(counts, folder / "model.zarr", sweeps=10, progress=False, item_tags=tags)


def test_useless_tags_are_at_the_bottom_and_lose_what_symbols_said_of_them(noisy):
    found = noisy.tags()
    assert found["tag"].iloc[:GENRES].str.startswith("g").all()
    assert (found["relevance"].iloc[:GENRES] > 0.1).all()
    assert found["relevance"].iloc[GENRES:].max() < 0.1 * found["relevance"].iloc[:GENRES].min()
    tags = noisy._tags["items"]
    kept = np.linalg.norm(tags.telling, axis=1) / np.linalg.norm(tags.effects[:, :-1], axis=1)
    useless = np.array([tag.startswith("a") for tag in tags.prior.tags.tag_ids])
    lost = 1 - kept[:-1]
    assert lost[useless] == pytest.approx(tags._chance[0][:-1][useless], rel=1e-6)  # all that symbols said is gone
    assert kept[-1] == 1


def test_relevance_is_what_its_formulas_say(noisy):
    tags = noisy._tags["items"]
    links = tags.prior.tags.to_scipy().toarray()[:100]
    x = np.hstack([links / np.sqrt((links**2).sum(1, keepdims=True)), np.ones((100, 1))])
    arrays, tau = fitted_arrays(noisy), tags.tau
    h, precision = arrays["item_tags/mean"], arrays["item_tags/precision"]
    left = arrays["items/mean"] - x @ h
    without = left * (1 + (tau * x**2 / (precision - tau * x**2)).sum(1, keepdims=True))
    chance = (without**2).mean() * (tau * x / precision) ** 2
    chance = chance.sum(0) / (h**2).mean(1)
    told = tau * (x**2).sum(0) / precision
    got = noisy.tags().set_index("tag")["relevance"][tags.prior.tags.tag_ids]
    np.testing.assert_allclose(got, (told * np.maximum(1 - 2 * chance, 0))[:-1], rtol=1e-6, atol=1e-12)
    wanted = h[:-1] * (1 - told * np.minimum(10 * chance, 1))[:-1, None]
    np.testing.assert_allclose(tags.telling[:-1], wanted, rtol=1e-6)


def test_new_users_get_lists_by_their_tags(tagged):
    top = tagged.recommend(["u84", "u00", "u85"], n=3)
    assert top["user"].tolist() == ["u84"] * 3 + ["u00"] * 3 + ["u85"] * 3
    first = top[top["rank"] == 1].set_index("user")["item"]
    assert genre(first["u84"]) == 0
    assert genre(first["u85"]) == 1
    new = tagged.recommend("u84", n=1, items=tagged.new_symbols())
    assert genre(new["item"].iloc[0]) == 0


def test_recommend_all_has_new_users_and_new_items(tagged, tmp_path):
    new = tagged.new_symbols()
    rows = tagged.recommend_all(tmp_path / "all.parquet", n=2, items=[*new, "i00"])
    found = pd.read_parquet(tmp_path / "all.parquet")
    assert rows == len(found)
    assert found["user"].nunique() == 90
    one = found[found["user"] == "u84"].reset_index(drop=True)
    wanted = tagged.recommend("u84", n=2, items=[*new, "i00"])
    assert one["item"].tolist() == wanted["item"].tolist()


def test_likeness_and_audiences_of_new_items(tagged):
    like = tagged.similar_items("i54", n=5)
    assert all(genre(item) == 0 for item in like["item"])
    assert "i54" not in set(like["item"])
    assert all(genre(user) == 0 for user in tagged.similar_users("u84", n=5)["user"])
    whom = tagged.recommend_users("i54", n=4)
    assert (whom["user"].map(genre) == 0).all()
    assert whom["probability"].between(0, 1).all()
    everybody = tagged.recommend_users("i54", n=90)
    assert set(everybody["user"]) >= {"u84", "u85"}


def test_fold_in_takes_tags_of_whoever_is_new(tagged):
    one = tagged.fold_in(tags=["g3"])
    top = tagged.recommend(one, n=1)
    assert genre(top["item"].iloc[0]) == 3
    tags = tagged._tags["users"]
    known = tags.symbols(tags.find(np.array(["u81"], object)))
    np.testing.assert_allclose(one.users.mean, known.mean, rtol=1e-5)
    both = tagged.fold_in(
        pd.DataFrame({"user": ["x", "y"], "item": ["i00", "i01"]}), tags={"user": ["x", "z"], "tag": ["g5", "g2"]}
    )
    assert both.user_ids.tolist() == ["x", "y", "z"]
    assert genre(tagged.recommend(both.take("z"), n=1)["item"].iloc[0]) == 2
    plain = tagged.fold_in(pd.DataFrame({"user": ["x", "y"], "item": ["i00", "i01"]}))
    np.testing.assert_allclose(plain.users.mean[1], both.users.mean[1], rtol=1e-4, atol=1e-5)
    assert not np.allclose(plain.users.mean[0], both.users.mean[0], rtol=1e-2)


def test_explanations_show_what_tags_pull(tagged):
    for user, item in (("u00", "i06"), ("u00", "i54"), ("u84", "i00"), ("u84", "i54")):
        why = tagged.explain(user, item)
        assert why.frame["energy"].sum() == pytest.approx(why.energy, abs=1e-4)
        named = why.tags.dropna(subset="tag")
        assert named[["side", "tag"]].to_numpy().tolist() == [["item", "g0"], ["user", "g0"]]
        other = tagged.explain(user, "i01").tags.dropna(subset="tag")
        assert named["energy"].iloc[0] > other["energy"].iloc[0]
        assert "tags pull: g0" in repr(why)


def test_tags_are_told(tagged, tmp_path):
    found = tagged.tags()
    assert found.columns.tolist() == ["tag", "relevance", "effect", "sd", "symbols"]
    assert sorted(found["tag"]) == [f"g{k}" for k in range(GENRES)]
    assert found["symbols"].tolist() == [10] * GENRES
    assert found["relevance"].is_monotonic_decreasing
    assert len(tagged.tags("users")) == GENRES
    tagged.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Tags of items</h2>" in page
    assert "<h2>Tags of users</h2>" in page


def test_what_nobody_knows_is_refused_in_a_sentence(tagged, small_model, tmp_path):
    with pytest.raises(
        InputError, match=r"unknown item label: i99; neither .*counts.zarr nor the tags of .*items.zarr"
    ):
        tagged.recommend("u00", items=["i00", "i99"])
    with pytest.raises(InputError, match=r"unknown user label: nobody; neither"):
        tagged.recommend("nobody")
    with pytest.raises(InputError, match="fitted without item tags"):
        small_model.tags()
    with pytest.raises(InputError, match="fitted without user tags"):
        small_model.fold_in([1], tags=["x"])
    assert small_model.new_symbols().size == 0
    other = ps.ingest_tags([("i00", "x")], tmp_path / "other.zarr")
    wrong = ps.load(tagged.path, item_tags=other)
    with pytest.raises(StoreError, match="is not the store of item tags that"):
        wrong.tags()


def test_an_update_goes_on_with_the_tags(tagged, tmp_path):
    grown = tagged.update(
        [("u84", "i00"), ("u00", "i54")], tmp_path / "grown.zarr", tmp_path / "model.zarr", sweeps=2, keep=1,
        progress=False,
    )  # fmt: skip
    assert "i54" not in set(grown.new_symbols())
    assert set(grown._fitted.tags) == {"users", "items"}
    first = ps.load(tmp_path / "model.zarr", sweep=0)
    assert (fitted_arrays(first)["item_tags/mean"] == fitted_arrays(tagged)["item_tags/mean"]).all()


def test_a_pack_answers_for_new_symbols_wherever_it_is(tagged, tmp_path):
    tagged.pack(tmp_path / "packed")
    (tmp_path / "packed").rename(tmp_path / "elsewhere")
    served, new = ps.load(tmp_path / "elsewhere"), tagged.new_symbols()
    pd.testing.assert_frame_equal(served.recommend("u84", items=new), tagged.recommend("u84", items=new))
    assert verify(tmp_path / "elsewhere").sound


def test_a_moved_tag_store_can_be_named(tagged, tmp_path):
    folder = Path(tagged.path).parent
    model = ps.load(tagged.path, item_tags=folder / "items.zarr", user_tags=folder / "users.zarr")
    assert model.new_symbols().size == 10
