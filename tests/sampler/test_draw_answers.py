"""Answers from draws against the same quantities found draw by draw in plain numpy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.stores import make_store, random_counts
from scipy.special import expit

import pairsym_dask as ps
from pairsym_dask.answers.query import draw_number
from pairsym_dask.errors import InputError
from pairsym_dask.model import PairedSymbols

pytestmark = [pytest.mark.draws, pytest.mark.filterwarnings("ignore:the chain has not settled")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    path = tmp_path_factory.mktemp("draws")
    counts = make_store(random_counts(300, 24, 0.3, seed=4), path / "counts.zarr")
    chain = ps.PairedSymbols(factors=3, censored_ratio=2.0, inference="gibbs", random_state=3)
    return chain.fit(counts, path / "model.zarr", sweeps=40, burn=10, thin=3, progress=False)


@pytest.fixture(scope="module")
def dense(model: PairedSymbols) -> tuple[np.ndarray, np.ndarray]:
    """Energies (draws, users, items) and psi (draws, items) from the Dataset."""
    data = model.to_xarray().isel(chain=0).compute()
    traits = np.einsum("duk,djk->duj", data.user_traits.astype(float), data.item_traits.astype(float))
    return traits + data.user_bias.values[:, :, None] + data.item_bias.values[:, None], data.item_selection.values


def test_a_dataset_has_chain_and_draw_and_popularities_that_sum_to_one(model):
    data = model.to_xarray()
    assert data.user_traits.dims == ("chain", "draw", "user", "factor")
    assert data.item_selection.dims == ("chain", "draw", "item")
    assert data.draw.values.tolist() == model.draws["sweep"].tolist() == list(range(13, 41, 3))
    assert np.allclose(data.user_selection.sum("user"), 1)
    assert np.allclose(data.item_selection.sum("item"), 1)
    assert data.log_likelihood.values[0].tolist() == model.draws["log_likelihood"].tolist()


def test_probabilities_are_averages_and_quantiles_over_draws(model, dense):
    energy, _ = dense
    users, items = model.counts.user_ids[[5, 5, 17]], model.counts.item_ids[[0, 9, 3]]
    found = model.probability(users, items, interval=0.8)
    a = energy[:, [5, 5, 17], [0, 9, 3]]
    assert np.allclose(found["sigma"], expit(a).mean(0), atol=1e-6)
    assert np.allclose(found["sd"], a.std(0), atol=1e-5)
    assert np.allclose(found["low"], expit(np.quantile(a, 0.1, axis=0)), atol=1e-6)
    assert np.allclose(found["high"], expit(np.quantile(a, 0.9, axis=0)), atol=1e-6)


def test_conditional_is_the_mean_of_normalised_products(model, dense):
    energy, psi = dense
    p = expit(energy[:, 7]) * psi
    wanted = (p / p.sum(1, keepdims=True)).mean(0)
    found = model.conditional(model.counts.user_ids[7])
    assert np.allclose(found, wanted, atol=1e-7)
    assert found.sum() == pytest.approx(1)


def test_contrast_is_the_difference_of_energies_in_each_draw(model, dense):
    energy, _ = dense
    user, item, other = model.counts.user_ids[2], model.counts.item_ids[4], model.counts.item_ids[11]
    row = model.contrast(user, item, other).iloc[0]
    difference = energy[:, 2, 4] - energy[:, 2, 11]
    assert row["difference"] == pytest.approx(difference.mean(), abs=1e-5)
    assert row["low"] == pytest.approx(np.quantile(difference, 0.05), abs=1e-5)
    assert row["rather"] == pytest.approx((difference > 0).mean())
    back = model.contrast(user, other, item).iloc[0]
    assert (back["difference"], back["low"]) == pytest.approx((-row["difference"], -row["high"]))
    many = model.contrast([user, model.counts.user_ids[3]], item, other)
    assert many["difference"].iloc[0] == pytest.approx(row["difference"])
    assert model.contrast(user, item, item)["difference"].iloc[0] == 0


@pytest.mark.parametrize("strategy", ["mean", "ucb", "thompson"])
@pytest.mark.parametrize("popularity", [0.0, 1.0])
def test_lists_are_ranked_by_the_strategy(model, dense, strategy, popularity):
    energy, psi = dense
    scores = {
        "mean": expit(energy[:, 9]).mean(0),
        "ucb": expit(np.quantile(energy[:, 9], 0.95, axis=0)),
        "thompson": expit(energy[draw_number(6, energy.shape[0]), 9]),
    }[strategy] * psi.mean(0) ** popularity
    seen = np.flatnonzero(model.counts.to_scipy()[9].toarray()[0])
    scores[seen] = -1
    user = model.counts.user_ids[9]
    found = model.recommend(user, n=5, popularity=popularity, strategy=strategy, random_state=6)
    assert found["item"].tolist() == model.counts.item_ids[np.argsort(-scores)[:5]].tolist()
    again = model.probability(user, found["item"])
    assert np.allclose(found[["sigma", "sd", "low", "high"]], again[["sigma", "sd", "low", "high"]])
    assert np.allclose(found["probability"], model.conditional(user)[found["item"]])


def test_draws_rank_by_the_models_own_conditional_unless_told_otherwise(model, small_model):
    user = model.counts.user_ids[9]
    assert model.recommend(user)["item"].tolist() == model.recommend(user, popularity=1)["item"].tolist()
    user = small_model.counts.user_ids[9]
    assert small_model.recommend(user)["item"].tolist() == small_model.recommend(user, popularity=0.35)["item"].tolist()
    assert np.array_equal(small_model.scores(user), small_model.scores(user, popularity=0.35))


def test_lists_of_all_users_are_those_of_each(model, tmp_path):
    rows = model.recommend_all(tmp_path / "all", n=3)
    table = pd.read_parquet(tmp_path / "all")
    each = model.recommend(model.counts.user_ids, n=3)
    assert rows == len(table) == len(each)
    assert table["item"].tolist() == each["item"].tolist()
    assert np.allclose(table[["sigma", "sd"]], each[["sigma", "sd"]])


def test_evaluation_scores_held_out_pairs_by_the_mean_conditional(model):
    matrix = model.counts.to_scipy().toarray()
    users = np.arange(40)
    items = np.array([np.flatnonzero(matrix[user] == 0)[user % 3] for user in users])
    held_out = pd.DataFrame({"user": model.counts.user_ids[users], "item": model.counts.item_ids[items]})
    found = ps.evaluate(model, held_out, popularity=1.0)
    wanted = [np.log(model.conditional(user)[item]) for user, item in held_out.itertuples(index=False)]
    # Traits are float32, and BLAS rounds their products by how many users are asked for at a time, and by the CPU.
    rounding = float(np.finfo(np.float32).eps)
    assert found.overall["log_likelihood"] == pytest.approx(np.mean(wanted), abs=rounding)
    assert model.score(held_out) == pytest.approx(np.mean(wanted), abs=rounding)


def test_a_loaded_chain_answers_the_same(model):
    again = ps.load(model.path)
    user = model.counts.user_ids[1]
    pd.testing.assert_frame_equal(again.recommend(user), model.recommend(user))
    assert again.inference == "gibbs"
    assert "log p(i, j)" in repr(again)
    assert "log p(i, j)" in again._repr_html_()
    earlier = ps.load(model.path, sweep=22)
    assert earlier.draws["sweep"].tolist() == [13, 16, 19, 22]


def test_history_and_diagnostics_tell_of_the_chain(model):
    history = model.history
    assert history["draw"].sum() == len(model.draws)
    found = model.diagnostics
    assert found["quantity"].iloc[0] == "log_likelihood"
    late = history["log_likelihood"][history["sweep"] > 10]
    assert found["mean"].iloc[0] == pytest.approx(late.mean())
    assert (found["effective"] > 1).all()
    assert (found["r_hat"] > 0.9).all()


def test_questions_that_draws_do_not_answer_say_so(model, small_model):
    with pytest.raises(InputError, match=r"needs a variational fit.*turn from draw to draw"):
        model.export_factors("items")
    with pytest.raises(InputError, match=r"only inference=.gibbs. has draws"):
        small_model.draws  # noqa: B018


def test_answers_before_the_first_draw_are_refused(model, tmp_path):
    chain = ps.PairedSymbols(factors=2, inference="gibbs")
    chain.fit(model.counts, tmp_path / "model.zarr", sweeps=3, burn=2, thin=2, progress=False)
    with pytest.raises(InputError, match="no draw yet: it is at sweep 3 of a chain whose first 2 sweeps are burn-in"):
        chain.recommend(model.counts.user_ids[0])


def test_options_of_the_other_inference_are_refused(model, tmp_path):
    with pytest.raises(InputError, match="burn is for draws"):
        ps.PairedSymbols(factors=2).fit(model.counts, tmp_path / "a", burn=3)
    with pytest.raises(InputError, match="tol stops where a bound settles"):
        ps.PairedSymbols(factors=2, inference="gibbs").fit(model.counts, tmp_path / "b", tol=0.1)
    with pytest.raises(InputError, match=r"temperature=0.5 is a lever of the variational fit"):
        ps.PairedSymbols(factors=2, inference="gibbs", temperature=0.5).fit(model.counts, tmp_path / "c")


def test_a_variational_contrast_leaves_the_users_bias_out(small_model):
    user, (item, other) = small_model.counts.user_ids[3], small_model.counts.item_ids[[2, 8]]
    row = small_model.contrast(user, item, other).iloc[0]
    data = small_model.to_xarray().sel(user=user).compute()
    one, two = data.sel(item=item), data.sel(item=other)
    mean = float((data.user_mean * (one.item_mean - two.item_mean)).sum() + one.item_bias - two.item_bias)
    rng = np.random.default_rng(0)
    n = 40_000
    u = data.user_mean.values + rng.standard_normal((n, 4)) / np.sqrt(data.user_precision.values)
    v = [
        side.item_mean.values + rng.standard_normal((n, 4)) / np.sqrt(side.item_precision.values) for side in (one, two)
    ]
    b = [
        float(side.item_bias) + rng.standard_normal(n) / np.sqrt(float(side.item_bias_precision)) for side in (one, two)
    ]
    drawn = (u * (v[0] - v[1])).sum(1) + b[0] - b[1]
    assert row["difference"] == pytest.approx(mean, abs=1e-5)
    assert row["sd"] == pytest.approx(drawn.std(), rel=0.03)
    assert row["rather"] == pytest.approx((drawn > 0).mean(), abs=0.03)
