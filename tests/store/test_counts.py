"""The counts store as readers meet it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import sparse
from helpers.stores import make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.store.counts import MARK, RECORD
from pairsym_dask.store.cuts import Layout, make_cuts
from pairsym_dask.store.records import seal


def test_shape_totals_and_both_orders(tmp_path):
    dense = random_counts(130, 40, 0.2, seed=2)
    counts = make_store(dense, tmp_path / "c.zarr")
    assert counts.shape == (130, 40)
    assert counts.nnz == np.count_nonzero(dense)
    assert counts.total == dense.sum()
    assert (counts.to_scipy().toarray() == dense).all()
    for side, matrix in (("users", dense), ("items", dense.T)):
        assert (counts.marginal(side) == matrix.sum(1)).all()
        rebuilt = np.zeros_like(matrix)
        for block in range(counts.cuts[side].blocks):
            tile, first = counts.rows(side, block), counts.cuts[side].row_range(block)[0]
            row = np.repeat(np.arange(tile.indptr.size - 1), np.diff(tile.indptr))
            rebuilt[first + row, tile.indices] = tile.counts
        assert (rebuilt == matrix).all()


@pytest.mark.slow
def test_a_dask_array_of_sparse_blocks(tmp_path):
    dense = random_counts(300, 30, 0.2, seed=4)
    counts = make_store(dense, tmp_path / "c.zarr")
    array = counts.to_dask()
    assert array.shape == (300, 30)
    assert array.numblocks == (counts.cuts["users"].blocks, 1)
    block = array.blocks[0].compute()
    assert isinstance(block, sparse.GCXS)
    assert (array.map_blocks(lambda part: part.todense()).compute() == dense).all()
    assert array.sum().compute() == dense.sum()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 99}, "counts format version 99; this pairsym_dask reads versions 1 and 2"),
        ({"format": "other"}, "'other' store, not a counts store"),
    ],
)
def test_a_store_of_another_format_is_refused(tmp_path, change, words):
    counts = make_store(random_counts(20, 10, 0.3), tmp_path / "c.zarr")
    record = json.loads((tmp_path / "c.zarr" / RECORD).read_bytes()) | change
    (tmp_path / "c.zarr" / RECORD).write_bytes(seal(record))
    with pytest.raises(ps.StoreError, match=words):
        ps.open_counts(counts.path)


def test_half_written_and_strange_stores_are_refused(tmp_path):
    store = make_store(random_counts(20, 10, 0.3), tmp_path / "c.zarr")
    (tmp_path / "c.zarr" / RECORD).unlink()
    with pytest.raises(ps.StoreError, match="it has no counts"):
        ps.open_counts(store.path)
    (tmp_path / "c.zarr" / MARK).write_text("")
    with pytest.raises(ps.StoreError, match="ingest was interrupted; run the ingest again"):
        ps.open_counts(store.path)
    with pytest.raises(ps.StoreError, match="is not a counts store"):
        ps.open_counts(tmp_path)
    with pytest.raises(ps.StoreError):
        ps.open_counts(tmp_path / "nothing.zarr")


def test_more_than_two_to_the_31_pairs_break_no_arithmetic():
    layout = Layout(users=200_000_000, items=3_000_000, pairs=40_000_000_000, count_dtype="uint8")
    for side, cut in layout.cuts.items():
        assert cut.row_range(cut.blocks - 1)[1] == cut.rows
        assert cut.column_range(cut.groups - 1)[1] == cut.columns
        slots = layout.slots(40_000_000_000 // cut.tiles)
        index, _, _ = layout.pair_arrays(side, slots)
        assert index.shape[0] * index.shape[1] >= 40_000_000_000
        assert index.key(cut.tiles - 1, slots - 1).startswith(f"by_{side[:-1]}/index/c")


@pytest.mark.parametrize(
    ("users", "items", "pairs"),
    [(1, 1, 1), (10**7, 50, 10**8), (10**6, 10**6, 5 * 10**7), (3, 10**5, 10**5), (6_200_000, 12_000, 55_000_000)],
)
def test_cuts_cover_everything_and_stay_moderate(users, items, pairs):
    cuts = make_cuts(users, items, pairs)
    for cut in cuts.values():
        assert cut.row_range(cut.blocks - 1)[1] == cut.rows
        assert cut.column_range(cut.groups - 1)[1] == cut.columns
        assert cut.block <= 32_768
        assert cut.tiles < 40_000
    assert min(cut.groups for cut in cuts.values()) == 1
