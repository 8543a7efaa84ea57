"""Gathering for several tile blocks at a time: the same bits, and tables that are read once for all of them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from helpers.stores import fitted_arrays, make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.kernels.cold_gathered import cold_sums_size
from pairsym_dask.kernels.gradients import SUMS
from pairsym_dask.kernels.layout import padded_width
from pairsym_dask.report import projection
from pairsym_dask.report.projection import _passes
from pairsym_dask.run.bundles import Hands, in_runs
from pairsym_dask.run.execute import Attempt, Executor
from pairsym_dask.settings import Settings
from pairsym_dask.store import cuts as cuts_module
from pairsym_dask.store.arrays import Sealed
from pairsym_dask.store.counts import Counts
from pairsym_dask.sweep import fit as fit_module
from pairsym_dask.sweep import gathers
from pairsym_dask.sweep import plan as plan_module
from pairsym_dask.sweep.background import add_packed
from pairsym_dask.sweep.plan import Plan
from pairsym_dask.sweep.room import make_room
from pairsym_dask.sweep.spread import Spread, gather_reads, spread

CUTS = {"LONG_BLOCK": 64, "SHORT_BLOCK": 32}
PLAN = {"TABLES": 20_000, "STATISTICS": 20_000, "SMALL": 4}
SOLVED = {"factors": 3}
COLD = {"factors": 40}
STEPPED = {"factors": 40, "temperature": 1.0}
MESSAGES = {"factors": 3, "selection": "bayes"}
HUGE = (10**9, 10**7, 10**11)


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Three tile blocks of items, the first two of them of several blocks of rows."""
    for name, value in CUTS.items():
        monkeypatch.setattr(cuts_module, name, value)
    for name, value in PLAN.items():
        monkeypatch.setattr(plan_module, name, value)
    return make_store(random_counts(400, 90, 0.15, seed=2), tmp_path / "counts.zarr")


def fit(
    counts: Counts, path: Path, bundle: int, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], **options: Any
) -> ps.PairedSymbols:
    """A fit that gathers for so many blocks at a time and keeps nothing between tasks."""

    def room(*arguments: Any) -> Any:
        return replace(make_room(*arguments), bundle=bundle, cache=0, tables=0)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "make_room", room)
        return ps.PairedSymbols(**settings).fit(counts, path, sweeps=2, progress=False, **options)


def bits(model: ps.PairedSymbols) -> dict[str, bytes]:
    return {path: array.tobytes() for path, array in fitted_arrays(model).items()}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SOLVED, COLD, STEPPED, MESSAGES], ids=["solved", "cold", "stepped", "messages"])
def test_bits_do_not_depend_on_what_a_task_gathers_for(
    counts: Counts, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan.make(counts, Settings(**settings))
    assert len(plan.tile_blocks["items"]) == 3
    assert not plan.whole["items"]
    first = bits(ps.PairedSymbols(**settings).fit(counts, tmp_path / "all-kept.zarr", sweeps=2, progress=False))
    for bundle in (1, 2, plan.places["items"].each, 2 * plan.places["items"].each, 1000):
        model = fit(counts, tmp_path / f"{bundle}.zarr", bundle, monkeypatch, settings, threads=2)
        assert bits(model) == first, bundle


def _exchange(values: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Give a worker the small cuts of this process; what it had."""
    import importlib

    before = {key: getattr(importlib.import_module(key[0]), key[1]) for key in values}
    for (module, name), value in values.items():
        setattr(importlib.import_module(module), name, value)
    return before


@pytest.mark.cluster
@pytest.mark.parametrize("settings", [SOLVED, COLD], ids=["solved", "cold"])
def test_workers_that_read_ahead_make_the_same_bits(
    counts: Counts, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    first = bits(fit(counts, tmp_path / "threads.zarr", 1, monkeypatch, settings))
    small = {(cuts_module.__name__, name): value for name, value in CUTS.items()}
    small |= {(plan_module.__name__, name): value for name, value in PLAN.items()}
    with Client(cluster) as client:
        usual = next(iter(client.run(_exchange, small).values()))
        try:
            model = fit(counts, tmp_path / "cluster.zarr", 1000, monkeypatch, settings, client=client)
        finally:
            client.run(_exchange, usual)
    assert bits(model) == first


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SOLVED, COLD], ids=["solved", "cold"])
def test_tables_are_read_once_for_all_blocks_that_a_task_gathers_for(
    counts: Counts, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan.make(counts, Settings(**settings))
    found: Counter[str] = Counter()
    read = Sealed.read_block

    def count(self: Sealed, spec: Any, *index: int) -> Any:
        found[spec.path] += 1
        return read(self, spec, *index)

    monkeypatch.setattr(Sealed, "read_block", count)
    reads = {}
    for bundle in (1, 1000):
        found.clear()
        fit(counts, tmp_path / f"{bundle}.zarr", bundle, monkeypatch, settings, threads=1)
        reads[bundle] = found["users/mean"]
    assert not found["users/precision"]  # a cold fit has no use for them
    blocks, passes = len(plan.places["users"]), 2 * (1 + plan.short_steps)  # of two sweeps
    assert reads[1] - reads[1000] == (len(plan.places["items"]) - 1) * passes * blocks


@pytest.mark.parametrize("factors", [20, 64])
def test_a_plan_of_very_many_items_reads_tables_a_few_times_a_pass(factors: int) -> None:
    plan = Plan.of_shape(*HUGE, Settings(factors=factors))
    room = make_room(plan, "16GiB", 1, 256)
    how = spread(plan, room, Hands(256))
    assert len(how.bundles) < plan.cuts["items"].blocks / 20
    assert max(map(len, how.bundles)) <= room.bundle
    assert [b for bundle in how.bundles for piece in how.pieces(bundle) for b in piece] == list(
        range(len(plan.places["items"]))
    )
    assert sum(gather_reads(plan, room, len(how.bundles), 256)) < 40e12  # 1.3e15 where each tile block reads them
    rounds = len(how.bundles) * len(how.shares) / 256
    assert rounds / math.ceil(rounds) >= 0.9  # work for nearly all, in the last round too


def test_laptops_that_keep_all_tables_gather_for_a_block_at_a_time() -> None:
    plan = Plan.of_shape(10_000_000, 100_000, 250_000_000, Settings(factors=20))
    assert make_room(plan, "16GiB", 2).bundle == 1
    small = make_room(plan, "4GiB", 2)  # does not: all blocks share what is read
    assert len(plan.bundles("items", small.bundle)) < plan.cuts["items"].blocks


def test_bundles_of_skewed_blocks_are_even_in_pairs() -> None:
    costs = np.ones(4096)
    costs[:256] = 20.0  # heavy users come first
    hands = Hands(16)
    even, by_cost = hands.bundles(4096, 100.0, 4), hands.bundles(4096, 100.0, 4, costs)
    assert [step for run in by_cost for step in run] == list(range(4096))
    assert all(run.start % 4 == 0 for run in by_cost)  # whole shards
    heaviest = {name: max(costs[run].sum() for run in runs) for name, runs in (("even", even), ("cost", by_cost))}
    smallest = 4 * costs.max()
    assert heaviest["cost"] <= max(smallest, 1.5 * costs.sum() / (len(even) - 3 * 16))
    assert heaviest["cost"] < heaviest["even"] / 2
    assert hands.bundles(4096, 100.0, 4, np.ones(4096)) == even


def test_gathering_bundles_are_even_in_pairs_as_far_as_there_is_room() -> None:
    plan = Plan.of_shape(*HUGE, Settings(factors=64))
    room, hands, each = make_room(plan, "16GiB", 1, 512), Hands(512), plan.places["items"].each
    pairs = np.ones(plan.cuts["items"].blocks)
    even = spread(plan, room, hands).bundles
    assert spread(plan, room, hands, pairs).bundles == even
    pairs[:40] = 3.0
    found = spread(plan, room, hands, pairs).bundles
    assert [block for bundle in found for block in bundle] == list(range(len(plan.places["items"])))
    assert max(map(len, found)) <= room.bundle

    def heaviest(bundles: list[range]) -> float:
        return max(float(pairs[bundle.start // each : -(-bundle.stop // each)].sum()) for bundle in bundles)

    assert heaviest(found) < 1.1 * pairs.sum() / len(found) < heaviest(even)
    pairs[:40] = 1000.0  # all others in one bundle would be too large
    assert max(map(len, spread(plan, room, hands, pairs).bundles)) <= room.bundle


def test_the_first_bundles_are_the_short_ones() -> None:
    """They are run last (see `tests/run/test_placement.py`), so that no worker is left alone with a long one."""
    runs = Hands(16).bundles(4096, 100.0, 4)
    assert [step for run in runs for step in run] == list(range(4096))
    lengths = [len(run) for run in runs]
    assert max(lengths[:16]) < min(lengths[-16:-1])
    assert sorted(lengths[:-1]) == lengths[:-1]


def gathering_graph(
    counts: Counts, path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, bundle: int, settings: dict[str, Any]
) -> tuple[Any, ps.PairedSymbols]:
    """The first graph of a fit that gathers, as it is for a cluster of so many workers; run on threads."""
    graphs: list[Any] = []
    slots = tuple(f"tcp://10.0.0.{k}:1" for k in range(workers))

    def look(self: Any, name: str, graph: Any, keys: list[str]) -> list[Any]:
        graphs.append(graph)
        return run(self, name, graph, keys)

    run = Attempt.run
    monkeypatch.setattr(Attempt, "run", look)
    monkeypatch.setattr(Executor, "hands", lambda self: Hands(workers, slots=slots))
    model = fit(counts, path, bundle, monkeypatch, settings, threads=2)
    return next(graph for graph in graphs if any(key.startswith("gather-items-sums") for key in graph.nodes)), model


def of(graph: Any, name: str) -> list[str]:
    """Keys of a graph's tasks of some name."""
    return [key for key in graph.nodes if key.startswith(f"{name}-{graph.tag}")]


def test_gathering_tasks_have_a_worker_each_and_what_follows_is_near(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = gathering_graph(counts, tmp_path / "model.zarr", monkeypatch, 12, 4, COLD)
    where = graph.workers
    gathered = of(graph, "gather-items-sums")
    assert 2 < len(gathered) <= 12
    assert len({where[key] for key in gathered}) == len(gathered)
    near = of(graph, "weights"), of(graph, "gather-items-step-0")
    for sums, weights, products in zip(gathered, *near, strict=True):
        assert where[weights] == where[products] == where[sums]
    for same in zip(*(of(graph, name) for name in ("begin", "direction-0", "step-0", "update-items")), strict=True):
        assert len({where[key] for key in same}) == 1


def test_directions_are_passed_on_so_that_nobody_sends_them_to_all(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle of all blocks, a piece each, gathered over every share by a task of its own."""
    monkeypatch.setattr(cuts_module, "SHORT_BLOCK", 256)
    counts = make_store(random_counts(600, 200, 0.1, seed=3), tmp_path / "wider.zarr")
    plan = Plan.make(counts, Settings(**COLD))
    shares, blocks = in_runs(len(plan.shares), 1), len(plan.places["items"])
    assert len(shares) >= 4
    assert blocks >= 3
    wanted = bits(ps.PairedSymbols(**COLD).fit(counts, tmp_path / "threads.zarr", sweeps=2, progress=False))
    monkeypatch.setattr(gathers, "spread", lambda *_: Spread([range(blocks)], shares, 1))
    monkeypatch.setattr(projection, "spread", gathers.spread)
    graph, model = gathering_graph(counts, tmp_path / "spread.zarr", monkeypatch, len(shares), 1000, COLD)
    (update, finish, *_), told, _ = _passes(plan, make_room(plan, None, 1), Hands(len(shares)))
    assert told - update[0] - finish[0] == graph.tasks

    def takers(key: str) -> list[str]:
        """Tasks that a task's result goes to."""
        return [other for other, node in graph.nodes.items() if isinstance(node, tuple) and key in str(node)]

    few = math.isqrt(len(shares))
    passed, directions = of(graph, "pass-on-0"), of(graph, "direction-0")
    assert len(directions) >= 3
    for key in directions:
        assert set(takers(key)) <= set(passed)
        assert len(takers(key)) == -(-len(shares) // few)
    assert all(1 <= len(takers(key)) <= few for key in passed)
    takes = {task: sum(task in takers(key) for key in passed) for task in of(graph, "gather-items-step-0")}
    assert takes == dict.fromkeys(takes, len(directions))
    for first in range(0, len(passed), len(directions)):  # no worker passes on more than its part
        places = [graph.workers[key] for key in passed[first : first + len(directions)]]
        assert len(set(places)) == min(few, len(directions))
    picks = of(graph, "pick-items-step-0")  # the last products, a number a row, are cut where they are needed
    assert [graph.workers[key] for key in picks] == [graph.workers[key] for key in of(graph, "step-0")]
    assert bits(model) == wanted


def test_sums_of_rows_without_variances_are_as_large_as_the_plan_says() -> None:
    cold, warm = {"factors": 128}, {"factors": 128, "temperature": 1.0}
    for settings, size in ((cold, cold_sums_size(128)), (warm, SUMS * padded_width(128))):
        plan = Plan.of_shape(10**6, 10**5, 10**8, Settings(**settings))
        assert plan.statistics_bytes() == plan.blocks["items"] * size * 4


@pytest.mark.parametrize("shape", [(2, 80), (3, 88), (1000, 80), (65, 2400)])
def test_packed_sums_are_added_as_numpy_adds_them(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    parts = list(rng.normal(size=shape) * 10.0 ** rng.integers(-6, 6, shape))
    first = parts[0].copy()
    assert np.array_equal(add_packed(parts), np.sum(parts, axis=0))
    assert np.array_equal(parts[0], first)


@pytest.mark.parametrize("settings", [SOLVED, COLD, STEPPED], ids=["solved", "cold", "stepped"])
@pytest.mark.parametrize(("workers", "bundle"), [(2, 1), (3, 1000), (12, 4), (60, 4)])
def test_the_plan_counts_the_tasks_of_a_sweep(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, bundle: int, settings: dict[str, Any]
) -> None:
    told, made = set(), 0

    def look(self: Any, name: str, graph: Any, keys: list[str]) -> list[Any]:
        nonlocal made
        if self.job.folder.startswith("generation-00002"):
            told.add(_passes(self.job.plan, self.job.room, self.hands)[1])
            made += graph.tasks
        return run(self, name, graph, keys)

    run = Attempt.run
    monkeypatch.setattr(Attempt, "run", look)
    monkeypatch.setattr(Executor, "hands", lambda self: Hands(workers, slots=("tcp://10.0.0.1:1",) * workers))
    fit(counts, tmp_path / "model.zarr", bundle, monkeypatch, settings, threads=2)
    assert told == {made}
