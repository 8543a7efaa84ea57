"""Workers that are paused for memory, and a scheduler that is gone: told in words, ended in time, nothing lost."""

from __future__ import annotations

import dask
import pytest
from distributed import Client, LocalCluster
from helpers.outside import OutsideCluster

import pairsym_dask as ps
from pairsym_dask.run import execute
from pairsym_dask.store.verify import verify

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]
ALWAYS_PAUSED = {
    "distributed.worker.memory.pause": 0.01,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.terminate": False,
}


def test_a_fit_on_paused_workers_says_so_and_ends(small, tmp_path, monkeypatch):
    path = tmp_path / "model.zarr"
    before = ps.PairedSymbols(factors=2).fit(small, path, sweeps=1, progress=False).history
    monkeypatch.setattr(execute, "STALLED_SECONDS", 2.0)
    monkeypatch.setattr(execute, "PAUSED_SECONDS", 5.0)
    with dask.config.set(ALWAYS_PAUSED):
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="2GB", dashboard_address=":0")
        with (
            cluster,
            Client(cluster) as client,
            pytest.warns(UserWarning, match="paused for want of memory") as told,
            pytest.raises(ps.SchedulerError, match=r"paused.*nothing was finished for 5 s; what is committed"),
        ):
            ps.PairedSymbols(factors=2).fit(small, path, sweeps=3, progress=False, client=client)
    assert any("nothing was finished" in str(warning.message) for warning in told)
    assert verify(path).sound
    assert ps.load(path).history.equals(before)


def test_after_a_scheduler_died_the_same_session_goes_on(small, tmp_path):
    path = tmp_path / "model.zarr"
    with OutsideCluster(tmp_path) as cluster:
        client = Client(cluster.address, timeout=30)  # the current client from now on
        try:
            ps.PairedSymbols(factors=2).fit(small, path, sweeps=1, progress=False)
            cluster.scheduler.kill()
            cluster.scheduler.wait()
            with pytest.raises(ps.SchedulerError, match="scheduler"):
                ps.PairedSymbols(factors=2).fit(small, path, sweeps=2, progress=False)
            if (
                client.status != "closed"
            ):  # it tries to reach its scheduler for half a minute, and then is none any more
                with pytest.raises(ps.SchedulerError, match=r"has lost its scheduler at tcp://.*or give threads="):
                    ps.PairedSymbols(factors=2).fit(small, path, sweeps=2, progress=False)
            model = ps.PairedSymbols(factors=2).fit(small, path, sweeps=2, progress=False, threads=1)
            assert model.history["sweep"].iloc[-1] == 2
        finally:
            client.close(timeout=1)
