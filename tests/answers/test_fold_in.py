"""Users from outside the store: their posterior against the dense reference, and what `recommend` makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers import dense
from helpers.stores import fitted_arrays, make_store, random_counts
from scipy.special import digamma, logsumexp

import pairsym_dask as ps
from pairsym_dask.answers import given

VARIANTS = [{}, {"biases": False}, {"selection": "constant"}, {"censored_ratio": 1.0, "tau_u": 1.0}]


def dense_state(model, rows=None):
    """A model's committed state as the dense reference holds it."""
    arrays = {path.replace("s/", "_", 1): array for path, array in fitted_arrays(model).items() if path != "users/next"}
    state = dense.DenseState(**arrays, xi_star=model._fitted.scalar("xi_star"))
    if rows is None:
        return state
    return replace(state, **{name: array[rows] for name, array in vars(state).items() if name.startswith("user_")})


def dense_messages(state, counts):
    return dense.dense_log_logistic(state, dense.dense_xi(state, counts), sign=-1) @ state.item_background


def dense_fold_in(model, counts, new):
    """`new` (users, items) folded in by the paper's double sums: s by its formula, all else to its fixed point."""
    total, users, settings = counts.sum(), counts.shape[0], model._fitted.settings
    censored = settings.censored_ratio * total
    whole = users * settings.alpha + total + censored
    state = dense_state(model)
    # log Z of the s that follows from the committed state
    log_s = digamma(settings.alpha + counts.sum(1) + censored * state.user_background) - digamma(whole)
    if settings.selection == "bayes":
        log_s = log_s + dense_messages(state, counts)
    log_z = logsumexp(log_s)

    rows = np.zeros(len(new), int)  # any start: the fixed point does not depend on it
    state = dense_state(model, rows)
    ratio = {"censored_ratio": censored / new.sum()}  # D' is the store's

    def settle(state):
        for _ in range(300):
            xi = dense.dense_xi(state, new)
            if settings.biases:
                state = dense.step_user_bias(state, new, xi, **ratio, tau_b=settings.tau_b)
            state = dense.step_user_traits(state, new, xi, **ratio, tau_u=settings.tau_u)
        return state

    share = (settings.alpha + new.sum(1)) / (users * settings.alpha + total)
    state = settle(replace(state, user_background=share))
    log_s = digamma(settings.alpha + new.sum(1) + censored * share) - digamma(whole) - log_z
    if settings.selection == "bayes":
        log_s = log_s + dense_messages(state, new)
    return settle(replace(state, user_background=np.exp(log_s)))


def frame_of(matrix, first=0):
    user, item = np.nonzero(matrix)
    return pd.DataFrame({"user": first + user, "item": item, "count": matrix[user, item]})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-8), pytest.param("float32", 5e-3, marks=pytest.mark.slow)]
)
def test_folded_in_users_equal_the_dense_fixed_point(tmp_path, variant, dtype, tolerance):
    counts = random_counts(300, 60, 0.15, seed=1)
    counts[3], counts[:, 5] = 0, 0
    new = random_counts(37, 60, 0.2, seed=2)
    new[:, 0] += 1
    model = ps.PairedSymbols(**{"factors": 6, "dtype": dtype, "selection": "constant", **variant})
    model.fit(make_store(counts, tmp_path / "counts.zarr"), tmp_path / "model.zarr", sweeps=5, progress=False)
    folded = model.fold_in(frame_of(new), count="count")
    state = dense_fold_in(model, counts, new)
    found = {
        "user_mean": folded.users.mean,
        "user_precision": 1 / folded.users.variance,
        "user_background": folded.background,
        "user_bias": folded.users.bias,
    }
    for name, array in found.items():
        wanted = getattr(state, name)
        if name == "user_bias" and not model.biases:
            assert (array == 0).all()
            assert (folded.users.bias_variance == 0).all()
            continue
        order = np.argsort(folded.user_ids)
        assert np.abs(array[order] - wanted).max() / np.abs(wanted).max() < tolerance, name


def test_a_user_of_the_store_folded_in_is_near_where_the_fit_has_them(small, small_model):
    frame = frame_of(small.to_scipy().toarray())
    folded = small_model.fold_in(frame, count="count")
    assert folded.user_ids.tolist() == frame["user"].unique().tolist()
    state = dense_state(small_model, folded.user_ids)
    distance = np.abs(folded.users.mean - state.user_mean) * np.sqrt(state.user_precision)
    assert np.median(distance) < 0.5
    assert np.corrcoef(np.log(folded.background), np.log(state.user_background))[0, 1] > 0.95


def test_folding_in_depends_neither_on_company_nor_on_threads(small, small_model, monkeypatch):
    frame = frame_of(small.to_scipy().toarray()[:50])
    together = small_model.fold_in(frame, count="count", threads=2)
    alone = small_model.fold_in(frame[frame["user"] == 7], count="count", threads=1)
    assert (together.users.mean[7] == alone.users.mean[0]).all()
    assert together.background[7] == alone.background[0]
    monkeypatch.setattr(given, "BLOCK_USERS", 3)
    cut = small_model.fold_in(frame, count="count")
    assert (cut.users.mean == together.users.mean).all()


@pytest.mark.cluster
def test_folding_in_on_a_cluster_gives_the_same_bits(small, small_model, cluster):
    from distributed import Client

    frame = frame_of(small.to_scipy().toarray()[:40])
    here = small_model.fold_in(frame, count="count")
    with Client(cluster) as client:
        there = small_model.fold_in(frame, count="count", client=client)
    assert (here.users.mean == there.users.mean).all()


@pytest.fixture
def folded(small, small_model):
    return small_model.fold_in(frame_of(small.to_scipy().toarray()[:20], first=1000), count="count")


def test_recommend_takes_folded_in_users_and_leaves_out_their_own_pairs(small, small_model, folded):
    table = small_model.recommend(folded, n=90)
    seen = small.to_scipy().toarray()[:20] > 0
    assert table["user"].unique().tolist() == folded.user_ids.tolist()
    for user, part in table.groupby("user"):
        assert sorted(part["item"]) == np.flatnonzero(~seen[user - 1000]).tolist()
    everything = small_model.recommend(folded, n=90, exclude_seen=False)
    assert len(everything) == 20 * 90
    assert everything.groupby("user")["probability"].sum().to_numpy() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("strategy", ["thompson", "ucb"])
def test_every_strategy_works_on_folded_in_users(small_model, folded, strategy):
    assert len(small_model.recommend(folded, n=5, strategy=strategy)) == 100


def test_answers_about_folded_in_users_agree_with_each_other(small_model, folded):
    table = small_model.recommend(folded, n=3)
    one = folded.take(1000)
    p = small_model.conditional(one)
    assert p.sum() == pytest.approx(1)
    first = table[table["user"] == 1000]
    assert first["probability"].to_numpy() == pytest.approx(p[first["item"]].to_numpy(), rel=1e-5)
    sigma = small_model.probability(one, first["item"])
    assert sigma["user"].tolist() == [1000, 1000, 1000]
    assert sigma["sigma"].to_numpy() == pytest.approx(first["sigma"].to_numpy(), rel=1e-5)
    assert small_model.scores(folded).shape == (20, 90)
    with pytest.raises(ps.InputError, match="one user at a time, not for 20"):
        small_model.conditional(folded)


def test_some_of_the_folded_in_users_are_taken_by_label(small_model, folded):
    some = folded.take([1007, 1002])
    assert some.user_ids.tolist() == [1007, 1002]
    table = small_model.recommend(folded, n=4)
    wanted = pd.concat([table[table["user"] == user] for user in (1007, 1002)], ignore_index=True)
    pd.testing.assert_frame_equal(small_model.recommend(some, n=4), wanted, rtol=1e-5)
    with pytest.raises(ps.InputError, match="not among the folded-in users: 5, 6"):
        folded.take([5, 1002, 6])
    with pytest.raises(ps.InputError, match="not among the folded-in users: 'anna'"):
        folded.take("anna")


def test_where_only_labels_of_the_store_will_do_folded_in_users_are_named(small_model, folded):
    for ask in (lambda: small_model.explain(folded, 1), lambda: small_model.recommend([3, folded])):
        with pytest.raises(ps.InputError, match="unknown user label: <20 folded-in users"):
            ask()


def test_folded_in_users_of_another_model_are_refused(tmp_path, small, folded):
    other = ps.PairedSymbols(factors=4).fit(small, tmp_path / "other.zarr", sweeps=2, progress=False)
    with pytest.raises(ps.InputError, match="folded in with another model"):
        other.recommend(folded)


def test_repeated_pairs_are_added_up_and_order_does_not_matter(small_model):
    given = pd.DataFrame({"user": ["b", "a", "a", "b"], "item": [3, 1, 1, 2], "count": [1.0, 0.5, 1.5, 2.0]})
    folded = small_model.fold_in(given, count="count")
    summed = pd.DataFrame({"user": ["a", "b", "b"], "item": [1, 2, 3], "count": [2, 2, 1]})
    again = small_model.fold_in(pa.Table.from_pandas(summed), count="count")
    assert folded.user_ids.tolist() == ["b", "a"]
    assert again.user_ids.tolist() == ["a", "b"]
    assert (folded.users.mean == again.users.mean[[1, 0]]).all()


def test_huge_counts_and_every_item_seen_settle(small_model):
    frame = pd.DataFrame({"user": "all", "item": np.arange(90), "count": 5000})
    folded = small_model.fold_in(frame, count="count")
    assert np.isfinite(folded.users.mean).all()
    assert small_model.recommend(folded).empty


def test_strings_as_labels(tmp_path):
    frame = pd.DataFrame({"user": list("aabbcc"), "item": ["x", "y", "y", "z", "x", "z"]})
    counts = ps.ingest(frame, tmp_path / "counts.zarr")
    model = ps.PairedSymbols(factors=2).fit(counts, tmp_path / "model.zarr", sweeps=2, progress=False)
    with pytest.warns(UserWarning, match="1 of 2 pairs are left out, because the store does not know item 'new'"):
        folded = model.fold_in(pd.DataFrame({"user": ["d", "d"], "item": ["x", "new"]}))
    assert set(model.recommend(folded)["item"]) == {"y", "z"}
    assert set(model.recommend(folded)["user"]) == {"d"}
    with pytest.raises(ps.InputError, match=r"'item' of the frame holds integers, the items of .* are strings"):
        model.fold_in(pd.DataFrame({"user": ["d"], "item": [1]}))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"user": [1, 2, 2], "item": [0, 900, 901]}, "user 2 cannot be folded in without a single known item"),
        ({"user": range(7), "item": [900] * 7}, "users 0, 1, 2, 3, 4 and 2 more cannot be folded in"),
        ({"user": [], "item": []}, "no pairs in the frame"),
        ({"user": [1]}, "no column 'item' in the frame"),
        ({"user": [1, None], "item": [2, 3]}, r"1 without a user \(first: row 1 of the frame\)"),
        ({"user": [1], "item": ["0"]}, "'item' of the frame holds strings, the items of .* are integers"),
    ],
)
def test_bad_frames_are_refused_in_words(small_model, frame, words):
    with pytest.raises(ps.InputError, match=words):
        small_model.fold_in(pd.DataFrame(frame))


def test_other_things_than_frames_and_unused_counts_are_named(small_model):
    with pytest.raises(ps.InputError, match="list of items, or a frame with columns 'user' and 'item', not a int"):
        small_model.fold_in(7)
    with pytest.raises(ps.InputError, match="must be different columns, not 'user', 'user'"):
        small_model.fold_in(pd.DataFrame({"user": [1]}), item="user")
    with pytest.warns(UserWarning, match='"count" of the frame is not used'):
        small_model.fold_in(pd.DataFrame({"user": [1], "item": [2], "count": [3]}))
    with pytest.raises(ps.InputError, match=r"1 with a negative count \(first: '-3' in row 0 of the frame\)"):
        small_model.fold_in(pd.DataFrame({"user": [1], "item": [2], "count": [-3]}), count="count")
