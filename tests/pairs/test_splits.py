"""`leave_one_out` and `split_by_fraction`: what is held out, what is kept, and what it does not depend on."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.pairs.splits import pair_numbers
from pairsym_dask.store import cuts

SHAPES = [(400, 30), (30, 400), (1, 40)]


def make(path, shape, seed=0, fractional=False):
    """A store with users of no, one and several pairs, and an item with a single pair."""
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random(shape) < 0.12, rng.integers(1, 300, shape), 0)
    matrix[0, :3] = 1
    if shape[0] > 3:
        matrix[1], matrix[2] = 0, 0
        matrix[2, 5] = 7
    if fractional:
        matrix = matrix * 0.3
    return ps.ingest(scipy.sparse.csr_matrix(matrix), path), matrix


def put_back(train, held_out, matrix):
    """The training matrix with what was held out; fails where a pair is in both."""
    kept = train.to_scipy().toarray()
    held = np.zeros_like(kept)
    user, item = held_out["user"].to_numpy(), held_out["item"].to_numpy()
    held[user, item] = matrix[user, item]
    assert not ((kept > 0) & (held > 0)).any()
    return kept + held


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fractional", [False, True])
def test_leave_one_out_takes_one_whole_pair_of_each_user_with_two(tmp_path, shape, fractional):
    counts, matrix = make(tmp_path / "c.zarr", shape, fractional=fractional)
    train, held_out = ps.leave_one_out(counts, tmp_path / "t.zarr")
    assert list(held_out.columns) == ["user", "item"]
    np.testing.assert_array_equal(held_out["user"], np.flatnonzero((matrix > 0).sum(1) >= 2))
    np.testing.assert_array_equal(put_back(train, held_out, matrix), matrix)
    assert train.total == pytest.approx(matrix.sum() - matrix[held_out["user"], held_out["item"]].sum())
    np.testing.assert_allclose(train.marginal("items"), train.to_scipy().toarray().sum(0))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.999])
def test_fraction_holds_out_about_so_many_and_leaves_every_user_one(tmp_path, shape, fraction):
    counts, matrix = make(tmp_path / "c.zarr", shape, seed=1)
    train, held_out = ps.split_by_fraction(counts, tmp_path / "t.zarr", fraction)
    np.testing.assert_array_equal(put_back(train, held_out, matrix), matrix)
    had, has = (matrix > 0).sum(1), np.diff(train.to_scipy().indptr)
    np.testing.assert_array_equal(had > 0, has > 0)
    most = (had - (had > 0)).sum()  # every user keeps one
    expected = fraction * counts.nnz
    assert abs(len(held_out) - min(expected, most)) < 5 * np.sqrt(counts.nnz * 0.25) + 0.2 * (had > 0).sum() * fraction
    if fraction == 0.999:
        assert len(held_out) > 0.9 * most


def test_training_store_keeps_every_symbol_of_its_parent(tmp_path):
    frame = pd.DataFrame({"user": ["ann", "ann", "bob", "bob"], "item": ["x", "y", "x", "z"], "n": [1, 2, 3, 4]})
    counts = ps.ingest(frame, tmp_path / "c.zarr", count="n")
    train, held_out = ps.leave_one_out(counts, tmp_path / "t.zarr")
    assert train.shape == (2, 3)
    assert (train.marginal("items") == 0).any()  # two of three items have a single pair
    np.testing.assert_array_equal(train.user_ids, ["ann", "bob"])
    np.testing.assert_array_equal(train.item_ids, ["x", "y", "z"])
    assert set(held_out["user"]) == {"ann", "bob"}
    assert held_out["item"].isin(["x", "y", "z"]).all()


@pytest.mark.cluster
def test_split_is_the_same_whatever_runs_it(tmp_path, monkeypatch, cluster):
    counts, _ = make(tmp_path / "c.zarr", (400, 30))
    train, held_out = ps.leave_one_out(counts, tmp_path / "t.zarr", random_state=3)
    with dask.config.set(scheduler="synchronous"):
        same, again = ps.leave_one_out(tmp_path / "c.zarr", tmp_path / "s.zarr", random_state=3)
    assert same.digest == train.digest
    pd.testing.assert_frame_equal(again, held_out)
    from distributed import Client

    with Client(cluster) as client:
        same, again = ps.leave_one_out(counts, tmp_path / "d.zarr", random_state=3, client=client)
    assert same.digest == train.digest
    pd.testing.assert_frame_equal(again, held_out)
    # Other blocks: fewer rows each.
    monkeypatch.setattr(cuts, "LONG_BLOCK", 16)
    monkeypatch.setattr(cuts, "SHORT_BLOCK", 7)
    other, _ = make(tmp_path / "b.zarr", (400, 30))
    assert other.cuts["users"].blocks > counts.cuts["users"].blocks
    same, again = ps.leave_one_out(other, tmp_path / "e.zarr", random_state=3)
    pd.testing.assert_frame_equal(again, held_out)
    fractions = [ps.split_by_fraction(store, tmp_path / f"{k}.zarr", 0.3)[1] for k, store in enumerate((counts, other))]
    pd.testing.assert_frame_equal(*fractions)


def test_seed_decides_and_every_pair_has_its_chance(tmp_path):
    counts = ps.ingest(scipy.sparse.csr_matrix(np.ones((3000, 4))), tmp_path / "c.zarr")
    items = [ps.leave_one_out(counts, tmp_path / f"{seed}.zarr", seed)[1]["item"].to_numpy() for seed in (0, 1)]
    for chosen in items:
        assert abs(np.bincount(chosen, minlength=4) / 3000 - 0.25).max() < 0.035  # four standard deviations
    table = np.histogram2d(*items, bins=4)[0] / 3000
    assert abs(table - 1 / 16).max() < 0.02  # one seed tells nothing of the other


def test_numbers_of_pairs_are_all_different():
    user, item = (part.ravel() for part in np.mgrid[:300, :300])
    assert np.unique(pair_numbers(7, user, item)).size == 300 * 300


def test_split_feeds_evaluate(tmp_path):
    counts, _ = make(tmp_path / "c.zarr", (400, 30))
    train, held_out = ps.split_by_fraction(counts, tmp_path / "t.zarr", 0.3)
    model = ps.PairedSymbols(factors=2).fit(train, tmp_path / "m.zarr", sweeps=1, progress=False)
    result = ps.evaluate(model, held_out)
    assert result.overall["pairs"] == len(held_out)
    assert result.overall["users"] == held_out["user"].nunique()


def test_bad_input_is_one_clear_sentence_and_leaves_nothing(tmp_path):
    counts, _ = make(tmp_path / "c.zarr", (30, 400))
    for fraction in (0, 1, -0.1, "half", None, True):
        with pytest.raises(ps.InputError, match="fraction must be a number between 0 and 1"):
            ps.split_by_fraction(counts, tmp_path / "t.zarr", fraction)
    with pytest.raises(ps.InputError, match="random_state must be"):
        ps.leave_one_out(counts, tmp_path / "t.zarr", random_state=-1)
    single = ps.ingest(scipy.sparse.csr_matrix(np.eye(5)), tmp_path / "s.zarr")
    with pytest.raises(ps.InputError, match="no user has two distinct pairs"):
        ps.leave_one_out(single, tmp_path / "t.zarr")
    with pytest.raises(ps.StoreError, match="nowhere"):
        ps.leave_one_out(tmp_path / "nowhere.zarr", tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()
    with pytest.raises(ps.StoreError, match="exists already"):
        ps.leave_one_out(counts, tmp_path / "c.zarr")
