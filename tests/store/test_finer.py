"""Pairs that are spread unevenly are cut finer, so that no tile is heavy; evenly spread ones are cut as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.pairs import check_dense
from helpers.stores import fitted_arrays, make_store

import pairsym_dask as ps
from pairsym_dask.pairs import writing
from pairsym_dask.store import finer
from pairsym_dask.store.counts import RECORD
from pairsym_dask.store.cuts import Layout, make_cuts
from pairsym_dask.store.records import seal
from pairsym_dask.store.verify import verify

USERS, ITEMS = 2000, 200


def in_order(pairs: int, blocks: int, power: float) -> np.ndarray:
    """Pairs of each block where the first share x of rows has x ^ (1 / power) of them."""
    return np.diff(np.floor(pairs * (np.arange(blocks + 1) / blocks) ** (1 / power)).astype(np.int64))


def smallest_blocks(layout: Layout) -> int:
    return -(-layout.even[layout.long].rows // finer.blocks_of(layout)[-1])


@pytest.mark.parametrize(("users", "items"), [(10**6, 50_000), (50_000, 10**6)])
def test_old_users_first_make_no_heavy_tile(users: int, items: int) -> None:
    even = Layout(users, items, 10**8, "uint8")
    held = in_order(even.pairs, smallest_blocks(even), 2)
    layout = finer.cut_rows(even, held)
    least = finer.blocks_of(even)[-1]
    before, after = (finer._joined(held, one.cuts[even.long].block // least).max() for one in (even, layout))
    assert before > finer.FEW >= after
    assert layout.cuts[even.long].blocks <= finer.FINER * even.cuts[even.long].blocks
    assert finer.format_version(layout) == 2


def test_popular_items_first_make_no_heavy_tile() -> None:
    even = Layout(10**6, 200_000, 2 * 10**8, "uint8")
    blocks, columns = even.cuts["users"].blocks, even.cuts["items"].blocks
    held = in_order(even.pairs, columns, 8)[None].repeat(blocks, 0) // blocks
    layout = finer.cut_columns(even, held)
    before, after = (
        finer._joined(held, one.cuts["items"].span // one.cuts["users"].block).max() for one in (even, layout)
    )
    assert before > finer.FEW >= after
    assert layout.cuts["users"] == even.cuts["users"]
    assert layout.cuts["items"].span % layout.cuts["users"].block == 0


@pytest.mark.parametrize(
    ("users", "items", "pairs"), [(10**6, 50_000, 10**7), (620_000, 12_000, 5_500_000), (90, 9, 400)]
)
def test_evenly_spread_pairs_are_cut_by_their_shape(users: int, items: int, pairs: int) -> None:
    even = Layout(users, items, pairs, "uint8")
    rng = np.random.default_rng(0)
    held = rng.poisson(pairs / smallest_blocks(even), smallest_blocks(even))
    layout = finer.cut_rows(even, held)
    tiles = layout.cuts["users"].blocks * layout.cuts["items"].blocks
    layout = finer.cut_columns(layout, rng.poisson(pairs / tiles, (layout.cuts["users"].blocks, tiles)))
    assert layout.cuts == make_cuts(users, items, pairs)
    assert finer.format_version(layout) == 1


def test_rows_that_are_heavy_by_themselves_are_no_reason_for_finer_blocks() -> None:
    even = Layout(10**6, 10**6, 10**7, "uint8")
    held = np.full(smallest_blocks(even), 10**7 // smallest_blocks(even) // 100)
    held[3] = 9_900_000
    assert finer.cut_rows(even, held) == even


def test_cuts_of_every_layout_cover_everything_and_are_few() -> None:
    for shape in ((1, 1, 1), (65, 64, 4000), (10**6, 10**6, 10**9), (2 * 10**8, 10**7, 10**10), (5, 10**7, 10**7)):
        even = Layout(*shape, "uint8")
        found = list(finer.layouts(even))
        assert found[0] == even
        assert len(found) < 20
        for layout in found:
            long, short = (
                layout.cuts[layout.long],
                next(cut for side, cut in layout.cuts.items() if side != layout.long),
            )
            assert long.block == even.cuts[layout.long].block or long.block >= 64
            assert short.span % long.block == 0 or short.span == short.columns
            for cut in layout.cuts.values():
                assert cut.row_range(cut.blocks - 1)[1] == cut.rows
                assert cut.tiles <= max(4 * even.cuts[cut.side].tiles, 1)
                assert cut.tiles <= max(2**15, even.cuts[cut.side].tiles)


@pytest.fixture
def sorted_pairs(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A small matrix of old users and popular items first; so few pairs are worth finer cuts meanwhile."""
    monkeypatch.setattr(finer, "FEW", 256)
    rng = np.random.default_rng(0)
    user, item = (rng.random(20_000) ** 3 * USERS).astype(int), (rng.random(20_000) ** 1.5 * ITEMS).astype(int)
    dense = np.zeros((USERS, ITEMS))
    np.add.at(dense, (user, item), 1)
    dense[:, 0] += 1  # everybody has something
    return dense


def as_frame(dense: np.ndarray, seed: int | None = None) -> pd.DataFrame:
    matrix = scipy.sparse.coo_array(dense)
    frame = pd.DataFrame({"user": matrix.coords[0], "item": matrix.coords[1], "n": matrix.data.astype(int)})
    return frame if seed is None else frame.sample(frac=1, random_state=seed)


def test_a_store_of_sorted_pairs_says_what_was_given(sorted_pairs: np.ndarray, tmp_path: Path) -> None:
    counts = make_store(sorted_pairs, tmp_path / "c.zarr")
    assert counts.record["version"] == 2
    even = counts.layout.even
    for side in ("users", "items"):
        assert counts.cuts[side].tiles > even[side].tiles
        assert max(counts.record["tiles"][side]) <= 2 * counts.nnz / even[side].tiles * 1.1
    check_dense(ps.open_counts(tmp_path / "c.zarr"), sorted_pairs)
    assert verify(tmp_path / "c.zarr").sound
    assert json.loads((tmp_path / "c.zarr/zarr.json").read_bytes())["attributes"]["version"] == 2


def test_the_same_pairs_give_the_same_digest_whatever_they_came_by(
    sorted_pairs: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = as_frame(sorted_pairs)
    wanted = ps.ingest(frame, tmp_path / "frame.zarr", count="n")
    assert wanted.record["version"] == 2
    found = [
        make_store(sorted_pairs, tmp_path / "matrix.zarr"),
        ps.ingest(as_frame(sorted_pairs, 1), tmp_path / "shuffled.zarr", count="n", threads=1, memory="64MiB"),
        ps.ingest(tmp_path / "frame.zarr", tmp_path / "again.zarr"),
    ]
    halves = [ps.ingest(frame[k::2], tmp_path / f"half{k}.zarr", count="n") for k in range(2)]
    found.append(ps.ingest([half.path for half in halves], tmp_path / "merged.zarr"))
    monkeypatch.setattr(writing, "ROWS", 700)
    found.append(ps.ingest(as_frame(sorted_pairs, 2), tmp_path / "small.zarr", count="n"))
    assert {counts.digest for counts in found} == {wanted.digest}


@pytest.mark.slow
def test_a_fit_agrees_with_that_of_even_cuts(
    sorted_pairs: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = []
    for few in (256, 2**22):
        monkeypatch.setattr(finer, "FEW", few)
        counts = make_store(sorted_pairs, tmp_path / f"{few}.zarr")
        assert counts.record["version"] == (2 if few == 256 else 1)
        model = ps.PairedSymbols(factors=4, dtype="float64")
        models.append(model.fit(counts, tmp_path / f"model{few}.zarr", sweeps=3, progress=False))
    one, two = map(fitted_arrays, models)
    for path, array in one.items():
        assert np.abs(array - two[path]).max() <= 1e-9 * np.abs(two[path]).max(), path


@pytest.mark.slow
def test_everything_is_done_with_a_store_of_finer_cuts(sorted_pairs: np.ndarray, tmp_path: Path) -> None:
    counts = ps.ingest(as_frame(sorted_pairs), tmp_path / "c.zarr", count="n")
    train, held_out = ps.leave_one_out(counts, tmp_path / "train.zarr", random_state=0)
    assert train.record["version"] == 2
    model = ps.PairedSymbols(factors=4)
    model.fit(train, tmp_path / "m.zarr", sweeps=2, progress=False)
    whole = ps.PairedSymbols(factors=4).fit(train, tmp_path / "whole.zarr", sweeps=4, progress=False)
    model.fit(train, tmp_path / "m.zarr", sweeps=4, progress=False)
    for path, array in fitted_arrays(whole).items():
        np.testing.assert_array_equal(array, fitted_arrays(model)[path])
    assert verify(tmp_path / "m.zarr").sound
    loaded = ps.load(tmp_path / "m.zarr")
    assert len(loaded.recommend([USERS // 2, USERS - 1], n=3)) == 6
    assert ps.evaluate(loaded, held_out).per_user["user"].nunique() > 100
    more = as_frame(sorted_pairs).tail(40)
    newer = loaded.update(more, tmp_path / "more.zarr", tmp_path / "newer.zarr", count="n", sweeps=1, progress=False)
    assert newer.counts.record["version"] == 2
    assert newer.counts.total == train.total + more["n"].sum()
    loaded.pack(tmp_path / "pack")
    assert len(ps.load(tmp_path / "pack").recommend(USERS - 1, n=3)) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"version": True},
        {"version": 3},
        {"cuts": {"users": [1, ITEMS], "items": [ITEMS, 256]}},
        {"cuts": {"users": [32, ITEMS], "items": [ITEMS, 256]}},
        {"cuts": {"users": [250, ITEMS], "items": [ITEMS, 250]}},
        {"cuts": {"users": [256, ITEMS], "items": [ITEMS, 1]}},
        {"cuts": {"users": [256, ITEMS], "items": [ITEMS, 384]}},
        {"cuts": {"users": [256, ITEMS], "items": [32, 256]}},
        {"cuts": {"users": [256, 30], "items": [ITEMS, 256]}},
        {"cuts": {"users": [2**40, ITEMS], "items": [ITEMS, 2**40]}},
        {"cuts": {"users": [256], "items": [ITEMS]}},
        {"cuts": {"users": [256, ITEMS, 1], "items": [ITEMS, 256, 1]}},
        {"cuts": {"users": [256.0, ITEMS], "items": [ITEMS, 256]}},
        {"cuts": {"users": [512, ITEMS], "items": [ITEMS, 512]}},
        {"chunk": 1},
        {"chunk": 2**40},
    ],
)
def test_forged_cuts_are_refused_in_words(change: dict[str, Any], sorted_pairs: np.ndarray, tmp_path: Path) -> None:
    make_store(sorted_pairs, tmp_path / "c.zarr")
    place = tmp_path / "c.zarr" / RECORD
    record = json.loads(place.read_bytes())
    assert record["cuts"] == {"users": [256, ITEMS], "items": [ITEMS, 256]}
    place.write_bytes(seal(record | change))
    with pytest.raises(ps.StoreError, match=r"by other rules|must be|reads versions 1 and 2"):
        ps.open_counts(tmp_path / "c.zarr")
    assert not verify(tmp_path / "c.zarr").sound


def test_cuts_that_could_be_but_are_not_those_of_the_files_are_refused(
    sorted_pairs: np.ndarray, tmp_path: Path
) -> None:
    make_store(sorted_pairs, tmp_path / "c.zarr")
    place = tmp_path / "c.zarr" / RECORD
    record = json.loads(place.read_bytes())
    record["cuts"] = {"users": [128, ITEMS], "items": [ITEMS, 256]}
    chunks = {finer.listed(one)["users"][0]: one.chunk for one in finer.layouts(Layout(**record["layout"]))}
    place.write_bytes(seal({**record, "chunk": chunks[128]}))
    with pytest.raises(ps.DamagedStoreError, match="its tiles by user do not"):
        ps.open_counts(tmp_path / "c.zarr")
