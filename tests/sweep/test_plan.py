"""Block geometry: blocks of rows, the tiles they lie in, and the runs that a group of columns is visited in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.stores import fitted_arrays, make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.settings import Settings
from pairsym_dask.store import cuts as cuts_module
from pairsym_dask.store.cuts import make_cuts
from pairsym_dask.sweep import plan as plan_module
from pairsym_dask.sweep.plan import Plan
from pairsym_dask.sweep.shelf import Key, Shelf

SHAPES = [(400, 90, 5_000), (90, 400, 5_000), (700, 690, 20_000), (1, 1, 1), (64, 3, 100)]


@pytest.fixture(params=SHAPES, ids=str)
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans of several tiles on both sides, with several blocks a tile and several runs a group."""
    monkeypatch.setattr(cuts_module, "LONG_BLOCK", 64)
    monkeypatch.setattr(cuts_module, "SHORT_BLOCK", 32)
    monkeypatch.setattr(plan_module, "TABLES", 20_000)
    monkeypatch.setattr(plan_module, "STATISTICS", 64)
    cuts = make_cuts(*request.param)
    return Plan(cuts, 20, 4, {"users": 100, "items": 100}, 1, request.param[2])


def test_every_row_is_in_one_block_and_every_block_in_one_tile(plan: Plan) -> None:
    for side, places in plan.places.items():
        cut = plan.cuts[side]
        assert [row for place in places for row in range(place.first, place.stop)] == list(range(cut.rows))
        for block, place in enumerate(places):
            first, stop = cut.row_range(place.tile_block)
            assert range(first, stop)[place.rows] == range(place.first, place.stop)
            assert block in plan.tile_blocks[side][place.tile_block]
            assert place.first == block * plan.blocks[side]  # where the chunks of the arrays begin
        assert [block for blocks in plan.tile_blocks[side] for block in blocks] == list(range(len(places)))


@pytest.mark.parametrize("most", [1, 2, 3, 8, 1000])
def test_bundles_are_all_blocks_in_order_and_parts_of_a_tile_or_whole_ones(plan: Plan, most: int) -> None:
    for side, places in plan.places.items():
        bundles = plan.bundles(side, most)
        assert [block for bundle in bundles for block in bundle] == list(range(len(places)))
        assert max(map(len, bundles)) <= max(most, 1)
        for bundle in bundles:
            parts = plan.by_tile(side, bundle)
            assert [block for part in parts for block in part] == list(bundle)
            assert [len({places[block].tile_block for block in part}) for part in parts] == [1] * len(parts)
            # No tile is read for two bundles, unless one is too small for it.
            whole = [part in plan.tile_blocks[side] for part in parts]
            assert all(whole) or (len(parts) == 1 and most < places.each)


def test_runs_cover_the_columns_of_their_group(plan: Plan) -> None:
    cut, places = plan.cuts[plan.short], plan.places[plan.long]
    for group, runs in enumerate(plan.runs):
        first, stop = cut.column_range(group)
        assert [row for run in runs for b in run for row in range(places[b].first, places[b].stop)] == list(
            range(first, stop)
        )
    assert sum(len(share) for share in plan.shares) == cut.groups


def test_a_shelf_for_one_thing_lets_it_go_before_the_next_is_made() -> None:
    shelf, held = Shelf(single=True), []

    def make() -> memoryview:
        held.append(len(shelf))
        return memoryview(bytes(8))

    keys = [Key("table", "store", state, "users", 0) for state in ("old", "new")]
    first = shelf.get(keys[0], make)
    assert shelf.get(keys[0], make) is first
    shelf.get(keys[1], make)
    assert held == [0, 0]
    assert shelf.peek(keys[0]) is None
    assert shelf.nbytes == 8


@pytest.mark.parametrize("selection", ["constant", "counts"])
def test_sums_of_very_many_blocks_are_added_in_runs_first(
    selection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits by any threads, and the numbers of a fit that adds all at once."""
    monkeypatch.setattr(cuts_module, "LONG_BLOCK", 64)
    counts = make_store(random_counts(400, 90, 0.15, seed=2), tmp_path / "counts.zarr")

    def arrays(name: str, threads: int) -> dict[str, np.ndarray]:
        model = ps.PairedSymbols(factors=5, selection=selection, dtype="float64")
        return fitted_arrays(model.fit(counts, tmp_path / name, sweeps=3, threads=threads, progress=False))

    whole = arrays("whole.zarr", 1)
    monkeypatch.setattr(plan_module, "RUN", 2)
    one, three = arrays("one.zarr", 1), arrays("three.zarr", 3)
    assert Plan.make(counts, Settings(factors=5)).run == 2
    for path, array in one.items():
        assert array.tobytes() == three[path].tobytes(), path
        assert np.allclose(array, whole[path], rtol=1e-9, atol=1e-12), path
