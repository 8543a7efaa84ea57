"""What tasks read ahead, and what stays at hand from one to the next: fewer reads, the same bits."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from helpers.stores import fitted_arrays, make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.kernels import cold_gathered, rows
from pairsym_dask.run.bundles import in_runs
from pairsym_dask.settings import Settings
from pairsym_dask.store import cuts as cuts_module
from pairsym_dask.store.arrays import Sealed
from pairsym_dask.store.counts import Counts
from pairsym_dask.sweep import fit as fit_module
from pairsym_dask.sweep import gathers
from pairsym_dask.sweep import plan as plan_module
from pairsym_dask.sweep.ahead import Ahead
from pairsym_dask.sweep.graphs import Passes
from pairsym_dask.sweep.job import Job
from pairsym_dask.sweep.plan import Plan
from pairsym_dask.sweep.room import make_room
from pairsym_dask.sweep.shelf import Key, Shelf
from pairsym_dask.sweep.spread import Spread

SOLVED = {"factors": 3}
COLD = {"factors": 40}


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Three tile blocks of items, whose sums are gathered."""
    for name, value in {"LONG_BLOCK": 64, "SHORT_BLOCK": 32}.items():
        monkeypatch.setattr(cuts_module, name, value)
    for name, value in {"TABLES": 20_000, "STATISTICS": 20_000, "SMALL": 4}.items():
        monkeypatch.setattr(plan_module, name, value)
    return make_store(random_counts(400, 90, 0.15, seed=2), tmp_path / "counts.zarr")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often blocks of arrays are read."""
    found: Counter[str] = Counter()
    read = Sealed.read_block

    def count(self: Sealed, spec: Any, *index: int) -> Any:
        found[spec.path] += 1
        return read(self, spec, *index)

    monkeypatch.setattr(Sealed, "read_block", count)
    return found


def fit(
    counts: Counts, path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], room: dict[str, int],
    **options: Any,
) -> dict[str, bytes]:  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "make_room", lambda *arguments: replace(make_room(*arguments), **room))
        model = ps.PairedSymbols(**settings).fit(counts, path, sweeps=3, progress=False, **options)
    return {name: array.tobytes() for name, array in fitted_arrays(model).items()}


def test_things_come_as_they_were_asked_for_and_errors_with_them() -> None:
    order, go = [], threading.Event()

    def read(name: str) -> str:
        go.wait()
        order.append(name)
        if name == "c":
            raise OSError("gone")
        return name.upper()

    with Ahead((), (), 0) as ahead:
        for name in "aabc":
            ahead.ask(name, lambda name=name: read(name))
        go.set()
        assert ahead.take("b", lambda: "again") == "B"
        assert ahead.take("b", lambda: "again") == "again"  # it was given away
        assert ahead.take("a", lambda: "again") == "A"
        with pytest.raises(OSError, match="gone"):
            ahead.take("c", lambda: "again")
        ahead.ask("d", lambda: read("d"))  # nobody takes it: no matter
    assert order[:3] == ["a", "b", "c"]


def test_a_kept_value_is_given_away_to_one_who_has_it_alone() -> None:
    shelf, key = Shelf(single=True), Key("whole table", "store", "state", "items", 0)
    shelf.get(key, lambda: np.zeros(3))
    assert shelf.take(key) is not None
    assert shelf.take(key) is None
    assert shelf.nbytes == 0
    mine = shelf.get(key, lambda: np.zeros(3))
    assert shelf.take(key) is None  # somebody computes with it
    assert mine.sum() == 0
    other = key._replace(state="next")
    shelf.get(key, lambda: np.ones(3))
    assert shelf.get(other, lambda: shelf.take(key), source=key).sum() == 3
    assert shelf.peek(key) is None


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SOLVED, COLD], ids=["solved", "turned"])
def test_a_sweep_begins_with_the_table_that_the_one_before_ended_with(
    counts: Counts, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Counter[str]
) -> None:
    room = {"cache": 0, "tables": 0}
    kept = fit(counts, tmp_path / "kept.zarr", monkeypatch, settings, room, threads=1)
    seen = reads["items/mean"]
    reads.clear()
    with monkeypatch.context() as patch:
        begin = Passes.update

        def forgetful(self: Passes, *arguments: Any, **named: Any) -> Any:
            fit_module.forget()
            return begin(self, *arguments, **named)

        patch.setattr(Passes, "update", forgetful)
        assert fit(counts, tmp_path / "read.zarr", monkeypatch, settings, room, threads=1) == kept
    blocks = reads["items/mean"] - seen
    assert blocks > 0
    assert blocks % 3 == 0  # of three sweeps the whole table, each time


@pytest.mark.slow
def test_weights_that_counts_alone_decide_are_found_once_a_fit(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    weigh = Passes.weigh

    def count(self: Passes, *arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return weigh(self, *arguments, **named)

    monkeypatch.setattr(Passes, "weigh", count)
    ps.PairedSymbols(factors=3).fit(counts, tmp_path / "counts-decide.zarr", sweeps=3, progress=False)
    assert len(calls) == 1
    ps.PairedSymbols(factors=3, selection="bayes").fit(counts, tmp_path / "bayes.zarr", sweeps=3, progress=False)
    assert len(calls) == 4


@pytest.mark.cluster
@pytest.mark.parametrize("settings", [SOLVED, COLD], ids=["solved", "cold"])
def test_rows_stay_from_the_sums_to_the_steps(
    counts: Counts, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Counter[str]
) -> None:
    nothing = {"cache": 0, "tables": 0, "bundle": 1000, "block": 0, "gathering": 0}
    first = fit(counts, tmp_path / "threads.zarr", monkeypatch, settings, nothing)
    seen = {}
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        for gathering in (0, 2**30):
            reads.clear()
            room = nothing | {"gathering": gathering}
            assert fit(counts, tmp_path / f"{gathering}.zarr", monkeypatch, settings, room, client=client) == first
            seen[gathering] = reads["users/mean"]
    if settings is COLD:  # a step reads them again
        assert seen[2**30] < seen[0]
    else:
        assert seen[2**30] == seen[0]


@pytest.mark.cluster
@pytest.mark.parametrize("settings", [SOLVED, COLD], ids=["solved", "cold"])
def test_gathering_begins_before_all_own_rows_are_read(
    counts: Counts, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is held up after the first block's own rows until the first block has been visited."""
    plan = Plan.make(counts, Settings(**settings))
    visited, held = threading.Event(), []
    read = Job._read_table
    kernel = (cold_gathered, "add_cold_sums") if settings is COLD else (rows, "add_statistics")
    add = getattr(*kernel)

    def wait(self: Job, side: str, sealed: Sealed, block: int) -> Any:
        if side == "items" and block == plan.places["items"].each and self.ahead is not None and self.ahead.groups:
            held.append(visited.wait(60))
        return read(self, side, sealed, block)

    def visit(*arguments: Any) -> Any:
        visited.set()
        return add(*arguments)

    everything = Spread([range(len(plan.places["items"]))], in_runs(len(plan.shares), 1), 1)
    monkeypatch.setattr(gathers, "spread", lambda *_: everything)
    monkeypatch.setattr(Job, "_read_table", wait)
    monkeypatch.setattr(*kernel, visit)
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        room = {"bundle": 1000, "cache": 0, "tables": 0}
        fit(counts, tmp_path / "model.zarr", monkeypatch, settings, room, client=client)
    assert held
    assert all(held)
