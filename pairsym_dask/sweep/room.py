"""How a plan runs on a machine, within a budget of memory; no bits hang on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import MemoryBudgetError
from ..run.memory import MIB, in_mib, memory_budget
from .plan import MACHINERY, Plan

SPARE = 0.1  # of a budget, for bundles on a cluster whose workers could keep all tables
GATHERING = 0.6  # of what is left of a budget, for bundles where tables are read again and again
MOST = 8  # times a side's blocks: a bundle of all of them, with sums that wait


@dataclass(frozen=True)
class Room:
    """Tasks under way in a process, bytes for decoded tiles and tables, and for tables as long as tiles of the short
    side may still come."""

    tasks: int
    cache: int
    tables: int
    bundle: int  # blocks of the short side that a task gathers for, so that tables are read once for all of them
    budget: int
    gathering: int = 0  # bytes for bundles, where the whole table of the short side is given up for them
    block: int = 0  # bytes that one block of a bundle takes of them

    @property
    def idle(self) -> int:
        """Bytes that may be kept idle for the next arrays (`lent`): little, it stands beside all others."""
        return self.budget // 32

    def rows(self, blocks: int) -> int:
        """Bytes for rows of the long side that the next look at the same pairs needs again, beside so many blocks."""
        return int(0.85 * max(0, self.gathering - blocks * self.block))


def make_room(plan: Plan, memory: Any, tasks: int, processes: int = 1) -> Room:
    """Fit a plan into a budget (see `memory_budget`) of each process, or refuse with the arithmetic."""
    budget = memory_budget(memory)
    fixed = plan.peak_bytes(0, processes)
    fit = (budget - fixed) // plan.task_bytes()
    if fit < 1:
        raise MemoryBudgetError(
            f"a memory budget of {in_mib(budget)} is too small: one task needs {in_mib(plan.task_bytes())}, beside "
            f"{in_mib(plan.shared_bytes(processes))} for the shared table, {in_mib(plan.waiting_bytes())} for partial "
            f"sums and {in_mib(MACHINERY)} for compiled code; "
            f"give at least {in_mib(plan.peak_bytes(1, processes))}"
        )
    tasks = int(min(tasks, fit))
    left = budget - plan.peak_bytes(tasks, processes)
    more = block_bytes(plan, tasks, processes)
    bundle, gathering = 1, 0
    if processes > 1:
        left = max(0, left - tasks * plan.ahead_bytes())
        again = plan.table_bytes() + plan.short_tiles_bytes() > left
        # While sums are gathered, the whole table of the short side is given up.
        aside = plan.cuts[plan.short].rows * plan.table_row
        most = aside + GATHERING * left if again else min(SPARE * budget, 0.5 * left)
        bundle = int(min(1 + most // more, MOST * len(plan.places[plan.short])))
        taken = max(0, (bundle - 1) * more - aside)
        left -= taken
        if again and plan.short_steps:  # what the whole table is made of is not needed either
            gathering = aside + plan.cuts[plan.short].rows * plan.row_values + taken
    elif plan.table_bytes() + plan.short_tiles_bytes() > left:  # tables will be read again and again
        bundle = _least_reading(plan, left, more)
        left -= (bundle - 1) * more
    # Some of what is left stays free: the allocator does not give all back that large arrays leave behind.
    cache = int(0.85 * max(0, left))
    # Where the short side has several tile blocks, tables are read for each of them: they are the dearer ones.
    ahead = plan.short_tiles_bytes() if plan.cuts[plan.short].blocks == 1 else 0
    return Room(tasks, cache, max(0, cache - ahead), bundle, budget, gathering, more)


def block_bytes(plan: Plan, tasks: int, processes: int) -> int:
    """What a process needs for one more block in the bundle of each of its tasks."""
    each = plan.places[plan.short].each
    looks = 1 if processes == 1 else 2  # on a cluster the next group's pairs are read ahead
    a_pair = looks * (4 + plan.count_bytes) + (plan.itemsize if plan.steps else 0)
    pairs = plan.largest_tile[plan.short] * a_pair // each
    own = plan.blocks[plan.short] * (plan.table_row + 16) + pairs
    if processes == 1:
        return plan.waiting_bytes() + tasks * (plan.statistics_bytes() + own)
    # A task's sums, those that wait beside them to be added, and finished ones that wait for other shares.
    waiting = 2 + len(plan.shares) / processes
    return int(tasks * (waiting * plan.statistics_bytes() + own))


def _least_reading(plan: Plan, left: int, more: int) -> int:
    """Blocks a bundle that make a sweep read the fewest bytes: tables once for every bundle, pairs once for every look.

    The long side's pairs and tables come first, and are kept as far as there is room; larger bundles leave less.
    """
    tables, short, long = plan.table_bytes(), plan.short_tiles_bytes(), plan.pairs * (4 + plan.count_bytes)
    looks = 1 + plan.short_steps

    def read(bundle: int) -> float:
        cache = 0.85 * (left - (bundle - 1) * more)
        first = max(0.0, cache - short) if plan.cuts[plan.short].blocks == 1 else cache
        kept = min(1.0, first / (tables + long))
        rest = max(0.0, short - max(0.0, cache - kept * (tables + long)))
        again = looks * len(plan.bundles(plan.short, bundle)) * tables + 2 * long
        return again * (1 - kept) + looks * rest

    most = min(1 + left // max(more, MIB), len(plan.places[plan.short]))
    return min(range(1, int(most) + 1), key=read)
