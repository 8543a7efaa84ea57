"""Answers with uncertainty: intervals, strategies, explanations, neighbours, exports."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.dense import dense_xi, step_user_traits
from helpers.stores import dense_state, fitted_arrays, make_store, random_counts
from scipy.special import expit
from scipy.stats import chisquare
from sklearn.base import clone

import pairsym_dask as ps
from pairsym_dask.answers import predict
from pairsym_dask.answers.query import Query, normals_at
from pairsym_dask.kernels import topn as ranking
from pairsym_dask.settings import POPULARITY

SEEDS = 2000


def sides_of(model):
    """Means, sds, biases and sds of biases of both sides, float64."""
    arrays = {name: array.astype(float) for name, array in fitted_arrays(model).items()}
    return {
        side: (
            arrays[f"{side}/mean"],
            arrays[f"{side}/precision"] ** -0.5,
            arrays[f"{side}/bias"],
            arrays[f"{side}/bias_precision"] ** -0.5,
        )
        for side in ("users", "items")
    }


def popularity_of(model):
    selection = fitted_arrays(model)["items/selection"]
    return selection / selection.sum()


@pytest.fixture(scope="module")
def vague(tmp_path_factory):
    """A model of few pairs, so that draws from its posterior differ."""
    folder = tmp_path_factory.mktemp("vague")
    counts = make_store(random_counts(40, 15, 0.25, seed=5), folder / "counts.zarr")
    return ps.PairedSymbols(factors=3, selection="constant").fit(
        counts, folder / "model.zarr", sweeps=10, progress=False
    )


# Intervals


def test_interval_is_the_central_one_of_the_energy_through_sigma(small_model):
    table = small_model.probability([3, 5, 8], [1, 2, 80], interval=0.8)
    sides = sides_of(small_model)
    (m, _, b, _), (n, _, c, _) = sides["users"], sides["items"]
    mu = (m[[3, 5, 8]] * n[[1, 2, 80]]).sum(1) + b[[3, 5, 8]] + c[[1, 2, 80]]
    assert np.allclose(table["low"], expit(mu - 1.2815516 * table["sd"]), rtol=1e-5)
    assert np.allclose(table["high"], expit(mu + 1.2815516 * table["sd"]), rtol=1e-5)
    assert ((table["low"] < table["sigma"]) & (table["sigma"] < table["high"])).all()
    wider = small_model.recommend(3, n=5, interval=0.99)
    narrower = small_model.recommend(3, n=5, interval=0.5)
    assert (wider["high"] - wider["low"] > narrower["high"] - narrower["low"]).all()


# Strategies


def test_ucb_ranks_by_the_upper_end(small_model):
    popularity = popularity_of(small_model) ** POPULARITY
    high = small_model.probability(7, list(range(90)), interval=0.95)["high"].to_numpy()
    order = np.argsort(-high * popularity, kind="stable")
    table = small_model.recommend(7, n=90, exclude_seen=False, strategy="ucb", interval=0.95)
    assert table["item"].tolist() == order.tolist()


@pytest.mark.slow
def test_thompson_puts_items_first_as_often_as_direct_draws_from_q(vague):
    user, draws = 3, 40_000
    items = vague.counts.shape[1]
    sides, rng = sides_of(vague), np.random.default_rng(11)
    (m, s, b, w), (n, z, c, y) = sides["users"], sides["items"]
    firsts = np.zeros(items)
    weight = popularity_of(vague) ** POPULARITY
    for _ in range(draws // 1000):
        u = m[user] + s[user] * rng.standard_normal((1000, 1, m.shape[1]))
        v = n + z * rng.standard_normal((1000, *n.shape))
        a = (
            (u * v).sum(2)
            + b[user]
            + w[user] * rng.standard_normal((1000, 1))
            + c
            + y * rng.standard_normal((1000, items))
        )
        firsts += np.bincount((expit(a) * weight).argmax(1), minlength=items)
    share = firsts / firsts.sum()
    found = np.zeros(items)
    query = {"n": 1, "exclude_seen": False, "strategy": "thompson"}
    audience = vague._audience([user])
    for seed in range(SEEDS):
        found[vague._predictor.recommend(audience, Query(**query, random_state=seed))["item"][0]] += 1
    common = share * SEEDS >= 5
    assert common.sum() >= 5  # several items do come first
    observed = np.append(found[common], found[~common].sum())
    expected = np.append(share[common], share[~common].sum()) * SEEDS
    # Both sides are counts; the direct draws are 20 times as many, so their own error is small beside.
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 0.01
    assert (np.abs(found / SEEDS - share) < 4 * np.sqrt(share * (1 - share) / SEEDS) + 1e-3).all()


def test_same_seed_gives_the_same_list_whoever_else_is_asked_for(small_model, monkeypatch):
    together = small_model.recommend(list(range(300)), n=5, strategy="thompson", random_state=4)
    alone = pd.concat([small_model.recommend(u, n=5, strategy="thompson", random_state=4) for u in (250, 3)])
    same = together.set_index("user").loc[[250, 3]].reset_index()
    assert same["item"].tolist() == alone["item"].tolist()
    monkeypatch.setattr(predict, "SCORES", 8 * 90 * 7)
    monkeypatch.setattr(ranking, "USERS", 3)
    again = small_model.recommend(list(range(300)), n=5, strategy="thompson", random_state=4)
    assert again["item"].tolist() == together["item"].tolist()
    other = small_model.recommend(list(range(300)), n=5, strategy="thompson", random_state=5)
    assert (other["item"] != together["item"]).mean() > 0.2


def test_normals_are_standard_and_differ_by_seed_stream_row_and_column():
    rows, columns = np.arange(300), np.arange(400)
    one = normals_at(1, 32, rows, columns)
    assert abs(one.mean()) < 0.01
    assert one.std() == pytest.approx(1, abs=0.01)
    for two in (normals_at(2, 32, rows, columns), normals_at(1, 33, rows, columns), one.T[:300, :300]):
        assert abs(np.corrcoef(one[: two.shape[0], : two.shape[1]].ravel(), two.ravel())[0, 1]) < 0.02
    assert np.abs(np.corrcoef(one[:20])[np.triu_indices(20, 1)]).max() < 0.25
    assert (normals_at(1, 32, rows[7:9], columns[5:6]) == one[7:9, 5:6]).all()


def test_all_users_by_a_strategy_equal_one_by_one(small_model, tmp_path):
    options = {"n": 4, "strategy": "thompson", "random_state": 2, "exclude": [3, 4], "items": list(range(60))}
    small_model.recommend_all(tmp_path / "top.parquet", **options)
    table = pd.read_parquet(tmp_path / "top.parquet")
    assert table.columns.tolist() == ["user", "item", "rank", "sigma", "sd"]
    single = small_model.recommend(list(range(700)), **options)
    assert (table["item"].to_numpy() == single["item"].to_numpy()).all()
    assert not set(table["item"]) & {3, 4, *range(60, 90)}


def test_users_from_elsewhere_get_lists_like_those_of_the_store(small_model):
    predictor, labels = small_model._predictor, ["new", "newer"]
    stored = predictor.stored(np.array([9, 2])).part(slice(None))
    audience = predict.Audience(stored.users, stored.indptr, stored.seen, np.array(labels, object), stored.numbers)
    for strategy in ("mean", "thompson", "ucb"):
        table = predictor.recommend(audience, Query(6, strategy=strategy))
        assert table["user"].tolist() == ["new"] * 6 + ["newer"] * 6
        assert table["item"].tolist() == small_model.recommend([9, 2], n=6, strategy=strategy)["item"].tolist()
    second = predictor.recommend(audience.part(slice(1, 2)), Query(6))
    assert second["item"].tolist() == small_model.recommend(2, n=6)["item"].tolist()


def test_nobody_and_nothing_give_empty_tables(small_model):
    columns = small_model.recommend(1).columns.tolist()
    for table in (
        small_model.recommend([]),
        small_model.recommend(1, items=[]),
        small_model.recommend(1, items=[3, 4], exclude=[3, 4]),
    ):
        assert len(table) == 0
        assert table.columns.tolist() == columns
    assert small_model.recommend(1, exclude=[]).equals(small_model.recommend(1, popularity=np.float32(POPULARITY)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.recommend(1, strategy="best"), "strategy must be one of mean, thompson, ucb, not 'best'"),
        (lambda m: m.recommend(1, popularity=-0.1), "popularity must be a number from 0"),
        (
            lambda m: m.recommend(1, exclude=[2, 555, 556]),
            "unknown item labels: 555, 556; the store knows 90 items, for instance 0",
        ),
        (lambda m: m.recommend(1, interval=90), "interval must be a number between 0 and 1, such as 0.9, not 90"),
        (
            lambda m: m.recommend(1, strategy="thompson", random_state=-1),
            "random_state must be a whole number, at least 0",
        ),
        (lambda m: m.probability(1, 1, interval=1.0), "interval must be a number between 0 and 1"),
        (lambda m: m.recommend_all("x", strategy="best"), "strategy must be one of"),
        (lambda m: m.recommend_users(1, popularity=2), "popularity must be a number from 0"),
        (lambda m: m.similar_items(91), "unknown item label: 91"),
        (lambda m: m.similar_users(1, measure="dot"), "measure must be one of cosine, model, not 'dot'"),
        (lambda m: m.similar_items(1, n=0), "n must be a whole number, at least 1"),
        (lambda m: m.explain(1, 91), "unknown item label: 91"),
        (lambda m: m.export_factors("item"), "side must be users or items, not 'item'"),
        (lambda m: m.score(pd.DataFrame({"user": [1]})), "held_out lacks the column item"),
    ],
)
def test_bad_questions_get_one_clear_sentence(small_model, call, words):
    with pytest.raises(ps.InputError, match=words):
        call(small_model)


# Explanations


def test_parts_of_an_explanation_add_up_to_the_energy(small_model):
    users, items = (small_model.export_factors(side).astype(float) for side in ("users", "items"))
    for user, item, n in ((0, 5, 3), (17, 80, 10), (699, 0, 1000)):
        found = small_model.explain(user, item, n=n)
        assert found.frame["energy"].sum() == pytest.approx(found.energy, abs=1e-12)
        assert found.energy == pytest.approx(users[user] @ items[item], abs=1e-6)
        assert found.popularity == pytest.approx(popularity_of(small_model)[item])
        row = small_model.probability(user, item).iloc[0]
        assert (found.sd, found.sigma) == (pytest.approx(row["sd"], rel=1e-5), pytest.approx(row["sigma"], rel=1e-5))
        mine = small_model.counts.to_scipy()[[user]]
        named = found.frame[found.frame["part"] == "seen item"]
        assert len(named) == min(n, mine.nnz)
        assert set(named["item"]) <= set(mine.indices)
        assert found.frame["count"].sum() == mine.sum()
        assert "not settled yet" in repr(found)


def test_what_is_not_settled_is_what_one_more_update_of_the_user_would_change(vague):
    dense = vague.counts.to_scipy().toarray().astype(float)
    state = dense_state(vague)
    fitted = vague._fitted.settings
    settings = {"censored_ratio": fitted.censored_ratio, "tau_u": fitted.tau_u}
    updated = step_user_traits(state, dense, dense_xi(state, dense), **settings)
    change = (state.user_mean - updated.user_mean) @ state.item_mean.T
    for user in range(5):
        for item in range(vague.counts.shape[1]):
            left = vague.explain(user, item).frame["energy"].iloc[-1]
            assert left == pytest.approx(change[user, item], rel=1e-5, abs=1e-7)


def test_a_user_without_pairs_is_explained_too(tmp_path):
    dense = random_counts(20, 9, 0.3)
    dense[4] = 0
    model = ps.PairedSymbols(factors=2).fit(
        make_store(dense, tmp_path / "c.zarr"), tmp_path / "m.zarr", 3, progress=False
    )
    found = model.explain(4, 2)
    assert found.frame["part"].tolist() == ["user bias", "item bias", "censored pairs", "not settled yet"]
    assert found.frame["energy"].sum() == pytest.approx(found.energy, abs=1e-12)


# Neighbours


@pytest.mark.parametrize("side", ["users", "items"])
def test_cosine_neighbours_are_those_of_all_pairs(small_model, side):
    mean = fitted_arrays(small_model)[f"{side}/mean"].astype(float)
    mean /= np.linalg.norm(mean, axis=1)[:, None]
    cosine = mean @ mean[33]
    cosine[33] = -2
    call = small_model.similar_users if side == "users" else small_model.similar_items
    table = call(33, n=8)
    assert table.columns.tolist() == [side[:-1], "rank", "similarity"]
    assert table[side[:-1]].tolist() == np.argsort(-cosine, kind="stable")[:8].tolist()
    assert np.allclose(table["similarity"], np.sort(cosine)[::-1][:8])
    assert len(call(33, n=5000)) == mean.shape[0] - 1


@pytest.mark.parametrize("side", ["users", "items"])
def test_the_models_measure_is_the_correlation_of_energies_drawn_from_q(vague, side):
    sides, rng = sides_of(vague), np.random.default_rng(1)
    call = vague.similar_users if side == "users" else vague.similar_items
    table = call(2, n=3, measure="model")
    (m, s, _, _), (n, z, c, y) = (sides[side], sides["items" if side == "users" else "users"])
    for _, row in table.iterrows():
        pair = [2, int(row[side[:-1]])]
        v = m[pair] + s[pair] * rng.standard_normal((20_000, 2, m.shape[1]))
        u = n + z * rng.standard_normal((20_000, *n.shape))
        a = u @ v.transpose(0, 2, 1) + (c + y * rng.standard_normal((20_000, c.size)))[:, :, None]
        # Covariance over the other side and q, about its mean over both; the pair's own biases are constant there.
        a -= (u.mean((0, 1)) @ v.transpose(0, 2, 1))[:, None] + c.mean()
        covariance = np.einsum("dna,dnb->ab", a, a)
        wanted = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
        assert row["similarity"] == pytest.approx(wanted, abs=0.02)


def test_users_for_an_item_are_the_best_without_it(small_model):
    item, selection = 12, fitted_arrays(small_model)["users/selection"]
    sigma = small_model.scores(list(range(700)), popularity=0)[:, item].astype(float)
    scores, seen = sigma * selection**POPULARITY, small_model.counts.to_scipy()[:, [item]].toarray()[:, 0] > 0
    table = small_model.recommend_users(item, n=9)
    assert table.columns.tolist() == ["user", "rank", "probability", "sigma", "sd", "low", "high"]
    assert table["user"].tolist() == [i for i in np.argsort(-scores, kind="stable") if not seen[i]][:9]
    p = sigma * selection / (sigma @ selection)
    assert np.allclose(table["probability"], p[table["user"]], rtol=1e-5)
    assert len(small_model.recommend_users(item, n=1000)) == (~seen).sum()
    everyone = small_model.recommend_users(item, n=700, exclude_seen=False, popularity=0)
    assert everyone["sigma"].is_monotonic_decreasing
    assert len(everyone) == 700


# Exports and habits


def test_inner_products_of_exported_factors_are_energies(small_model, tmp_path):
    users, items = small_model.export_factors("users"), small_model.export_factors("items")
    sides = sides_of(small_model)
    (m, _, b, _), (n, _, c, _) = sides["users"], sides["items"]
    assert users.shape == (700, 6)
    assert np.allclose(users @ items.T, m @ n.T + b[:, None] + c, atol=1e-5)
    mapped = small_model.export_factors("users", tmp_path / "users.npy")
    assert isinstance(mapped, np.memmap)
    assert (np.load(tmp_path / "users.npy") == users).all()


def test_plain_xarray_opens_the_newest_generation(small_model):
    arrays = fitted_arrays(small_model)
    for side in ("users", "items"):
        data = xr.open_zarr(small_model.generation, group=side, consolidated=False)
        assert data["mean"].dims == (side[:-1], "factor")
        for name in ("mean", "precision", "bias", "bias_precision", "selection", "background"):
            assert (data[name].to_numpy() == arrays[f"{side}/{name}"]).all()


def test_score_is_the_held_out_log_likelihood_of_a_pair(small_model):
    seen = small_model.counts.to_scipy().toarray() > 0
    pairs = pd.DataFrame([(user, int(np.flatnonzero(~seen[user])[3])) for user in range(50)], columns=["user", "item"])
    wanted = np.mean([np.log(small_model.conditional(user)[item]) for user, item in pairs.itertuples(index=False)])
    assert small_model.score(pairs) == pytest.approx(wanted, rel=1e-5)


def test_scikit_learn_clones_fitted_and_unfitted_models(small_model):
    for model in (ps.PairedSymbols(factors=7, tau_u=2.5), small_model):
        copy = clone(model)
        assert copy.get_params() == model.get_params()
        with pytest.raises(ps.InputError, match="not fitted yet"):
            copy.recommend(1)
