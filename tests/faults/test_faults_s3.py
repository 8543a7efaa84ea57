"""Two drivers on one store, on disk and on S3, and an S3 server that fails, loses answers and is slow."""

from __future__ import annotations

import contextlib
import shutil
import threading
import types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.faults import LAYOUTS, all_bits, chunk_bits, new_stores_in, quick_folder, run_fit, tiny_counts
from helpers.s3 import SECRET, FaultyServer, Request, drop, fetch, nothing

import pairsym_dask as ps
from pairsym_dask.errors import StoreError
from pairsym_dask.store.counts import Counts, open_counts
from pairsym_dask.store.model_store import ModelStore, commit_key
from pairsym_dask.store.remote import RemoteStorage
from pairsym_dask.store.storage import open_storage
from pairsym_dask.store.verify import verify

pytest.importorskip("moto")
pytest.importorskip("s3fs")
pytestmark = [pytest.mark.s3, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def local_counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr")


@pytest.fixture(scope="module")
def counts(options: dict[str, Any]) -> Counts:
    return tiny_counts("s3://bucket/counts.zarr", storage_options=options)


@pytest.fixture(scope="module")
def references(local_counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Undisturbed fits on disk by layout."""
    folder = tmp_path_factory.mktemp("reference")
    for layout in LAYOUTS:
        with new_stores_in(layout):
            run_fit(local_counts, folder / layout, 3)
    return {layout: folder / layout for layout in LAYOUTS}


@pytest.fixture(scope="module")
def reference(references: dict[str, Path]) -> list[str]:
    return all_bits(references["shards"])


@pytest.fixture
def url(server: FaultyServer) -> Iterator[str]:
    yield f"s3://bucket/{uuid.uuid4().hex}/model.zarr"
    server.rule = nothing


def test_a_fit_on_s3_has_the_same_bits_and_keeps_the_same_sweeps(
    counts: Counts, references: dict[str, Path], options: dict[str, Any], url: str
) -> None:
    run_fit(counts, url, 2, storage_options=options)
    run_fit(counts, url, 3, storage_options=options)
    assert all_bits(url, options) == all_bits(references["shards"])
    assert chunk_bits(ModelStore(url, options)) == chunk_bits(ModelStore(references["files"]))
    report = verify(url, options)
    assert report.sound, str(report)
    assert report.files == 1 + 4 + 2 * 6  # the mark, commits; three shards, their list, zarr.json and receipt
    assert len([n for n in open_storage(url, options).folders() if n.startswith("generation-")]) == 2
    assert open_storage(url, options).keys("lock") == []
    assert verify("s3://bucket/counts.zarr", options).sound
    model = ps.load(url, storage_options=options)  # finds its counts store by itself
    assert len(model.recommend([0, 1], n=3)) > 0


def test_a_store_on_s3_that_began_with_a_file_a_chunk_goes_on_with_it(
    counts: Counts, references: dict[str, Path], options: dict[str, Any], url: str
) -> None:
    store = ModelStore(url, options)
    store.create(sharded=False)
    for sweeps in (1, 3):
        run_fit(counts, url, sweeps, storage_options=options)
    assert [commit.record["version"] for commit in store.commits()] == [1, 1, 1, 1]
    assert all_bits(url, options) == all_bits(references["files"])
    assert verify(url, options).sound
    assert len(ps.load(url, storage_options=options).recommend([0, 1], n=3)) > 0


def test_credentials_are_in_no_object_and_no_message(counts: Counts, options: dict[str, Any], url: str) -> None:
    run_fit(counts, url, 1, storage_options=options)
    for storage in (open_storage(url, options), counts.storage):
        for key in storage.keys():
            data = storage.read(key)
            assert SECRET.encode() not in data
            assert b"AKIDEXAMPLE" not in data
    with pytest.raises(StoreError) as error:
        run_fit(counts, "s3://no-such-bucket/model.zarr", 1, storage_options=options)
    assert SECRET not in str(error.value)
    assert "AKIDEXAMPLE" not in str(error.value)
    assert str(error.value).startswith("cannot write s3://no-such-bucket/model.zarr")


def test_damage_on_s3_is_found(counts: Counts, options: dict[str, Any], url: str) -> None:
    run_fit(counts, url, 1, storage_options=options)
    storage = open_storage(url, options)
    key = next(key for key in storage.keys() if key.startswith("generation-00001") and key.endswith("items.0.shard"))
    data = storage.read(key)
    storage.write(key, data[:-1] + bytes([data[-1] ^ 1]))
    assert not verify(url, options).sound
    storage.remove(key)
    with pytest.raises(StoreError, match="is missing"):
        ps.load(url, storage_options=options)
    with pytest.warns(UserWarning, match="set aside as damaged"):
        run_fit(counts, url, 1, storage_options=options, discard_damaged=True)
    assert verify(url, options).sound


def test_a_commit_whose_answer_was_lost_is_still_won(
    counts: Counts, reference: list[str], options: dict[str, Any], url: str, server: FaultyServer
) -> None:
    lost = []

    def rule(request: Request) -> Any:
        if request.method == "PUT" and request.path.endswith(commit_key(1)) and not lost:
            lost.append(request.path)
            return "lost"
        return None

    server.rule = rule
    run_fit(counts, url, 2, storage_options=options)
    assert lost
    assert all_bits(url, options) == reference[:3]


def test_a_server_that_is_down_is_told(counts: Counts, options: dict[str, Any], url: str, server: FaultyServer) -> None:
    run_fit(counts, url, 1, storage_options=options)
    server.rule = lambda request: "fail" if request.method == "PUT" else None
    with pytest.raises(StoreError, match=r"cannot write s3://bucket/.*: "):
        run_fit(counts, url, 2, storage_options=options)


# Two drivers


def race(
    counts: Counts, path: Any, sweeps: int, storage_options: dict[str, Any] | None = None
) -> tuple[list[list[int]], int]:
    """Two drivers that do not heed the lock; the sweeps that each has committed, and how many commits were refused."""
    refused = []
    won: list[list[int]] = [[], []]
    start = threading.Barrier(2)
    crashes: list[BaseException] = []

    def drive(n: int) -> None:
        start.wait()
        while True:
            try:
                run_fit(counts, path, sweeps, storage_options=storage_options, callback=lambda s, *_: won[n].append(s))
                return
            except StoreError as error:
                if "another fit has committed" in str(error):
                    refused.append(n)
                elif "removed since" not in str(error):
                    crashes.append(error)
                    return
            except BaseException as error:
                crashes.append(error)
                return

    threads = [threading.Thread(target=drive, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if crashes:
        raise crashes[0]
    return won, len(refused)


@pytest.fixture
def lawless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers that do not see each other's lock, as after a long silence of the network."""
    monkeypatch.setattr(ModelStore, "lock", lambda self: contextlib.nullcontext(types.SimpleNamespace(key="zarr.json")))


def races(number: int, counts: Counts, reference: list[str], make: Callable[[int], Any], options: Any = None) -> str:
    contested = losers = 0
    for n in range(number):
        path = make(n)
        won, refused = race(counts, path, 3, options)
        losers += refused
        assert sorted(won[0] + won[1]) == [1, 2, 3], "a sweep has two winners, or none"
        contested += bool(won[0]) and bool(won[1])
        with quick_folder() as folder:
            found = path if options is None else fetch(path, folder / "model.zarr")
            assert all_bits(found) == reference
            assert verify(found).sound
        if options is None:
            shutil.rmtree(path)
        else:
            drop(path, options)
    return f"{number} races over 3 sweeps: one winner a sweep, {losers} commits refused, both won some in {contested}"


@pytest.mark.usefixtures("lawless")
def test_two_drivers_on_disk_have_one_winner_a_sweep(
    layout: str, local_counts: Counts, references: dict[str, Path], tmp_path: Path
) -> None:
    races(5, local_counts, all_bits(references[layout]), lambda n: tmp_path / f"{n}.zarr")


@pytest.mark.usefixtures("lawless")
def test_two_drivers_on_s3_have_one_winner_a_sweep(
    counts: Counts, reference: list[str], options: dict[str, Any], url: str
) -> None:
    races(2, counts, reference, lambda n: f"{url}-{n}", options)


@pytest.mark.long
@pytest.mark.usefixtures("lawless")
def test_long_races(
    layout: str, local_counts: Counts, counts: Counts, references: dict[str, Path], options: dict[str, Any], url: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    wanted = all_bits(references[layout])
    print(f"\ndisk, {layout}:", races(60, local_counts, wanted, lambda n: tmp_path / f"{n}.zarr"))
    if layout == "shards":
        print("S3:", races(60, counts, wanted, lambda n: f"{url}-{n}", options))


def test_of_two_drivers_that_heed_the_lock_one_is_refused_on_s3(
    counts: Counts, options: dict[str, Any], url: str
) -> None:
    refused: list[str] = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(StoreError) as error:
            run_fit(counts, url, 2, storage_options=options)
        refused.append(str(error.value))

    run_fit(counts, url, 1, storage_options=options, callback=meanwhile)
    assert "is in use by a fit on" in refused[0]


def test_a_store_on_s3_travels_without_its_connection(options: dict[str, Any], counts: Counts) -> None:
    import pickle

    storage = counts.storage
    assert isinstance(storage, RemoteStorage)
    again = pickle.loads(pickle.dumps(storage))
    assert open_counts(again).digest == counts.digest
