"""`simulate`: the generative process, the same whatever the blocks, with every symbol in it."""

from __future__ import annotations

import sys

import dask
import numpy as np
import pytest
import scipy.stats
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import pairsym_dask as ps
from pairsym_dask.kernels.random import alias_table, fold_draws
from pairsym_dask.pairs import writing
from pairsym_dask.pairs.simulate import PRESETS, Model, read_truth


def probabilities(truth):
    """p(j | i) of the simulated model, dense."""
    energy = truth["user_traits"] @ truth["item_traits"].T + truth["user_bias"][:, None] + truth["item_bias"]
    weights = truth["psi"] / (1 + np.exp(-energy.astype(np.float64)))
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("shape", [(50, 20, 400), (20, 50, 400), (1, 30, 100), (30, 1, 100), (60, 60, 60), (1, 1, 1)])
def test_every_user_and_item_occurs_and_all_pairs_are_there(tmp_path, shape):
    users, items, pairs = shape
    counts = ps.simulate(tmp_path / "s.zarr", users=users, items=items, pairs=pairs, factors=3)
    assert counts.shape == (users, items)
    assert counts.total == pairs
    assert counts.marginal("users").min() >= 1
    assert counts.marginal("items").min() >= 1
    assert counts.user_ids.tolist() == list(range(users))
    by_item = np.zeros(counts.shape)
    for block in range(counts.cuts["items"].blocks):
        tile = counts.rows("items", block)
        rows = np.repeat(np.arange(items), np.diff(tile.indptr))
        by_item[tile.indices, rows] = tile.counts
    np.testing.assert_array_equal(counts.to_scipy().toarray(), by_item)


@settings(max_examples=15, deadline=None)
@given(users=st.integers(1, 40), items=st.integers(1, 40), more=st.integers(0, 50), seed=st.integers(0, 2**64 - 1))
def test_any_shape_has_every_symbol(tmp_path_factory, users, items, more, seed):
    path = tmp_path_factory.mktemp("any") / "s.zarr"
    pairs = max(users, items) + more
    with dask.config.set(scheduler="synchronous"):
        counts = ps.simulate(path, users=users, items=items, pairs=pairs, factors=2, random_state=seed)
    assert counts.total == pairs
    assert min(counts.marginal("users").min(), counts.marginal("items").min()) >= 1


@pytest.mark.parametrize("shape", [(300, 150, 900), (150, 300, 900)])
def test_store_depends_on_the_seed_alone(tmp_path, monkeypatch, shape):
    sizes = dict(zip(("users", "items", "pairs"), shape, strict=True))
    digests = set()
    for k, (rows, look, threads) in enumerate([(10**6, 512, 1), (64, 7, 3), (200, 1, 2)]):
        monkeypatch.setattr(writing, "ROWS", rows)
        monkeypatch.setattr(sys.modules["pairsym_dask.pairs.simulate"], "LOOK", look)
        digests.add(ps.simulate(tmp_path / f"{k}.zarr", **sizes, threads=threads).digest)
    with dask.config.set(scheduler="synchronous"):
        digests.add(ps.simulate(tmp_path / "s.zarr", **sizes).digest)
    assert len(digests) == 1
    assert ps.simulate(tmp_path / "other.zarr", **sizes, random_state=1).digest not in digests


def test_pairs_follow_the_generative_process(tmp_path):
    counts = ps.simulate(tmp_path / "s.zarr", users=8, items=6, pairs=80_000, factors=4, random_state=3, truth=True)
    truth = read_truth(counts)
    shown, p = counts.to_scipy().toarray(), probabilities(truth)
    for i in range(8):
        assert scipy.stats.chisquare(shown[i], shown[i].sum() * p[i]).pvalue > 1e-3
    users = counts.marginal("users")
    assert scipy.stats.chisquare(users - 1, (users.sum() - 8) * truth["pi"]).pvalue > 1e-3


def test_truth_is_long_tailed_and_energies_are_moderate(tmp_path):
    counts = ps.simulate(tmp_path / "s.zarr", users=3000, items=2000, pairs=9000, truth=True)
    truth = read_truth(counts)
    assert truth["user_traits"].shape == (3000, 20)
    energy = truth["user_traits"] @ truth["item_traits"].T + truth["user_bias"][:, None] + truth["item_bias"]
    assert 1 < energy.std() < 2
    for weights in (truth["pi"], truth["psi"]):
        assert weights.sum() == pytest.approx(1)
        assert np.sort(weights)[-len(weights) // 100 :].sum() > 0.05
    # Independent draws: no stream may repeat another one.
    traits = np.concatenate([truth["user_traits"][:2000], truth["item_traits"]], axis=1)
    assert np.abs(np.corrcoef(traits.T) - np.eye(40)).max() < 0.1
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="r")
    np.testing.assert_array_equal(group["truth/item_bias"][:], truth["item_bias"])
    assert group["truth/user_traits"].metadata.dimension_names == ("user", "factor")


def test_truth_does_not_change_the_pairs(tmp_path):
    sizes = {"users": 40, "items": 30, "pairs": 200}
    one = ps.simulate(tmp_path / "a.zarr", **sizes)
    two = ps.simulate(tmp_path / "b.zarr", **sizes, truth=True)
    assert (one.to_scipy() != two.to_scipy()).nnz == 0
    with pytest.raises(ps.InputError, match="keeps no truth"):
        read_truth(one)


def test_preset_has_its_shape_and_few_pairs_twice(tmp_path):
    counts = ps.simulate(tmp_path / "s.zarr", "xbox-movies", 0.01)
    assert counts.shape == (62_000, 12_000)
    assert counts.total == 560_000
    assert counts.nnz > 0.97 * counts.total
    assert set(PRESETS) == {"xbox-movies", "netflix45", "phone-apps"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "movies"}, "no preset 'movies'; there are: xbox-movies, netflix45, phone-apps"),
        ({}, "give users, items and pairs, or a preset"),
        ({"users": 3, "pairs": 5}, "give users, items and pairs"),
        ({"preset": "netflix45", "users": 3}, "not both"),
        ({"users": 0, "items": 3, "pairs": 5}, "users must be a whole number, at least 1, not 0"),
        ({"users": 2.5, "items": 3, "pairs": 5}, "users must be a whole number"),
        ({"users": 3, "items": True, "pairs": 5}, "items must be a whole number"),
        ({"users": 9, "items": 3, "pairs": 5}, "at least as many as users, so that each occurs: 5 is below 9"),
        ({"users": 3, "items": 9, "pairs": 5}, "at least as many as items"),
        ({"preset": "xbox-movies", "scale": 1e-4}, "5600 is below 12000"),
        ({"preset": "xbox-movies", "scale": 0}, "scale must be a finite number above 0"),
        ({"preset": "xbox-movies", "scale": -1}, "scale must be a finite number above 0"),
        ({"preset": "xbox-movies", "scale": float("nan")}, "scale must be a finite number above 0"),
        ({"preset": "xbox-movies", "scale": "big"}, "scale must be a finite number above 0"),
        ({"users": 3, "items": 3, "pairs": 5, "factors": 0}, "factors must be a whole number, at least 1"),
        ({"users": 3, "items": 3, "pairs": 5, "random_state": -1}, "random_state must be a whole number, at least 0"),
        ({"users": 3, "items": 3, "pairs": 5, "random_state": 2**64}, "below 2.*64, not 18446744073709551616"),
    ],
)
def test_bad_values_are_refused(tmp_path, options, message):
    with pytest.raises(ps.InputError, match=message):
        ps.simulate(tmp_path / "s.zarr", **options)
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize("step", ["draw-pairs", "write-tile-by-item"])
def test_interrupted_simulation_is_no_store_and_runs_again(tmp_path, monkeypatch, step):
    sizes = {"users": 60, "items": 30, "pairs": 300}
    run = writing.Stages.run

    def interrupt(self, name, function, tasks):
        results = run(self, name, function, tasks)
        if name == step:
            raise KeyboardInterrupt
        return results

    with monkeypatch.context() as patch:
        patch.setattr(writing.Stages, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ps.simulate(tmp_path / "s.zarr", **sizes)
    with pytest.raises(ps.StoreError, match="not complete"):
        ps.open_counts(tmp_path / "s.zarr")
    assert ps.simulate(tmp_path / "s.zarr", **sizes).digest == ps.simulate(tmp_path / "t.zarr", **sizes).digest


def test_alias_table_is_the_distribution():
    rng = np.random.default_rng(0)
    for weights in (np.ones(1), np.full(7, 1 / 7), rng.dirichlet(np.full(300, 0.1))):
        kept, alias = alias_table(weights)
        found = kept.copy()
        np.add.at(found, alias, 1 - kept)
        np.testing.assert_allclose(found / weights.size, weights, atol=1e-15)


def test_draws_are_folded_into_distinct_pairs():
    rng = np.random.default_rng(0)
    lengths = [0, 1, 5, 64, 65, 400, 0]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    drawn = rng.integers(0, 30, indptr[-1]).astype(np.uint32)
    rows = np.repeat(np.arange(len(lengths)), lengths).astype(np.uint64)
    wanted = np.unique((rows << np.uint64(32)) | drawn, return_counts=True)
    keys, counts = fold_draws(drawn, indptr)
    np.testing.assert_array_equal(keys, wanted[0])
    np.testing.assert_array_equal(counts, wanted[1])


def test_normals_do_not_depend_on_where_a_block_begins():
    model = Model(100, 50, 1000, 5, 7)
    whole = model.normals(16, 0, 100, 1.0, 5)
    np.testing.assert_array_equal(whole[30:77], model.normals(16, 30, 77, 1.0, 5))
    assert scipy.stats.kstest(model.normals(17, 0, 4000, 2.0, 5).ravel() / 2, "norm").pvalue > 1e-3
