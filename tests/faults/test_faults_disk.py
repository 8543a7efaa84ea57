"""A model of a disk that forgets what was not fsynced: every fsync of the commit protocol is needed, and there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from helpers.faults import all_bits, quick_folder, run_fit, tiny_counts, using

from pairsym_dask.errors import StoreError
from pairsym_dask.store.counts import Counts, open_counts
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify


class ForgetfulDisk(Disk):
    """Does every call, and keeps a history from which `after_power_cut` makes what a disk may hold later.

    What POSIX promises: the bytes of a file are there after an fsync of the file, a name in a folder after an fsync
    of the folder. Everything else may or may not have reached the disk, each on its own.
    """

    def __init__(self, root: Path, without: tuple[str, ...] = ()) -> None:
        self.root = root
        self.without = without  # names of calls that are skipped: a negative control
        self.history: list[tuple[Any, ...]] = []
        self.files: dict[int, int] = {}  # descriptor -> number of the file
        self.number = 0
        self.told: list[tuple[int, int]] = []  # (length of the history, sweep that was reported)

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self.history.append(("name", path, "folder"))

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self.number += 1
        self.files[descriptor] = self.number
        self.history.append(("name", path, self.number))
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        written = super().write(descriptor, data)
        self.history.append(("bytes", self.files[descriptor], bytes(data[:written])))
        return written

    def fsync(self, descriptor: int) -> None:
        if "fsync" not in self.without:
            self.history.append(("fsync", self.files[descriptor]))

    def fsync_folder(self, path: Path) -> None:
        if "fsync_folder" not in self.without:
            self.history.append(("fsync_folder", path))

    def fsync_file(self, path: Path) -> None:
        if "fsync_file" not in self.without:
            self.history.append(("fsync_file", path))

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.history.append(("replace", source, target))

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.history.append(("link", source, target))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.history.append(("unlink", path))

    def rmdir(self, path: Path) -> None:
        super().rmdir(path)
        self.history.append(("unlink", path))

    def after_power_cut(self, until: int, target: Path, chance: Callable[[], bool]) -> None:
        """Write what may be left of the first `until` calls; `chance` says whether an unsynced change survived."""
        # Two views: what processes saw, and per name what is surely on disk.
        seen: dict[Path, Any] = {}
        pending: list[tuple[Path, Any]] = []  # changes of names, in order, not yet durable
        durable: dict[Path, Any] = {}
        content: dict[int, bytes] = {}
        synced: dict[int, bytes] = {}

        def change(path: Path, value: Any) -> None:
            if value is None:
                seen.pop(path, None)
            else:
                seen[path] = value
            pending.append((path, value))

        for name, *rest in self.history[:until]:
            if name == "name":
                change(rest[0], rest[1])
            elif name == "bytes":
                content[rest[0]] = content.get(rest[0], b"") + rest[1]
            elif name == "fsync":
                synced[rest[0]] = content.get(rest[0], b"")
            elif name == "fsync_file":
                synced[seen[rest[0]]] = content.get(seen[rest[0]], b"")
            elif name == "fsync_folder":
                for path, value in [entry for entry in pending if entry[0].parent == rest[0]]:
                    durable[path] = value
                pending = [entry for entry in pending if entry[0].parent != rest[0]]
            elif name == "unlink":
                change(rest[0], None)
            elif name == "link":
                change(rest[1], seen[rest[0]])
            elif name == "replace":
                source, goal = rest
                moved = [path for path in seen if path == source or source in path.parents]
                if seen[source] == "folder":
                    # The tree under a folder moves with its one name.
                    for table in (seen, durable):
                        for path in [p for p in table if source in p.parents]:
                            table[goal / path.relative_to(source)] = table.pop(path)
                    pending = [(goal / p.relative_to(source) if source in p.parents else p, v) for p, v in pending]
                value = seen[source]
                assert moved
                change(goal, value)
                change(source, None)
        for path, value in pending:
            if chance():
                durable[path] = value
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path in sorted(durable, key=lambda path: len(path.parts)):
            value = durable[path]
            place = target / path.relative_to(self.root)
            if value is None or not place.parent.is_dir():
                continue  # removed, or under a folder whose own name was lost
            if value == "folder":
                place.mkdir(exist_ok=True)
            else:
                kept = synced.get(value, b"")
                whole = content.get(value, b"")
                place.write_bytes(whole if kept == whole or chance() else kept)


def record_fit(
    folder: Path, sweeps: int, without: tuple[str, ...] = (), **options: Any
) -> tuple[ForgetfulDisk, Counts]:
    """A fit in folders that are made for it, and how the disk was called."""
    counts = tiny_counts(folder / "counts.zarr", users=40, items=5)
    root = folder / "world"
    root.mkdir()
    disk = ForgetfulDisk(root, without)
    with using(disk):
        run_fit(
            counts, root / "new/deep/model.zarr", sweeps,
            callback=lambda sweep, *_: disk.told.append((len(disk.history), sweep)), **options,
        )  # fmt: skip
    return disk, counts


@pytest.fixture
def client() -> Iterator[Client]:
    """Of a worker in this very process, whose calls the disk sees, too."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def losses(
    disk: ForgetfulDisk, counts: Counts, reference: list[str], folder: Path, step: int, seeds: int
) -> tuple[int, int]:
    """Power cuts after every step-th call; cases, and cases in which a reported sweep is lost or wrong."""
    cases = lost = 0
    target = folder / "cut"
    for until in range(1, len(disk.history) + 1, step):
        told = max((sweep for length, sweep in disk.told if length <= until), default=-1)
        for seed in range(seeds):
            rng = random.Random(1000 * until + seed)
            share = (0.0, 1.0, 0.5)[min(seed, 2)]  # nothing unsynced survives, everything, or half of it
            disk.after_power_cut(until, target, lambda rng=rng, share=share: rng.random() < share)
            cases += 1
            path = target / "new/deep/model.zarr"
            try:
                if told >= 0:
                    found = all_bits(path)
                    assert found == reference[: len(found)]
                    assert len(found) > told
                    assert verify(path).sound, str(verify(path))
                if seed == 0:
                    run_fit(counts, path, len(reference) - 1)
                    assert all_bits(path) == reference
                    assert verify(path).sound
            except (AssertionError, StoreError, OSError):
                if os.environ.get("FAULTS_TALK"):
                    raise
                lost += 1
    return cases, lost


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: the disk is a model here."""
    with quick_folder() as path:
        yield path


@pytest.fixture
def reference(layout: str, tmp_path: Path) -> list[str]:
    counts = tiny_counts(tmp_path / "reference-counts.zarr", users=40, items=5)
    run_fit(counts, tmp_path / "reference.zarr", 3)
    return all_bits(tmp_path / "reference.zarr")


@pytest.mark.slow
def test_a_power_cut_at_any_moment_loses_no_reported_sweep(reference: list[str], tmp_path: Path) -> None:
    disk, counts = record_fit(tmp_path, 3)
    cases, lost = losses(disk, counts, reference, tmp_path, len(disk.history) // 19, 3)
    assert cases > 50
    assert [sweep for _, sweep in disk.told] == [1, 2, 3]  # what could be lost
    assert lost == 0


@pytest.mark.slow
@pytest.mark.cluster
def test_what_workers_leave_unsynced_survives_a_power_cut(reference: list[str], client: Client, tmp_path: Path) -> None:
    disk, counts = record_fit(tmp_path, 3, client=client)
    left = {entry[1] for entry in disk.history if entry[0] == "fsync_file"}
    assert len(left) >= 4 * 2  # of every sweep, the start among them, some files that tasks wrote
    cases, lost = losses(disk, counts, reference, tmp_path, len(disk.history) // 19, 3)
    assert cases > 50
    assert [sweep for _, sweep in disk.told] == [1, 2, 3]
    assert lost == 0


@pytest.mark.slow
@pytest.mark.cluster
def test_without_the_drivers_fsyncs_what_workers_leave_would_be_lost(
    reference: list[str], client: Client, tmp_path: Path
) -> None:
    disk, counts = record_fit(tmp_path, 3, without=("fsync_file",), client=client)
    _, lost = losses(disk, counts, reference, tmp_path, len(disk.history) // 19, 3)
    assert lost > 0


@pytest.mark.long
def test_long_power_cuts(reference: list[str], tmp_path: Path) -> None:
    disk, counts = record_fit(tmp_path, 3)
    cases, lost = losses(disk, counts, reference, tmp_path, 1, 4)
    print(f"\npower cuts: {len(disk.history)} calls, {cases} cases, {lost} losses")
    assert lost == 0


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "fsync_folder"])
def test_without_its_fsyncs_the_protocol_would_lose_sweeps(call: str, reference: list[str], tmp_path: Path) -> None:
    disk, counts = record_fit(tmp_path, 3, without=(call,))
    cases, lost = losses(disk, counts, reference, tmp_path, 97, 3)
    print(f"\nwithout {call}: {lost} losses in {cases} power cuts")
    assert lost > 0


def test_a_counts_store_survives_a_power_cut_after_its_ingest(tmp_path: Path) -> None:
    root = tmp_path / "world"
    root.mkdir()
    disk = ForgetfulDisk(root)
    with using(disk):
        tiny_counts(root / "new/counts.zarr", users=40, items=5)
    for until in range(1, len(disk.history) + 1, 3):
        for chance in (lambda: False, lambda: True):
            disk.after_power_cut(until, tmp_path / "cut", chance)
            path = tmp_path / "cut/new/counts.zarr"
            if until == len(disk.history):
                assert verify(path).sound
            elif (path / "counts.json").exists():
                assert open_counts(path).nnz
                assert verify(path).sound


def test_a_commit_that_a_killed_fit_left_unsynced_is_made_durable_by_the_next(
    reference: list[str], tmp_path: Path
) -> None:
    """Killed between the link of a record and the fsync of its folder; the next fit has nothing to do but that."""
    disk, counts = record_fit(tmp_path, 1)
    path = disk.root / "new/deep/model.zarr"
    commit = next(
        n for n, entry in enumerate(disk.history) if entry[0] == "link" and entry[2].match("commits/00001.json")
    )
    del disk.history[commit + 1 :]
    with using(disk):
        run_fit(counts, path, 1)
    disk.after_power_cut(len(disk.history), tmp_path / "cut", lambda: False)
    assert len(ModelStore(tmp_path / "cut/new/deep/model.zarr").commits()) == 2
