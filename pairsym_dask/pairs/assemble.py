"""From pairs in any order to a counts store: group by the long side, add up, write the tiles of both orders.

Pairs come as *pieces* (row numbers in scratch, in any order). They are spread over ranges of the long side's rows,
each range is sorted and added up into a *run*, and once the number of distinct pairs is known the tiles are cut
from the runs: the long side's directly, the short side's from a second spreading by its blocks. No step holds
more than a few million pairs a task.
"""

from __future__ import annotations

import bisect
import functools
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

from ..errors import MemoryBudgetError
from ..kernels.keys import LOW, SHIFT, add_up, order_by_part, row_lengths, sum_rows, turn
from ..run.execute import Executor
from ..run.memory import parse_memory
from ..run.progress import duration
from ..settings import SIDES, other
from ..store.counts import MARK, Counts
from ..store.counts_writer import finish, write_tile
from ..store.cuts import Layout, Tile
from ..store.scratch import Scratch, Stored
from ..store.storage import Storage

ROWS = 2**20  # pairs a task, at most about
LEAST_ROWS = 2**14
ROW_BYTES = 384  # memory a task takes for each of its pairs, labels, copies and what allocators keep included


class Steps:
    """Runs the steps of one writing, each a batch of independent tasks, and shows them."""

    def __init__(self, client: Any, threads: int | None, memory: Any, progress: bool) -> None:
        self.executor = Executor(client, threads)
        self.attempt = uuid.uuid4().hex[:8]  # in names of keys and folders: a cluster may still run an older attempt's
        self.progress = progress
        self.done = 0  # steps
        budget, self.tasks = self.executor.resources(memory)
        self.rows = rows_a_task(budget, self.tasks)

    def scratch(self, storage: Storage) -> Scratch:
        """Scratch beside a store that was begun; workers that do not see it are an error."""
        self.executor.check_workers([(storage, MARK)])
        return Scratch(storage, f"scratch-{self.attempt}")

    def run(self, step: str, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Results of `function(*arguments)` for every task, in order."""
        graph: dict[Any, Any] = {}
        for k, task in enumerate(tasks):
            graph[self.key(step, k)] = (self.task(function, *task),)
        return self.run_graph(step, graph, list(graph))

    def key(self, step: str, k: int) -> str:
        """A task's name; no two steps share one, because a cluster would take the second task for the first."""
        return f"{step}-{self.attempt}-{self.done}-{k}"

    def task(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """A call whose arguments dask does not look into, and that waits for its turn within the memory budget."""
        return functools.partial(_in_turn, self.tasks, function, *arguments)

    def run_graph(self, step: str, graph: dict[Any, Any], keys: list[str]) -> list[Any]:
        began, wanted, done = time.perf_counter(), set(keys), 0
        terminal = self.progress and sys.stderr.isatty()

        def count(key: Any) -> None:
            nonlocal done
            done += key in wanted
            if terminal:
                print(f"\r{step} {done}/{len(keys)}", end="", file=sys.stderr, flush=True)

        results = self.executor.run(graph, keys, count)
        self.done += 1
        if self.progress:
            start = "\r" if terminal else ""
            print(f"{start}{step}: {len(keys)} tasks, {duration(time.perf_counter() - began)}", file=sys.stderr)
        return results


_slots: dict[int, threading.BoundedSemaphore] = {}
_slots_lock = threading.Lock()


def _in_turn(tasks: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function while at most `tasks` such calls are under way in this process."""
    with _slots_lock:
        slot = _slots.setdefault(tasks, threading.BoundedSemaphore(tasks))
    with slot:
        return function(*arguments)


def rows_a_task(memory: Any, tasks: int) -> int:
    """Pairs that each of `tasks` tasks under way may hold within a memory budget.

    >>> rows_a_task("1GiB", 2), rows_a_task("64MiB", 2)
    (1048576, 87381)
    """
    budget = parse_memory(memory)
    if budget is None:  # half of what is free now
        budget = max(psutil.virtual_memory().available // 2, tasks * LEAST_ROWS * ROW_BYTES)
    rows = budget // (tasks * ROW_BYTES)
    if rows < LEAST_ROWS:
        raise MemoryBudgetError(
            f"a memory budget of {budget} bytes is too small: {tasks} tasks x {LEAST_ROWS} pairs x {ROW_BYTES} bytes "
            f"= {tasks * LEAST_ROWS * ROW_BYTES} bytes"
        )
    return min(ROWS, rows)


@dataclass(frozen=True)
class Side:
    """Row numbers of one side's symbols in a piece: codes, and what each code means (nothing: the row itself)."""

    codes: Stored
    rows: tuple[tuple[Stored, Stored], ...] | None = None  # consecutive codes' places in tables of row numbers

    def read(self, scratch: Scratch) -> np.ndarray:
        codes = scratch.read(self.codes)
        if self.rows is None:
            return codes
        table = np.concatenate([scratch.read(rows)[scratch.read(places)] for places, rows in self.rows])
        return np.asarray(table[codes])


@dataclass(frozen=True)
class Piece:
    """Some pairs, in any order, with repetitions."""

    sides: dict[str, Side]
    counts: Stored | None  # None: one each


@dataclass(frozen=True)
class Spread:
    """Keys (within their range) and counts of a piece, range by range."""

    keys: Stored
    counts: Stored | None
    offsets: np.ndarray


@dataclass(frozen=True)
class Run:
    """Distinct pairs of a range of the long side's rows, in order; keys count rows from the range's first."""

    first: int
    rows: int
    keys: Stored
    counts: Stored | None  # None: one each
    lengths: Stored
    largest: float
    whole: bool


@dataclass(frozen=True)
class Stretch:
    """Consecutive pairs of a run."""

    first: int  # of the run
    keys: Stored
    counts: Stored | None
    lengths: Stored


@dataclass(frozen=True)
class Written:
    """What a task that wrote tiles has to tell: entries of the manifest, and sums of counts row by row."""

    entries: list[Any]
    sums: np.ndarray
    pairs: int


@dataclass(frozen=True)
class Turned:
    """Pairs of consecutive tiles of the long side, by blocks of the short side."""

    keys: Stored
    counts: Stored | None
    offsets: np.ndarray

    def block(self, block: int) -> tuple[Stored, Stored | None]:
        part = slice(int(self.offsets[block]), int(self.offsets[block + 1]))
        return self.keys[part], None if self.counts is None else self.counts[part]


def long_side(users: int, items: int) -> str:
    """The side whose rows runs are ranges of; the one that `make_cuts` cuts into whole rows."""
    return "users" if users >= items else "items"


def make_ranges(pairs_a_row: np.ndarray, pairs: int) -> np.ndarray:
    """Starts of ranges of rows, the end included, with about so many pairs each.

    >>> make_ranges(np.array([3, 1, 1, 9, 1]), 4)
    array([0, 2, 3, 4, 5])
    """
    ends = np.cumsum(pairs_a_row, dtype=np.int64)
    total = int(ends[-1])
    cuts = np.searchsorted(ends, np.arange(1, -(-total // pairs), dtype=np.int64) * pairs, side="left") + 1
    heavy = np.flatnonzero(pairs_a_row >= pairs)  # a row of its own, not on top of others
    return np.unique(np.concatenate([[0], cuts, heavy, heavy + 1, [ends.size]]))


def spread_pairs(scratch: Scratch, key: str, piece: Piece, long: str, starts: np.ndarray) -> Spread:
    """Task: bring a piece's pairs of the same range together."""
    rows, columns = piece.sides[long].read(scratch), piece.sides[other(long)].read(scratch)
    part = np.searchsorted(starts, rows, side="right") - 1
    order, offsets = order_by_part(part, starts.size - 1)
    keys = (rows - starts[part]).astype(np.uint64)
    keys <<= SHIFT
    keys |= columns.astype(np.uint64)
    arrays = [keys[order]]
    if piece.counts is not None:
        arrays.append(scratch.read(piece.counts)[order])
    stored = scratch.write(key, *arrays)
    return Spread(stored[0], stored[1] if len(stored) > 1 else None, offsets)


def group_pairs(scratch: Scratch, key: str, first: int, rows: int, parts: list[Any], exact: bool, limit: int) -> Run:
    """Task: sort and add up the pairs of a range; `exact` when all counts are whole and their sums too."""
    held: list[tuple[np.ndarray, np.ndarray | None]] = []
    size = 0
    for keys, counts in parts:
        held.append((scratch.read(keys), None if counts is None else scratch.read(counts)))
        size += keys.size
        if exact and size > limit:  # a heavy row: what is there is added up before more is read
            held = [add_up(*_joined(held, exact))]
            size = held[0][0].size
            limit = max(limit, 2 * size)
    joined = _joined(held, exact)
    held.clear()
    return write_run(scratch, key, first, rows, *add_up(*joined))


def _joined(held: list[tuple[np.ndarray, np.ndarray | None]], exact: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Keys and counts in one array each; no counts where all are one."""
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in held)])
    if all(counts is None for _, counts in held):
        return keys, None
    values = [np.ones(keys.size, np.uint8) if counts is None else counts for keys, counts in held]
    return keys, np.concatenate(values, dtype=np.int64 if exact else np.float64, casting="unsafe")


def write_run(scratch: Scratch, key: str, first: int, rows: int, keys: np.ndarray, counts: np.ndarray) -> Run:
    """Put a run aside: distinct keys in order, rows counted from `first`."""
    largest = float(counts.max(initial=0))
    whole = counts.dtype.kind in "iu" or bool(largest < 2**53 and (counts == np.floor(counts)).all())
    arrays = [row_lengths(keys, rows), keys]
    if not (whole and largest == 1):
        arrays.append(counts.astype(np.min_scalar_type(int(largest))) if whole else counts)
    stored = scratch.write(key, *arrays)
    return Run(first, rows, stored[1], stored[2] if len(stored) > 2 else None, stored[0], largest, whole)


def _load(scratch: Scratch, keys: Stored, counts: Stored | None, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.ones(keys.size, dtype) if counts is None else scratch.read(counts).astype(dtype, copy=False)
    return scratch.read(keys), values


def write_long_tiles(
    scratch: Scratch, key: str, layout: Layout, long: str, blocks: range, stretches: list[Stretch]
) -> tuple[Written, Turned]:
    """Task: write consecutive tiles of the long side, and put their pairs aside by blocks of the short side."""
    loaded = [_load(scratch, part.keys, part.counts, layout.count_dtype) for part in stretches]
    for (keys, _), part in zip(loaded, stretches, strict=True):
        keys += np.uint64(part.first) << SHIFT
    keys = np.concatenate([keys for keys, _ in loaded])
    counts = np.concatenate([counts for _, counts in loaded])
    del loaded
    lengths = np.concatenate([scratch.read(part.lengths) for part in stretches])
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = (keys & LOW).astype(np.uint32)
    cut = layout.cuts[long]
    begin = cut.row_range(blocks.start)[0]
    entries = []
    for block in blocks:
        first, stop = (row - begin for row in cut.row_range(block))
        pairs = slice(indptr[first], indptr[stop])
        tile = Tile(indptr[first : stop + 1] - indptr[first], indices[pairs], counts[pairs])
        entries += write_tile(scratch.storage, layout, long, block, 0, tile)
    written = Written(entries, sum_rows(indptr, counts), keys.size)
    short = layout.cuts[other(long)]
    offsets = np.array([0, keys.size])
    if short.blocks > 1:
        order, offsets = order_by_part(indices // np.uint32(short.block), short.blocks)
        keys, counts = keys[order], counts[order]
    ones = all(part.counts is None for part in stretches)
    stored = scratch.write(key, keys) if ones else scratch.write(key, keys, counts)
    return written, Turned(stored[0], None if ones else stored[1], offsets)


def write_short_tile(
    scratch: Scratch, layout: Layout, side: str, block: int, group: int, parts: list[tuple[Stored, Stored | None]]
) -> Written:
    """Task: write one tile of the short side from the pairs of its span of the long side, which come in order."""
    loaded = [_load(scratch, keys, counts, layout.count_dtype) for keys, counts in parts]
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in loaded)])
    counts = np.concatenate([np.empty(0, layout.count_dtype), *(counts for _, counts in loaded)])
    del loaded
    first, stop = layout.cuts[side].row_range(block)
    tile = Tile(*turn(keys, counts, first, stop - first))
    entries = write_tile(scratch.storage, layout, side, block, group, tile)
    return Written(entries, sum_rows(tile.indptr, tile.counts), keys.size)


def group_pieces(
    steps: Steps, scratch: Scratch, long: str, pieces: list[Piece], pairs_a_row: np.ndarray, exact: bool
) -> list[Run]:
    """Runs from pieces; `pairs_a_row` counts the pieces' pairs, repetitions included, for the long side's rows."""
    starts = make_ranges(pairs_a_row, steps.rows)
    scratch.make("spread")
    tasks: list[Any] = [(scratch, f"spread/{k}", piece, long, starts) for k, piece in enumerate(pieces)]
    spreads: list[Spread] = steps.run("spread-pairs", spread_pairs, tasks)
    scratch.make("runs")
    tasks = []
    for k in range(starts.size - 1):
        parts = []
        for spread in spreads:
            part = slice(int(spread.offsets[k]), int(spread.offsets[k + 1]))
            if part.stop > part.start:
                parts.append((spread.keys[part], None if spread.counts is None else spread.counts[part]))
        first, stop = int(starts[k]), int(starts[k + 1])
        tasks.append((scratch, f"runs/{k}", first, stop - first, parts, exact, 4 * steps.rows))
    runs = steps.run(f"group-{long}", group_pairs, tasks)
    scratch.remove("spread")
    return runs


def write_store(
    steps: Steps,
    scratch: Scratch,
    shape: tuple[int, int],
    runs: list[Run],
    labels: dict[str, Any],
    source: str,
    entries: Iterable[Any] = (),
) -> Counts:
    """Tiles of both orders from runs that cover the long side's rows in order, then the rest of the store."""
    long = long_side(*shape)
    short = other(long)
    whole, largest = all(run.whole for run in runs), max(run.largest for run in runs)
    dtype = np.min_scalar_type(int(largest)).name if whole else "float64"
    layout = Layout(*shape, sum(run.keys.size for run in runs), dtype)
    cut = layout.cuts[short]

    scratch.make("turned")
    offsets = np.zeros(max(shape) + 1, np.int64)  # of the long side's rows
    for run in runs:
        offsets[run.first + 1 : run.first + run.rows + 1] = scratch.read(run.lengths)
    np.cumsum(offsets, out=offsets)
    batches = cut_batches(layout, long, offsets, steps.rows)
    tasks: list[Any] = [
        (scratch, f"turned/{k}", layout, long, blocks, list(_stretches(layout, long, blocks, runs, offsets)))
        for k, blocks in enumerate(batches)
    ]
    longs: list[tuple[Written, Turned]] = steps.run(f"write-tile-by-{long[:-1]}", write_long_tiles, tasks)
    scratch.remove("runs")

    groups: list[list[Turned]] = [[] for _ in range(cut.groups)]
    for blocks, (_, turned) in zip(batches, longs, strict=True):
        groups[_group(layout, long, blocks.start)].append(turned)
    places = [(block, group) for block in range(cut.blocks) for group in range(cut.groups)]  # as tiles are numbered
    tasks = [(scratch, layout, short, b, g, [turned.block(b) for turned in groups[g]]) for b, g in places]
    shorts: list[Written] = steps.run(f"write-tile-by-{short[:-1]}", write_short_tile, tasks)
    scratch.remove()

    marginals = {long: np.concatenate([written.sums for written, _ in longs]), short: np.zeros(cut.rows)}
    for (block, _), written in zip(places, shorts, strict=True):  # always in this order: the bits of sums are fixed
        marginals[short][slice(*cut.row_range(block))] += written.sums
    ends = [layout.cuts[long].row_range(block)[1] for block in range(layout.cuts[long].blocks)]
    tile_pairs = {
        long: np.diff(offsets[[0, *ends]]).tolist(),
        short: [written.pairs for written in shorts],
    }
    files = [*entries]
    for written in [*(written for written, _ in longs), *shorts]:
        files += written.entries
    return finish(scratch.storage, layout, _by_side(tile_pairs), _by_side(marginals), labels, files, source)


def _by_side(values: dict[str, Any]) -> dict[str, Any]:
    return {side: values[side] for side in SIDES}


def _group(layout: Layout, long: str, block: int) -> int:
    """The group of the short side's tiles that a block of the long side belongs to."""
    return layout.cuts[long].row_range(block)[0] // layout.cuts[other(long)].span


def cut_batches(layout: Layout, long: str, offsets: np.ndarray, pairs: int) -> list[range]:
    """Consecutive blocks of the long side that one task writes: about so many pairs, all of one group."""
    batches: list[range] = []
    cut, start = layout.cuts[long], 0
    for block in range(1, cut.blocks + 1):
        first, stop = cut.row_range(start)[0], cut.row_range(min(block, cut.blocks - 1))[1]
        if (
            block == cut.blocks
            or offsets[stop] - offsets[first] > pairs
            or _group(layout, long, block) != _group(layout, long, start)
        ):
            batches.append(range(start, block))
            start = block
    return batches


def _stretches(layout: Layout, long: str, blocks: range, runs: list[Run], offsets: np.ndarray) -> Iterator[Stretch]:
    cut = layout.cuts[long]
    begin, end = cut.row_range(blocks.start)[0], cut.row_range(blocks.stop - 1)[1]
    at = bisect.bisect_right(runs, begin, key=lambda run: run.first) - 1
    while at < len(runs) and runs[at].first < end:
        run = runs[at]
        first, stop = max(begin, run.first), min(end, run.first + run.rows)
        pairs = slice(*(int(offsets[row] - offsets[run.first]) for row in (first, stop)))
        counts = None if run.counts is None else run.counts[pairs]
        yield Stretch(run.first, run.keys[pairs], counts, run.lengths[first - run.first : stop - run.first])
        at += 1
