"""What a sweep will take on a machine or a cluster: tasks, seconds, objects and bytes, from the plan and some rates."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, MemoryBudgetError
from ..kernels.layout import statistics_size
from ..run.bundles import ARITY, TASK_SECONDS, Hands
from ..settings import SIDES, Settings
from ..store.commit import generation_arrays
from ..store.model_store import ModelStore
from ..store.shards import Shards, choose_runs, many_files
from ..sweep.costs import FINISH, GATHER, SELECT, STEP, UPDATE, pass_seconds, sweep_seconds
from ..sweep.fit import fit
from ..sweep.plan import COLD, Plan
from ..sweep.room import Room, block_bytes, make_room
from ..sweep.spread import gather_reads, spread, table_read

ENTRY = 100  # bytes of a manifest's entry as it travels, and in a commit record
RECORD = 1500  # bytes of a commit record beside its files and backgrounds
AT_ONCE = 8  # calls to the store that a worker has under way
SAMPLE = 400_000  # pairs that are fitted to find a machine's speed


@dataclass(frozen=True)
class Rates:
    """What a core, a scheduler, a network and a store can do."""

    speed: float = 1.0  # of a core, against the one that the cost model was fitted on
    task: float = TASK_SECONDS  # seconds of the scheduler's core, a task
    network: float = 1e9  # bytes a second into a worker
    read: float = 1e9  # bytes a second from the store, a worker
    write: float = 0.8e9  # on top of what is written while kernels run
    commit: float = 0.08  # seconds of a sweep whatever its size: graphs, fsyncs, the record
    call: float = 1e-3  # seconds of a call to the store: 0.1 on S3
    writes: float = 1e6  # objects a second that the store takes in all: 3500 on S3, by prefix

    @property
    def far(self) -> bool:
        """Whether the store is no disk: calls take longer than work on a disk does."""
        return self.call > 2e-3

    @staticmethod
    def given(words: dict[str, Any], base: Rates | None = None) -> Rates:
        """Rates by name, the others as they were."""
        base = base or Rates()
        known = {field.name for field in fields(Rates)}
        for name, value in words.items():
            if name not in known:
                raise InputError(f"no rate {name!r}; there are: {', '.join(sorted(known))}")
            if not value > 0:
                raise InputError(f"the rate {name} must be above 0, not {value!r}")
        return replace(base, **words)


@dataclass(frozen=True)
class Projection:
    """What one sweep takes; seconds are of the whole cluster, by what takes them."""

    workers: int  # processes; 0 is this one alone
    threads: int  # of each
    tasks: int
    arithmetic: float
    scheduler: float
    network: float
    store: float
    objects: int  # that a sweep writes
    read: float  # bytes
    written: float
    record: int  # bytes of its commit record
    travelling: float  # bytes between workers, and from and to the driver
    memory: int  # projected peak of a process, above an idle interpreter

    @property
    def seconds(self) -> float:
        """Of a sweep: the scheduler works while workers do, the rest follows one upon the other."""
        return max(self.scheduler, self.arithmetic + self.network + self.store)

    @property
    def limit(self) -> str:
        """What takes longest."""
        parts = ("arithmetic", "scheduler", "network", "store")
        return max(parts, key=lambda name: getattr(self, name))


def in_shards(plan: Plan, settings: Settings, rates: Rates) -> Plan:
    """The plan with the layout that a new store would have."""
    specs = generation_arrays({side: plan.cuts[side].rows for side in SIDES}, plan.blocks, settings)
    return replace(plan, shards=choose_runs(specs, plan.long)) if rates.far or many_files(specs) else plan


def project(plan: Plan, settings: Settings, memory: Any, workers: int, threads: int, rates: Rates) -> Projection:
    """A sweep of a plan on so many workers of so many threads, each process with a memory budget."""
    room = make_room(plan, memory, threads, max(workers, 1))
    slots = max(workers, 1) * threads
    hands = Hands(slots if workers else 0)
    passes, tasks, travelling = _passes(plan, room, hands)
    arithmetic = sum(-(-n // slots) * seconds / n for n, seconds in passes) / rates.speed
    rows = {side: plan.cuts[side].rows for side in SIDES}
    specs = generation_arrays(rows, plan.blocks, settings)
    listed = sum(spec.count for spec in specs.values()) + len(specs) + len(SIDES) + 1  # metadata of arrays and groups
    record = listed * ENTRY
    if plan.shards is not None:
        listed, record = Shards.of(specs, plan.shards).count + 1, 0
    objects = listed + (plan.shards is not None)  # the list of shards is one, too
    record += RECORD + 2 * 8 * statistics_size(plan.factors) * 4 // 3
    kept = plan.table_bytes() + plan.short_tiles_bytes()
    crew = max(workers, 1)
    read, beside = _reads(plan, room, hands, crew)
    written = float(plan.generation_bytes())
    # On a cluster tasks read what comes next while they compute.
    hidden = min(beside / crew / rates.read, arithmetic) if workers else 0.0
    store = read / crew / rates.read - hidden + written / crew / rates.write + rates.commit
    store += max(objects * rates.call / (crew * AT_ONCE), objects / rates.writes) if rates.far else 0.0
    travelling += (3 * listed * ENTRY) if workers else 0
    network = travelling / crew / rates.network if workers else 0.0
    peak = plan.peak_bytes(room.tasks, crew) + min(room.cache, kept + (plan.pairs * 5 if room.cache > kept else 0))
    if not workers:
        peak += (room.bundle - 1) * block_bytes(plan, room.tasks, 1)
    return Projection(
        workers, threads, tasks, arithmetic, tasks * rates.task if workers else 0.0, network, store, objects, read,
        written, record, travelling, min(peak, room.budget),
    )  # fmt: skip


def _passes(plan: Plan, room: Room, hands: Hands) -> tuple[list[tuple[int, float]], int, float]:
    """Tasks and core-seconds of every pass of a sweep; tasks of all graphs; bytes that travel between workers."""
    long, short = len(plan.places[plan.long]), len(plan.places[plan.short])
    passes = [
        (len(hands.bundles(long, pass_seconds(plan, kind), plan.least(plan.long))), pass_seconds(plan, kind))
        for kind in (UPDATE, FINISH)
    ]
    if not plan.xi_star_last:
        passes.append((plan.cuts[plan.short].tiles, pass_seconds(plan, SELECT)))
    if plan.whole[plan.short]:
        passes.append((len(hands.bundles(short, pass_seconds(plan, GATHER))), pass_seconds(plan, GATHER)))
        return passes, sum(n for n, _ in passes), 0.0
    how = spread(plan, room, hands)
    pieces = sum(len(how.pieces(bundle)) for bundle in how.bundles)
    gathers, rounds = len(how.bundles) * len(how.shares), 1 + plan.short_steps
    arity = ARITY if hands.threads else 2
    adds, left = 0, len(how.shares)
    while left > 1:
        left = -(-left // arity)
        adds += left
    cut = pieces > len(how.bundles)
    picks = pieces * len(how.shares) if cut else 0
    passes.append((gathers, pass_seconds(plan, GATHER)))
    if plan.steps:
        passes += [(gathers, pass_seconds(plan, STEP))] * plan.short_steps
    tasks = sum(n for n, _ in passes) + rounds * (picks + pieces * (adds + (2 if plan.steps else 1)))
    if plan.steps and hands.threads:
        tasks += gathers  # that say where weights are
        relays = len(how.relays()) if how.placed(hands.threads) else 1
        tasks += plan.short_steps * pieces * (relays if relays > 1 else 0)  # that pass directions on
    if plan.steps and plan.stepping == COLD:  # the last products are added up before they are cut
        tasks -= picks - pieces * cut + (pieces - len(how.bundles)) * adds
    sums = plan.statistics_bytes() * short * (len(how.shares) - 1)
    # Directions and products are smaller.
    travelling = float(sums * (1 + plan.short_steps / 2)) if hands.threads else 0.0
    return passes, tasks, travelling


def _reads(plan: Plan, room: Room, hands: Hands, crew: int) -> tuple[float, float]:
    """Bytes that a sweep reads of the store, all workers together, and those of them read beside arithmetic.

    Every process waits for the short side's new table, once: it begins the next sweep with it.
    """
    kept, pairs = plan.table_bytes() + plan.short_tiles_bytes(), 5.0 * plan.pairs
    if crew == 1 and room.cache >= kept + pairs:
        return 0.0, 0.0  # what a sweep reads is still there from the one before
    long = table_read(plan)
    row = long / plan.cuts[plan.long].rows
    shared = crew * row * plan.cuts[plan.short].rows
    looks = 1.0 if room.cache * crew >= kept + pairs else 2.0 + (1 + plan.short_steps)  # at pairs, and finish at tables
    tables = long if room.cache * crew >= kept + pairs else 2 * long
    if plan.whole[plan.short]:
        again = long * len(plan.places[plan.short]) if plan.table_bytes() > room.tables else 0.0
    else:
        again = sum(gather_reads(plan, room, len(spread(plan, room, hands).bundles), crew))
    beside = tables + looks * pairs + again
    return shared + beside, beside


def cheapest(
    plan: Plan, settings: Settings, memory: Any, threads: int, rates: Rates, seconds: float
) -> Projection | None:
    """The least cluster that does a sweep in so many seconds; None where none of up to 4,096 workers does."""
    for power in range(13):
        try:
            found = project(plan, settings, memory, 2**power, threads, rates)
        except MemoryBudgetError:  # more of them have less to hold
            continue
        if found.seconds <= seconds:
            return found
    return None


def measure(plan: Plan, settings: Settings) -> Rates:
    """Rates of the machine at hand: a core by two small fits of the same K, a disk by a file.

    How much longer the sweeps of the larger one are is the core's; what they take whatever their size is the commit's.
    """
    with tempfile.TemporaryDirectory(prefix="pairsym-measure-") as folder:
        few, many = (_small_fit(plan, settings, times, f"{folder}/{times}") for times in (1, 4))
        data, path = os.urandom(2**20), Path(folder) / "file"
        began = time.perf_counter()
        with path.open("wb") as file:
            for _ in range(64):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        write = 64 * 2**20 / (time.perf_counter() - began)
        began = time.perf_counter()
        path.read_bytes()
        read = 64 * 2**20 / (time.perf_counter() - began)
    speed = (many[0] - few[0]) / max(many[1] - few[1], 0.1 * many[1])
    return Rates(speed=speed, write=write, read=read, commit=max(few[1] - few[0] / speed, 1e-3))


def _small_fit(plan: Plan, settings: Settings, times: int, folder: str) -> tuple[float, float]:
    """Seconds of a sweep on one core of a fit to so many times a few pairs: by the cost model, and as measured."""
    from ..pairs.simulate import simulate

    share = min(1.0, SAMPLE / plan.pairs)
    long = times * max(2000, round(plan.cuts[plan.long].rows * share))
    sizes = {plan.long: long, plan.short: min(plan.cuts[plan.short].rows, max(500, long // 10))}
    pairs = times * max(1000, round(plan.pairs * share))
    users, items = (sizes[side] for side in SIDES)
    counts = simulate(f"{folder}/counts.zarr", users=users, items=items, pairs=min(pairs, users * items // 4))
    seconds: list[float] = []
    fit(
        counts, settings, ModelStore(f"{folder}/model.zarr"), sweeps=5, threads=1,
        callback=lambda sweep, bound, took: seconds.append(took),
    )  # fmt: skip
    return sum(sweep_seconds(Plan.make(counts, settings)).values()), min(seconds[1:])
