"""The storage layer: keys, durability calls, locks, retention, hostile files, credentials."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from helpers.faults import FaultyDisk, all_bits, run_fit, tiny_counts, using, write_counts

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError, InputError, NumericError, StoreError
from pairsym_dask.settings import Settings
from pairsym_dask.store import lock, storage
from pairsym_dask.store import model_store as posterior
from pairsym_dask.store.arrays import ArraySpec, Sealed, seal, write_block
from pairsym_dask.store.counts import Counts, open_counts
from pairsym_dask.store.lock import Lock, holder
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.storage import LocalStorage, RemoteStorage, digest, open_storage
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep import tasks


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr")


# Keys and bytes


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
    monkeypatch.setattr(storage.Disk, "fsync", fail)
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
            patch.setattr(storage, "disk", FaultyDisk("ENOSPC", at))
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
    store.remove("folder")
    store.remove("other")
    assert (tmp_path / "outside/file").read_text() == "precious"
    assert os.listdir(tmp_path / "store") == []


def test_a_file_system_without_hard_links_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(self: Any, source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(storage.Disk, "link", link)
    with pytest.raises(StoreError, match="has no hard links, which commits need"):
        LocalStorage(str(tmp_path)).put_if_absent("commits/0", b"x")
    assert not list(tmp_path.rglob("*.partial"))


# One fit at a time


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


# What is kept


def test_the_last_two_sweeps_and_the_kept_ones_stay(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 7, keep=[2, 5])
    assert sorted(int(p.name[11:16]) for p in path.glob("generation-*")) == [2, 5, 6, 7]
    for sweep in (2, 5, 6, 7):
        assert ps.load(path, counts=counts, sweep=sweep).history["sweep"].iloc[-1] == sweep
    with pytest.raises(StoreError, match=r"sweep 4 of .* has been removed; fit with keep="):
        ps.load(path, sweep=4)
    with pytest.raises(StoreError, match="has sweeps 0 to 7, not 8"):
        ps.load(path, sweep=8)
    run_fit(counts, path, 9, keep=4)
    assert sorted(int(p.name[11:16]) for p in path.glob("generation-*")) == [2, 5, 8, 9]


@pytest.mark.parametrize("keep", [0, -1, "abc", 1.5, [1.5]])
def test_odd_ideas_of_keeping_are_refused(keep: Any, counts: Counts, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="keep must be"):
        run_fit(counts, tmp_path / "model.zarr", 1, keep=keep)


def test_dead_attempts_are_removed_after_a_grace_time(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    attempt = path / "generation-00002-abcdef/users/mean"
    attempt.mkdir(parents=True)
    (attempt / "c.0.0").write_bytes(b"zombie")
    partial = path / "commits/.00002.json.abc.partial"
    partial.write_bytes(b"")
    run_fit(counts, path, 1)
    assert attempt.exists()
    assert partial.exists()
    for file in (attempt / "c.0.0", partial, attempt, attempt.parent, attempt.parent.parent):
        os.utime(file, (1, 1))
    run_fit(counts, path, 1)
    assert not attempt.exists()
    assert not partial.exists()


def test_an_attempt_that_has_only_begun_is_not_taken_for_a_dead_one(counts: Counts, tmp_path: Path) -> None:
    """Two drivers without a lock: one removed the other's folder before its first file was there."""
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    (path / "generation-00002-abcdef/users").mkdir(parents=True)
    run_fit(counts, path, 1)
    assert (path / "generation-00002-abcdef/users").exists()


def test_writing_into_a_folder_that_was_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStorage, "_make_folder", lambda self, folder: None)
    with pytest.raises(StoreError, match=r"cannot write .*/gone/a: its folder was removed meanwhile"):
        LocalStorage(str(tmp_path)).write("gone/a", b"x")


def test_a_failed_attempt_of_this_process_is_removed_at_once(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    with using(FaultyDisk("ENOSPC", 100)), pytest.raises(StoreError, match="No space left on device"):
        run_fit(counts, path, 2)
    assert sorted(int(p.name[11:16]) for p in path.glob("generation-*")) == [0, 1]


def test_a_reader_is_told_when_its_sweep_has_been_removed(counts: Counts, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    model = ps.load(path, counts=counts)
    run_fit(counts, path, 4)
    with pytest.raises(StoreError, match="has been removed since it was opened: a fit has moved on"):
        model.recommend([0])


# Numbers


def test_a_block_that_is_not_finite_stops_the_fit_and_names_the_label(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    before = all_bits(path)
    update = tasks.kernels.update_rows

    def spoil(*arguments: Any) -> None:
        update(*arguments)
        arguments[-4][3, 1] = np.nan  # the mean of the fourth row of the block

    monkeypatch.setattr(tasks.kernels, "update_rows", spoil)
    with pytest.raises(
        NumericError, match=r"the update of user (np.int64\()?3\)? \(block 0 of the users\) is not finite"
    ):
        run_fit(counts, path, 2)
    monkeypatch.undo()
    assert all_bits(path) == before
    assert verify(path).sound
    assert len(run_fit(counts, path, 2).record["files"]) > 0


def test_a_bound_that_is_not_a_number_is_never_committed(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    monkeypatch.setattr("pairsym_dask.sweep.fit.side_bound", lambda *arguments: float("nan"))
    with pytest.raises(NumericError, match="elbo of sweep 2 is nan; the last committed sweep is intact"):
        run_fit(counts, path, 2)
    assert len(ModelStore(path).commits()) == 2


@pytest.mark.parametrize(("selection", "warns"), [("bayes", True), ("constant", False)])
def test_a_falling_bound_is_a_warning_that_says_by_how_much(
    selection: str, warns: bool, counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(factors=2, selection=selection)
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1, settings=settings)
    bound = ModelStore(path).commits()[-1].scalar("elbo")
    monkeypatch.setattr("pairsym_dask.sweep.fit.side_bound", lambda *arguments: bound)
    if warns:
        with pytest.warns(UserWarning, match=r"the bound fell by \d+.* \(\d\.\de.* of it\) in sweep 2, from -"):
            run_fit(counts, path, 2, settings=settings)
    else:
        run_fit(counts, path, 2, settings=settings)


# Files are data


def test_nothing_in_the_package_unpickles_a_store() -> None:
    for path in Path(storage.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        assert "pickle.load" not in text, path
        assert "numcodecs.pickles" not in text, path


def _reseal(path: Path, **changes: Any) -> None:
    record = json.loads(path.read_bytes())
    for name, value in changes.items():
        place = record
        *parents, last = name.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    path.write_bytes(seal(record))


@pytest.mark.parametrize(
    "changes",
    [
        {"layout__users": 10**15},
        {"layout__items": 10**15},
        {"layout__pairs": 10**15},
        {"layout__pairs": -1},
        {"layout__users": 0},
        {"layout__users": "many"},
        {"layout__count_dtype": "object"},
        {"tiles": {}},
        {"files": {}},
        {"cuts": None},
    ],
)
def test_absurd_shapes_in_a_counts_record_do_no_harm(changes: dict[str, Any], tmp_path: Path) -> None:
    tiny_counts(tmp_path / "c.zarr")
    _reseal(tmp_path / "c.zarr/counts.json", **changes)
    with pytest.raises(StoreError):
        open_counts(tmp_path / "c.zarr").to_scipy()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows__users": 10**15},
        {"blocks__users": 10**15},
        {"settings__factors": 10**9},
        {"generation": "../../outside"},
        {"generation": "generation-00001-" + "a/../../.."},
        {"files": {}},
    ],
)
def test_absurd_shapes_and_paths_in_a_commit_do_no_harm(
    changes: dict[str, Any], counts: Counts, tmp_path: Path
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    _reseal(path / "commits/00001.json", **changes)
    with pytest.raises(StoreError):
        ps.load(path, counts=counts)


def test_a_chunk_that_would_grow_beyond_its_array_is_refused(tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    spec = ArraySpec("a", (10,), (10,), "float64", ("n",), compressed=True)
    key, size, check = write_block(store, "", spec, (0,), np.arange(10.0))
    assert Sealed(store, "", {key: (size, check)}).read_block(spec, 0).tolist() == list(range(10))
    bomb = numcodecs.Zstd().encode(bytes(2**28))
    store.write(key, bomb)
    with pytest.raises(DamagedStoreError, match="declares another size"):
        Sealed(store, "", {key: (len(bomb), digest(bomb))}).read_block(spec, 0)


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


# Credentials


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
    monkeypatch.setattr("faults.finish", _with_source(sys.modules["faults"].finish, "ftp://me:hunter2@host/a.csv"))
    counts = tiny_counts(tmp_path / "c.zarr")
    assert counts.record["source"] == "ftp://host/a.csv"


def _with_source(function: Any, source: str) -> Any:
    return lambda *arguments: function(*arguments[:-1], source)


def test_the_grace_time_is_longer_than_a_heartbeat() -> None:
    assert posterior.GRACE_SECONDS > lock.BEAT_SECONDS
    assert lock.STALE_SECONDS > 3 * lock.BEAT_SECONDS
