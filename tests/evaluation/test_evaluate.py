"""`evaluate` and `compare` against measures written out item by item."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import dask
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.scored import Chances, Table, make_counts

import pairsym_dask as ps
from pairsym_dask.evaluation import ranks

mpl.use("Agg")
OF_PAIRS = ["R", "mean_percentile", "hr", "mrr"]
MEASURES = ["position", *OF_PAIRS, "ndcg"]


def reference(scores, seen, user, item, n):
    """All measures of one held-out pair: every order of the items that tie with it is tried."""
    unseen = [j for j in range(len(seen[user])) if not seen[user, j]]
    f = scores[user]
    below = sum(f[item] > f[j] for j in unseen)
    above = sum(f[j] > f[item] for j in unseen)
    ties = len(unseen) - 1 - below - above
    places = [above + 1 + k for k in range(ties + 1)]
    return {
        "position": np.mean(places),
        "R": below / len(unseen),
        "mean_percentile": np.mean([(len(unseen) - p) / (len(unseen) - 1) for p in places]) if len(unseen) > 1 else 1.0,
        "hr": np.mean([p <= n for p in places]),
        "ndcg": np.mean([1 / np.log2(1 + p) if p <= n else 0.0 for p in places]),
        "mrr": np.mean([1 / p for p in places]),
    }


@pytest.mark.parametrize("shape", [(150, 23), (40, 300)])  # users are the long side, and the short one
@pytest.mark.parametrize("levels", [3, 10**9])
@pytest.mark.parametrize("n", [1, 5, 400])
def test_measures_are_those_of_their_definitions(tmp_path, shape, levels, n):
    counts, held_out = make_counts(tmp_path / "c.zarr", *shape)
    scores = np.random.default_rng(1).integers(levels, size=shape)
    result = ps.evaluate(Table(counts, scores), held_out, n=n)
    seen = counts.to_scipy().toarray() > 0
    expected = pd.DataFrame([reference(scores, seen, i, j, n) for i, j in held_out.to_numpy()])
    pd.testing.assert_frame_equal(result.per_user[MEASURES], expected[MEASURES], check_dtype=False, rtol=1e-12)
    pd.testing.assert_frame_equal(result.per_user[["user", "item"]], held_out)
    np.testing.assert_array_equal(result.per_user["c"], counts.to_scipy().sum(1).A1[held_out["user"]])
    assert result.per_user["log_likelihood"].isna().all()
    for name in OF_PAIRS:
        assert result.overall[name] == pytest.approx(expected[name].mean())


def test_last_unseen_item_is_first_and_nothing_below_it(tmp_path):
    counts = ps.ingest(scipy.sparse.csr_matrix([[1, 2, 0], [1, 0, 0]]), tmp_path / "c.zarr")
    held_out = pd.DataFrame({"user": [0], "item": [2]})
    row = ps.evaluate(Table(counts, np.zeros((2, 3))), held_out).per_user.iloc[0]
    assert (row["position"], row["R"], row["mean_percentile"], row["ndcg"]) == (1, 0, 1, 1)


def test_bins_are_powers_of_two_of_the_training_count(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    result = ps.evaluate(Table(counts, np.random.default_rng(0).random(counts.shape)), held_out)
    c = counts.to_scipy().sum(1).A1[held_out["user"]]
    names = {"0": (0, 0), "1": (1, 1), **{f"{2**k}-{2 ** (k + 1) - 1}": (2**k, 2 ** (k + 1) - 1) for k in range(1, 9)}}
    for row in result.frame.to_dict("records"):
        low, high = names[row["bin"]]
        here = result.per_user[(c >= low) & (c <= high)]
        assert (row["low"], row["pairs"], row["users"]) == (low, len(here), here["user"].nunique())
        for name in OF_PAIRS:
            assert row[name] == pytest.approx(here[name].mean())
        lists = result.lists[result.lists["user"].isin(here["user"])]
        assert len(lists) == row["users"]
        assert row["ndcg"] == pytest.approx(lists["ndcg"].mean())
    assert result.frame["pairs"].sum() == len(held_out)  # an empty bin has no row, and no pair is lost
    assert result.frame["low"].is_monotonic_increasing


def test_fractional_counts_have_bins_below_one(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr", items=6, fractional=True)
    frame = ps.evaluate(Table(counts, np.zeros(counts.shape)), held_out).frame
    assert {"0", "[0.5, 1)", "[1, 2)", "[2, 4)"} <= set(frame["bin"])


def test_standard_errors_are_over_users(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    model = Table(counts, np.random.default_rng(0).random(counts.shape))
    one_each = held_out.drop_duplicates("user")
    once = ps.evaluate(model, one_each)
    values = once.per_user["R"]
    assert once.overall["R_se"] == pytest.approx(values.std(ddof=1) / len(values) ** 0.5)
    # The same values twice for every user say no more than once.
    twice = dataclasses.replace(once, per_user=pd.concat([once.per_user, once.per_user], ignore_index=True))
    assert twice.overall["R_se"] == pytest.approx(once.overall["R_se"])


def test_log_likelihood_is_log_p_of_the_held_out_items(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    scores = np.random.default_rng(0).random(counts.shape)
    result = ps.evaluate(Chances(counts, scores), held_out)
    p = scores / scores.sum(1, keepdims=True)
    np.testing.assert_allclose(result.per_user["log_likelihood"], np.log(p[held_out["user"], held_out["item"]]))
    assert result.overall["perplexity"] == pytest.approx(np.exp(-result.overall["log_likelihood"]))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    counts, held_out = make_counts(folder / "c.zarr", 300, 40)
    return ps.PairedSymbols(factors=3).fit(counts, folder / "m.zarr", sweeps=3, progress=False), held_out


@pytest.mark.parametrize("popularity", [0, 0.5, 1])
def test_fitted_model_is_judged_by_its_scores_and_conditionals(fitted, popularity):
    model, held_out = fitted
    scores = model.scores(model.counts.user_ids, popularity)
    result = ps.evaluate(model, held_out, popularity)
    same = ps.evaluate(Table(model.counts, scores), held_out)
    pd.testing.assert_frame_equal(result.per_user[MEASURES], same.per_user[MEASURES], rtol=1e-4)
    for row in result.per_user.head(20).to_dict("records"):
        assert row["log_likelihood"] == pytest.approx(np.log(model.conditional(row["user"])[row["item"]]), abs=1e-5)


@pytest.mark.cluster
def test_result_does_not_depend_on_the_scheduler(fitted, cluster):
    model, held_out = fitted
    expected = ps.evaluate(model, held_out, threads=2).per_user
    with dask.config.set(scheduler="synchronous"):
        pd.testing.assert_frame_equal(ps.evaluate(model, held_out).per_user, expected)
        ps.evaluate(Table(model.counts, np.zeros(model.counts.shape)), held_out)
    pd.testing.assert_frame_equal(ps.evaluate(model, held_out, memory="100MiB").per_user, expected)
    from distributed import Client

    with Client(cluster):
        pd.testing.assert_frame_equal(ps.evaluate(model, held_out).per_user, expected)
        # An object that cannot travel stays here.
        stays = Table(model.counts, np.zeros(model.counts.shape))
        stays.lock = threading.Lock()
        assert ps.evaluate(stays, held_out).overall["R"] == 0


def test_result_does_not_depend_on_how_many_are_scored_together(tmp_path, monkeypatch):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    model = Table(counts, np.random.default_rng(0).integers(5, size=counts.shape))
    expected = ps.evaluate(model, held_out).per_user
    for cells, batch in itertools.product((1, 100), (1, 10**6)):
        monkeypatch.setattr(ranks, "CELLS", cells)
        monkeypatch.setattr(ranks, "BATCH", batch)
        pd.testing.assert_frame_equal(ps.evaluate(model, held_out).per_user, expected)


def test_bad_input_is_one_clear_sentence(fitted):
    model, held_out = fitted
    counts = model.counts
    seen = counts.to_scipy().tocoo()
    first = {"user": int(seen.row[0]), "item": int(seen.col[0])}
    cases = [
        (held_out.head(0), "held_out holds no pairs"),
        (held_out.rename(columns={"item": "movie"}), "lacks the column item; its columns are user, movie"),
        (pd.concat([held_out, held_out.head(1)]), "more than once"),
        (pd.concat([held_out, pd.DataFrame([first])]), "is in the training store"),
        (held_out.assign(user=999), "unknown user label.*999"),
        (held_out.assign(item=999), "unknown item label.*999"),
        (held_out.astype("Int64").assign(item=pd.array([pd.NA] * len(held_out), "Int64")), "no item in row 0"),
        ("held_out.csv", "must be a frame with columns user and item"),
    ]
    for frame, message in cases:
        with pytest.raises(ps.InputError, match=message):
            ps.evaluate(model, frame)
    with pytest.raises(ps.InputError, match="n must be a whole number"):
        ps.evaluate(model, held_out, n=0)
    with pytest.raises(ps.InputError, match="popularity must be"):
        ps.evaluate(model, held_out, popularity=2)
    with pytest.raises(ps.InputError, match="not fitted yet"):
        ps.evaluate(ps.PairedSymbols(), held_out)
    with pytest.raises(ps.InputError, match="must have counts"):
        ps.evaluate(object(), held_out)
    with pytest.raises(ps.MemoryBudgetError, match="give at least"):
        ps.evaluate(model, held_out, memory="1MiB")
    with pytest.raises(ps.InputError, match="not a number"):
        ps.evaluate(Table(counts, np.full(counts.shape, np.nan)), held_out)
    with pytest.raises(ps.InputError, match="have shape"):
        ps.evaluate(Table(counts, np.zeros((counts.shape[0], 2))), held_out)


def test_compare_of_equal_models_finds_no_difference(fitted):
    model, held_out = fitted
    frame = ps.compare({"a": model, "b": model}, held_out).frame
    assert (frame[["difference", "low", "high"]] == 0).all(axis=None)


def test_compare_tells_better_from_worse_and_noise_from_both(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    rng = np.random.default_rng(0)
    scores = rng.random(counts.shape)
    good = scores.copy()
    good[held_out["user"], held_out["item"]] += 0.5
    models = {
        "good": Chances(counts, good),
        "poor": Chances(counts, scores),
        "other": Table(counts, rng.random(scores.shape)),
    }
    result = ps.compare(models, held_out, random_state=1)
    frame = result.frame.set_index(["model", "measure"])
    for measure in ("R", "recall", "ndcg", "log_likelihood"):
        row = frame.loc[("poor", measure)]
        assert row["low"] < row["difference"] < row["high"] < 0
        assert row["difference"] == pytest.approx(row["value"] - frame.loc[("good", measure), "value"])
    assert np.isnan(frame.loc[("other", "log_likelihood"), "value"])
    noise = ps.compare({"poor": models["poor"], "other": models["other"]}, held_out, random_state=1).frame
    row = noise.set_index(["model", "measure"]).loc[("other", "R")]
    assert row["low"] < 0 < row["high"]
    # The interval is about two standard errors of the mean difference to either side.
    one = {name: result.evaluations[name].per_user for name in models}
    difference = one["poor"]["R"] - one["good"]["R"]
    by_user = (difference - difference.mean()).groupby(held_out["user"]).sum()
    se = np.sqrt((by_user**2).sum()) / len(difference)
    row = frame.loc[("poor", "R")]
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * se, rel=0.15)
    pd.testing.assert_frame_equal(ps.compare(models, held_out, random_state=1).frame, result.frame)


def test_compare_refuses_models_of_other_stores(fitted, tmp_path):
    model, held_out = fitted
    other, _ = make_counts(tmp_path / "c.zarr", 300, 40, seed=5)
    with pytest.raises(ps.InputError, match="'b' was fitted to another store"):
        ps.compare({"a": model, "b": Table(other, np.zeros(other.shape))}, held_out)
    with pytest.raises(ps.InputError, match="at least one model"):
        ps.compare({}, held_out)


def test_results_print_and_plot(fitted):
    model, held_out = fitted
    result = ps.evaluate(model, held_out, n=7)
    text = str(result)
    assert "NDCG@7" in text
    assert f"{result.overall['R']:.4f}" in text
    assert "<table" in result._repr_html_()
    axes = result.plot()
    assert len(axes.containers) == 1
    both = ps.compare({"ours": model, "flat": Table(model.counts, np.zeros(model.counts.shape))}, held_out)
    assert "flat" in str(both)
    assert "<table" in both._repr_html_()
    assert [text.get_text() for text in both.plot().get_legend().get_texts()] == ["ours", "flat"]
    mpl.pyplot.close("all")


def test_held_out_pairs_come_in_the_shapes_that_pairs_come_in(tmp_path):
    counts, held_out = make_counts(tmp_path / "c.zarr")
    table = Table(counts, np.random.default_rng(0).random(counts.shape))
    wanted = ps.evaluate(table, held_out).overall
    shapes = [held_out.to_dict("list"), list(held_out[["user", "item"]].itertuples(index=False, name=None))]
    shapes.append(pytest.importorskip("polars").from_pandas(held_out))
    for shape in shapes:
        pd.testing.assert_series_equal(ps.evaluate(table, shape).overall, wanted)
    with pytest.raises(ps.InputError, match="held_out must be a frame with columns user and item, not a str"):
        ps.evaluate(table, "held_out.csv")
