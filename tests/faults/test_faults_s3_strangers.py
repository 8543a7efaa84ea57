"""Nothing that we did not write is ever removed on S3: every removal meets objects of somebody else."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.faults import all_bits, run_fit, tiny_counts

import pairsym_dask as ps
from pairsym_dask.answers.batch import UNFINISHED as RECOMMENDING
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.store import model_store
from pairsym_dask.store.counts import MARK, Counts
from pairsym_dask.store.counts_writer import UNFINISHED
from pairsym_dask.store.storage import Storage, open_storage
from pairsym_dask.store.verify import verify

pytestmark = [pytest.mark.s3, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

FRAME = pd.DataFrame({"user": ["a", "a", "b", "b"], "item": ["x", "y", "x", "z"]})
WRITERS = ["ingest", "ingest of bad input", "simulate", "leave_one_out", "split_by_fraction"]


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr", users=40, items=5)


@pytest.fixture
def target(options: dict[str, Any]) -> Storage:
    return open_storage(f"s3://bucket/{uuid.uuid4().hex}/p", options)


def leave(storage: Storage, *keys: str) -> Callable[[], None]:
    """Somebody's objects; what is returned sees that they are all still there."""
    for key in keys:
        storage.write(key, f"precious {key}".encode())

    def check() -> None:
        for key in keys:
            assert storage.read(key) == f"precious {key}".encode(), key

    return check


def write(writer: str, storage: Storage, options: dict[str, Any], folder: Path) -> None:
    """All that writes a counts store."""
    path = storage.url
    if writer == "ingest":
        ps.ingest(FRAME, path, storage_options=options)
    elif writer == "ingest of bad input":
        ps.ingest(FRAME.assign(count=-1), path, count="count", storage_options=options)
    elif writer == "simulate":
        ps.simulate(path, users=20, items=5, pairs=60, storage_options=options)
    else:
        counts = ps.ingest(FRAME, folder / "counts.zarr")
        split = getattr(ps, writer)
        split(counts, path, *([0.5] if writer == "split_by_fraction" else []), storage_options=options)


@pytest.mark.parametrize("writer", WRITERS)
def test_an_object_that_happens_to_be_called_like_our_mark_opens_no_folder_to_removal(
    writer: str, target: Storage, options: dict[str, Any], tmp_path: Path
) -> None:
    check = leave(target, "thesis/a", MARK, "b.txt")
    with pytest.raises(StoreError, match="exists already and is not an unfinished counts store; give another path"):
        write(writer, target, options, tmp_path)
    check()


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("stranger", ["thesis/a", "by_user/index/notes", "scratch-0a/runs/x.csv"])
def test_an_unfinished_store_with_anything_else_in_it_is_refused(
    writer: str, stranger: str, target: Storage, options: dict[str, Any], tmp_path: Path
) -> None:
    check = leave(target, stranger, "by_user/index/c.0.0")
    target.write(MARK, UNFINISHED)
    with pytest.raises(StoreError, match=f"holds {stranger}, which no writer of an unfinished counts store has left"):
        write(writer, target, options, tmp_path)
    check()


def test_an_unfinished_store_of_ours_alone_is_begun_again(target: Storage, options: dict[str, Any]) -> None:
    leave(target, "by_user/index/c.0.0", "scratch-0a/parse/0-users", "users/label/c.7", "zarr.json")
    target.write(MARK, UNFINISHED)
    ps.ingest(FRAME, target.url, storage_options=options)
    assert verify(target.url, options).sound
    assert {key.split("/")[0] for key in target.keys()} == {
        "by_item", "by_user", "counts.json", "items", "users", "zarr.json",
    }  # fmt: skip
    assert not target.exists("users/label/c.7")


def test_an_object_that_comes_while_bad_input_is_read_survives_its_refusal(
    target: Storage, options: dict[str, Any]
) -> None:
    import dask.dataframe as dd

    strangers = ["notes.txt", "mine/a"]

    def read(part: int) -> pd.DataFrame:
        leave(target, *strangers)
        return FRAME.assign(count=-1)

    frame = dd.from_map(read, [0], meta=FRAME.assign(count=1))
    with pytest.raises(InputError):
        ps.ingest(frame, target.url, count="count", storage_options=options)
    assert target.keys() == sorted(strangers)


@pytest.mark.parametrize("mark", [b"precious", RECOMMENDING])
def test_recommendations_are_not_written_over_anything_else(
    mark: bytes, counts: Counts, target: Storage, options: dict[str, Any], tmp_path: Path
) -> None:
    run_fit(counts, tmp_path / "model.zarr", 1)
    model = ps.load(tmp_path / "model.zarr", counts=counts)
    check = leave(target, "part-00000.parquet", "part-of-my-thesis", "deep/a")
    target.write(MARK, mark)
    with pytest.raises(StoreError, match="give another path"):
        model.recommend_all(target.url, storage_options=options)
    check()
    assert target.read(MARK) == mark
    for key in ("part-of-my-thesis", "deep/a"):
        target.remove(key)
    target.write(MARK, RECOMMENDING)
    model.recommend_all(target.url, storage_options=options)
    assert target.read("part-00000.parquet")[:4] == b"PAR1"


def test_a_list_is_not_written_over_an_object_of_its_name(
    counts: Counts, target: Storage, options: dict[str, Any], tmp_path: Path
) -> None:
    run_fit(counts, tmp_path / "model.zarr", 1)
    model = ps.load(tmp_path / "model.zarr", counts=counts)
    check = leave(target, "top.csv", "top.csv.partial", "other.csv.partial")
    with pytest.raises(StoreError, match=r"top\.csv exists already; remove it first, or give another path"):
        model.recommend_all(f"{target.url}/top.csv", storage_options=options)
    model.recommend_all(f"{target.url}/other.csv", storage_options=options)
    check()
    assert target.read("other.csv").startswith(b'"user"') or target.read("other.csv").startswith(b"user")


def test_a_fit_removes_only_its_own(
    counts: Counts, target: Storage, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_store, "GRACE_SECONDS", 1e-9)
    path = target.url
    run_fit(counts, path, 1, storage_options=options)
    first = next(name for name in target.folders() if name.startswith("generation-00000-"))
    attempt = "generation-00002-abcdef"
    check = leave(
        target, "notes.txt", "film.mp4.partial", "removed-photos/a", "generation-gap/a", "commits/notes.txt",
        "lock/00000.txt", "lock/my.json", "lock/0.clock", "attempts/a.json", f"{first}/notes.txt",
        f"{first}/users/mean/plot.png", f"{attempt}/items/a.csv",
        f"{first}/00/plot.png", f"{first}/0g/users.0.shard",
    )  # fmt: skip
    leave(target, f"{attempt}/items/mean/c.0.0", f"{attempt}/zarr.json", f"{attempt}/1f/users.31.shard")
    run_fit(counts, path, 4, storage_options=options)
    check()
    left = ("00/plot.png", "0g/users.0.shard", "notes.txt", "users/mean/plot.png")
    assert target.keys(first) == [f"{first}/{name}" for name in left]
    assert target.keys(attempt) == [f"{attempt}/items/a.csv"]
    assert verify(path, options).sound
    assert len(all_bits(path, options)) == 5


def test_what_is_set_aside_as_damaged_takes_nothing_along_to_its_end(
    counts: Counts, target: Storage, options: dict[str, Any]
) -> None:
    run_fit(counts, target.url, 2, storage_options=options)
    newest = next(name for name in target.folders() if name.startswith("generation-00002-"))
    leave(target, f"{newest}/users/notes.txt")
    check = leave(target, "notes.txt")
    target.write(next(key for key in target.keys(newest) if key.endswith("/users.0.shard")), b"")
    with pytest.warns(UserWarning, match="set aside as damaged"):
        run_fit(counts, target.url, 3, storage_options=options, discard_damaged=True)
    check()
    (kept,) = [key for key in target.keys() if key.endswith("users/notes.txt")]
    assert target.read(kept) == f"precious {newest}/users/notes.txt".encode()


def test_old_versions_leave_what_is_not_theirs(counts: Counts, options: dict[str, Any], tmp_path: Path) -> None:
    target = open_storage(f"s3://bucket/{uuid.uuid4().hex}/plays", options)
    run_fit(counts, tmp_path / "model.zarr", 1)
    days = [pd.DataFrame({"user": [1, 900 + k], "item": [3, 4]}) for k in range(3)]
    how: dict[str, Any] = {"sweeps": 1, "progress": False, "storage_options": options, "keep_last": 1}
    ps.roll(target.url, days[0], start=ps.load(tmp_path / "model.zarr", counts=counts), **how)
    first = target.folders()[0]
    check = leave(target, f"{first}/notes.txt", f"{first}/model.zarr/thesis/a", "notes.txt", "2026/a")
    ps.roll(target.url, days[1], **how)
    check()
    assert target.keys(first) == [f"{first}/model.zarr/thesis/a", f"{first}/notes.txt"]
    with pytest.raises(InputError):
        ps.roll(target.url, days[2].assign(user=[None, None]), **how)
    check()
