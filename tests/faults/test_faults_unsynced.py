"""Workers beside their driver leave fsyncs to it: kills in between and errors of the disk cost no bit and no word."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from helpers.faults import SETTINGS, all_bits, run_fit, tiny_counts

from pairsym_dask.errors import StoreError
from pairsym_dask.store import local
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep.fit import fit

SWEEPS = 3

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::UserWarning:distributed", "ignore::ResourceWarning", "ignore::RuntimeWarning"),
]


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr", users=400)


@pytest.fixture(scope="module")
def reference(counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("reference") / "model.zarr"
    run_fit(counts, path, SWEEPS)
    return all_bits(path)


@pytest.fixture
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0, silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def cluster_fit(counts: Counts, path: Path, client: Client) -> Any:
    return fit(counts, SETTINGS, ModelStore(path), sweeps=SWEEPS, client=client)


class Interrupted(Disk):
    """Does something before some of the driver's fsyncs of what tasks have written."""

    def __init__(self, act: Any, at: tuple[int, ...]) -> None:
        self.act, self.at = act, at
        self.synced: list[Path] = []
        self.lock = threading.Lock()

    def fsync_file(self, path: Path) -> None:
        with self.lock:
            self.synced.append(path)
            if len(self.synced) in self.at:
                self.act()
        super().fsync_file(path)


class Failing(Disk):
    """Every fsync of a file fails."""

    def fsync(self, descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_worker_killed_before_its_files_are_synced_changes_no_bit(
    counts: Counts, reference: list[str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = []

    def kill() -> None:
        worker = next(iter(client.run(os.getpid).values()))
        os.kill(worker, signal.SIGKILL)
        killed.append(worker)

    disk = Interrupted(kill, (1, 25, 40))
    monkeypatch.setattr(local, "disk", disk)
    cluster_fit(counts, tmp_path / "model.zarr", client)
    assert len(killed) == 3
    assert all_bits(tmp_path / "model.zarr") == reference
    assert verify(tmp_path / "model.zarr").sound


def test_every_file_that_a_task_wrote_is_synced_once_by_the_driver(
    counts: Counts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Interrupted(None, ())
    monkeypatch.setattr(local, "disk", disk)
    cluster_fit(counts, tmp_path / "model.zarr", client)
    commits = ModelStore(tmp_path / "model.zarr").commits()
    chunks = {
        tmp_path / "model.zarr" / commit.folder / key
        for commit in commits
        for key in commit.record["files"]
        if not key.endswith("zarr.json")
    }
    assert sorted(disk.synced) == sorted(chunks)
    assert not client.futures  # nothing is kept on the workers after a fit


def test_an_error_of_the_drivers_fsync_ends_the_sweep_in_words(
    counts: Counts, reference: list[str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(local, "disk", Interrupted(fail, (30,)))
        with pytest.raises(StoreError, match=r"cannot write .*model.zarr.*: No space left on device"):
            cluster_fit(counts, tmp_path / "model.zarr", client)
    found = all_bits(tmp_path / "model.zarr")
    assert 0 < len(found) < SWEEPS + 1
    assert found == reference[: len(found)]
    cluster_fit(counts, tmp_path / "model.zarr", client)
    assert all_bits(tmp_path / "model.zarr") == reference


def test_workers_elsewhere_sync_for_themselves_and_tell_their_errors(
    counts: Counts, reference: list[str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on other machines: the driver's whereabouts are not theirs."""

    def set_disk(disk: Disk) -> None:
        local.disk = disk

    disk = Interrupted(None, ())
    monkeypatch.setattr(local, "disk", disk)
    monkeypatch.setattr(local, "running_system", lambda: "another one")
    client.run(set_disk, Failing())
    with pytest.raises(StoreError, match=r"cannot write .*model.zarr.*: Input/output error"):
        cluster_fit(counts, tmp_path / "model.zarr", client)
    client.run(set_disk, Disk())
    cluster_fit(counts, tmp_path / "model.zarr", client)
    assert all_bits(tmp_path / "model.zarr") == reference
    assert disk.synced == []
