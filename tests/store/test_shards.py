"""Shards hold the same chunks as files would: the same answers, each chunk checked by itself, nothing read as zeros."""

from __future__ import annotations

import itertools
import pickle
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from helpers.faults import LAYOUTS, chunk_bits, new_stores_in
from helpers.stores import make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError, StoreError
from pairsym_dask.report.info import describe
from pairsym_dask.settings import SIDES, Settings
from pairsym_dask.store import shards
from pairsym_dask.store.commit import Commit, generation_arrays, read_rows
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.records import check_format, seal
from pairsym_dask.store.sharded import Sharded
from pairsym_dask.store.shards import Shards, choose_runs
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep.plan import Plan

KINDS: dict[str, dict[str, Any]] = {
    "lists": {"factors": 3},
    "bayes": {"factors": 3, "selection": "bayes"},
    "steps": {"factors": 40, "selection": "constant"},
    "draws": {"factors": 3, "inference": "gibbs"},
}


def fit(counts: ps.Counts, path: Path, layout: str, sweeps: int = 2, **settings: Any) -> ps.PairedSymbols:
    with new_stores_in(layout):
        return ps.PairedSymbols(**settings).fit(counts, path, sweeps=sweeps, progress=False, threads=2)


def many_blocks(users: int, items: int, path: Path) -> ps.Counts:
    """A counts store of so many pairs that its longer side has 64 symbols a block."""
    return make_store(random_counts(users, items, 0.9, seed=5), path)


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> ps.Counts:
    """Eleven blocks of users."""
    return many_blocks(700, 100, tmp_path_factory.mktemp("counts") / "counts.zarr")


@pytest.fixture(scope="module")
def models(counts: ps.Counts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ps.PairedSymbols]:
    folder = tmp_path_factory.mktemp("models")
    return {layout: fit(counts, folder / layout, layout, 3, factors=3) for layout in LAYOUTS}


@pytest.fixture
def copied(models: dict[str, ps.PairedSymbols], tmp_path: Path) -> Path:
    """A store in shards that may be spoilt."""
    shutil.copytree(models["shards"].path, tmp_path / "model.zarr")
    return tmp_path / "model.zarr"


def newest(path: Any) -> Commit:
    return ModelStore(path).commits()[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(700, 100), (100, 700)], ids=["more users", "more items"])
def test_shards_have_the_bits_of_files(kind: str, shape: tuple[int, int], tmp_path: Path) -> None:
    counts = many_blocks(*shape, tmp_path / "counts.zarr")
    for layout in LAYOUTS:
        fit(counts, tmp_path / layout, layout, **KINDS[kind])
    assert newest(tmp_path / "shards").record["shards"][{0: "users", 1: "items"}[shape[0] < shape[1]]] > 1
    assert chunk_bits(ModelStore(tmp_path / "shards")) == chunk_bits(ModelStore(tmp_path / "files"))


@pytest.mark.parametrize("kind", ["lists", "draws"])
def test_tags_have_shards_too(kind: str, counts: ps.Counts, tmp_path: Path) -> None:
    links = pd.DataFrame({"item": np.repeat(np.arange(100), 2), "tag": [f"t{k % 7}" for k in range(200)]})
    tags = ps.ingest_tags(links, tmp_path / "tags.zarr")
    for layout in LAYOUTS:
        with new_stores_in(layout):
            model = ps.PairedSymbols(**KINDS[kind])
            model.fit(counts, tmp_path / layout, sweeps=2, item_tags=tags, progress=False)
    assert "item_tags" in newest(tmp_path / "shards").record["shards"]
    assert chunk_bits(ModelStore(tmp_path / "shards")) == chunk_bits(ModelStore(tmp_path / "files"))
    assert verify(tmp_path / "shards").sound


@pytest.mark.cluster
def test_two_processes_write_the_shards_that_threads_do(counts: ps.Counts, cluster: Any, tmp_path: Path) -> None:
    from distributed import Client

    for kind in ("lists", "draws"):
        with Client(cluster), new_stores_in("shards"):
            model = ps.PairedSymbols(**KINDS[kind])
            model.fit(counts, tmp_path / f"{kind}-processes", sweeps=2, progress=False)
        fit(counts, tmp_path / f"{kind}-threads", "shards", **KINDS[kind])
        one, two = (ModelStore(tmp_path / f"{kind}-{where}") for where in ("processes", "threads"))
        assert chunk_bits(one) == chunk_bits(two)
        assert one.commits()[-1].record["files"] == two.commits()[-1].record["files"]


def test_a_store_goes_on_with_the_layout_that_it_began_with(counts: ps.Counts, tmp_path: Path) -> None:
    for began, now in itertools.permutations(LAYOUTS):
        fit(counts, tmp_path / began, began, 1, factors=3)
        fit(counts, tmp_path / began, now, 2, factors=3)
        versions = [commit.record["version"] for commit in ModelStore(tmp_path / began).commits()]
        assert versions == [{"files": 1, "shards": 2}[began]] * 3
        assert verify(tmp_path / began).sound


def test_a_store_that_was_begun_and_never_swept_keeps_its_layout(counts: ps.Counts, tmp_path: Path) -> None:
    ModelStore(tmp_path / "model.zarr").create(sharded=True)
    fit(counts, tmp_path / "model.zarr", "files", 1, factors=3)
    assert "shards" in newest(tmp_path / "model.zarr").record
    with pytest.raises(StoreError, match="begun with another layout by another fit; run this one again"):
        ModelStore(tmp_path / "model.zarr").create(sharded=False)


def test_small_fits_on_a_disk_have_files_and_far_ones_shards(models: dict[str, ps.PairedSymbols]) -> None:
    specs = newest(models["files"].path).arrays
    assert not shards.wants_shards("/data/model.zarr", specs)
    assert shards.wants_shards("s3://bucket/model.zarr", specs)
    plan = Plan.of_shape(10_000_000, 100_000, 248_800_000, Settings())
    large = generation_arrays({side: plan.cuts[side].rows for side in SIDES}, plan.blocks, Settings())
    assert shards.wants_shards("/data/model.zarr", large)


@pytest.mark.parametrize("factors", [5, 20, 64, 512])
@pytest.mark.parametrize("shape", [(10**4, 10**3, 10**5), (10**7, 10**5, 2.5e8), (10**5, 10**8, 10**9)])
def test_blocks_a_shard_come_from_the_shape(factors: int, shape: tuple[float, ...]) -> None:
    settings = Settings(factors=factors)
    plan = Plan.of_shape(*(int(n) for n in shape), settings)
    specs = generation_arrays({side: plan.cuts[side].rows for side in SIDES}, plan.blocks, settings)
    runs = choose_runs(specs, plan.long)
    found = Shards.of(specs, runs)
    assert runs[plan.short] == 1
    assert runs["users_next"] == runs["users"]
    long = found.groups[plan.long]
    assert long.run.bit_count() == 1
    assert long.run <= 64
    if long.run > 1:
        assert long.size(0) <= shards.SHARD_BYTES + long.end_bytes(0)
        assert long.count >= shards.LEAST_SHARDS
    places = sorted({key.split("/")[0] for key in found.keys()})
    assert len(places) == min(256, max(group.count for group in found.groups.values()))
    assert found.nbytes == sum(size for _, size in found.all())


def test_a_task_is_given_room_for_its_shard() -> None:
    plan = Plan.of_shape(10_000_000, 100_000, 248_800_000, Settings())
    specs = generation_arrays({side: plan.cuts[side].rows for side in SIDES}, plan.blocks, Settings())
    sharded = replace(plan, shards=choose_runs(specs, plan.long))
    largest = Shards.of(specs, sharded.shards or {}).groups[plan.long].body_bytes(0)
    assert sharded.task_bytes() - plan.task_bytes() == 2 * largest
    assert sharded.least(plan.long) == sharded.shards[plan.long] > 1
    assert sharded.least(plan.short) == 1


def test_zarr_finds_no_array_whose_chunks_it_would_make_up(models: dict[str, ps.PairedSymbols]) -> None:
    group = zarr.open_group(models["shards"].generation, mode="r")
    assert "users/mean" not in group
    assert group.attrs["shards"] == newest(models["shards"].path).record["shards"]
    assert not list(Path(models["shards"].generation).rglob("*/zarr.json"))


def test_an_earlier_reader_refuses_shards_in_words(models: dict[str, ps.PairedSymbols]) -> None:
    record: Any = newest(models["shards"].path).record
    with pytest.raises(StoreError, match=r"format 'pairsym-model' version 2; this pairsym_dask reads .* version 1$"):
        check_format(record, "pairsym-model", "commits/00003.json", 1)


def test_a_chain_of_commits_has_one_layout(models: dict[str, ps.PairedSymbols], copied: Path) -> None:
    store, other = ModelStore(copied), ModelStore(models["files"].path)
    mine, theirs = store.commits(), other.commits()
    mark = (copied / "zarr.json").read_bytes()
    assert mine[0].record["version"] != theirs[0].record["version"]
    record = dict(theirs[1].record, parent=mine[0].record["digest"])
    with pytest.raises(DamagedStoreError, match="other settings or shapes"):
        store.chained(mine[:1], "commits/00001.json", seal(record), mark)


def test_commit_records_do_not_grow_with_blocks(tmp_path: Path) -> None:
    sizes: dict[str, list[int]] = {layout: [] for layout in LAYOUTS}
    for users in (100, 1000):
        counts = many_blocks(users, 100, tmp_path / f"{users}.zarr")
        for layout, found in sizes.items():
            path = tmp_path / f"{users}-{layout}"
            fit(counts, path, layout, 1, factors=3)
            found.append((path / "commits/00001.json").stat().st_size)
    assert abs(sizes["shards"][1] - sizes["shards"][0]) < 20
    assert sizes["files"][1] - sizes["files"][0] > 4000


# Reading


class Counted(LocalStorage):
    """Counts what is asked of it; calls take long where it is `far`."""

    def __init__(self, root: str, far: bool) -> None:
        super().__init__(root)
        self.far, self.asked = far, list[tuple[str, int, int]]()
        self.calls = 0

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[bytes]:
        self.calls += 1
        self.asked += ranges
        return super().read_ranges(ranges)


def counted(path: Path, far: bool = False) -> tuple[Commit, Counted]:
    storage = Counted(str(path), far)
    return ModelStore(storage).commits()[-1], storage


def test_a_block_is_read_by_its_range(copied: Path) -> None:
    commit, storage = counted(copied)
    assert commit.shards is not None
    spec, group = commit.arrays["users/mean"], commit.shards.groups["users"]
    commit.sealed.read_block(spec, 3, 0)
    assert [size for _, _, size in storage.asked] == [spec.chunk_bytes, group.end_bytes(0)]
    commit.sealed.read_block(spec, 4, 0)  # the end is known
    assert [size for _, _, size in storage.asked[2:]] == [spec.chunk_bytes]


def test_of_a_damaged_shard_the_other_blocks_answer(copied: Path) -> None:
    commit = newest(copied)
    assert commit.shards is not None
    spec = commit.arrays["users/mean"]
    group, number = commit.shards.find(spec.path, 3)
    offset, size, _ = group.place(spec.path, 3)
    path = copied / commit.folder / group.key(number)
    sound, data = commit.sealed.read_block(spec, 4, 0), bytearray(path.read_bytes())
    data[offset + random.Random(0).randrange(size)] ^= 1
    path.write_bytes(data)
    damaged = newest(copied)
    assert (damaged.sealed.read_block(spec, 4, 0) == sound).all()
    with pytest.raises(DamagedStoreError, match=r"users\.0\.shard does not hold .* \(block 3 of users/mean\)"):
        damaged.sealed.read_block(spec, 3, 0)
    report = verify(copied)
    assert len(report.damage) == 1
    assert "block 3 of users/mean" in report.damage[0]


@pytest.mark.parametrize(
    ("damage", "words"), [("short", "bytes, not"), ("gone", "is missing"), ("end", "does not hold")]
)
def test_a_shard_that_lacks_something_is_told(damage: str, words: str, copied: Path) -> None:
    commit = newest(copied)
    path = next((copied / commit.folder).glob("*/items.0.shard"))
    sealed, data = commit.sealed, path.read_bytes()
    if damage == "short":
        path.write_bytes(data[:-1])
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-40] + b"x" + data[-39:])
    with pytest.raises(DamagedStoreError, match=words):
        sealed.read_block(commit.arrays["items/mean"], 0, 0)
    with pytest.raises(DamagedStoreError, match=words):
        sealed.read_bytes("00/items.0.shard")


def test_one_who_walks_through_a_far_shard_asks_once(copied: Path) -> None:
    commit, storage = counted(copied, far=True)
    spec = commit.arrays["users/background"]
    blocks = range(spec.grid[0])
    walked = [commit.sealed.read_next(spec, block) for block in blocks]
    assert storage.calls == 1
    assert (np.concatenate(walked) == newest(copied).sealed.read_array(spec)).all()
    assert isinstance(commit.sealed, Sharded)
    assert not commit.sealed.ahead
    near, storage = counted(copied)
    assert [near.sealed.read_next(spec, block).tobytes() for block in blocks] == [part.tobytes() for part in walked]
    assert storage.calls == len(blocks)


def test_rows_of_many_blocks_are_asked_for_at_once(copied: Path) -> None:
    commit, storage = counted(copied, far=True)
    rows = np.array([699, 5, 64, 300, 5])
    found = read_rows(commit, "users/mean", rows)
    assert storage.calls == 1
    assert (found == commit.sealed.read_array(commit.arrays["users/mean"])[rows]).all()


def test_what_travels_is_the_needed_part(copied: Path) -> None:
    sealed = newest(copied).sealed
    assert isinstance(sealed, Sharded)
    sealed.read_block(newest(copied).arrays["users/mean"], 0, 0)
    assert sealed.ends
    back = pickle.loads(pickle.dumps(sealed))
    assert back.ends == {}
    assert back.manifest == sealed.manifest
    assert (back.read_block(newest(copied).arrays["users/mean"], 0, 0) == sealed.read_block(
        newest(copied).arrays["users/mean"], 0, 0
    )).all()  # fmt: skip


# What people do


@pytest.fixture(scope="module")
def both(counts: ps.Counts, models: dict[str, ps.PairedSymbols]) -> list[ps.PairedSymbols]:
    return [ps.load(models[layout].path, counts=counts) for layout in LAYOUTS]


def test_answers_are_those_of_files(both: list[ps.PairedSymbols]) -> None:
    one, two = both
    users = one.counts.user_ids[[3, 600]].tolist()
    pd.testing.assert_frame_equal(one.recommend(users, n=5), two.recommend(users, n=5))
    pd.testing.assert_frame_equal(one.similar_items(1, n=5), two.similar_items(1, n=5))
    assert one.to_xarray().load().identical(two.to_xarray().load())


def test_a_pack_of_shards_answers(both: list[ps.PairedSymbols], tmp_path: Path) -> None:
    users = both[0].counts.user_ids[[3, 600]].tolist()
    both[1].pack(tmp_path / "pack")
    assert verify(tmp_path / "pack").sound
    assert list((tmp_path / "pack").rglob("*.shard"))
    pd.testing.assert_frame_equal(ps.load(tmp_path / "pack").recommend(users, n=5), both[0].recommend(users, n=5))


def test_an_update_starts_from_either_layout(both: list[ps.PairedSymbols], tmp_path: Path) -> None:
    more = pd.DataFrame({"user": [1, 5000], "item": [2, 3]})
    found = []
    for layout, model in zip(LAYOUTS, both, strict=True):
        with new_stores_in(layout):
            place = tmp_path / layout
            model.update(more, place / "counts.zarr", place / "model.zarr", sweeps=1, progress=False)
        found.append(chunk_bits(ModelStore(place / "model.zarr")))
    assert found[0] == found[1]


def test_info_says_how_many_shards(both: list[ps.PairedSymbols]) -> None:
    assert any("a sweep in 3 shards" in line for line in describe(both[1].path))
    assert not any("shards" in line for line in describe(both[0].path))
