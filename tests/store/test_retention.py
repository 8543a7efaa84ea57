"""Which sweeps stay, and when what dead attempts left behind is removed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from helpers.faults import FaultyDisk, run_fit, using

import pairsym_dask as ps
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.local import LocalStorage


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
    partial = path / "commits/.00002.json.0123456789ab.partial"
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
    monkeypatch.setattr(Disk, "make_folder", lambda self, folder: None)
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
