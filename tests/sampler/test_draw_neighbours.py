"""Likeness, users for an item, explanations and new users from draws, against plain numpy draw by draw."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.stores import make_store, random_counts
from scipy.special import expit

import pairsym_dask as ps
from pairsym_dask.errors import InputError
from pairsym_dask.model import PairedSymbols

pytestmark = [pytest.mark.draws, pytest.mark.slow, pytest.mark.filterwarnings("ignore:the chain has not settled")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PairedSymbols:
    path = tmp_path_factory.mktemp("draws")
    counts = make_store(random_counts(900, 24, 0.3, seed=4), path / "counts.zarr")
    chain = ps.PairedSymbols(factors=3, censored_ratio=2.0, inference="gibbs", random_state=3)
    return chain.fit(counts, path / "model.zarr", sweeps=60, burn=20, thin=2, progress=False)


@pytest.fixture(scope="module")
def data(model: PairedSymbols) -> dict[str, np.ndarray]:
    found = model.to_xarray().isel(chain=0).compute()
    return {name: found[name].to_numpy().astype(float) for name in found}


@pytest.fixture(scope="module")
def energy(data: dict[str, np.ndarray]) -> np.ndarray:
    return (
        np.einsum("duk,djk->duj", data["user_traits"], data["item_traits"])
        + data["user_bias"][:, :, None]
        + data["item_bias"][:, None]
    )


@pytest.mark.parametrize("side", ["user", "item"])
def test_cosines_and_correlations_are_averaged_over_draws(model, data, energy, side):
    assert model.counts.cuts["users"].blocks > 1
    labels = getattr(model.counts, f"{side}_ids")
    ask = model.similar_users if side == "user" else model.similar_items
    cosine = [
        traits @ traits[5] / np.linalg.norm(traits, axis=1) / np.linalg.norm(traits[5])
        for traits in data[f"{side}_traits"]
    ]
    lines = energy if side == "user" else energy.transpose(0, 2, 1)
    correlation = [np.corrcoef(draw)[5] for draw in lines]
    for measure, values in (("cosine", cosine), ("model", correlation)):
        wanted = np.mean(values, axis=0)
        wanted[5] = -2
        best = np.argsort(-wanted)[:4]
        found = ask(labels[5], n=4, measure=measure)
        assert found[side].tolist() == labels[best].tolist()
        assert np.allclose(found["similarity"], wanted[best], atol=1e-6)


@pytest.mark.parametrize("popularity", [0.0, 1.0])
def test_users_for_an_item_are_ranked_and_normalised_over_draws(model, data, energy, popularity):
    found = model.recommend_users(model.counts.item_ids[3], n=5, popularity=popularity)
    shown, pi = expit(energy[:, :, 3]), data["user_selection"]
    score = shown.mean(0) * pi.mean(0) ** popularity
    score[model.counts.to_scipy().tocsc()[:, [3]].nonzero()[0]] = -1
    best = np.argsort(-score)[:5]
    assert found["user"].tolist() == model.counts.user_ids[best].tolist()
    p = (shown * pi / (shown * pi).sum(1, keepdims=True)).mean(0)
    assert np.allclose(found["probability"], p[best], rtol=1e-5)
    assert np.allclose(found["sigma"], shown.mean(0)[best], rtol=1e-5)
    assert np.allclose(found["high"], expit(np.quantile(energy[:, best, 3], 0.95, axis=0)), rtol=1e-5)


def test_parts_of_an_explanation_add_up_to_the_mean_energy(model, energy):
    user, item = model.counts.user_ids[8], model.counts.item_ids[2]
    found = model.explain(user, item, n=3)
    assert found.energy == pytest.approx(energy[:, 8, 2].mean(), abs=1e-5)
    assert found.frame["energy"].sum() == pytest.approx(found.energy, abs=1e-6)
    assert found.sigma == pytest.approx(expit(energy[:, 8, 2]).mean(), abs=1e-6)
    assert (found.frame["part"] == "seen item").sum() == 3
    assert "draws about their mean" in str(found)
    # A draw is its conditional mean and noise: over users and items what is left averages out.
    rest, whole = [], []
    for row in range(0, 60, 3):
        parts = model.explain(model.counts.user_ids[row], item, n=1).frame.set_index("part")["energy"]
        rest.append(parts["draws about their mean"])
        whole.append(parts.drop("draws about their mean").sum())
    assert np.std(rest) < 0.5 * np.std(whole)
    assert abs(np.mean(rest)) < 0.25 * np.std(whole)


def test_new_users_get_the_posterior_of_users_with_the_same_pairs(model, energy):
    """Stored users' own pairs, folded in: their energies' means and spreads are those of the chain."""
    pairs = model.counts.to_scipy().tocsr()[:60].tocoo()
    frame = pd.DataFrame({"user": pairs.row, "item": pairs.col, "count": pairs.data})
    folded = model.fold_in(frame, count="count")
    assert len(folded) == 60
    again = model.probability(folded, model.counts.item_ids[4])
    assert model.recommend(folded, n=3).shape[0] == 180
    stored = energy[:, :60, 4]
    means = np.log(again["sigma"] / (1 - again["sigma"])).to_numpy()
    wanted = expit(stored).mean(0)
    assert np.corrcoef(means, np.log(wanted / (1 - wanted)))[0, 1] > 0.8
    assert np.mean(again["sd"]) == pytest.approx(stored.std(0).mean(), rel=0.2)
    once_more = model.fold_in(frame, count="count")
    assert once_more.users.traits.tobytes() == folded.users.traits.tobytes()
    one = folded.take([3])
    assert np.allclose(model.probability(one, model.counts.item_ids[4])["sigma"], again["sigma"][3])
    with pytest.raises(InputError, match="must be whole numbers"):
        model.fold_in(frame.assign(count=frame["count"] * 0.5), count="count")


def test_an_update_starts_from_the_last_sweep_with_new_symbols_at_the_priors_mean(model, tmp_path):
    more = pd.DataFrame({"user": [3, 5000, 5000, 5001], "item": [1, 2, 3, 700]})
    before = model._fitted.sealed.read_array(model._fitted.arrays["users/traits"])
    new = model.update(
        more, tmp_path / "counts.zarr", tmp_path / "model.zarr", sweeps=6, burn=2, thin=2, progress=False, keep=1
    )
    assert new.counts.shape == (902, 25)
    assert new.draws["sweep"].tolist() == [4, 6]
    first = ps.load(tmp_path / "model.zarr", sweep=0)._fitted
    rows = first.sealed.read_array(first.arrays["users/traits"])
    assert rows[: len(before)].tobytes() == before.tobytes()
    assert (rows[-1] == rows[-2]).all()
    assert first.record["start"]["digest"] == model._fitted.record["digest"]
    assert np.isfinite(new.probability(5001, 700)["sigma"]).all()
    with pytest.raises(InputError, match="burn is for draws"):
        ps.PairedSymbols(factors=2).fit(model.counts, tmp_path / "a", burn=3)
