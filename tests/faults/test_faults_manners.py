"""Clusters as they are: workers that come and go, spill, fail once, or have no room; the same bits, or one sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from helpers.faults import bits, new_stores_in, run_fit, tiny_counts

from pairsym_dask.errors import MemoryBudgetError
from pairsym_dask.run.bundles import Hands
from pairsym_dask.run.execute import Executor
from pairsym_dask.settings import Settings
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep.fit import fit

SWEEPS = 3
# Systems that are solved, stepped, and stepped with frozen variances; users are the long side.
KINDS = {
    "solved": Settings(factors=2),
    "by messages": Settings(factors=2, selection="bayes"),
    "stepped": Settings(factors=40, selection="constant"),
    "cold": Settings(factors=40),
}

SHARDS = 3  # of the users, at least

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings(
        "ignore::UserWarning:distributed",
        "ignore::ResourceWarning",
        "ignore::RuntimeWarning",
        "ignore:Creating scratch directories",  # of a busy machine
    ),
]


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr", users=1500, items=90)


@pytest.fixture(scope="module")
def reference(counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Bits of each kind of fit, tasks one after another in this thread."""
    folder = tmp_path_factory.mktemp("reference")
    return {
        name: bits(run_fit(counts, folder / f"{k}.zarr", SWEEPS, settings=settings))
        for k, (name, settings) in enumerate(KINDS.items())
    }


@pytest.fixture(scope="module")
def in_shards(counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same in shards."""
    folder, found = tmp_path_factory.mktemp("in-shards"), {}
    for k, (name, settings) in enumerate(KINDS.items()):
        with new_stores_in("shards", SHARDS):
            commit = run_fit(counts, folder / f"{k}.zarr", SWEEPS, settings=settings)
        assert commit.record["shards"]["users"] > 1
        found[name] = bits(commit)
    return found


def local_cluster(n_workers: int = 2, threads: int = 1, **options: Any) -> LocalCluster:
    options = {"memory_limit": 0, "dashboard_address": ":0", "silence_logs": 50} | options
    return LocalCluster(n_workers=n_workers, threads_per_worker=threads, **options)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def cluster_fit(counts: Counts, path: Any, client: Client, kind: str = "solved", **options: Any) -> Any:
    return fit(counts, KINDS[kind], ModelStore(path), sweeps=SWEEPS, client=client, **options)


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 40])
def test_whatever_is_bundled_the_bits_are_the_same(
    counts: Counts, reference: dict[str, str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    threads: int,
) -> None:  # fmt: skip
    seen = []

    def hands(self: Executor) -> Hands:
        seen.append(threads)
        return Hands(threads)

    monkeypatch.setattr(Executor, "hands", hands)
    for k, kind in enumerate(KINDS):
        assert bits(cluster_fit(counts, tmp_path / f"{k}.zarr", client, kind)) == reference[kind]
    assert seen


@pytest.mark.parametrize("threads", [1, 3, 40])
def test_whatever_is_bundled_tasks_own_whole_shards(
    counts: Counts, in_shards: dict[str, str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    threads: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(Executor, "hands", lambda self: Hands(threads))
    with new_stores_in("shards", SHARDS):
        for k, kind in enumerate(KINDS):
            assert bits(cluster_fit(counts, tmp_path / f"{k}.zarr", client, kind)) == in_shards[kind]


@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 1), (3, 1)])
def test_processes_and_threads_give_one_digest(
    counts: Counts, reference: dict[str, str], in_shards: dict[str, str], tmp_path: Path, workers: int, threads: int
) -> None:
    with local_cluster(workers, threads) as cluster, Client(cluster, set_as_default=False) as client:
        for kind in ("solved", "cold"):
            assert bits(cluster_fit(counts, tmp_path / f"{kind}.zarr", client, kind)) == reference[kind]
        with new_stores_in("shards", SHARDS):
            assert bits(cluster_fit(counts, tmp_path / "shards.zarr", client, "cold")) == in_shards["cold"]


def test_workers_that_come_and_go_change_no_bit(counts: Counts, reference: dict[str, str], tmp_path: Path) -> None:
    sizes: list[int] = []
    with local_cluster(1) as cluster, Client(cluster, set_as_default=False) as client:

        def look(*_: Any) -> None:
            sizes.append(len(cluster.workers))
            if len(sizes) == 1:
                cluster.scale(3)
                client.wait_for_workers(3)
            else:
                cluster.scale(1)

        found = bits(cluster_fit(counts, tmp_path / "model.zarr", client, "cold", callback=look))
    assert found == reference["cold"]
    assert sizes[0] == 1
    assert max(sizes) == 3


def test_an_adaptive_cluster_starts_from_nothing(counts: Counts, reference: dict[str, str], tmp_path: Path) -> None:
    with local_cluster(0) as cluster, Client(cluster, set_as_default=False) as client:
        cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=2)
        assert bits(cluster_fit(counts, tmp_path / "model.zarr", client)) == reference["solved"]


def _fail_once() -> None:
    """In a worker: the next write of a block fails as a disk does that is there again a moment later."""
    from pairsym_dask.store import sharded

    write = sharded.write_block

    def fail(*arguments: Any, **options: Any) -> Any:
        sharded.write_block = write
        raise OSError(5, "Input/output error")

    sharded.write_block = fail


def test_a_failure_that_passes_is_tried_again(
    counts: Counts, reference: dict[str, str], client: Client, tmp_path: Path
) -> None:
    failed = threading.Event()

    def fail(*_: Any) -> None:
        if not failed.is_set():
            failed.set()
            client.run(_fail_once)

    path = tmp_path / "model.zarr"
    assert bits(cluster_fit(counts, path, client, callback=fail)) == reference["solved"]
    assert failed.is_set()
    assert verify(path).sound


async def _tell(dask_worker: Any) -> None:
    """In a worker: the scheduler knows what lies on its disk now."""
    await dask_worker.heartbeat()


def test_workers_that_spill_all_they_hold_change_no_bit(
    counts: Counts, reference: dict[str, str], tmp_path: Path
) -> None:
    spill = {"target": 1e-9, "spill": False, "pause": False, "terminate": False}
    settings = {f"distributed.worker.memory.{name}": value for name, value in spill.items()}
    with (
        dask.config.set(settings),
        local_cluster(2, memory_limit="2GiB") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        held: list[Any] = []

        def hold(*_: Any) -> None:
            """Between two sweeps something comes to lie on a disk and stays there; the scheduler is told."""
            held.append(client.submit(bytes, 1000, pure=False))
            held[-1].result()
            client.run(_tell)

        with pytest.warns(UserWarning, match="spilled to disk"):
            model = cluster_fit(counts, tmp_path / "model.zarr", client, "stepped", callback=hold)
        assert bits(model) == reference["stepped"]


def test_a_worker_without_room_for_the_table_is_refused_with_the_arithmetic(counts: Counts, tmp_path: Path) -> None:
    with (
        local_cluster(1, memory_limit="150MiB") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(MemoryBudgetError, match=r"a memory budget of 75 MiB is too small: .* for the shared table"),
    ):
        cluster_fit(counts, tmp_path / "model.zarr", client)
    assert not (tmp_path / "model.zarr").exists()


def _held() -> tuple[int, int]:
    """In a worker: bytes on its shelves, and the counts that it has read."""
    from pairsym_dask.run import process
    from pairsym_dask.sweep import shelf

    return shelf.SHELF.nbytes + shelf.TABLES.nbytes, len(process._kept)


def test_after_a_fit_workers_give_back_what_they_kept(counts: Counts, client: Client, tmp_path: Path) -> None:
    during: list[dict[str, tuple[int, int]]] = []
    cluster_fit(counts, tmp_path / "model.zarr", client, callback=lambda *_: during.append(client.run(_held)))
    assert max(nbytes for found in during for nbytes, _ in found.values()) > 0
    assert set(client.run(_held).values()) == {(0, 0)}


def _tables() -> list[tuple[str, int]]:
    """In a worker: side and block of every table on its shelf."""
    from pairsym_dask.sweep import shelf

    return [(key.side, key.block) for key in shelf.SHELF._kept if key.kind == "table"]


def test_a_worker_keeps_one_table_of_a_block_whoever_made_it(counts: Counts, client: Client, tmp_path: Path) -> None:
    found: list[list[tuple[str, int]]] = []
    cluster_fit(
        counts,
        tmp_path / "model.zarr",
        client,
        callback=lambda *_: found.extend(client.run(_tables).values()),
    )
    assert max(map(len, found)) > 0
    assert all(len(tables) == len(set(tables)) for tables in found)
