"""Efficiency against workers, on a real dask scheduler with hundreds of workers whose kernels sleep.

    python workflows/benchmark_cluster.py --shape 1e9,1e7,1e11 --factors 64 --workers 16,64,256,512
    python workflows/benchmark_cluster.py --shape phone-apps --factors 20 --before      # one task a block, as it was

What is real: the plan, the graphs of a whole sweep, their keys, manifests and small results; dask's scheduler, client
and workers, all in this process and on one event loop. What is simulated, by the clock alone:

- arithmetic: a task sleeps as long as the cost model says on one core; where the weights of pairs are not at hand, a
  step takes as long as the sums did, which made them;
- the store: what a task reads and writes at --store bytes a second a worker, one after the other with arithmetic, but
  for the tables of the long side, which gathering tasks read while they compute. What a worker has read stays on its
  shelf as far as its budget goes; all shelves are empty at the beginning;
- the network: what a task is given and another worker made comes at --network bytes a second, manifests too;
- the scheduler: --task seconds of its one core for every finished task (`benchmark_scheduler.py` measures them);
- the driver: its own processor time, twice the pickling of graphs, and the unpickling of results.

Nobody really waits: the event loop has a clock of its own, which jumps to the next one to wake where all sleep.
Processor time of the simulation itself does not count, nor does other work on the machine; nothing is committed. --part
runs a part of the blocks: users and items are fewer. --before is one task a block, bundles within a tile block,
precisions read although they are not needed, and nothing read ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import pickle
import selectors
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import benchmarking

if __name__ == "__main__":  # tasks of a module that can be imported are pickled by name; and there is but one clock
    import benchmark_cluster

    sys.exit(benchmark_cluster.main())


class Clock:
    """Seconds that count."""

    def __init__(self) -> None:
        self.skipped, self.task, self.busy, self._began = 0.0, 0.0, False, time.time()
        self.idle = 0.0  # between graphs, which does not count
        self.network = 1e9  # bytes a second

    def now(self) -> float:
        return self.skipped

    def counted(self) -> float:
        return self.skipped - self.idle

    def time(self) -> float:
        return self._began + self.now()


CLOCK = Clock()
time.time = CLOCK.time  # before distributed takes it for its measurements

import dask  # noqa: E402
import distributed.utils  # noqa: E402
import numpy as np  # noqa: E402
from dask.sizeof import sizeof  # noqa: E402
from distributed import Client, Scheduler, Worker, get_worker  # noqa: E402

from pairsym_dask.kernels.layout import padded_width, statistics_size  # noqa: E402
from pairsym_dask.pairs.simulate import PRESETS  # noqa: E402
from pairsym_dask.report.projection import Rates, in_shards  # noqa: E402
from pairsym_dask.run.bundles import Hands  # noqa: E402
from pairsym_dask.run.execute import as_named  # noqa: E402
from pairsym_dask.run.progress import Progress  # noqa: E402
from pairsym_dask.settings import SIDES, Settings  # noqa: E402
from pairsym_dask.store.arrays import Sealed  # noqa: E402
from pairsym_dask.store.commit import generation_arrays  # noqa: E402
from pairsym_dask.store.sharded import seal  # noqa: E402
from pairsym_dask.store.shards import Shards  # noqa: E402
from pairsym_dask.sweep import steps, tasks  # noqa: E402
from pairsym_dask.sweep.background import Background  # noqa: E402
from pairsym_dask.sweep.costs import FINISH, GATHER, START, STEP, UPDATE, pass_seconds, sweep_seconds  # noqa: E402
from pairsym_dask.sweep.elbo import SideSums  # noqa: E402
from pairsym_dask.sweep.graphs import Passes, Weights  # noqa: E402
from pairsym_dask.sweep.job import Job, is_scattered  # noqa: E402
from pairsym_dask.sweep.plan import Plan  # noqa: E402
from pairsym_dask.sweep.room import Room, make_room  # noqa: E402
from pairsym_dask.sweep.spread import table_traits  # noqa: E402
from pairsym_dask.sweep.steps import Gathering  # noqa: E402

QUIET = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "1h",  # else of every worker, fifty times a second
    "distributed.admin.tick.cycle": "1h",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.idle-timeout": None,
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "120s",
}
DIGEST = "0" * 32


OVERHEAD = 1e-3  # seconds of a worker for any task; one that took no time at all would break dask's stealing of work
ENTRY = 100  # bytes of a manifest's entry as it travels


@dataclass(frozen=True)
class Lump:
    """Arrays of some blocks that are not there; how large they are, and who made them."""

    blocks: int
    each: int  # bytes
    where: str = ""

    def __len__(self) -> int:
        return self.blocks

    @property
    def nbytes(self) -> int:
        return self.blocks * self.each


@sizeof.register(Lump)
def _size(lump: Lump) -> int:
    return lump.nbytes


class Site:
    """What a worker has at hand: kept on its shelf, or sent to it before."""

    def __init__(self) -> None:
        self.shelf: set[Any] = set()
        self.kept = self.read = self.came = 0.0
        self.whole: Any = None  # which table of all the short side it has
        self.met: dict[int, Any] = {}
        self.again = 0  # steps whose weights were not here

    def get(self, key: Any, coded: float, decoded: float, limit: float) -> float:
        """Bytes to read for something that takes so many on the shelf."""
        if key in self.shelf:
            return 0.0
        self.put(key, decoded, limit)
        self.read += coded
        return coded

    def put(self, key: Any, decoded: float, limit: float) -> None:
        if self.kept + decoded <= limit and key not in self.shelf:
            self.shelf.add(key)
            self.kept += decoded

    def given(self, things: Any) -> float:
        """Bytes that come to a task with its arguments."""
        came = 0.0
        for thing in things:
            if isinstance(thing, list | tuple):
                came += self.given(thing)
            elif isinstance(thing, Lump) and thing.where != get_worker().address:
                came += thing.nbytes
            elif isinstance(thing, Gathering):
                came += self.given((thing.own, thing.its))
            elif isinstance(thing, Sealed) and id(thing) not in self.met:
                self.met[id(thing)] = thing
                came += ENTRY * len(thing.manifest)
        self.came += came
        return came


SITES: dict[str, Site] = {}


def site() -> Site:
    return SITES.setdefault(get_worker().address, Site())


@dataclass(frozen=True)
class Sleeper:
    """A job whose kernels sleep: seconds of a step by the name of its task."""

    plan: Plan
    room: Room
    settings: Settings
    specs: dict[str, Any]
    seconds: dict[str, float]
    before: bool
    network: float
    store: float  # bytes a second, 0 where it costs nothing
    folder: str = "generation-1"
    storage: Any = None
    shards: Shards | None = None
    turn: Any = None
    discount: Any = None
    tags: dict[str, Any] = field(default_factory=dict)
    part = Job.part

    async def work(self, seconds: float, moved: float, ahead: float, *given: Any) -> None:
        """Take so many seconds of arithmetic and for bytes of the store, some of them beside the arithmetic."""
        came = site().given(given)
        if self.store:
            both = seconds + ahead / self.store if self.before else max(seconds, ahead / self.store)
            seconds = both + moved / self.store
        await asyncio.sleep(OVERHEAD + seconds + came / self.network)

    @property
    def row(self) -> float:
        """Bytes that a row of a table is made of."""
        traits = 2 * self.plan.factors if self.before else table_traits(self.plan)
        return (traits + 2) * self.plan.itemsize + 8.0

    @property
    def scattered(self) -> bool:
        return not self.before and is_scattered(self.plan, self.room)

    def rows(self, side: str) -> float:
        """Of a block."""
        return self.plan.cuts[side].rows / len(self.plan.places[side])

    def sums(self, name: str) -> int:
        """Bytes of what a block of the short side has gathered."""
        rows = self.plan.blocks[self.plan.short]
        if name == "gather_products":
            return rows * padded_width(self.plan.factors) * self.plan.itemsize
        return rows * self.plan.row_numbers * self.plan.itemsize

    async def blocks(self, name: str, side: str, blocks: Any, given: Any) -> None:
        """Blocks of the long side: their pairs and rows are read, and the table of all the short side."""
        plan, here, limit = self.plan, site(), 0 if self.scattered else self.room.cache
        n, pairs = self.rows(side), plan.pairs / len(plan.places[side])
        moved = 0.0
        for block in blocks:
            moved += here.get(("pairs", side, block), 5 * pairs, (4 + plan.count_bytes) * pairs, limit)
            key = ("table", side, block, "new" if name == "finish_block" else "old")
            moved += here.get(key, self.row * n, plan.table_row * n, 0)
            if name == "update_block":
                here.put(("table", side, block, "new"), plan.table_row * n, 0 if self.scattered else self.room.tables)
        if here.whole != name:
            here.whole = name
            moved += self.row * plan.cuts[plan.short].rows
        written = n * ((2 * plan.factors + 2) * plan.itemsize + 16) if name == "update_block" else 8 * n
        await self.work(self.seconds[name] * len(blocks), moved + written * len(blocks), 0.0, given)

    async def gather(self, name: str, shares: range, bundle: range, given: Any, weighed: bool = False) -> Lump:
        plan, here = self.plan, site()
        part = len(shares) * len(bundle) / (len(plan.shares) * len(plan.places[plan.short]))
        own, pairs = len(bundle) * self.rows(plan.short), plan.pairs * part
        users = plan.cuts[plan.short].columns * len(shares) / len(plan.shares)
        kept, tables = (0, 0) if self.scattered else (self.room.cache, self.room.tables)
        ahead = here.get(("tables", shares), self.row * users, plan.table_row * users, tables)
        moved = here.get(("tile", bundle, shares), 5 * pairs, (4 + plan.count_bytes) * pairs, kept)
        seconds, weights = self.seconds[name] * len(shares) * len(bundle), ("weights", bundle, shares)
        if name == "gather_products" and not weighed and weights not in here.shelf:
            here.again += 1
            seconds += (self.seconds["gather_sums"] - self.seconds[name]) * len(shares) * len(bundle)
            moved += own * self.row
        elif name != "gather_products":
            moved += own * self.row
            if plan.steps:
                here.put(weights, plan.itemsize * pairs, self.room.cache)
        await self.work(seconds, moved, ahead, given)
        return Lump(len(bundle), self.sums(name), get_worker().address)


# The tasks of a cluster, as `sweep/tasks.py` has them.


async def each(job: Sleeper, task: Any, own: tuple[int, ...], *arguments: Any) -> Any:
    blocks, name, short = arguments[own[-1]], task.__name__, job.plan.short
    values = job.rows(short) * ((2 * job.plan.factors + 2) * job.plan.itemsize + 16)
    if name in ("update_block", "finish_block"):
        await job.blocks(name, job.plan.long, blocks, arguments)
    else:
        written = values if name in ("settle_block", "solve_block") else 0.0
        read = job.rows(short) * job.row if name in ("begin_block", "solve_block") else 0.0
        await job.work(job.seconds[name] * len(blocks), (read + written) * len(blocks), 0.0, arguments)
    here = get_worker().address
    if name in ("begin_block", "step_block"):
        return Lump(len(blocks), 7 * job.sums("gather_products"), here)
    if name == "direction":
        return Lump(len(blocks), job.sums("gather_products"), here)
    if name == "weigh_block":
        rows = job.plan.blocks[arguments[0]]
        return [(np.zeros(rows), tasks.Normaliser(0.0, 1.0)) for _ in blocks]
    if name == "finish_block":
        return [
            tasks.Finished(
                entries(job, [job.specs["users/next"]], [b]), 0.0, 0.0, tasks.Normaliser(0.0, 1.0), np.ones(3)
            )
            for b in blocks
        ]
    side = arguments[0] if isinstance(arguments[0], str) else job.plan.short
    paths = [spec for path, spec in job.specs.items() if path.startswith(f"{side}/") and path != "users/next"]
    sums, packed = SideSums(0.0, 0.0, 0.0, 0.0, 0.0), np.ones(statistics_size(job.plan.factors))
    run = job.plan.run if side == job.plan.long else 1
    parts = [blocks[k : k + run] for k in range(0, len(blocks), run)]
    return [tasks.Updated(entries(job, paths, part), packed, sums) for part in parts]


def entries(job: Sleeper, specs: list[Any], blocks: Any) -> list[Any]:
    """Of a manifest, for some written blocks."""
    where = seal(None, "", {}, job.shards)  # type: ignore[arg-type]
    keys = where.holders(specs, blocks) if len(blocks) > 1 else dict.fromkeys(where.holder(s, blocks[0]) for s in specs)
    return [(key, 8, DIGEST) for key in keys]


update_each = each


async def gather_each(job: Sleeper, task: Any, shares: range, *arguments: Any) -> Any:
    bundle = next(argument for argument in reversed(arguments) if isinstance(argument, range))
    return await job.gather(task.__name__, shares, bundle, arguments)


async def gather_steps(
    job: Sleeper, task: Any, shares: range, its: Any, what: Any, pieces: Any = (), last: bool = False, taken: Any = None
) -> Any:
    return await job.gather(task.__name__, shares, what.blocks, (its, what, pieces, taken), bool(taken))


async def take_weights(job: Sleeper, what: Any, shares: range, gathered: Any) -> Lump:
    part = len(shares) * len(what.blocks) / (len(job.plan.shares) * len(job.plan.places[job.plan.short]))
    here = ("weights", what.blocks, shares) in site().shelf
    await job.work(0.0, 0.0, 0.0, gathered)  # in a thread it would stop no clock
    return Lump(int(here), round(job.plan.itemsize * job.plan.pairs * part), get_worker().address)


async def pick(job: Sleeper, gathered: Lump, part: slice) -> Lump:
    await job.work(0.0, 0.0, 0.0, gathered)
    return Lump(part.stop - part.start, gathered.each, get_worker().address)


async def add_up(job: Sleeper, *parts: Lump) -> Lump:
    await job.work(parts[0].nbytes / 5e9 * (len(parts) - 1), 0.0, 0.0, parts)
    return replace(parts[0], where=get_worker().address)


def make_job(plan: Plan, settings: Settings, room: Room, options: argparse.Namespace) -> Sleeper:
    short, long = plan.short, plan.long
    blocks = {side: len(plan.places[side]) for side in SIDES}
    specs = generation_arrays({side: plan.cuts[side].rows for side in SIDES}, plan.blocks, settings)
    gathers = len(plan.shares) * blocks[short]
    few = pass_seconds(plan, START, short) / blocks[short]
    seconds = {
        "update_block": pass_seconds(plan, UPDATE) / blocks[long],
        "finish_block": pass_seconds(plan, FINISH) / blocks[long],
        "gather_statistics": pass_seconds(plan, GATHER) / gathers,
        "gather_sums": pass_seconds(plan, GATHER) / gathers,
        "gather_products": pass_seconds(plan, STEP) / gathers if plan.steps else 0.0,
        "direction": 0.0,
    } | dict.fromkeys(("weigh_block", "begin_block", "step_block", "settle_block", "solve_block"), few)
    shards = None if plan.shards is None else Shards.of(specs, plan.shards)
    rates = options.network, options.store
    return Sleeper(plan, room, settings, specs, seconds, options.before, *rates, shards=shards)


class Aside:
    """Counts what the event loop waits for that dask does in threads beside it: graphs and data being unpickled."""

    def __init__(self) -> None:
        self.waiting = 0

    def watch(self, executor: ThreadPoolExecutor) -> ThreadPoolExecutor:
        start = executor.submit

        def submit(*work: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            self.waiting += 1
            future = start(*work, **options)
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.call_soon, self.done))
            return future

        executor.submit = submit  # type: ignore[method-assign]
        return executor

    def done(self) -> None:
        time.sleep(0.002)  # the thread has still to tell dask
        self.waiting -= 1


ASIDE = Aside()
ASIDE.watch(distributed.utils._offload_executor)


class Jumping(selectors.DefaultSelector):
    """Where nothing is to be done while a graph is under way, the next one to wake is woken at once."""

    def select(self, timeout: float | None = None) -> Any:
        if not timeout:
            return super().select(timeout)
        if not CLOCK.busy:
            began = time.perf_counter()
            events = super().select(min(timeout, 0.02))
            passed = time.perf_counter() - began
            CLOCK.skipped, CLOCK.idle = CLOCK.skipped + passed, CLOCK.idle + passed
            return events
        if ASIDE.waiting:  # a thread unpickles a graph, say: that is no sleep
            return super().select(0.005)
        events = super().select(0)
        if not events:
            CLOCK.skipped += timeout
        return events


class Loop(asyncio.SelectorEventLoop):
    """An event loop by the clock that counts."""

    def time(self) -> float:
        return CLOCK.now()


class Timing(Scheduler):
    """A scheduler that takes its time over every task, and knows how quick the network is: dask would measure it."""

    @property
    def bandwidth(self) -> float:
        return CLOCK.network

    @bandwidth.setter
    def bandwidth(self, found: float) -> None:
        pass

    def handle_task_finished(self, *arguments: Any, **message: Any) -> None:
        CLOCK.skipped += CLOCK.task
        super().handle_task_finished(*arguments, **message)


class Simulated:
    """Runs graphs as `run/execute.Executor` does on a cluster, from a thread of its own."""

    def __init__(self, loop: Loop, client: Client, threads: int) -> None:
        self.loop, self.client, self.threads = loop, client, threads

    def hands(self) -> Hands:
        return Hands(self.threads)

    def seen(self, graph: Any, keys: list[str]) -> int:
        return len(keys)

    def run(self, nodes: dict[str, Any], keys: list[str], on_done: Any) -> list[Any]:
        return asyncio.run_coroutine_threadsafe(self._run(nodes, keys), self.loop).result()

    async def _run(self, nodes: dict[str, Any], keys: list[str]) -> list[Any]:
        CLOCK.busy = True
        try:
            futures = self.client.get(as_named(nodes), keys, sync=False)
            found = await self.client.gather(futures)
            for future in futures:
                future.release()
        finally:
            CLOCK.busy = False
        data = pickle.dumps(found)
        began = time.thread_time()
        results = pickle.loads(data)
        CLOCK.skipped += time.thread_time() - began
        return list(results)


def sweep(job: Sleeper, executor: Simulated, manifest: dict[str, Any]) -> tuple[float, dict[str, float], int, int]:
    """Seconds of a sweep and of its graphs, the tasks and the bytes that they had."""
    names = ("each", "update_each", "gather_each", "gather_steps", "pick", "add_up")
    kept = {name: getattr(tasks, name) for name in names}
    for name in names:
        setattr(tasks, name, globals()[name])
    kept_weights, steps.take_weights = steps.take_weights, take_weights
    taken: dict[str, float] = {}
    number = sent = 0

    class Timed(Passes):
        at = time.thread_time()

        def run(self, name: str, graph: Any, keys: list[str]) -> Any:
            nonlocal number, sent
            number += graph.tasks
            CLOCK.skipped += time.thread_time() - self.at
            began, at = CLOCK.counted(), time.thread_time()
            sent += len(pickle.dumps(graph.nodes))
            CLOCK.skipped += 2 * (time.thread_time() - at)
            found = super().run(name, graph, keys)
            taken[name], self.at = CLOCK.counted() - began, time.thread_time()
            return found

    try:
        began = CLOCK.counted()
        base = Background(job.plan.factors, np.ones(statistics_size(job.plan.factors)))
        old = seal(None, "generation-0", manifest, job.shards)  # type: ignore[arg-type]
        run = Timed(job, dict(manifest), executor, Progress(False, 1))  # type: ignore[arg-type]
        users = run.update("users", old, old, base, 1.0, Weights(None, 0.0))
        t = run.weigh("items", old, None, users.background, 1.0)
        new = run.written()
        items = run.update("items", old, new, users.background, 1.0, t)
        run.finish(run.written(), users.background, items.background, 1.0, {})
        CLOCK.skipped += time.thread_time() - run.at
        return CLOCK.counted() - began, taken, number, sent
    finally:
        for name, value in kept.items():
            setattr(tasks, name, value)
        steps.take_weights = kept_weights


def measure(options: argparse.Namespace, workers: int, factors: int) -> dict[str, Any]:
    if options.shape in PRESETS:
        users, items, pairs = PRESETS[options.shape]
    else:
        users, items, pairs = (round(float(number)) for number in options.shape.split(","))
    settings = Settings(factors=factors)
    part = options.part or (1 / 32 if options.before else 1.0)
    plan = Plan.of_shape(users, items, pairs, settings)
    if not options.before:
        plan = in_shards(plan, settings, Rates())
    room = make_room(plan, options.memory, 1, workers)
    if part < 1:  # the same blocks and shares, fewer of them: users and their pairs, and blocks of items
        cut, few = plan.cuts[plan.long], plan.cuts[plan.short]
        rows = max(1, round(cut.blocks * part)) * cut.block
        groups = max(1, round(few.groups * part**0.5))
        fewer = max(1, round(few.blocks * part**0.5)) * few.block
        cuts = {plan.long: replace(cut, rows=rows), plan.short: replace(few, rows=fewer, columns=groups * few.span)}
        plan = replace(plan, cuts=cuts, pairs=round(pairs * part))
    if options.before:
        room = replace(room, bundle=min(room.bundle, plan.places[plan.short].each))
    job = make_job(plan, settings, room, options)
    SITES.clear()
    listed = (key for spec in job.specs.values() for key in spec.keys()) if job.shards is None else job.shards.keys()
    manifest = dict.fromkeys(listed, (8, DIGEST))
    wall, taken, nodes, sent, came = 0.0, {}, 0, 0, 0

    async def run() -> None:
        nonlocal wall, taken, nodes, sent, came
        loop = asyncio.get_running_loop()
        async with Timing(protocol="inproc", dashboard_address=None, dashboard=False) as scheduler:
            crew = [Worker(scheduler.address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(workers)]
            await asyncio.gather(*crew)
            for worker in crew:
                ASIDE.watch(worker.executors["default"])  # for tasks that are no coroutines
            async with Client(scheduler.address, asynchronous=True) as client:
                executor = Simulated(loop, client, 0 if options.before else workers)
                wall, taken, nodes, sent = await asyncio.to_thread(sweep, job, executor, manifest)
                came = sum(here.came for here in SITES.values())
            await asyncio.gather(*(worker.close() for worker in crew))

    with dask.config.set(QUIET), asyncio.Runner(loop_factory=lambda: Loop(Jumping())) as runner:
        runner.run(run())
    arithmetic = sum(sweep_seconds(plan).values())
    line = {
        "shape": [users, items, pairs], "factors": factors, "workers": workers, "before": options.before, "part": part,
        "task": CLOCK.task, "tasks": nodes, "arithmetic": arithmetic, "wall": wall,
        "efficiency": arithmetic / (workers * wall), "graph_bytes": sent, "travelled": came,
        "read": sum(here.read for here in SITES.values()), "weighed_again": sum(here.again for here in SITES.values()),
        "store": options.store, "network": options.network, "memory": options.memory, "graphs": taken,
        "objects": len(manifest),
    }  # fmt: skip
    print(
        f"{'before' if options.before else 'after':6} {options.shape:14} K = {factors:3}, {workers:4} workers: "
        f"{nodes:8,} tasks"
        f"{f' of 1/{1 / part:.0f} of a sweep' if part < 1 else ''}, {arithmetic:9.1f} core-s, {wall:8.1f} s, "
        f"efficiency {line['efficiency']:6.1%}, {sent / 1e6:.0f} MB of graphs, "
        f"{came / 1e9:.1f} GB between workers, {line['read'] / 1e12:.2f} TB read, weights made again for "
        f"{line['weighed_again']} tasks, load {os.getloadavg()[0]:.1f}; "
        + ", ".join(f"{name} {seconds:.1f}" for name, seconds in line["graphs"].items()),
        flush=True,
    )
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1e9,1e7,1e11", help="users,items,pairs, or a preset of `ps.simulate`")
    parser.add_argument("--factors", default="64", help="K, several by commas")
    parser.add_argument("--workers", default="16,64,256,512")
    parser.add_argument("--memory", default="16GiB", help="budget of a worker")
    parser.add_argument("--before", action="store_true", help="one task a block")
    parser.add_argument("--part", type=float, help="of the blocks [default: all, before 1/32]")
    parser.add_argument("--task", type=float, default=0.8e-3, help="seconds of the scheduler, a task")
    parser.add_argument("--network", type=float, default=1e9, help="bytes a second into a worker")
    parser.add_argument("--store", type=float, default=0.0, help="bytes a second of a worker's store [default: free]")
    parser.add_argument("--name", default="cluster", help="of the file of results")
    parser.add_argument("--results", default="workflows/results")
    options = parser.parse_args()
    CLOCK.task, CLOCK.network = options.task, options.network
    logging.getLogger("distributed").setLevel(logging.ERROR)
    gc.disable()  # full collections of hundreds of schedulers' and workers' objects would be most of the real time
    lines = [
        measure(options, int(workers), int(factors))
        for factors in options.factors.split(",")
        for workers in options.workers.split(",")
    ]
    benchmarking.save(options.name, {"load": os.getloadavg()[0], "lines": lines}, options.results)
