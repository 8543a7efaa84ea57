"""Two rolling updates under one name: nothing that was fed is lost or counted twice, whoever comes in between."""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from helpers.command import run
from helpers.faults import tiny_counts
from helpers.s3 import FaultyServer

import pairsym_dask as ps
from pairsym_dask.errors import StoreError
from pairsym_dask.store import versions
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.verify import verify
from pairsym_dask.store.versions import Versions

DAYS = [pd.DataFrame({"user": [1, 2, 900 + k], "item": [3, 4 + k, 5]}) for k in range(4)]
NEW = 3.0  # pairs of a day


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> ps.PairedSymbols:
    folder = tmp_path_factory.mktemp("start")
    counts = tiny_counts(folder / "counts.zarr", users=40, items=9)
    return ps.PairedSymbols(factors=2).fit(counts, folder / "model.zarr", sweeps=1, progress=False, threads=1)


def roll(folder: Any, day: Any, **options: Any) -> ps.PairedSymbols:
    return ps.roll(folder, day, sweeps=1, progress=False, threads=1, **options)


@pytest.fixture
def folder(start: ps.PairedSymbols, tmp_path: Path) -> Path:
    """Versions with one day in them."""
    roll(tmp_path / "plays", DAYS[0], start=start)
    return tmp_path / "plays"


@contextlib.contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[str]]:
    """Do something once, just before the next update begins a version; what it was told."""
    told: list[str] = []
    begin = Versions.begin

    def late(self: Versions, *arguments: Any) -> str:
        patch.undo()
        try:
            work()
            told.append("")
        except StoreError as error:
            told.append(str(error))
        return begin(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Versions, "begin", late)
        yield told


def interrupt(*arguments: Any, **options: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def lawless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates that do not see each other's lock, as after a long silence of the network."""
    monkeypatch.setattr(versions, "Lock", lambda *arguments: contextlib.nullcontext())


def check(folder: Any, start: ps.PairedSymbols, days: int, options: dict[str, Any] | None = None) -> None:
    """Each day is counted once, and the newest version is sound."""
    model = ps.load(folder, storage_options=options)
    assert model.counts.total == start.counts.total + NEW * days
    assert verify(model.path, options).sound
    assert verify(model.counts.path, options).sound


def test_an_update_that_comes_between_is_refused_and_loses_nothing(folder: Path, start: ps.PairedSymbols) -> None:
    with meanwhile(lambda: roll(folder, DAYS[1])) as told:
        roll(folder, DAYS[2])
    assert len(told) == 1
    assert f"{folder} is in use by an update on" in told[0]
    check(folder, start, 2)
    roll(folder, DAYS[1])
    check(folder, start, 3)
    assert sorted(path.name for path in folder.iterdir()) == Versions(folder).names()


@pytest.mark.usefixtures("lawless")
def test_an_update_that_another_has_overtaken_is_refused_without_any_lock(
    folder: Path, start: ps.PairedSymbols
) -> None:
    with (
        meanwhile(lambda: roll(folder, DAYS[1])) as told,
        pytest.raises(StoreError, match=r"another update of .* has come first; run it again"),
    ):
        roll(folder, DAYS[2])
    assert told == [""]
    check(folder, start, 2)
    roll(folder, DAYS[2])
    check(folder, start, 3)


@pytest.mark.usefixtures("lawless")
def test_of_two_updates_that_begin_at_once_none_goes_on_unseen(folder: Path, start: ps.PairedSymbols) -> None:
    """Both have looked before either has begun."""
    put = Versions._put
    begun: list[str] = []

    def late(self: Versions, name: str, what: bytes) -> None:
        patch.undo()
        begun.append(name)
        while f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H%M%SZ}" <= name:
            time.sleep(0.05)  # so that the other one's date is another, though dates of versions may run ahead
        with pytest.MonkeyPatch.context() as other:
            other.setattr(ps.PairedSymbols, "update", interrupt)
            with pytest.raises(KeyboardInterrupt):
                roll(folder, DAYS[1])
        put(self, name, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Versions, "_put", late)
        with pytest.raises(StoreError, match=r"another update of .* is under way or was interrupted"):
            roll(folder, DAYS[2])
    assert len(begun) == 1
    assert not (folder / begun[0]).exists()
    roll(folder, DAYS[1])
    roll(folder, DAYS[2])
    check(folder, start, 3)


def test_the_same_files_at_the_same_time_are_counted_once(folder: Path, start: ps.PairedSymbols) -> None:
    """The second comes while the first one's counts store is half written, and would begin it again."""
    told: list[str] = []

    def read(part: int) -> pd.DataFrame:
        if not told:
            told.append("")
            try:
                roll(folder, frame)
            except StoreError as error:
                told[0] = str(error)
        return DAYS[1]

    frame = dd.from_map(read, [0], meta=DAYS[1])
    roll(folder, frame)
    assert f"{folder} is in use by an update on" in told[0]
    check(folder, start, 2)


@pytest.mark.slow
def test_updates_of_several_threads_are_all_there_in_the_end(folder: Path, start: ps.PairedSymbols) -> None:
    refused: list[str] = []
    gate = threading.Barrier(3)
    crashes: list[BaseException] = []

    def feed(day: pd.DataFrame) -> None:
        gate.wait()
        try:
            while True:
                try:
                    roll(folder, day, repeated="skip")
                    return
                except StoreError as error:
                    refused.append(str(error))
        except BaseException as error:
            crashes.append(error)

    threads = [threading.Thread(target=feed, args=(day,)) for day in DAYS[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert crashes == []
    assert refused  # they have really met
    assert all("in use by an update" in error or "folder was removed meanwhile" in error for error in refused)
    check(folder, start, 4)


def test_refused_input_leaves_the_name_free(folder: Path) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(ps.InputError):
        roll(folder, pd.DataFrame({"user": [None], "item": [3]}).astype({"user": "Int64"}))
    assert sorted(folder.iterdir()) == before


def test_what_is_left_of_a_removed_version_keeps_nobody_from_updating(folder: Path, start: ps.PairedSymbols) -> None:
    """Somebody's file in an old version, whose removal is killed after its first steps."""
    (first,) = folder.iterdir()
    (first / "notes.txt").write_text("precious")
    roll(folder, DAYS[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "remove_ours", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Versions(folder).prune(1)
    assert (first / "model.zarr").exists()
    assert len(Versions(folder).names()) == 1
    roll(folder, DAYS[2], keep_last=1)
    check(folder, start, 3)
    assert [path.read_text() for path in first.iterdir()] == ["precious"]
    roll(folder, DAYS[3], keep_last=1)
    check(folder, start, 4)
    assert len(Versions(folder).names()) == 1


@pytest.mark.s3
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_updates_on_s3_are_locked_against_each_other(
    start: ps.PairedSymbols, server: FaultyServer, options: dict[str, Any]
) -> None:
    folder = f"s3://bucket/{uuid.uuid4().hex}/plays"
    roll(folder, DAYS[0], start=start, storage_options=options)
    with meanwhile(lambda: roll(folder, DAYS[1], storage_options=options)) as told:
        roll(folder, DAYS[2], storage_options=options)
    assert f"{folder} is in use by an update on" in told[0]
    roll(folder, DAYS[1], storage_options=options)
    check(folder, start, 3, options)


AT_WORK = """
import sys
import pairsym_dask as ps

def wait(sweep, elbo, seconds):
    print("at work", flush=True)
    sys.stdin.readline()

ps.roll(sys.argv[1], sys.argv[2:], sweeps=1, progress=False, threads=1, callback=wait)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_of_two_processes_one_updates_and_a_killed_one_keeps_nobody_out(folder: Path, start: ps.PairedSymbols) -> None:
    """The same files at once; then the one at work is killed, and the glob of the next day ends what it began."""
    files = [folder.parent / f"day{k}.csv" for k in (1, 2)]
    for file, day in zip(files, DAYS[1:], strict=False):
        day.to_csv(file, index=False)
    words = ("update", folder, "--repeated", "skip", "--sweeps", 1, "--threads", 1)
    with subprocess.Popen(
        [sys.executable, "-c", AT_WORK, str(folder), str(files[0])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ),
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "at work\n"
        refused = run(*words, files[0])
        first.kill()
    assert refused.returncode == 2
    assert f"{folder} is in use by an update on" in refused.stderr
    assert f"(process {first.pid}, since" in refused.stderr
    check(folder, start, 1)  # readers see what was whole before
    (begun,) = {path.name for path in folder.iterdir() if path.name != "lock"} - set(Versions(folder).names())
    other = run(*words, files[1])
    assert f"was interrupted in {begun}; run it again with the same files to finish it" in other.stderr
    ended = run(*words, folder.parent / "day*.csv")
    assert ended.returncode == 0, ended.stderr
    check(folder, start, 3)
    assert Versions(folder).names()[1] == begun
    assert sorted(path.name for path in folder.iterdir()) == Versions(folder).names()
    assert "nothing new: all of it was fed before" in run(*words, folder.parent / "day*.csv", "--keep-last", 1).stdout
    assert len(Versions(folder).names()) == 1


def test_versions_do_not_go_into_a_store(start: ps.PairedSymbols) -> None:
    for store in (start.path, start.counts.path):
        with pytest.raises(ps.InputError, match=r"is a store, and versions go into a folder of their own: give a name"):
            roll(store, DAYS[0], start=start)
