"""Block geometry of a fit and its memory: numbers first, then how much is under way at a time.

What decides bits (blocks of rows, groups, the order of sums) comes from the counts store's cuts and K alone.
The memory budget and the number of threads decide only how many tasks are under way and what stays decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..kernels.cold_gathered import cold_sums_size
from ..kernels.gradients import SUMS
from ..kernels.layout import padded_width, statistics_size
from ..kernels.outer import stride_of
from ..run.bundles import in_runs
from ..run.memory import MIB
from ..settings import SIDES, Settings, other
from ..store.counts import Counts
from ..store.cuts import Cut, make_cuts

PAIRS_A_PARTIAL = 256  # pairs of a row that are worth a partial sum of their own
TASKS = 16  # gathering tasks at least, where there are groups enough
TABLES = 64 * 2**20  # bytes of the long side's tables that a row's pairs may lie in at a time
STATISTICS = 16 * 2**20  # bytes of partial statistics a task may return
RUN = 64  # blocks whose sums are added first where a side has more than RUN^2: a driver cannot hold them all
MACHINERY = 80 * MIB  # compiled kernels, LLVM and the allocator's slack, beside an idle interpreter with the imports


STEPS = 3  # of conjugate gradients a half-sweep, from the old mean
FEW_STEPS = (2, 1)  # of the long and of the short side, where sweeps turn to axes on which the background is diagonal
FEW = ", few steps"  # of a solver's name: it takes so many
LAST = ", xi* last"  # of a solver's name: xi* is found at the end of a sweep, not between its halves
ITEMS_FIRST = ", items first"  # of a solver's name: items are updated before users
NEAR = 16 * 2**20  # bytes of the long side's tables that are best gone through at a time: a share of the last cache
SMALL = 32  # factors below which systems are solved whatever the model says: exact, and a sweep is cheap there anyway
# Nanoseconds of one core: a pair, a pair's K, its K^2; a row's K^2, its K^3. Fitted to whole sweeps of xbox-movies x
# 0.1 with either solver: gradients took 1.08 of the time at K = 32 and 0.88 at K = 64.
CHOLESKY = (20.0, 1.1, 0.021, 0.35, 0.0035)
GRADIENTS = (30.0, 3.1, 0.0, 0.12, 0.0)
# Of rows without variances, fitted likewise at K = 20, 64 and 256: 0.65, 1.06 and 4.9 core-seconds.
COLD = (30.0, 1.1, 0.0, 0.025, 0.0)


def solver_seconds(costs: tuple[float, ...], factors: int, rows: int, pairs: int) -> float:
    """The written cost model: seconds of one core for the updates of a sweep; every pair is met from both sides."""
    pair, pair_k, pair_kk, row_kk, row_kkk = costs
    a_pair = pair + pair_k * factors + pair_kk * factors**2
    a_row = row_kk * factors**2 + row_kkk * factors**3
    return 1e-9 * (2 * pairs * a_pair + rows * a_row)


def choose_solver(factors: int, rows: int, pairs: int, stepping: tuple[float, ...] = GRADIENTS) -> str:
    """Cholesky solves every row's system; gradients take a few steps towards its solution, for less at large K."""
    if factors < SMALL:
        return "cholesky"
    solved, stepped = (solver_seconds(costs, factors, rows, pairs) for costs in (CHOLESKY, stepping))
    return "cholesky" if solved <= stepped else "gradients"


class Place(NamedTuple):
    """Where a block of rows lies: its first row and the one after its last, and its rows in a tile block."""

    first: int
    stop: int
    tile_block: int
    rows: slice  # in the tile block


@dataclass(frozen=True)
class Places(Sequence[Place]):
    """Where blocks of at most `step` rows lie, none of them in two tile blocks; found when asked for."""

    cut: Cut
    step: int

    def __len__(self) -> int:
        whole, last = self.cut.blocks - 1, self.cut.rows - (self.cut.blocks - 1) * self.cut.block
        return whole * self.each + -(-last // self.step)

    @property
    def each(self) -> int:
        """Blocks of a tile block."""
        return -(-self.cut.block // self.step)

    def __getitem__(self, number: Any) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        tile, k = divmod(number % len(self), self.each)
        start, end = self.cut.row_range(tile)
        first = start + k * self.step
        stop = min(first + self.step, end)
        return Place(first, stop, tile, slice(first - start, stop - start))


@dataclass(frozen=True)
class Plan:
    """The geometry of one fit; travels to the workers."""

    cuts: dict[str, Cut]
    factors: int
    itemsize: int
    largest_tile: dict[str, int]  # pairs
    count_bytes: int
    pairs: int
    solver: str = "cholesky"
    stepping: tuple[float, ...] = GRADIENTS  # what steps cost, see `solver_seconds`
    tags: int = 0  # bytes that tags take in a process
    shards: dict[str, int] | None = None  # blocks a shard by group, None where every chunk is a file

    @staticmethod
    def make(counts: Counts, settings: Settings, solver: str | None = None, tags: int = 0) -> Plan:
        """A plan with the solver that an earlier sweep was made with, or the one that costs less."""
        tiles = {side: max(counts.record["tiles"][side]) for side in SIDES}
        return Plan._of(counts.cuts, counts.nnz, tiles, counts.layout.count_dtype, settings, solver, tags)

    @staticmethod
    def of_shape(users: int, items: int, pairs: int, settings: Settings) -> Plan:
        """The plan of a fit to so many distinct pairs, spread evenly, with counts below 256."""
        cuts = make_cuts(users, items, pairs)
        tiles = {side: -(-pairs // cuts[side].tiles) for side in SIDES}
        return Plan._of(cuts, pairs, tiles, "uint8", settings, None, 0)

    @staticmethod
    def _of(
        cuts: dict[str, Cut], pairs: int, tiles: dict[str, int], count_dtype: str, settings: Settings,
        solver: str | None, tags: int,
    ) -> Plan:  # fmt: skip
        """Where s and t are fixed, nothing but xi* needs a look at the pairs between the halves of a sweep: it comes
        last. Without variances the longer side is updated first, on the axes of the other one's background (`turn`).
        Stores whose first sweep was made before that was so go on as they began.
        """
        users, items = (cuts[side].rows for side in SIDES)
        last = settings.selection == "counts"
        frozen, many_items = last and settings.temperature == 0, users < items
        if solver is None:
            stepping = COLD if frozen else GRADIENTS
            solver = choose_solver(settings.factors, users + items, pairs, stepping)
            few = frozen and solver == "gradients"
            solver += (FEW if few else "") + (LAST if last else "") + (ITEMS_FIRST if few and many_items else "")
        else:
            first = not many_items or ITEMS_FIRST in solver
            stepping = COLD if frozen and first and LAST in solver else GRADIENTS
        return Plan(
            cuts,
            settings.factors,
            np.dtype(settings.dtype).itemsize,
            tiles,
            np.dtype(settings.dtype if settings.discount else count_dtype).itemsize,
            pairs,
            solver,
            stepping,
            tags,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What travels: not what follows from it."""
        return {field.name: self.__dict__[field.name] for field in fields(self)}

    @cached_property
    def steps(self) -> int:
        """Steps of the conjugate gradients of the long side's rows, 0 where systems are solved."""
        if FEW in self.solver:
            return FEW_STEPS[0]
        return STEPS if self.solver.startswith("gradients") else 0

    @cached_property
    def short_steps(self) -> int:
        """Those of the short side's rows, whose pairs are looked at anew for each."""
        return FEW_STEPS[1] if FEW in self.solver else self.steps

    @cached_property
    def xi_star_last(self) -> bool:
        """Whether xi* is found from the finished state of a sweep, else from new users and old items."""
        return LAST in self.solver

    @cached_property
    def first(self) -> str:
        """The side that a sweep updates first."""
        return "items" if self.solver.endswith(ITEMS_FIRST) else "users"

    def turns(self, settings: Settings) -> bool:
        """Whether sweeps turn to the axes of the short side's background: where that is exact, and saves products."""
        return self.steps > 0 and settings.temperature == 0 and self.long == self.first

    def cold(self, settings: Settings) -> bool:
        """Whether rows without variances have kernels of their own."""
        return self.xi_star_last and self.turns(settings)

    @cached_property
    def row_numbers(self) -> int:
        """Numbers that are gathered for a row of the short side."""
        return SUMS * padded_width(self.factors) if self.steps else statistics_size(self.factors)

    @cached_property
    def long(self) -> str:
        """The side whose rows are updated whole; the other side's sums are gathered from partial ones."""
        return "users" if self.cuts["users"].rows >= self.cuts["items"].rows else "items"

    @cached_property
    def short(self) -> str:
        return other(self.long)

    @cached_property
    def blocks(self) -> dict[str, int]:
        """Rows a block of the posterior arrays: a tile's rows, on the short side few enough for gathered statistics.

        Where the short side has several tiles their rows are a power of two, so no block straddles tiles.
        """
        fits = max(64, STATISTICS // (self.row_numbers * self.itemsize))
        step = self.cuts[self.short].block
        if self.whole[self.short]:  # no statistics leave a task
            return {self.long: self.cuts[self.long].block, self.short: step}
        if self.cuts[self.short].blocks == 1:
            step = -(-step // -(-step // fits))
        while step > fits:
            step //= 2
        return {self.long: self.cuts[self.long].block, self.short: step}

    @cached_property
    def places(self) -> dict[str, Places]:
        """Where every block of rows lies, by side."""
        return {side: Places(self.cuts[side], self.blocks[side]) for side in SIDES}

    @cached_property
    def tile_blocks(self) -> dict[str, list[range]]:
        """Blocks of rows that each tile block holds, by side."""
        return {side: in_runs(len(places), places.each) for side, places in self.places.items()}

    @cached_property
    def run(self) -> int:
        """Blocks of the long side whose sums are added to one before all are added."""
        return RUN if len(self.places[self.long]) > RUN**2 else 1

    def least(self, side: str) -> int:
        """Blocks of a side that one task does at least: it owns whole shards, and whole runs of sums."""
        return max(self.run if side == self.long else 1, (self.shards or {}).get(side, 1))

    def bundles(self, side: str, most: int) -> list[range]:
        """Blocks of a side in runs of at most so many: parts of a tile block, or whole ones, about as many in each."""
        tile_blocks = self.tile_blocks[side]
        if most < self.places[side].each:
            return [blocks[k : k + most] for blocks in tile_blocks for k in range(0, len(blocks), most)]
        many = -(-len(tile_blocks) // (most // self.places[side].each))
        bounds = [len(tile_blocks) * k // many for k in range(many + 1)]
        return [range(tile_blocks[first].start, tile_blocks[stop - 1].stop) for first, stop in pairwise(bounds)]

    def by_tile(self, side: str, blocks: range) -> list[range]:
        """Some blocks in runs, one for every tile block that they lie in."""
        each = self.places[side].each
        bounds = [blocks.start, *range((blocks.start // each + 1) * each, blocks.stop, each), blocks.stop]
        return [range(first, stop) for first, stop in pairwise(bounds)]

    @cached_property
    def shares(self) -> list[range]:
        """Groups of the short side's columns that one task goes through; their partial sums are added in a tree.

        A partial sum is zeroed, written and added, which pays from some hundred pairs a row on; but there should
        also be tasks enough for several workers.
        """
        cut = self.cuts[self.short]
        worth = self.pairs // (PAIRS_A_PARTIAL * cut.rows)
        tasks = -(-TASKS // len(self.places[self.short]))
        shares = min(max(worth, tasks, 1), cut.groups)
        bounds = [cut.groups * k // shares for k in range(shares + 1)]
        return [range(first, stop) for first, stop in pairwise(bounds)]

    @cached_property
    def runs(self) -> list[list[range]]:
        """Long blocks that are visited at a time for a group of the short side's columns: their tables lie together."""
        found, size, step = [], self.blocks[self.long], self._run_blocks
        if self.steps and self.xi_star_last:
            step = min(step, max(1, NEAR // (self.cuts[self.long].block * self.table_row)))
        for group in range(self.cuts[self.short].groups):
            first, stop = self.cuts[self.short].column_range(group)
            blocks = range(first // size, -(-stop // size))
            found.append([blocks[k : k + step] for k in range(0, len(blocks), step)])
        return found

    def visited(self, groups: Iterable[int]) -> list[int]:
        """Long blocks that some groups of the short side's columns lie in."""
        return sorted({block for group in groups for run in self.runs[group] for block in run})

    @cached_property
    def whole(self) -> dict[str, bool]:
        """Whether a task meets all pairs of its rows at once, and can solve them in cache, by side."""
        gathered = self.cuts[self.short].groups > 1 or self.cuts[self.long].blocks > self._run_blocks
        return {self.long: True, self.short: not gathered}

    @property
    def _run_blocks(self) -> int:
        return max(1, TABLES // (self.cuts[self.long].block * self.table_row))

    # Memory, in bytes.

    @cached_property
    def table_row(self) -> int:
        return 2 * padded_width(self.factors) * self.itemsize

    @cached_property
    def row_values(self) -> int:
        """What a row of a table is made of, and its weight."""
        return (2 * self.factors + 4) * self.itemsize

    def generation_bytes(self) -> int:
        """Bytes of one committed generation, chunks padded."""
        rows = {side: len(self.places[side]) * self.blocks[side] for side in SIDES}
        return self._row_bytes * sum(rows.values()) + 8 * rows["users"]

    @property
    def _row_bytes(self) -> int:
        """Of a generation's arrays, a row."""
        return (2 * self.factors + 2) * self.itemsize + 16

    def _tile_bytes(self, side: str) -> int:
        pairs = self.largest_tile[side]
        return pairs * (4 + self.count_bytes) + 16 * self.cuts[side].block

    def task_bytes(self) -> int:
        """The most that one task holds at a time, beside what all tasks of a process share."""
        short = self.short
        values = (2 * self.factors + 2) * self.itemsize
        n = self.blocks[self.long]
        # A chunk of encoded pairs stands beside its decoded tile; float64 copies of a block appear in the messages.
        encoded = 2 * MIB
        long = self._tile_bytes(self.long) + encoded + n * (2 * values + self.table_row + 8 * 8 + 16 * self.factors)
        stats = self.statistics_bytes()
        # A task holds the tables of a run of blocks, and reads them one by one.
        table = min(self.cuts[short].span, self._run_blocks * n) * self.table_row + n * values
        partial = self._tile_bytes(short) + encoded + table + stats + self.blocks[short] * (self.table_row + values)
        return int(max(long, partial)) + self.shard_bytes()

    def ahead_bytes(self) -> int:
        """The pairs and the table of a block of the long side that a task of a cluster reads ahead."""
        return self._tile_bytes(self.long) + self.blocks[self.long] * (self.table_row + self.row_values)

    def shard_bytes(self) -> int:
        """What a task holds of a shard until it is full, and while it is written."""
        return 0 if self.shards is None else 2 * self.shards[self.long] * self.blocks[self.long] * self._row_bytes

    def statistics_bytes(self) -> int:
        """What is gathered of a block of the short side: rows without variances have fewer sums."""
        cold = self.steps > 0 and self.stepping == COLD
        numbers = cold_sums_size(self.factors) if cold else self.row_numbers
        return self.blocks[self.short] * numbers * self.itemsize

    def table_bytes(self) -> int:
        """All tables of the long side."""
        return self.cuts[self.long].rows * self.table_row

    def short_tiles_bytes(self) -> int:
        """All decoded tiles of the short side: most often read again, and dearest to decode, of what may be kept."""
        cut = self.cuts[self.short]
        return self.pairs * (4 + self.count_bytes) + 8 * (cut.rows + cut.blocks) * cut.groups

    def waiting_bytes(self) -> int:
        """Partial statistics that wait in the reduction tree."""
        return int(self.statistics_bytes() * (1 + np.ceil(np.log2(len(self.shares)))))

    def shared_bytes(self, processes: int = 1) -> int:
        """What every process holds once: the short side's table, weights and selection sums of the items.

        Where the steps of the short side's blocks stand, and their directions, is spread over all processes.
        """
        short = self.cuts[self.short].rows
        row = self.table_row + self.row_values
        standing = 0
        if self.steps and not self.whole[self.short]:
            standing = short * 6 * stride_of(padded_width(self.factors)) * self.itemsize // processes
        return short * row + standing + 56 * self.cuts["items"].rows + self.tags

    def peak_bytes(self, tasks: int, processes: int = 1) -> int:
        """Projected peak of a process with so many tasks under way, above an idle interpreter."""
        return MACHINERY + self.shared_bytes(processes) + self.waiting_bytes() + tasks * self.task_bytes()
