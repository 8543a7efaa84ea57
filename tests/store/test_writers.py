"""Each caller settles its own bytes, and hears of its own errors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pairsym_dask.errors import StoreError
from pairsym_dask.store import local
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.storage import open_storage


class PatientDisk(Disk):
    """An fsync of a file called "late" waits until it is let go, one of a file called "bad" fails."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.go = threading.Event()
        self.synced: list[str] = []

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self.names[descriptor] = path.name.split(".")[1]
        return descriptor

    def fsync(self, descriptor: int) -> None:
        name = self.names[descriptor]
        if name == "bad":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if name == "late":
            assert self.go.wait(60)
        super().fsync(descriptor)
        self.synced.append(name)

    def fsync_file(self, path: Path) -> None:
        if path.name == "bad":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync_file(path)
        self.synced.append(path.name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> PatientDisk:
    disk = PatientDisk()
    monkeypatch.setattr(local, "disk", disk)
    return disk


def test_a_caller_does_not_wait_for_the_bytes_of_another(disk: PatientDisk, tmp_path: Path) -> None:
    mine, others = LocalStorage(str(tmp_path)), LocalStorage(str(tmp_path))
    others.write_soon("late", b"x")
    mine.write_soon("a", b"x")
    settling = threading.Thread(target=mine.settle, daemon=True)
    settling.start()
    settling.join(30)
    assert not settling.is_alive()
    assert disk.synced == ["a"]
    disk.go.set()
    others.settle()
    assert disk.synced == ["a", "late"]


def test_nobody_settles_the_bytes_of_another_away(disk: PatientDisk, tmp_path: Path) -> None:
    """One caller took the other's writes off the common list; the other then settled at once, its bytes not on disk."""
    mine, others = LocalStorage(str(tmp_path)), LocalStorage(str(tmp_path))
    mine.write_soon("late", b"x")
    others.write_soon("a", b"x")
    first = threading.Thread(target=others.settle, daemon=True)
    first.start()
    first.join(5)  # the old one waits here, with the list in its hands
    disk.go.set()
    mine.settle()
    assert "late" in disk.synced
    first.join()


def test_each_caller_hears_of_its_own_errors(disk: PatientDisk, tmp_path: Path) -> None:
    mine, others = LocalStorage(str(tmp_path)), LocalStorage(str(tmp_path))
    others.write_soon("bad", b"x")
    mine.write_soon("a", b"x")
    mine.settle()
    with pytest.raises(StoreError, match=r"cannot write .*/bad: Input/output error"):
        others.settle()
    others.settle()  # told once


def test_a_task_of_a_cluster_is_a_caller_of_its_own(disk: PatientDisk, tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    tasks = [store.for_caller() for _ in range(2)]
    tasks[0].write_soon("bad", b"x")
    tasks[1].write_soon("a", b"x")
    tasks[1].settle()
    with pytest.raises(StoreError, match="Input/output error"):
        tasks[0].settle()
    store.settle()


def test_what_is_left_unsynced_is_there_for_all_and_synced_by_another(disk: PatientDisk, tmp_path: Path) -> None:
    driver = LocalStorage(str(tmp_path))
    task = driver.for_caller(unsynced=True)
    task.write_soon("late", b"x")
    task.settle()  # does not wait for the fsync
    assert (tmp_path / "late").read_bytes() == b"x"
    assert disk.synced == []
    driver.sync_soon("late")
    driver.settle()
    assert disk.synced == ["late"]
    assert [path.name for path in tmp_path.iterdir()] == ["late"]


def test_a_task_that_is_repeated_does_not_replace_what_may_have_been_synced(tmp_path: Path) -> None:
    driver = LocalStorage(str(tmp_path))
    inodes = set()
    for _ in range(2):
        task = driver.for_caller(unsynced=True)
        task.write_soon("a", b"x")
        task.settle()
        inodes.add((tmp_path / "a").stat().st_ino)
    assert len(inodes) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_of_a_sync_for_another_is_told_at_settle(disk: PatientDisk, tmp_path: Path) -> None:
    driver = LocalStorage(str(tmp_path))
    task = driver.for_caller(unsynced=True)
    for key in ("a", "bad"):
        task.write_soon(key, b"x")
    task.settle()
    for key in ("a", "bad", "gone"):
        driver.sync_soon(key)
    with pytest.raises(StoreError, match=r"cannot write .*bad: Input/output error"):
        driver.settle()
    driver.sync_soon("gone")
    with pytest.raises(StoreError, match=r"cannot write .*gone: its folder was removed meanwhile"):
        driver.settle()


def test_whereabouts_are_those_of_a_folder_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    one, same = (LocalStorage(str(tmp_path / name)).whereabouts() for name in "ab")
    if one is None:
        pytest.skip("this system has no name of its own")
    assert one == same
    assert one != LocalStorage(str(tmp_path)).whereabouts()
    assert LocalStorage(str(tmp_path / "none")).whereabouts() is None
    assert open_storage("memory://a").whereabouts() is None
    code = f"from pairsym_dask.store.local import LocalStorage as L; print(L({str(tmp_path / 'a')!r}).whereabouts())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == str(one)
