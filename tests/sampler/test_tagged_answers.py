"""Draws answer for symbols that have tags and no pairs: drawn from their prior in every draw, the same at any time."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pairsym_dask as ps
from pairsym_dask.answers.draw_tags import draw_newcomers
from pairsym_dask.errors import InputError
from pairsym_dask.model import PairedSymbols
from pairsym_dask.sampler.hyper import Prior
from pairsym_dask.store.verify import verify

pytestmark = pytest.mark.draws

GENRES = 5


def genre(label: str) -> int:
    return int(label[1:]) % GENRES


@pytest.fixture(scope="module", params=[1, 2], ids=["one component", "two components"])
def tagged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    """Users of 5 kinds with items of theirs; the last ten of each side have tags alone."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("tagged")
    odds = np.where(np.arange(90)[:, None] % GENRES == np.arange(50) % GENRES, 0.5, 0.02)
    user, item = np.nonzero(rng.random((90, 50)) < odds)
    seen = (user < 80) & (item < 40)
    pairs = pd.DataFrame({"user": [f"u{k:02d}" for k in user[seen]], "item": [f"i{k:02d}" for k in item[seen]]})
    counts = ps.ingest(pairs, folder / "counts.zarr")
    for side, n in (("user", 90), ("item", 50)):
        labels = [f"{side[0]}{k:02d}" for k in range(n)]
        links = pd.DataFrame({side: labels, "tag": [f"g{genre(label)}" for label in labels]})
        ps.ingest_tags(links, folder / f"{side}.zarr", symbol=side)
    tags = {"item_tags": folder / "item.zarr", "user_tags": folder / "user.zarr"}
    start = ps.PairedSymbols(factors=4, selection="constant").fit(
        counts, folder / "fit.zarr", sweeps=6, progress=False, **tags
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the chain has not settled")
        ps.PairedSymbols(factors=4, censored_ratio=5.0, inference="gibbs", components=request.param).fit(
            counts, folder / "chain.zarr", sweeps=50, burn=20, thin=2, start=start, progress=False, **tags
        )
    return ps.load(folder / "chain.zarr")


def test_new_items_are_found_by_their_tags(tagged):
    new = tagged.new_symbols()
    assert new.tolist() == [f"i{k}" for k in range(40, 50)]
    top = tagged.recommend(["u00", "u01", "u02", "u03", "u04"], n=2, items=new)
    assert (top["user"].map(genre) == top["item"].map(genre)).all()
    assert (top["low"] < top["sigma"]).all()
    assert (top["sigma"] < top["high"]).all()
    mixed = tagged.recommend("u00", n=4, items=["i00", "i45", "i01", "i46"], exclude_seen=False)
    assert {genre(item) for item in mixed["item"][:2]} == {0}
    assert mixed["probability"].between(0, 1).all()
    for strategy in ("thompson", "ucb"):
        assert len(tagged.recommend("u00", n=3, items=new, strategy=strategy)) == 3


def test_answers_for_a_new_item_are_the_same_whatever_is_asked_beside(tagged):
    alone = tagged.probability("u00", "i45")
    among = tagged.probability(["u07", "u00", "u84"], ["i01", "i45", "i46"])
    pd.testing.assert_frame_equal(among.iloc[[1]].reset_index(drop=True), alone)
    again = ps.load(tagged.path).recommend("u00", items=["i45", "i00"], exclude_seen=False).set_index("item")
    for name in ("sigma", "sd", "low", "high"):  # sums over draws may be rounded in another order
        assert again.loc["i45", name] == pytest.approx(alone[name].iloc[0], rel=1e-12)


def test_less_is_known_of_an_item_without_pairs(tagged):
    of_new, of_old = (
        tagged.contrast([f"u{k:02d}" for k in range(0, 80, 5)], *pair)["sd"].mean()
        for pair in (("i45", "i40"), ("i00", "i05"))
    )
    assert of_new > of_old
    rather = tagged.contrast("u00", "i45", ["i46", "i01"])
    assert (rather["difference"] > 0).all()


def test_newcomers_are_drawn_from_their_prior(tagged):
    """N(mu + sum_f x_jf h_f, Lambda^-1): whitened by the prior of each draw they are standard normal."""
    commits, side = tagged._answering.commits, tagged._tags["items"]
    rows = side.find(tagged.new_symbols())
    many = np.repeat(rows, 200)
    drawn = draw_newcomers(commits, "items", side.prior.scaled(many), np.arange(many.size))
    white = []
    for d, commit in enumerate(commits):
        prior = Prior.decode(commit.record["priors"]["items"], 4)
        h, e = (commit.sealed.read_array(commit.arrays[f"item_tags/{name}"]) for name in ("traits", "bias"))
        kind = many % GENRES  # rows of the tag store are i00, i01, ..
        traits = drawn.traits[d] - prior.mean - h[kind] - h[-1]
        bias = (drawn.bias[d] - prior.bias_mean - e[kind] - e[-1]) * np.sqrt(prior.bias_precision)
        white.append(np.column_stack([traits @ np.linalg.cholesky(prior.precision), bias]))
    white = np.concatenate(white)
    n = len(white)
    assert np.abs(white.mean(0)).max() < 4.5 / np.sqrt(n)
    assert np.abs(np.cov(white.T) - np.eye(5)).max() < 6 / np.sqrt(n)


def test_new_users_get_lists_by_their_tags(tagged, tmp_path):
    top = tagged.recommend(["u85", "u00", "u86"], n=3)
    assert top["user"].tolist() == ["u85"] * 3 + ["u00"] * 3 + ["u86"] * 3
    first = top[top["rank"] == 1].set_index("user")["item"]
    assert (genre(first["u85"]), genre(first["u86"])) == (0, 1)
    new = tagged.new_symbols()
    rows = tagged.recommend_all(tmp_path / "all.parquet", n=2, items=[*new, "i00"])
    found = pd.read_parquet(tmp_path / "all.parquet")
    assert rows == len(found)
    assert found["user"].nunique() == 90
    wanted = tagged.recommend("u85", n=2, items=[*new, "i00"])
    assert found.loc[found["user"] == "u85", "item"].tolist() == wanted["item"].tolist()
    assert tagged.conditional("u85").sum() == pytest.approx(1)


@pytest.mark.parametrize("measure", ["cosine", "model"])
def test_likeness_and_audiences_of_new_symbols(tagged, measure):
    assert (tagged.similar_items("i45", n=4, measure=measure)["item"].map(genre) == 0).all()
    assert (tagged.similar_users("u85", n=4, measure=measure)["user"].map(genre) == 0).all()
    whom = tagged.recommend_users("i45", n=4, popularity=0)
    assert (whom["user"].map(genre) == 0).all()
    assert whom["probability"].between(0, 1).all()


def test_fold_in_takes_tags_of_whoever_is_new(tagged):
    one = tagged.fold_in(tags=["g3"])
    assert genre(tagged.recommend(one, n=1)["item"].iloc[0]) == 3
    pairs = pd.DataFrame({"user": ["x", "y"], "item": ["i00", "i01"]})
    both = tagged.fold_in(pairs, tags={"user": ["x", "z"], "tag": ["g4", "g2"]})
    assert both.user_ids.tolist() == ["x", "y", "z"]
    assert genre(tagged.recommend(both.take("z"), n=1)["item"].iloc[0]) == 2
    plain = tagged.fold_in(pairs)
    assert (plain.users.traits[:, 1] == both.users.traits[:, 1]).all()  # y has no tags
    fours = ["i04", "i09", "i14"]
    with_tags, without = (tagged.probability(one.take("x"), fours)["sigma"].mean() for one in (both, plain))
    assert with_tags > without


def test_tags_are_told_over_draws(tagged, tmp_path):
    found = tagged.tags()
    assert found.columns.tolist() == ["tag", "relevance", "effect", "sd", "symbols"]
    assert sorted(found["tag"]) == [f"g{k}" for k in range(GENRES)]
    assert found["symbols"].tolist() == [10] * GENRES
    assert found["relevance"].between(0.5, 1).all()
    assert len(tagged.tags("users")) == GENRES
    why = tagged.explain("u00", "i05")
    assert why.frame["energy"].sum() == pytest.approx(why.energy, abs=1e-6)
    assert why.frame.set_index("part").loc["user tags", "energy"] > 0
    tagged.report(tmp_path / "report.html")
    assert "<h2>Tags of users</h2>" in (tmp_path / "report.html").read_text()
    assert {"item_tag_traits", "user_tag_gamma"} <= set(tagged.to_xarray().data_vars)


@pytest.mark.parametrize("pair", [("u00", "i45"), ("u85", "i00"), ("u85", "i45"), ("u00", "i05")])
def test_draws_explain_pairs_of_new_symbols(tagged, pair):
    """Parts add up to the energy, which is that of other answers, and the tags that are shared pull."""
    why = tagged.explain(*pair)
    assert why.frame["energy"].sum() == pytest.approx(why.energy, abs=1e-6)
    assert why.sigma == pytest.approx(tagged.probability(*pair)["sigma"].iloc[0], rel=1e-6)
    assert why.frame.set_index("part").loc["user tags", "energy"] > 0
    own = why.tags[why.tags["tag"] == "g0"].set_index("side")["energy"]
    assert (own.loc[["item", "user"]] > 0).all()
    other = tagged.explain(pair[0], "i46" if pair[1] == "i45" else "i01")
    assert other.energy < why.energy


def test_new_users_are_among_those_whom_an_item_suits(tagged):
    everybody = tagged.recommend_users("i00", n=90, exclude_seen=False, popularity=0)
    assert everybody["user"].nunique() == 90
    assert everybody["probability"].sum() == pytest.approx(1)
    new = everybody[everybody["user"].isin(tagged.new_symbols("users"))]
    kind = new["user"].map(genre) == 0
    assert new.loc[kind, "rank"].max() < new.loc[~kind, "rank"].min()
    wanted = tagged.probability(new["user"].tolist(), ["i00"] * len(new))
    assert new["sigma"].to_numpy() == pytest.approx(wanted["sigma"].to_numpy(), rel=1e-6)


def test_labels_that_nobody_knows_are_named(tagged):
    with pytest.raises(InputError, match=r"unknown item label: i99; neither .*counts.zarr nor the tags"):
        tagged.probability("u00", "i99")


def test_updates_and_packs_go_on_with_the_tags(tagged, tmp_path):
    new = tagged.new_symbols()
    tagged.pack(tmp_path / "packed")
    (tmp_path / "packed").rename(tmp_path / "elsewhere")
    pd.testing.assert_frame_equal(
        ps.load(tmp_path / "elsewhere").recommend("u85", items=new), tagged.recommend("u85", items=new)
    )
    assert verify(tmp_path / "elsewhere").sound
    grown = tagged.update(
        [("u85", "i00"), ("u00", "i45")], tmp_path / "counts.zarr", tmp_path / "grown.zarr", sweeps=3, burn=1, thin=1,
        keep=1, progress=False,
    )  # fmt: skip
    assert "i45" not in set(grown.new_symbols())
    first, last = ps.load(grown.path, sweep=0)._fitted, tagged._fitted
    for name in ("traits", "bias", "gamma"):
        path = f"item_tags/{name}"
        started, before = (commit.sealed.read_array(commit.arrays[path]) for commit in (first, last))
        assert (started == before).all()
