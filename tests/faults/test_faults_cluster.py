"""Clusters that lose workers, schedulers and drivers: the same bits, or one clear sentence and a store that goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from helpers.faults import SETTINGS, all_bits, bits, new_stores_in, run_fit, tiny_counts
from helpers.outside import OutsideCluster

from pairsym_dask.errors import SchedulerError, StoreError
from pairsym_dask.run import execute, watch, workers
from pairsym_dask.run.execute import Executor, connect
from pairsym_dask.store.counts import RECORD, Counts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep.fit import fit

SWEEPS = 3
TESTS = Path(__file__).parents[1]

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
    run_fit(counts, path, 12, keep=1)
    return all_bits(path)


def local_cluster(n_workers: int = 2, threads: int = 1) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=threads, dashboard_address=":0", memory_limit=0, silence_logs=50
    )


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def cluster_fit(counts: Counts, path: Any, client: Client, sweeps: int = SWEEPS, **options: Any) -> Any:
    return fit(counts, SETTINGS, ModelStore(path), sweeps=sweeps, client=client, **options)


def pids(client: Client) -> list[int]:
    return [int(pid) for pid in client.run(os.getpid).values()]


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kills_during_fit(counts: Counts, path: Path, client: Client, cluster: LocalCluster, number: int, seed: int) -> int:
    """Kill random workers while a fit runs; how many died."""
    rng = random.Random(seed)
    stop = threading.Event()
    killed = 0

    def killer() -> None:
        nonlocal killed
        while killed < number and not stop.wait(rng.uniform(0.02, 0.25)):
            processes = [w.pid for w in cluster.workers.values() if getattr(w, "pid", None)]
            if len(processes) == len(cluster.workers):  # one at a time: a task may die with three workers
                killed += kill(rng.choice(processes))

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        sweep = 0
        while sweep < 3 or (killed < number and sweep < 12):
            sweep += 1
            cluster_fit(counts, path, client, sweep)
    finally:
        stop.set()
        thread.join()
    return killed


def test_killed_workers_do_not_change_a_bit(counts: Counts, reference: list[str], tmp_path: Path) -> None:
    with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        killed = kills_during_fit(counts, tmp_path / "model.zarr", client, cluster, 3, 0)
    found = all_bits(tmp_path / "model.zarr")
    assert killed
    assert found == reference[: len(found)]
    assert verify(tmp_path / "model.zarr").sound


def test_killed_workers_do_not_change_a_shard(tmp_path: Path) -> None:
    counts = tiny_counts(tmp_path / "counts.zarr", users=1500, items=90)
    with new_stores_in("shards", 3):
        run_fit(counts, tmp_path / "reference.zarr", 12, keep=1)
        with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
            killed = kills_during_fit(counts, tmp_path / "model.zarr", client, cluster, 3, 0)
    found = all_bits(tmp_path / "model.zarr")
    assert killed
    assert found == all_bits(tmp_path / "reference.zarr")[: len(found)]
    assert verify(tmp_path / "model.zarr").sound


@pytest.mark.long
def test_long_worker_kills(counts: Counts, reference: list[str], tmp_path: Path) -> None:
    killed = []
    errors = 0
    for run in range(24):
        path = tmp_path / f"model-{run}.zarr"
        with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
            try:
                killed.append(kills_during_fit(counts, path, client, cluster, 6, run))
            except SchedulerError as error:
                print(f"\nrun {run}: {error}")
                errors += 1
                cluster_fit(counts, path, client, 3)
        found = all_bits(path)
        assert found == reference[: len(found)]
        assert verify(path).sound
    print(f"\nworker kills: {sum(killed)} over {len(killed)} runs without help, {errors} runs told and resumed")
    assert sum(killed) >= 100


def test_a_cluster_without_workers_is_told_in_time(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOST_SECONDS", 2.0)
    path = tmp_path / "model.zarr"
    with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        cluster_fit(counts, path, client, 1)
        before = all_bits(path)
        cluster.scale(0)
        began = time.monotonic()
        with pytest.raises(SchedulerError, match="has no workers any more; start some; what is committed is safe"):
            cluster_fit(counts, path, client, 3)
        assert time.monotonic() - began < 30
    assert all_bits(path) == before
    run_fit(counts, path, 2)


def test_workers_lost_in_the_middle_of_a_sweep_are_told_in_time(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOST_SECONDS", 2.0)
    path = tmp_path / "model.zarr"
    with local_cluster() as cluster, Client(cluster, set_as_default=False) as client:
        with pytest.raises(SchedulerError, match="has no workers any more"):
            cluster_fit(counts, path, client, 3, callback=lambda *_: cluster.scale(0))
        assert len(ModelStore(path).commits()) in (2, 3)
        monkeypatch.undo()
        cluster.scale(1)  # workers that join late
        cluster_fit(counts, path, client, 3)
    assert verify(path).sound


def test_worker_threads_and_schedulers_give_one_digest(
    counts: Counts, client: Client, reference: list[str], tmp_path: Path
) -> None:
    cluster_fit(counts, tmp_path / "cluster.zarr", client)
    found = {bits(ModelStore(tmp_path / "cluster.zarr").commits()[-1])}
    for threads in (1, 2, 4):
        path = tmp_path / f"threads-{threads}.zarr"
        found.add(bits(fit(counts, SETTINGS, ModelStore(path), sweeps=SWEEPS, threads=threads)))
    with local_cluster(1, 2) as cluster, Client(cluster, set_as_default=False) as other:
        found.add(bits(cluster_fit(counts, tmp_path / "1x2.zarr", other)))
    assert found == {reference[SWEEPS]}


# Versions and stores


def test_workers_of_other_versions_are_refused(
    counts: Counts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "versions", lambda: workers.versions() | {"numba": "0.1"})
    with pytest.raises(
        SchedulerError, match=r"has numba .* \(the driver has 0.1\); install the same versions everywhere"
    ):
        cluster_fit(counts, tmp_path / "model.zarr", client)


def test_workers_that_do_not_see_a_store_are_refused(counts: Counts, client: Client, tmp_path: Path) -> None:
    elsewhere = LocalStorage(str(tmp_path / "only-here.zarr"))
    with pytest.raises(
        SchedulerError, match=r"does not see .*only-here.zarr; put the stores where all workers find them"
    ):
        Executor(client).check_workers([(counts.storage, RECORD), (elsewhere, "lock/00001.json")])


def test_a_late_worker_is_checked_with_its_first_task(tmp_path: Path) -> None:
    absent = LocalStorage(str(tmp_path / "absent.zarr"))
    with pytest.raises(SchedulerError, match="does not see"):
        workers.admit(workers.Requirements(workers.versions(), ((absent, "token"),)))
    absent.write("token", b"")
    workers.admit(workers.Requirements(workers.versions(), ((absent, "token"),)))


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "CONNECT_SECONDS", 1)
    with pytest.raises(SchedulerError, match=r"the dask scheduler at tcp://127\.0\.0\.1:9 does not answer"):
        connect("tcp://127.0.0.1:9")


# Schedulers and drivers that die: both as processes of their own


DRIVER = textwrap.dedent(
    """
    import sys
    import distributed
    from helpers.faults import SETTINGS
    from pairsym_dask.store.counts import open_counts
    from pairsym_dask.sweep.fit import fit
    from pairsym_dask.store.model_store import ModelStore
    from pairsym_dask.errors import SchedulerError
    def report(sweep, bound, seconds):
        print(sweep, flush=True)
    client = distributed.Client(scheduler_file=sys.argv[1], set_as_default=False)
    print("ready", flush=True)
    try:
        store = ModelStore(sys.argv[3])
        fit(open_counts(sys.argv[2]), SETTINGS, store, sweeps=12, client=client, callback=report, keep=1)
    except SchedulerError as error:
        print(f"told: {error}", flush=True)
        import os
        os._exit(3)
    print("done", flush=True)
    """
)


def start_driver(cluster: OutsideCluster, counts: Counts, path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(cluster.file), counts.path, str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    return driver


def kill_scheduler(counts: Counts, reference: list[str], folder: Path, seed: int) -> float:
    """Kill the scheduler under a fit; seconds until the driver said so."""
    path = folder / "model.zarr"
    rng = random.Random(seed)
    with OutsideCluster(folder) as cluster:
        driver = start_driver(cluster, counts, path)
        assert driver.stdout is not None
        for _ in range(rng.randint(1, 4)):
            driver.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        cluster.scheduler.kill()
        began = time.monotonic()
        rest, _ = driver.communicate(timeout=60)
        seconds = time.monotonic() - began
    assert "has gone away; what is committed is safe: run the fit again to go on" in rest
    assert driver.returncode == 3
    found = all_bits(path)
    assert found == reference[: len(found)]
    run_fit(counts, path, 12)
    assert all_bits(path) == reference
    shutil.rmtree(folder)
    return seconds


def test_a_killed_scheduler_is_told_in_time_and_the_fit_resumes(
    counts: Counts, reference: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    assert kill_scheduler(counts, reference, folder, 0) < 30


def kill_driver(counts: Counts, reference: list[str], folder: Path, cluster: OutsideCluster, seed: int) -> None:
    """Kill a driver beside a living cluster, whose tasks write on, and resume on the same cluster at once."""
    path = folder / f"model-{seed}.zarr"
    rng = random.Random(seed)
    driver = start_driver(cluster, counts, path)
    assert driver.stdout is not None
    told = 0
    for _ in range(rng.randint(0, 4)):
        told = int(driver.stdout.readline())
    time.sleep(rng.uniform(0, 0.2))
    driver.kill()
    driver.communicate()
    again = start_driver(cluster, counts, path)
    rest, _ = again.communicate(timeout=120)
    assert rest.endswith("done\n")
    assert told < 12
    found = all_bits(path)
    assert found == reference
    assert verify(path).sound


def test_a_killed_driver_resumes_beside_its_zombies(counts: Counts, reference: list[str], tmp_path: Path) -> None:
    with OutsideCluster(tmp_path) as cluster:
        kill_driver(counts, reference, tmp_path, cluster, 1)


@pytest.mark.long
def test_long_scheduler_and_driver_kills(counts: Counts, reference: list[str], tmp_path: Path) -> None:
    seconds = []
    for seed in range(20):
        folder = tmp_path / f"run-{seed}"
        folder.mkdir()
        seconds.append(kill_scheduler(counts, reference, folder, seed))
    print(f"\nscheduler kills: {len(seconds)}, told after {max(seconds):.1f} s at most, all resumed to the same bits")
    with OutsideCluster(tmp_path) as cluster:
        for seed in range(20):
            kill_driver(counts, reference, tmp_path, cluster, seed)
    print("driver kills beside a living cluster: 20, all resumed to the same bits")


def test_a_second_driver_is_refused_on_a_cluster_too(counts: Counts, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"

    def meanwhile(*_: Any) -> None:
        with pytest.raises(StoreError, match="is in use by a fit on"):
            cluster_fit(counts, path, client, 3)

    cluster_fit(counts, path, client, 1, callback=meanwhile)


def test_a_task_that_kills_its_workers_is_told() -> None:
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_cluster(1) as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(SchedulerError, match="1 dask workers died one after another on the same task"),
    ):
        Executor(client).run({"deadly": (os._exit, 1)}, ["deadly"])
