"""Block geometry of a chain and its memory, as `sweep/plan.py` has them for a fit.

Rows of the long side propose: their pairs, observed and censored, are drawn block by block. The short side's
statistics are gathered from shares of those blocks. What decides bits comes from the counts' cuts, K and r alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import MemoryBudgetError
from ..kernels.draws import draw_statistics_size
from ..kernels.layout import padded_width
from ..run.bundles import in_runs
from ..run.memory import MIB, in_mib, memory_budget
from ..settings import SIDES, Settings, other
from ..store.counts import Counts
from ..store.cuts import Cut
from ..sweep.plan import MACHINERY, PAIRS_A_PARTIAL, STATISTICS, TASKS
from ..sweep.room import Room

ROWS = 1024  # rows whose statistics a task holds between drawing their pairs and drawing the rows
PAIRS_A_COLUMN = 32  # drawn pairs a column that are worth being grouped by column
BUFFER = (2**16, 2**21)  # drawn pairs that are set aside before they are grouped, at least and at most


@dataclass(frozen=True)
class DrawPlan:
    """The geometry of one chain; travels to the workers."""

    cuts: dict[str, Cut]
    factors: int
    itemsize: int
    largest_tile: int  # pairs
    count_bytes: int
    proposals: float  # M = (1 + r) D, expected proposals of a half-sweep
    components: int  # of selection
    tags: int = 0  # bytes that tags take in a process
    shards: dict[str, int] | None = None  # blocks a shard by group, None where every chunk is a file

    @staticmethod
    def make(counts: Counts, settings: Settings, tags: int = 0) -> DrawPlan:
        long = "users" if counts.shape[0] >= counts.shape[1] else "items"
        return DrawPlan(
            counts.cuts,
            settings.factors,
            np.dtype(settings.dtype).itemsize,
            max(counts.record["tiles"][long]),
            np.dtype(counts.layout.count_dtype).itemsize,
            (1 + settings.censored_ratio) * counts.total,
            settings.components,
            tags,
        )

    @cached_property
    def long(self) -> str:
        """The side whose rows propose and are drawn whole."""
        return "users" if self.cuts["users"].rows >= self.cuts["items"].rows else "items"

    @property
    def short(self) -> str:
        return other(self.long)

    @cached_property
    def blocks(self) -> dict[str, int]:
        """Rows a block of the drawn arrays: a tile's rows, on the short side few enough for gathered statistics.

        Where the short side has several tiles their rows are a power of two, so no block straddles tiles.
        """
        step = self.cuts[self.short].block
        while step > 64 and step * self.statistics_row > STATISTICS:
            step = -(-step // 2)
        return {self.long: self.cuts[self.long].block, self.short: step}

    def count(self, side: str) -> int:
        """Blocks of a side."""
        return -(-self.cuts[side].rows // self.blocks[side])

    def runs(self, side: str) -> list[range]:
        """Blocks of a side that one task draws: whole shards."""
        return in_runs(self.count(side), (self.shards or {}).get(side, 1))

    def row_range(self, side: str, block: int) -> tuple[int, int]:
        return block * self.blocks[side], min((block + 1) * self.blocks[side], self.cuts[side].rows)

    @cached_property
    def shares(self) -> list[range]:
        """Long blocks that one gathering task goes through; their partial sums are added in a tree."""
        blocks = self.count(self.long)
        worth = int(self.proposals // (PAIRS_A_PARTIAL * self.cuts[self.short].rows))
        shares = min(max(worth, TASKS), blocks)
        bounds = [blocks * k // shares for k in range(shares + 1)]
        return [range(first, stop) for first, stop in pairwise(bounds)]

    @property
    def buffer(self) -> int:
        """Drawn pairs that are set aside before they are grouped by column."""
        return int(np.clip(PAIRS_A_COLUMN * self.cuts[self.short].rows, *BUFFER))

    # Memory, in bytes.

    @property
    def table_row(self) -> int:
        return padded_width(self.factors) * self.itemsize

    @property
    def statistics_row(self) -> int:
        return draw_statistics_size(self.factors) * self.itemsize

    def generation_bytes(self) -> int:
        """Bytes of one committed generation, chunks padded."""
        return self._row_bytes * sum(self.count(side) * self.blocks[side] for side in SIDES)

    @property
    def _row_bytes(self) -> int:
        """Of a generation's arrays, a row."""
        return (self.factors + 1) * self.itemsize + 8 * self.components

    def shard_bytes(self) -> int:
        """What a task holds of a shard until it is full, and while it is written."""
        return 0 if self.shards is None else 2 * self.shards[self.long] * self.blocks[self.long] * self._row_bytes

    def tile_bytes(self) -> int:
        # A chunk of encoded pairs stands beside its decoded tile.
        return self.largest_tile * (4 + self.count_bytes) + 16 * self.blocks[self.long] + 2 * MIB

    def tiles_bytes(self) -> int:
        """All decoded tiles."""
        cut = self.cuts[self.long]
        return cut.blocks * self.largest_tile * (4 + self.count_bytes) + 8 * (cut.rows + cut.blocks)

    def statistics_bytes(self) -> int:
        """Statistics of a block of the short side."""
        return self.blocks[self.short] * (self.statistics_row + 8 * self.components)

    def task_bytes(self, bundle: int) -> int:
        """The most that one task holds, beside what all tasks of a process share, gathering for `bundle` blocks."""
        values = (self.factors + 1) * self.itemsize + 8 * (3 + 2 * self.components)
        block = self.tile_bytes() + self.blocks[self.long] * (self.table_row + 2 * values)
        own = ROWS * self.statistics_row
        gather = bundle * self.statistics_bytes() + self.buffer * (12 + 2 * self.itemsize)
        solve = 2 * self.statistics_bytes() + 2 * self.blocks[self.short] * values
        return int(max(block + own, block + gather, block + 3 * self.steps_bytes(), solve)) + self.shard_bytes()

    def steps_bytes(self) -> int:
        """A number for every symbol of the short side: its step, or what pairs say of it."""
        return 8 * self.cuts[self.short].rows

    def waiting_bytes(self, bundle: int) -> int:
        """Partial statistics that wait in the reduction tree."""
        waiting = max(bundle * self.statistics_bytes(), self.steps_bytes())
        return int(waiting * (1 + np.ceil(np.log2(len(self.shares)))))

    def shared_bytes(self) -> int:
        """What every process holds once: the short side's table with its alias table, what it is made of, and tags."""
        selection = 12 * self.components + (16 * self.components if self.components > 1 else 0)
        row = self.table_row + selection + self.factors * self.itemsize + 5 * 8
        return self.cuts[self.short].rows * row + self.tags

    def peak_bytes(self, tasks: int, bundle: int) -> int:
        """Projected peak of a process with so many tasks under way, above an idle interpreter."""
        return MACHINERY + self.shared_bytes() + self.waiting_bytes(bundle) + tasks * self.task_bytes(bundle)


def make_room(plan: DrawPlan, memory: Any, tasks: int) -> Room:
    """Fit a plan into a budget (see `memory_budget`), or refuse with the arithmetic."""
    budget = memory_budget(memory)
    blocks = plan.count(plan.short)
    best: tuple[float, int, int] | None = None
    for at_once in range(tasks, 0, -1):
        bundle = next((b for b in range(blocks, 0, -1) if plan.peak_bytes(at_once, b) <= budget), 0)
        # All pairs are drawn anew for each bundle: fewer tasks with larger bundles may be quicker.
        if bundle and (best is None or -(-blocks // bundle) / at_once < best[0]):
            best = -(-blocks // bundle) / at_once, at_once, bundle
    if best is None:
        raise MemoryBudgetError(
            f"a memory budget of {in_mib(budget)} is too small: one task needs {in_mib(plan.task_bytes(1))}, beside "
            f"{in_mib(plan.shared_bytes())} for the shared table, {in_mib(plan.waiting_bytes(1))} for partial sums and "
            f"{in_mib(MACHINERY)} for compiled code; give at least {in_mib(plan.peak_bytes(1, 1))}"
        )
    _, tasks, bundle = best
    # Some of what is left stays free: the allocator does not give all back that large arrays leave behind.
    cache = int(0.85 * (budget - plan.peak_bytes(tasks, bundle)))
    return Room(tasks, cache, 0, bundle, budget)
