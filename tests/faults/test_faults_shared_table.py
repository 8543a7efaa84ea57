"""Worker processes of one machine have one table of the short side between them: same bits, and nothing stays."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from helpers.faults import bits, run_fit, tiny_counts

from pairsym_dask.run import bundles
from pairsym_dask.settings import Settings
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep.fit import fit

SWEEPS = 3
KINDS = {"solved": Settings(factors=2), "cold": Settings(factors=40)}  # tables as they are, and on turned axes

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memory without a name"),
    pytest.mark.filterwarnings("ignore::UserWarning:distributed", "ignore::ResourceWarning", "ignore::RuntimeWarning"),
]


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr", users=1500, items=90)


@pytest.fixture(scope="module")
def reference(counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reference")
    return {
        kind: bits(run_fit(counts, folder / f"{kind}.zarr", SWEEPS, settings=settings))
        for kind, settings in KINDS.items()
    }


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers that are started now leave their notes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"pairsym-tables-{os.getuid()}"


@pytest.fixture
def client(notes: Path) -> Iterator[Client]:
    with local_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def local_cluster(n_workers: int, threads: int = 1, **options: Any) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=threads, memory_limit=0, dashboard_address=":0", silence_logs=50,
        **options,
    )  # fmt: skip


def _tables() -> set[str]:
    """In a worker: the shared tables that it has, by what the system calls them."""
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file if "memfd:pairsym-" in line]
    return {f"{words[4]} {words[5]}" for words in lines}


def cluster_fit(counts: Counts, path: Any, client: Client, kind: str = "solved", **options: Any) -> Any:
    return fit(counts, KINDS[kind], ModelStore(path), sweeps=SWEEPS, client=client, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_of_a_machine_have_one_table(
    counts: Counts, reference: dict[str, str], client: Client, notes: Path, tmp_path: Path, kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(bundles, "TASK_SECONDS", 1e-7)  # tasks for both of them, however short
    seen: list[list[set[str]]] = []
    found = cluster_fit(
        counts, tmp_path / "m.zarr", client, kind, callback=lambda *_: seen.append(list(client.run(_tables).values()))
    )
    assert bits(found) == reference[kind]
    assert all(len(tables) <= 1 for sweep in seen for tables in sweep)
    assert any(sweep[0] and sweep[0] == sweep[1] for sweep in seen), "no table was shared"
    assert set(map(frozenset, client.run(_tables).values())) == {frozenset()}
    assert list(notes.iterdir()) == []


@pytest.mark.parametrize("options", [{"n_workers": 1, "threads": 2}, {"n_workers": 2, "processes": False}])
def test_one_process_keeps_its_table_to_itself(
    counts: Counts, reference: dict[str, str], notes: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    seen: list[set[str]] = []
    with local_cluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        found = cluster_fit(
            counts, tmp_path / "m.zarr", client, callback=lambda *_: seen.extend(client.run(_tables).values())
        )
    assert bits(found) == reference["solved"]
    assert set(map(frozenset, seen)) == {frozenset()}
    assert not notes.exists()


@pytest.mark.parametrize("whom", ["the maker", "all"])
def test_killed_workers_leave_nothing_that_stays(
    counts: Counts, reference: dict[str, str], client: Client, notes: Path, tmp_path: Path, whom: str
) -> None:
    killed: list[int] = []

    def kill(*_: Any) -> None:
        if not killed:
            makers = {int(note.read_text().split()[0]) for note in notes.iterdir()}
            killed.extend(makers if whom == "the maker" else client.run(os.getpid).values())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    assert bits(cluster_fit(counts, tmp_path / "m.zarr", client, callback=kill)) == reference["solved"]
    assert killed
    assert verify(tmp_path / "m.zarr").sound
    client.wait_for_workers(2)
    assert set(map(frozenset, client.run(_tables).values())) == {frozenset()}
    assert list(notes.iterdir()) == []


def _without_room() -> None:
    """In a worker: memory that can be shared is not to be had."""

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    os.posix_fallocate = full


@pytest.mark.parametrize("want", ["room", "folder"])
def test_where_nothing_can_be_shared_each_makes_its_own(
    counts: Counts, reference: dict[str, str], client: Client, notes: Path, tmp_path: Path, want: str
) -> None:
    if want == "room":
        client.run(_without_room)
    else:
        notes.write_text("a file where a folder should be")
    seen: list[set[str]] = []
    found = cluster_fit(
        counts, tmp_path / "m.zarr", client, callback=lambda *_: seen.extend(client.run(_tables).values())
    )
    assert bits(found) == reference["solved"]
    assert set(map(frozenset, seen)) == {frozenset()}
