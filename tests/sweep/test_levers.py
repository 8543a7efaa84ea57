"""Levers beside the paper's model, each against the dense reference, with a bound that never falls."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.command import run
from helpers.stores import fitted_arrays, largest_difference, make_store, random_counts, reference

import pairsym_dask as ps
from pairsym_dask.settings import Settings

OFF = {"prior_growth": 0.0, "background_users": 1.0, "background_items": 1.0, "temperature": 1.0, "discount": 0.0}
COUNTS = {"selection": "counts", **OFF, "censored_ratio": 5.0, "tau_u": 0.1, "tau_v": 0.1}
LEVERS = {
    "by counts": COUNTS,
    "growing priors": {**COUNTS, "prior_growth": 1.0},
    "flat backgrounds": {**COUNTS, "background_users": 0.2, "background_items": 0.4},
    "cold": {**COUNTS, "temperature": 0.3},
    "frozen": {**COUNTS, "temperature": 0.0},
    "cold, full messages": {"selection": "bayes", "temperature": 0.5},
    "discounted": {**COUNTS, "discount": 0.5},
    "all": {**COUNTS, "prior_growth": 0.7, "background_users": 0.3, "background_items": 0.5, "temperature": 0.1,
            "discount": 0.4, "censored_ratio": 12.0, "tau_u": 2.0, "tau_v": 1.5},
}  # fmt: skip


@pytest.fixture(params=[(230, 60), (50, 210)], ids=["many users", "many items"])
def dense(request):
    counts = random_counts(*request.param, 0.15, seed=4)
    counts[3], counts[:, 5] = 0, 0  # a user and an item without pairs
    return counts


@pytest.mark.parametrize("lever", LEVERS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-8), pytest.param("float32", 2e-3, marks=pytest.mark.slow)]
)
def test_every_lever_equals_the_dense_reference(lever, dtype, tolerance, dense, tmp_path):
    model = ps.PairedSymbols(factors=5, dtype=dtype, **LEVERS[lever])
    model.fit(make_store(dense, tmp_path / "counts.zarr"), tmp_path / "model.zarr", sweeps=4, progress=False)
    state, bound = reference(dense, model, 4)
    assert largest_difference(model, state) < tolerance
    assert abs(model.history["elbo"].iloc[-1] / bound - 1) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize("lever", LEVERS)
def test_the_bound_never_falls_under_any_lever(lever, small, tmp_path):
    model = ps.PairedSymbols(factors=4, dtype="float64", **LEVERS[lever])
    bound = model.fit(small, tmp_path / "model.zarr", sweeps=50, progress=False).history["elbo"].to_numpy()
    assert (np.diff(bound) >= -1e-10 * np.abs(bound[1:])).all()
    assert bound[-1] > bound[0]


def test_discounted_counts_sum_to_the_same_and_the_store_stays(small, tmp_path):
    before = small.to_scipy().toarray()
    model = ps.PairedSymbols(**{**COUNTS, "factors": 3, "discount": 0.5})
    arrays = fitted_arrays(model.fit(small, tmp_path / "model.zarr", sweeps=1, progress=False))
    assert (ps.open_counts(small.path).to_scipy().toarray() == before).all()
    total = small.total * (1 + model.censored_ratio)
    for side, rows in zip(("users", "items"), small.shape, strict=True):
        assert arrays[f"{side}/selection"].sum() == pytest.approx(total + rows * model.alpha, rel=1e-6)


def test_new_users_are_folded_in_as_the_fit_would_have_them(small, tmp_path):
    """A stored user's own pairs, folded in, give that user's posterior: items and weights are the fitted ones."""
    model = ps.PairedSymbols(factors=3, dtype="float64", **LEVERS["all"])
    model.fit(small, tmp_path / "model.zarr", sweeps=60, progress=False)
    pairs = small.to_scipy().tocsr()[:20].tocoo()
    import pandas as pd

    frame = pd.DataFrame({"user": pairs.row, "item": pairs.col, "count": pairs.data})
    folded = model.fold_in(frame, count="count")
    stored = model.recommend(list(range(20)), n=5, exclude_seen=False)
    again = model.recommend(folded, n=5, exclude_seen=False)
    assert np.allclose(stored["sigma"], again["sigma"], atol=0.02)


@pytest.mark.parametrize("name", ["prior_growth", "background_users", "background_items", "temperature", "discount"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "much", True])
def test_levers_outside_their_range_are_one_sentence(name, value, small, tmp_path):
    with pytest.raises(ps.InputError, match=rf"^{name} must be a number from 0 to 1, not"):
        ps.PairedSymbols(selection="counts", **{name: value}).fit(small, tmp_path / "m.zarr")
    assert not (tmp_path / "m.zarr").exists()


@pytest.mark.parametrize("selection", ["bayes", "constant"])
@pytest.mark.parametrize("lever", [{"background_items": 0.5}, {"background_users": 0.0}, {"prior_growth": 1.0}])
def test_levers_that_need_fixed_weights_say_so(selection, lever, small, tmp_path):
    with pytest.raises(ps.InputError, match="needs selection='counts'"):
        ps.PairedSymbols(selection=selection, **lever).fit(small, tmp_path / "m.zarr")


def test_presets_are_one_word_away(small, tmp_path):
    paper = ps.PairedSymbols.paper(factors=3, dtype="float64")
    paper.fit(small, tmp_path / "paper.zarr", sweeps=3, progress=False)
    state, _ = reference(small.to_scipy().toarray().astype(float), paper, 3)
    assert largest_difference(paper, state) < 1e-8
    lists = ps.PairedSymbols(factors=3).fit(small, tmp_path / "lists.zarr", sweeps=2, progress=False)
    assert ps.load(tmp_path / "lists.zarr").get_params() == Settings(**lists.get_params()).to_dict()
    assert (lists._fitted.settings.temperature, lists._fitted.settings.selection) == (0.0, "counts")


def test_what_is_not_given_is_as_the_store_began(small, tmp_path):
    """A store may have begun when other settings were the defaults: a script without them goes on."""
    began = {"factors": 3, "selection": "constant", "censored_ratio": 7.0}
    ps.PairedSymbols(**began).fit(small, tmp_path / "m.zarr", sweeps=1, progress=False)
    model = ps.PairedSymbols(factors=3).fit(small, tmp_path / "m.zarr", sweeps=2, progress=False)
    assert model._fitted.sweep == 2
    assert (model._fitted.settings.selection, model._fitted.settings.censored_ratio) == ("constant", 7.0)
    with pytest.raises(ps.StoreError, match=r"other settings: discount=0.2 \(was 0.0\)"):
        ps.PairedSymbols(factors=3, discount=0.2).fit(small, tmp_path / "m.zarr", sweeps=3, progress=False)


@pytest.mark.slow
def test_a_preset_on_the_command_line_yields_to_what_is_given(small, tmp_path):
    done = run(
        "fit", small.path, tmp_path / "m.zarr", "--preset", "paper", "--factors", 4, "--tau-u", 0.5, "--sweeps", 1
    )
    assert done.returncode == 0, done.stderr
    model = ps.load(tmp_path / "m.zarr")
    assert (model.factors, model.tau_u, model.tau_v, model.selection) == (4, 0.5, 1.0, "bayes")
