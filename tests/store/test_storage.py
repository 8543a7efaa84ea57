"""The storage layer: keys, durability calls, names, credentials."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.faults import FaultyDisk, run_fit, tiny_counts, write_counts

import pairsym_dask as ps
from pairsym_dask.errors import StoreError
from pairsym_dask.store import disk, local
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.remote import RemoteStorage
from pairsym_dask.store.storage import open_storage
from pairsym_dask.store.verify import verify


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a\\b", "a\0b", "a\nb"])
def test_keys_never_leave_the_store(key: str, tmp_path: Path) -> None:
    for call in (lambda s: s.read(key), lambda s: s.write(key, b""), lambda s: s.remove(key), lambda s: s.entry(key)):
        with pytest.raises(StoreError, match="not a key inside a store"):
            call(LocalStorage(str(tmp_path)))


def test_put_if_absent_has_one_winner_among_threads(tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    barrier = threading.Barrier(8)
    won: list[int] = []

    def put(n: int) -> None:
        barrier.wait()
        if store.put_if_absent("commits/0", b"%d" % n):
            won.append(n)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read("commits/0") == b"%d" % won[0]
    assert len(won) == 1


def test_write_soon_tells_a_failed_fsync_at_settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    store = LocalStorage(str(tmp_path))
    monkeypatch.setattr(disk.Disk, "fsync", fail)
    store.write_soon("a", b"x")
    with pytest.raises(StoreError, match=r"cannot write .*/a: Input/output error"):
        store.settle()
    store.settle()


def test_a_disk_that_fills_up_behind_a_fit_is_told_as_such(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With writes in the background, a reader met a missing file before the writer's error was told."""
    for at in range(60, 180, 15):
        with monkeypatch.context() as patch:
            patch.setattr(local, "disk", FaultyDisk("ENOSPC", at))
            with pytest.raises(StoreError, match="No space left on device"):
                run_fit(counts, tmp_path / "model.zarr", 2)
    run_fit(counts, tmp_path / "model.zarr", 2)
    assert verify(tmp_path / "model.zarr").sound


def test_removing_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("precious")
    store = LocalStorage(str(tmp_path / "store"))
    store.write("folder/a", b"x")
    os.symlink(tmp_path / "outside", tmp_path / "store/folder/link")
    os.symlink(tmp_path / "outside", tmp_path / "store/other")
    store.remove_ours("folder", {"a|link": None, "file": None})
    store.remove("other")
    assert (tmp_path / "outside/file").read_text() == "precious"
    assert os.listdir(tmp_path / "store") == ["folder"]
    assert os.listdir(tmp_path / "store/folder") == ["link"]  # we make no links: it is somebody's


def test_a_file_system_without_hard_links_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(self: Any, source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(disk.Disk, "link", link)
    with pytest.raises(StoreError, match="has no hard links, which commits need"):
        LocalStorage(str(tmp_path)).put_if_absent("commits/0", b"x")
    assert not list(tmp_path.rglob("*.partial"))


def test_labels_may_be_any_text(tmp_path: Path) -> None:
    odd = [
        "../../etc/passwd",
        "a/b",
        "C:\\x",
        "nul\0l",
        "new\nline",
        "\u202eright",
        "'; drop table",
        "🎬",
        " ",
        "%2e%2e",
    ]
    labels = {"users": np.array(sorted(odd), object), "items": np.arange(3)}
    counts = write_counts(np.ones((len(odd), 3), np.uint16), tmp_path / "c.zarr", labels)
    run_fit(counts, tmp_path / "model.zarr", 1)
    model = ps.load(tmp_path / "model.zarr")
    assert set(model.recommend(odd, n=1, exclude_seen=False)["user"]) == set(odd)
    assert sorted(os.listdir(tmp_path)) == ["c.zarr", "model.zarr"]


@pytest.mark.parametrize("name", ["a\0b", ""])
def test_odd_store_names_are_refused(name: str) -> None:
    with pytest.raises(StoreError, match="a store's path must not"):
        open_storage(name)


def test_store_names_with_odd_characters_work(tmp_path: Path) -> None:
    path = tmp_path / "sp ace" / "..dots" / "ü%2e#?.zarr"
    counts = tiny_counts(path)
    run_fit(counts, tmp_path / "sp ace" / "m.zarr", 1)
    assert verify(tmp_path / "sp ace" / "m.zarr").sound


def test_credentials_never_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "hunter2secret"
    options = {"key": secret, "client_kwargs": {"aws_session_token": secret + "2"}}
    store = RemoteStorage(f"ftp://me:{secret}@host/x.zarr?sig={secret}", options)
    assert secret not in store.url + repr(store) + str(ModelStore(store).url)
    assert store.url == "ftp://host/x.zarr"
    reason = store._reason(ValueError(f"bad key {secret} and {secret}2 at ftp://me:{secret}@host"))
    assert secret not in reason
    again = pickle.loads(pickle.dumps(store))
    assert again.url == store.url
    with pytest.raises(StoreError) as error:
        RemoteStorage(f"nosuch://me:{secret}@host/x", options).read("a")
    assert secret not in str(error.value)
    assert error.value.__cause__ is None


def test_credentials_in_a_source_do_not_enter_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "helpers.faults.finish", _with_source(sys.modules["helpers.faults"].finish, "ftp://me:hunter2@host/a.csv")
    )
    counts = tiny_counts(tmp_path / "c.zarr")
    assert counts.record["source"] == "ftp://host/a.csv"


def _with_source(function: Any, source: str) -> Any:
    return lambda *arguments: function(*arguments[:-1], source)


@pytest.mark.parametrize("where", ["local", "memory"])
def test_ranges_come_in_the_order_that_they_are_asked_in(where: str, tmp_path: Path) -> None:
    store = open_storage(tmp_path if where == "local" else f"memory://{tmp_path.name}")
    data = np.random.default_rng(0).bytes(3 * 2**20)
    store.write_soon("a/one", data)
    store.write_soon("a/two", data[::-1])
    ranges = [("a/one", 5, 10), ("a/one", 100, 7), ("a/two", 0, 4), ("a/one", 2**21 + 500, 300), ("a/one", 0, 3)]
    wanted = [(data if key == "a/one" else data[::-1])[offset : offset + size] for key, offset, size in ranges]
    assert store.read_ranges(ranges) == wanted
    assert store.read_ranges([]) == []
    assert store.read_ranges([("a/one", len(data) - 4, 10)]) == [data[-4:]]  # less, where a key ends
    with pytest.raises(FileNotFoundError):
        store.read_ranges([("a/one", 0, 1), ("a/three", 0, 1)])
    store.settle()


def test_ranges_of_a_link_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="cannot read"):
        open_storage(tmp_path / "store").read_ranges([("a", 0, 3)])


def test_far_writes_overlap_and_tell_their_errors_at_settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_storage(f"memory://{tmp_path.name}")
    together, write = threading.Barrier(3), RemoteStorage.write

    def slow(self: RemoteStorage, key: str, data: Any) -> None:
        together.wait(30)  # nobody goes on before all three are under way
        if key == "bad":
            raise StoreError("cannot write bad: no room")
        write(self, key, data)

    monkeypatch.setattr(RemoteStorage, "write", slow)
    mine, yours = store.for_caller(), store.for_caller()
    for caller, key in ((mine, "one"), (mine, "bad"), (yours, "two")):
        caller.write_soon(key, key.encode())
    assert yours.read("two") == b"two"  # seen at once in this process
    yours.settle()
    with pytest.raises(StoreError, match="no room"):
        yours.read("bad")
    with pytest.raises(StoreError, match="no room"):
        mine.settle()
    mine.settle()  # it was told
    assert mine.read("one") == b"one"
    with pytest.raises(FileNotFoundError):
        mine.read("bad")
