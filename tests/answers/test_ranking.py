"""What lists are ranked by: probabilities of a posterior at temperature 1, odds of a cold one."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.stores import fitted_arrays
from scipy.special import expit

import pairsym_dask as ps
from pairsym_dask.kernels import topn

EXPONENT = 0.6


@pytest.fixture(scope="module", params=[0.0, 0.3, 1.0], ids="T={}".format)
def fitted(request, small, tmp_path_factory):
    model = ps.PairedSymbols(factors=4, selection="counts", temperature=request.param, discount=0.2)
    return model.fit(small, tmp_path_factory.mktemp("cold") / "model.zarr", sweeps=4, progress=False)


def expected_scores(model, users, counted):
    """From the stored arrays, float64; variances count so many times."""
    q = {name: array.astype(np.float64) for name, array in fitted_arrays(model).items()}
    m, v = q["users/mean"][users], 1 / q["users/precision"][users]
    n, w = q["items/mean"], 1 / q["items/precision"]
    mean = m @ n.T + q["users/bias"][users][:, None] + q["items/bias"]
    variance = (m**2 + v) @ w.T + v @ (n**2).T
    variance += 1 / q["users/bias_precision"][users][:, None] + 1 / q["items/bias_precision"]
    x = mean / np.sqrt(1 + np.pi / 8 * counted * variance)
    psi = q["items/selection"] / q["items/selection"].sum()
    return x + EXPONENT * np.log(psi) if counted < 1 else expit(x) * psi**EXPONENT


def test_scores_are_odds_of_a_cold_posterior_and_probabilities_else(fitted):
    users = np.array([0, 3, 699])
    found = fitted.scores(users, popularity=EXPONENT)
    assert np.allclose(found, expected_scores(fitted, users, fitted.temperature), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("strategy", ["mean", "ucb", "thompson"])
def test_lists_hold_the_best_scores_whatever_the_slabs(fitted, strategy, monkeypatch):
    monkeypatch.setattr(topn, "SLAB", 16)
    how = {"popularity": EXPONENT, "strategy": strategy, "exclude_seen": False, "random_state": 5}
    whole = fitted.recommend([1, 2, 650], n=90, **how)
    short = fitted.recommend([1, 2, 650], n=7, **how)
    for user, list_ in short.groupby("user", sort=False):
        assert list_["item"].tolist() == whole.loc[whole["user"] == user, "item"].tolist()[:7]
    if strategy == "mean":
        scores = fitted.scores([1, 2, 650], popularity=EXPONENT)
        for row, (_, list_) in enumerate(whole.groupby("user", sort=False)):
            ranked = scores[row][list_["item"].to_numpy()]
            assert (np.diff(ranked) <= 1e-5 * np.abs(ranked[:-1])).all()


def test_seen_items_stay_out_of_a_cold_list(fitted):
    seen = set(np.flatnonzero(fitted.counts.to_scipy()[3].toarray()[0]))
    assert not seen & set(fitted.recommend(3, n=90)["item"])


def test_evaluate_ranks_as_recommend_does(fitted, small):
    held = fitted.recommend(list(range(20)), n=3, popularity=EXPONENT)
    held = held[held["rank"] == 3][["user", "item"]]
    per_user = ps.evaluate(fitted, held, popularity=EXPONENT, n=3).per_user
    assert np.allclose(per_user["ndcg"], 1 / np.log2(4))


def test_an_item_suits_users_by_the_same_rule(fitted):
    scores = expected_scores(fitted, np.arange(700), fitted.temperature)[:, 11]
    q = fitted_arrays(fitted)
    psi, pi = q["items/selection"] / q["items/selection"].sum(), q["users/selection"]
    if fitted.temperature < 1:
        scores = scores - EXPONENT * np.log(psi[11]) + EXPONENT * np.log(pi)
    else:
        scores = scores / psi[11] ** EXPONENT * pi**EXPONENT
    found = fitted.recommend_users(11, n=20, popularity=EXPONENT, exclude_seen=False)["user"].to_numpy()
    ranked = scores[found]
    assert (np.diff(ranked) <= 1e-5 * np.abs(ranked[:-1])).all()
    assert ranked[-1] >= np.sort(scores)[-20] - 1e-5 * abs(ranked[-1])
