"""Workers whose kernels sleep, and a sweep of the real graphs on them; `benchmark_cluster.py` says more."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from simulated_time import CLOCK, Loop

import numpy as np  # isort: skip
from dask.sizeof import sizeof
from distributed import Client, Worker, get_worker

from pairsym_dask.kernels.cold_gathered import cold_sums_size
from pairsym_dask.kernels.dots import span_of
from pairsym_dask.kernels.layout import padded_width, statistics_size
from pairsym_dask.kernels.outer import stride_of
from pairsym_dask.run.bundles import Hands
from pairsym_dask.run.placement import as_sent
from pairsym_dask.run.progress import Progress
from pairsym_dask.settings import SIDES, Settings
from pairsym_dask.store.arrays import Sealed
from pairsym_dask.store.commit import generation_arrays
from pairsym_dask.store.sharded import seal
from pairsym_dask.store.shards import Shards
from pairsym_dask.sweep import finish, steps, tasks
from pairsym_dask.sweep.background import Background
from pairsym_dask.sweep.costs import FINISH, GATHER, START, STEP, UPDATE, pass_seconds
from pairsym_dask.sweep.elbo import SideSums
from pairsym_dask.sweep.gathers import Weights
from pairsym_dask.sweep.graphs import Passes
from pairsym_dask.sweep.job import Job, is_scattered
from pairsym_dask.sweep.plan import Plan
from pairsym_dask.sweep.room import Room
from pairsym_dask.sweep.spread import table_traits
from pairsym_dask.sweep.steps import Gathering

AHEAD = True  # whether tasks read what comes next while they compute: pairs, and rows of the long side
KEPT = True  # whether the table of the short side stays from the end of a sweep to the beginning of the next
ROWS = True  # whether rows of the long side stay from the sums to the steps
FIXED = True  # whether t, which does not change, is found once a fit
DIGEST = "0" * 32
OVERHEAD = 1e-3  # seconds of a worker for any task; one that took no time at all would break dask's stealing of work
ENTRY = 100  # bytes of a manifest's entry as it travels


@dataclass(frozen=True)
class Lump:
    """Arrays of some blocks that are not there, and how large they are."""

    blocks: int
    each: int  # bytes

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
        self.shelf: dict[Any, float] = {}
        self.kept = self.read = self.came = 0.0
        self.whole: Any = None  # of which state of the short side it has the table
        self.rows: dict[Any, float] = {}  # bytes of the long side's rows that stay for the steps
        self.weights: dict[Any, float] = {}  # bytes of pairs' weights, by first block and groups
        self.met: dict[int, Any] = {}
        self.again = 0  # steps whose weights were not here
        self.leaves = self.arrives = 0.0  # when the last arrays that are on their way will have left, and come

    def get(self, key: Any, coded: float, decoded: float, limit: float) -> float:
        """Bytes to read for something that takes so many on the shelf."""
        if key in self.shelf:
            return 0.0
        self.put(key, decoded, limit)
        self.read += coded
        return coded

    def put(self, key: Any, decoded: float, limit: float) -> None:
        if self.kept + decoded <= limit and key not in self.shelf:
            self.shelf[key] = decoded
            self.kept += decoded

    def drop(self, key: Any) -> None:
        self.kept -= self.shelf.pop(key, 0.0)

    def given(self, things: Any) -> float:
        """Bytes that come to a task with its arguments, beside the arrays that its worker has fetched from others."""
        came = 0.0
        for thing in things:
            if isinstance(thing, list | tuple):
                came += self.given(thing)
            elif isinstance(thing, Gathering):
                came += self.given((thing.own, thing.its))
                if id(thing) not in self.met:
                    self.met[id(thing)] = thing
                    came += sum(logits.nbytes for logits in thing.logits if logits is not None)
            elif isinstance(thing, Sealed) and id(thing) not in self.met:
                self.met[id(thing)] = thing
                came += ENTRY * len(thing.manifest)
        self.came += came
        return came


class Receiving(Worker):
    """A worker that arrays come to, and leave, at the speed of the network, each way one after the other, while it
    computes. As dask has it, a worker that sends arrays to ten others is busy: who asks meanwhile takes what it wants
    from somebody who has got it since, or asks again later. What is small takes no time here, and keeps nobody busy."""

    sending = 0  # how many others

    async def get_data(self, comm: Any, keys: Any, who: str | None = None, serializers: Any = None) -> Any:
        size = sum(value.nbytes for key in keys if isinstance(value := self.data.get(key), Lump))
        if not size:
            return await super().get_data(comm, keys, who, serializers)
        if self.sending >= self.transfer_outgoing_count_limit:
            return {"status": "busy"}
        here, there = SITES[self.address], SITES.get(who or "", Site())  # who is no worker has a network of its own
        now = CLOCK.counted()
        here.leaves = max(now, here.leaves) + size / CLOCK.network
        there.arrives = max(now, there.arrives) + size / CLOCK.network
        there.came += size
        self.sending += 1
        try:
            await asyncio.sleep(max(here.leaves, there.arrives) - now)
            return await super().get_data(comm, keys, who, serializers)
        finally:
            self.sending -= 1


SITES: dict[str, Site] = {}
# By task: how many, seconds of arithmetic, store and network, bytes that came; when the first began and the last ended.
SPENT: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5 + [float("inf"), 0.0])


def site() -> Site:
    return SITES.setdefault(get_worker().address, Site())


async def spend(name: str, arithmetic: float, store: float, network: float, came: float) -> None:
    """Take the seconds of a task, and write them down."""
    spent = SPENT[name]
    for k, more in enumerate((1, arithmetic, store, network, came)):
        spent[k] += more
    spent[5] = min(spent[5], CLOCK.counted())
    await asyncio.sleep(OVERHEAD + arithmetic + store + network)  # in a thread it would stop no clock
    spent[6] = CLOCK.counted()


@dataclass(frozen=True)
class Sleeper:
    """A job whose kernels sleep: seconds of a step by the name of its task."""

    plan: Plan
    room: Room
    settings: Settings
    specs: dict[str, Any]
    seconds: dict[str, float]
    network: float
    store: float  # bytes a second
    sweep: int = 1
    storage: Any = field(default_factory=lambda: SimpleNamespace(url=""))
    shards: Shards | None = None
    turn: Any = None
    discount: Any = None
    tags: dict[str, Any] = field(default_factory=dict)
    part = Job.part

    @property
    def folder(self) -> str:
        return f"generation-{self.sweep}"

    async def work(self, name: str, seconds: float, first: float, beside: float, last: float, *given: Any) -> None:
        """Take so many seconds of arithmetic, and for bytes of the store before it, beside it and after it."""
        came = site().given(given)
        moved = (first + last) / self.store + max(0.0, beside / self.store - seconds)
        await spend(name, seconds, moved, came / self.network, came)

    @property
    def row(self) -> float:
        """Bytes that a row of a table is made of."""
        return (table_traits(self.plan) + 2) * self.plan.itemsize + 8.0

    @property
    def scattered(self) -> bool:
        return is_scattered(self.plan, self.room)

    def row_pairs(self, side: str) -> np.ndarray:
        return np.full(self.plan.cuts[side].blocks, self.plan.pairs / self.plan.cuts[side].blocks)

    def rows(self, side: str) -> float:
        """Of a block."""
        return self.plan.cuts[side].rows / len(self.plan.places[side])

    def written(self, side: str) -> float:
        """Bytes of a new block."""
        return self.rows(side) * ((2 * self.plan.factors + 2) * self.plan.itemsize + 16)

    def numbers(self, name: str, last: bool = False) -> int:
        """Bytes that a block of the short side has gathered, or of what becomes of it."""
        plan, width = self.plan, padded_width(self.plan.factors)
        cold = plan.cold(self.settings)
        if name == "gather_products":
            numbers = 1 if cold and last else stride_of(width)
        elif name == "standing":
            numbers = 5 * stride_of(width) + plan.factors + 4
        elif name == "direction":
            numbers = span_of(plan.factors) if cold else stride_of(width)
        else:
            numbers = cold_sums_size(plan.factors) if plan.steps and cold else plan.row_numbers
        return plan.blocks[plan.short] * numbers * plan.itemsize

    def table(self, state: str) -> float:
        """Bytes to read for the table of all the short side in a state, if the worker has another one."""
        here = site()
        if here.whole == state:
            return 0.0
        here.whole, here.rows = state, {}
        here.read += self.row * self.plan.cuts[self.plan.short].rows
        return self.row * self.plan.cuts[self.plan.short].rows

    async def blocks(self, name: str, side: str, blocks: Any, given: Any) -> None:
        """Blocks of the long side: their pairs and rows are read, and the table of all the short side."""
        plan, here, limit = self.plan, site(), 0 if self.scattered else self.room.cache
        tables = 0 if self.scattered else self.room.tables
        n, pairs = self.rows(side), plan.pairs / len(plan.places[side])
        update = name == "update_block"
        moved = []
        for block in blocks:
            read = here.get(("pairs", side, block), 5 * pairs, (4 + plan.count_bytes) * pairs, limit)
            state = self.sweep - update
            moved.append(read + here.get(("table", side, block, state), self.row * n, plan.table_row * n, tables))
            if update:
                here.drop(("table", side, block, state))
                here.put(("table", side, block, self.sweep), plan.table_row * n, tables)
        whole = self.table(f"{self.sweep - update}" if KEPT else f"{self.sweep - update} in {self.sweep}")
        written = self.written(side) if update else 8 * n
        ends = min(len(blocks), (plan.shards or {}).get(side, 1)) * written  # a shard that the task waits for
        read = sum(moved)
        first = whole + (moved[0] if AHEAD else read)
        beside = read - moved[0] if AHEAD else 0.0
        await self.work(
            name, self.seconds[name] * len(blocks), first, beside + written * len(blocks) - ends, ends, given
        )

    def groups(self, shares: range) -> range:
        """Of columns, that some shares go through."""
        return range(self.plan.shares[shares[0]].start, self.plan.shares[shares[-1]].stop)

    async def gather(
        self, name: str, shares: range, bundle: range, given: Any, weighed: bool = False, last: bool = False
    ) -> Lump:
        plan, here = self.plan, site()
        part = len(shares) * len(bundle) / (len(plan.shares) * len(plan.places[plan.short]))
        own, pairs = len(bundle) * self.rows(plan.short), plan.pairs * part
        users = plan.cuts[plan.short].columns * len(shares) / len(plan.shares)
        kept, tables = (0, 0) if self.scattered else (self.room.cache, self.room.tables)
        if self.room.bundle > 1:
            here.whole = None  # sums for many blocks take its place
        rows = here.get(("tables", shares, self.sweep), self.row * users, plan.table_row * users, tables)
        limit = self.room.rows(len(bundle)) if ROWS and self.scattered and plan.steps else 0
        known = here.rows.get(shares, 0.0)
        here.read -= known
        here.rows[shares] = known or min(rows, max(0.0, limit - sum(here.rows.values())))
        rows -= known
        moved = here.get(("tile", bundle, shares), 5 * pairs, (4 + plan.count_bytes) * pairs, kept)
        seconds, groups = self.seconds[name] * len(shares) * len(bundle), self.groups(shares)
        first = moved / (len(groups) * len(bundle)) if AHEAD else moved  # what the first block meets is waited for
        beside = rows + moved - first
        if name == "gather_products" and not weighed:
            here.again += 1
            seconds += (self.seconds["gather_sums"] - self.seconds[name]) * len(shares) * len(bundle)
            beside += own * self.row
        elif name != "gather_products":
            beside += own * self.row
            kept = plan.itemsize * pairs
            if plan.steps and here.kept + sum(here.weights.values()) + kept <= self.room.cache:
                here.weights[bundle[0], groups] = kept
        await self.work(name, seconds, first, beside, 0.0, given)
        return Lump(len(bundle), self.numbers(name, last))


# The tasks of a cluster, as `sweep/tasks.py` has them.


async def each(job: Sleeper, task: Any, own: tuple[int, ...], *arguments: Any) -> Any:
    blocks, name, short = arguments[own[-1]], task.__name__, job.plan.short
    if name in ("update_block", "finish_block"):
        await job.blocks(name, job.plan.long, blocks, arguments)
    else:
        written = job.written(short) if name in ("settle_block", "solve_block") else 0.0
        read = job.rows(short) * job.row if name in ("begin_block", "solve_block") else 0.0
        many = len(blocks)
        await job.work(
            name, job.seconds[name] * many, read * many, written * (many - 1), written, arguments
        )  # fmt: skip
    if name in ("begin_block", "step_block"):
        return Lump(len(blocks), job.numbers("standing"))
    if name == "direction":
        return Lump(len(blocks), job.numbers("direction"))
    if name == "weigh_block":
        rows = job.plan.blocks[arguments[0]]
        return [(np.zeros(rows), tasks.Normaliser(0.0, 1.0)) for _ in blocks]
    if name == "finish_block":
        ones = np.ones(len(blocks))
        written = entries(job, [job.specs["users/next"]], blocks)
        return finish.Finished(written, ones, ones, np.stack([ones, ones], 1), np.stack([ones] * 3, 1))
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


update_each = finish_each = each


async def gather_each(job: Sleeper, task: Any, shares: range, *arguments: Any) -> Any:
    bundle = next(argument for argument in reversed(arguments) if isinstance(argument, range))
    return await job.gather(task.__name__, shares, bundle, arguments)


async def gather_steps(
    job: Sleeper, task: Any, shares: range, its: Any, what: Any, pieces: Any = (), last: bool = False, taken: Any = None
) -> Any:
    return await job.gather(task.__name__, shares, what.blocks, (its, what, pieces, taken), bool(taken), last)


async def take_weights(kept: steps.Kept, gathered: Lump) -> Lump:
    here = site().weights.pop((kept.parts[0], kept.groups), 0.0)
    await spend("take_weights", 0.0, 0.0, 0.0, 0.0)
    return Lump(int(here > 0), round(here))


async def pick(gathered: Lump, part: slice) -> Lump:
    await spend("pick", 0.0, 0.0, 0.0, 0.0)
    return Lump(part.stop - part.start, gathered.each)


async def pass_on(what: Lump) -> Lump:
    await spend("pass_on", 0.0, 0.0, 0.0, 0.0)
    return what


async def add_up(job: Sleeper, *parts: Lump) -> Lump:
    await job.work("add_up", parts[0].nbytes / 5e9 * (len(parts) - 1), 0.0, 0.0, 0.0, parts)
    return parts[0]


def make_job(plan: Plan, settings: Settings, room: Room, network: float, store: float) -> Sleeper:
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
    return Sleeper(plan, room, settings, specs, seconds, network, store, shards=shards)


class Simulated:
    """Runs graphs as `run/execute.Executor` does on a cluster, from a thread of its own."""

    def __init__(self, loop: Loop, client: Client, threads: int) -> None:
        self.loop, self.client, self.threads = loop, client, threads

    def hands(self) -> Hands:
        return Hands(self.threads, slots=tuple(sorted(SITES)))

    def seen(self, graph: Any, keys: list[str]) -> int:
        return len(keys)

    def run(self, nodes: dict[str, Any], keys: list[str], on_done: Any, workers: dict[str, str]) -> list[Any]:
        return asyncio.run_coroutine_threadsafe(self._run(as_sent(nodes, workers), keys), self.loop).result()

    async def _run(self, graph: Any, keys: list[str]) -> list[Any]:
        CLOCK.busy = True
        try:
            futures = self.client.get(graph, keys, sync=False)
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


@dataclass
class Sweep:
    """What a sweep took."""

    wall: float = 0.0
    graphs: dict[str, float] = field(default_factory=dict)  # seconds of each
    spent: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # of each graph, see SPENT
    tasks: int = 0
    sent: int = 0  # bytes of graphs


def run_sweep(job: Sleeper, executor: Simulated, manifest: dict[str, Any]) -> Sweep:
    """A sweep of the real graphs, whose tasks are those of this module."""
    places = [
        (tasks, name) for name in ("each", "update_each", "gather_each", "gather_steps", "pick", "pass_on", "add_up")
    ]
    places += [(steps, "take_weights"), (finish, "finish_each")]
    kept = [getattr(*place) for place in places]
    for place in places:
        setattr(*place, globals()[place[1]])
    took = Sweep()

    class Timed(Passes):
        at = time.thread_time()

        def run(self, name: str, graph: Any, keys: list[str]) -> Any:
            took.tasks += graph.tasks
            CLOCK.skipped += time.thread_time() - self.at
            began, at = CLOCK.counted(), time.thread_time()
            arrays: list[pickle.PickleBuffer] = []  # travel beside what is pickled, as dask has them
            pickled = pickle.dumps((graph.nodes, graph.workers), protocol=5, buffer_callback=arrays.append)
            took.sent += len(pickled) + sum(array.raw().nbytes for array in arrays)
            CLOCK.skipped += 2 * (time.thread_time() - at)
            SPENT.clear()
            found = super().run(name, graph, keys)
            took.spent[name] = {task: [*spent[:5], spent[5] - began, spent[6] - began] for task, spent in SPENT.items()}
            took.graphs[name], self.at = CLOCK.counted() - began, time.thread_time()
            return found

    try:
        began = CLOCK.counted()
        base = Background(job.plan.factors, np.ones(statistics_size(job.plan.factors)))
        old = seal(None, f"generation-{job.sweep - 1}", manifest, job.shards)  # type: ignore[arg-type]
        run = Timed(job, dict(manifest), executor, Progress(False, 1))  # type: ignore[arg-type]
        users = run.update("users", old, old, base, 1.0, Weights(None, 0.0))
        if FIXED:
            rows = (place.stop - place.first for place in job.plan.places["items"])
            t = Weights([np.zeros(n) for n in rows], 0.0)
        else:
            t = run.weigh("items", old, None, users.background, 1.0)
        new = run.written()
        items = run.update("items", old, new, users.background, 1.0, t)
        run.finish(run.written(), users.background, items.background, 1.0, {})
        CLOCK.skipped += time.thread_time() - run.at
        took.wall = CLOCK.counted() - began
        return took
    finally:
        for place, value in zip(places, kept, strict=True):
            setattr(*place, value)
