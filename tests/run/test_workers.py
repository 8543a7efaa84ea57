"""Workers that lack memory are spoken of once, on a real cluster."""

from __future__ import annotations

import time
import warnings

import dask
import numpy as np
import pytest

import pairsym_dask as ps
from pairsym_dask.run.workers import memory_trouble


@pytest.mark.slow
def test_a_fit_warns_once_of_workers_that_spill_or_are_paused(small, tmp_path):
    from distributed import Client, LocalCluster
    from distributed.core import Status

    def pause(dask_worker):
        dask_worker.status = Status.paused

    def describe():
        return client.sync(client.scheduler.identity, n_workers=-1)["workers"]

    limits = {"target": 0.01, "spill": False, "pause": False, "terminate": False}
    settings = {f"distributed.worker.memory.{name}": value for name, value in limits.items()}
    size = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GiB"}
    with (
        dask.config.set(settings),
        LocalCluster(**size, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        one, two = describe()
        assert memory_trouble(describe()) is None
        held = client.scatter(np.zeros(20_000_000, np.uint8), workers=[one])
        client.run(pause, workers=[two])
        deadline = time.monotonic() + 60
        while memory_trouble({one: describe()[one]}) is None or memory_trouble({two: describe()[two]}) is None:
            assert time.monotonic() < deadline, describe()  # a worker's next heartbeat tells
        trouble = memory_trouble(describe())
        assert trouble is not None
        assert f"at {two} has paused" in trouble
        assert f"at {one} has spilled to disk" in trouble
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model = ps.PairedSymbols(factors=2).fit(small, tmp_path / "m.zarr", 2, client=client, progress=False)
        assert [str(w.message).split(";")[-1] for w in seen if "memory" in str(w.message)] == [
            " give workers more memory or fewer threads each, or a smaller memory= to the fit"
        ]
        assert model.history["sweep"].iloc[-1] == 2
        del held


def test_many_workers_make_one_sentence():
    worker = {"status": "paused", "metrics": {"spilled_bytes": {"memory": 3_000_000, "disk": 2**20}}}
    words = memory_trouble({"tcp://a:1": worker, "tcp://b:1": worker})
    assert words is not None
    assert words.startswith("2 dask workers, one at tcp://a:1, have paused for want of memory")
    assert "have spilled to disk (2.00 MiB)" in words
    assert memory_trouble({"tcp://a:1": {"status": "running", "metrics": {}}}) is None


def test_task_names_read_as_steps_of_the_algorithm(small, tmp_path):
    from dask.callbacks import Callback
    from distributed.utils import key_split

    names = set()
    with Callback(pretask=lambda key, *_: names.add(key_split(key))):
        ps.PairedSymbols(factors=2).fit(small, tmp_path / "m.zarr", 1, progress=False)
    steps = {"start-users", "start-items", "update-users", "weigh-items", "gather-items", "update-items"}
    steps |= {"finish-users", "measure", "measure-users", "measure-items"}
    assert steps <= names
    assert not {"select-items", "observe-items"} & names  # xi* comes last where selection is by counts
    with Callback(pretask=lambda key, *_: names.add(key_split(key))):
        ps.PairedSymbols(factors=2, selection="constant").fit(small, tmp_path / "c.zarr", 1, progress=False)
    steps |= {"select-items", "observe-items"}
    assert steps <= names
    assert names - steps <= {"add-items", "add-measure", "add-selection", "take-selection", "pick-items"}
