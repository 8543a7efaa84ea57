"""One writer at a time: who holds a store, when a lock is stale, who takes it over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.faults import run_fit

import pairsym_dask as ps
from pairsym_dask.errors import StoreError
from pairsym_dask.store import lock
from pairsym_dask.store import model_store as posterior
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.lock import Lock, holder
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify


def test_a_second_fit_is_refused_while_one_runs_and_readers_work(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    refused: list[str] = []
    seen: list[int] = []

    def meanwhile(sweep: int, bound: float, seconds: float) -> None:
        with pytest.raises(StoreError) as error:
            run_fit(counts, path, 9)
        refused.append(str(error.value))
        seen.append(int(ps.load(path, counts=counts).history["sweep"].iloc[-1]))
        report = verify(path)
        assert report.sound
        assert any(f"process {os.getpid()}" in line for line in report.lines())

    run_fit(counts, path, 3, callback=meanwhile)
    assert seen == [1, 2, 3]
    assert f"is in use by a fit on {os.uname().nodename} (process {os.getpid()}, since " in refused[0]
    assert refused[0].endswith("wait until it ends, or stop it")
    assert ModelStore(path).holder() is None


def _foreign_lock(path: Path, **changes: Any) -> Path:
    """A lock as another process would have left it."""
    held = Lock(LocalStorage(str(path)))
    record = json.loads(held._record()) | changes
    (path / "lock").mkdir(parents=True, exist_ok=True)
    file = path / "lock/00001.json"
    file.write_text(json.dumps(record))
    return file


def test_the_lock_of_a_dead_process_is_taken_over(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 0)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    _foreign_lock(path, pid=dead.pid)
    assert ModelStore(path).holder() is None
    run_fit(counts, path, 1)
    assert not list((path / "lock").iterdir())


def test_a_process_number_given_to_another_process_does_not_hold_a_store(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 0)
    _foreign_lock(path, pid=1, started=12345.0)
    run_fit(counts, path, 1)


def test_a_living_process_holds_a_store_whatever_its_heartbeat(counts: Counts, tmp_path: Path) -> None:
    import psutil

    path = tmp_path / "model.zarr"
    run_fit(counts, path, 0)
    file = _foreign_lock(path, pid=os.getppid(), started=psutil.Process(os.getppid()).create_time())
    os.utime(file, (1, 1))
    with pytest.raises(StoreError, match=f"process {os.getppid()}"):
        run_fit(counts, path, 1)


def test_a_lock_of_another_machine_is_judged_by_its_heartbeat(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 0)
    file = _foreign_lock(path, machine="elsewhere", host="elsewhere")
    assert "elsewhere" in str(ModelStore(path).holder())
    with pytest.raises(StoreError, match="in use by a fit on elsewhere"):
        run_fit(counts, path, 1)
    old = file.stat().st_mtime - 2 * lock.STALE_SECONDS
    os.utime(file, (old, old))
    beat = file.with_suffix(".beat")
    beat.write_bytes(b"")
    with pytest.raises(StoreError, match="in use by a fit on elsewhere"):
        run_fit(counts, path, 1)
    os.utime(beat, (old, old))
    run_fit(counts, path, 1)


def test_a_damaged_lock_holds_until_it_is_stale(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 0)
    file = _foreign_lock(path)
    file.write_bytes(b"\xff{")
    with pytest.raises(StoreError, match="an unknown machine"):
        run_fit(counts, path, 1)
    os.utime(file, (1, 1))
    run_fit(counts, path, 1)


def test_the_heart_beats_while_a_fit_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.01)
    beaten = threading.Event()
    write = LocalStorage.write

    def listen(self: LocalStorage, key: str, data: bytes) -> None:
        write(self, key, data)
        if key == "lock/00001.beat":
            beaten.set()

    monkeypatch.setattr(LocalStorage, "write", listen)
    with Lock(LocalStorage(str(tmp_path))):
        assert beaten.wait(20)
    assert not list((tmp_path / "lock").iterdir())


def test_of_two_that_take_over_one_stale_lock_one_wins(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    for _ in range(20):
        _foreign_lock(tmp_path, pid=2**22 + 1)
        barrier = threading.Barrier(3)
        outcomes: list[str] = []
        end = threading.Event()

        def take(barrier: threading.Barrier = barrier, outcomes: list[str] = outcomes, end: Any = end) -> None:
            barrier.wait()
            try:
                with Lock(LocalStorage(str(tmp_path))):
                    outcomes.append("held")
                    if len(outcomes) == 3:
                        end.set()
                    end.wait()
            except StoreError:
                outcomes.append("refused")
                if len(outcomes) == 3:
                    end.set()

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["held", "refused", "refused"]
        assert holder(LocalStorage(str(tmp_path))) is None


def test_the_grace_time_is_longer_than_a_heartbeat() -> None:
    assert posterior.GRACE_SECONDS > lock.BEAT_SECONDS
    assert lock.STALE_SECONDS > 3 * lock.BEAT_SECONDS
