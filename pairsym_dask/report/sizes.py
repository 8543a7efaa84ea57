"""What a fit will take, before there is one: disk, memory and time from the numbers of users, items and pairs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from dask.utils import format_bytes

from ..errors import InputError, MemoryBudgetError
from ..run.memory import MIB
from ..run.progress import duration
from ..settings import SIDES, Settings
from ..store.counts import open_counts
from ..store.cuts import make_cuts
from ..sweep.plan import CHOLESKY, GRADIENTS, Plan, choose_solver, make_room, solver_seconds

IDLE = 220 * MIB  # an interpreter with the imports
SCRATCH = 20  # bytes a pair that ingest writes beside the store, and removes


def describe_sizes(
    counts: str | None, shape: dict[str, Any], given: dict[str, Any], memory: Any = None, threads: int | None = None
) -> str:
    """Disk, memory and time of a fit with given settings, in lines: to a counts store, or to a shape without one."""
    settings = Settings(**given)
    if settings.inference != "variational":
        raise InputError("plans are of variational fits; draws take as much as one with the same factors, a sweep each")
    if counts is None:
        plan, stored = _plan_of_shape(shape, settings), 1
    elif any(number is not None for number in shape.values()):
        raise InputError("give a counts store, or users, items and pairs, not both")
    else:
        store = open_counts(counts)
        plan, stored = Plan.make(store, settings), np.dtype(store.layout.count_dtype).itemsize
    threads = threads or os.cpu_count() or 1
    symbols = sum(cut.rows for cut in plan.cuts.values())
    tiles = plan.pairs * 2 * (4 + stored) + 24 * symbols
    sweep, kept = plan.generation_bytes(), plan.short_tiles_bytes() + plan.table_bytes()
    costs = GRADIENTS if plan.steps else CHOLESKY
    seconds = solver_seconds(costs, plan.factors, symbols, plan.pairs) / threads
    way = f"{plan.steps} steps of conjugate gradients" if plan.steps else "a K x K system solved"
    lines = [
        f"{plan.cuts['users'].rows:,} users x {plan.cuts['items'].rows:,} items, {plan.pairs:,} distinct pairs, "
        f"K = {plan.factors}, {settings.dtype}",
        f"  disk: counts store at most about {format_bytes(tiles)} and the labels, and "
        f"{format_bytes(SCRATCH * plan.pairs)} beside it while it is made; "
        f"a sweep {format_bytes(sweep)}, a model store {format_bytes(3 * sweep)} while it is fitted",
        f"  memory: at least {format_bytes(plan.peak_bytes(1))}, with {threads} tasks at a time "
        f"{format_bytes(plan.peak_bytes(threads))}, above an idle interpreter of {format_bytes(IDLE)}; "
        f"{format_bytes(kept)} more keep all that sweeps read again",
        f"  time: at least {duration(seconds)} a sweep on {threads} cores ({way} a row), "
        f"{duration(20 * seconds)} for twenty",
    ]
    return "\n".join(lines if memory is None else [*lines, _budget(plan, memory, threads, kept)])


def _plan_of_shape(shape: dict[str, Any], settings: Settings) -> Plan:
    """The plan of a fit to so many distinct pairs, spread evenly, with counts below 256."""
    for name, number in shape.items():
        if number is None:
            raise InputError(f"give a counts store, or users, items and pairs: {name} is missing")
        if number < 1:
            raise InputError(f"{name} must be at least 1, not {number:g}")
    users, items, pairs = (round(shape[name]) for name in ("users", "items", "pairs"))
    if pairs > users * items:
        raise InputError(
            f"{users:,} users and {items:,} items have at most {users * items:,} distinct pairs, not {pairs:,}"
        )
    cuts, itemsize = make_cuts(users, items, pairs), np.dtype(settings.dtype).itemsize
    return Plan(
        cuts,
        settings.factors,
        itemsize,
        {side: -(-pairs // cuts[side].tiles) for side in SIDES},
        itemsize if settings.discount else 1,
        pairs,
        choose_solver(settings.factors, users + items, pairs),
    )


def _budget(plan: Plan, memory: Any, threads: int, kept: int) -> str:
    """What a budget is enough for."""
    try:
        room = make_room(plan, memory, threads)
    except MemoryBudgetError as error:
        return f"  {error}"
    share = min(1.0, room.cache / kept)
    budget = f"  a budget of {format_bytes(room.budget)}: {room.tasks} tasks at a time"
    return f"{budget}, {share:.0%} of what is read again is kept"
