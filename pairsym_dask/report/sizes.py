"""What a fit will take, before there is one: disk, memory and time from the numbers of users, items and pairs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes

from ..errors import InputError, MemoryBudgetError
from ..pairs.times import SECOND, a_length
from ..run.memory import MIB
from ..run.progress import duration
from ..settings import Settings
from ..store.counts import Counts, open_counts
from ..sweep.plan import Plan
from ..sweep.room import make_room
from .projection import Projection, Rates, cheapest, in_shards, measure, project

IDLE = 220 * MIB  # an interpreter with the imports
SCRATCH = 20  # bytes a pair that ingest writes beside the store, and removes


@dataclass(frozen=True)
class FitPlan:
    """What a fit will take, in words (`print` it) and in numbers."""

    words: str
    sweep: Projection | None  # None where a budget is too small
    rates: Rates

    def __str__(self) -> str:
        return self.words

    def __repr__(self) -> str:
        return self.words


def plan(
    counts: Counts | str | os.PathLike[str] | None = None,
    *,
    users: float | None = None,
    items: float | None = None,
    pairs: float | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    deadline: str | float | None = None,
    sweeps: int = 20,
    measured: bool = False,
    rates: dict[str, float] | None = None,
    **settings: Any,
) -> FitPlan:
    """Say what a fit will take before there is one: disk, memory, tasks, seconds, objects, and what limits.

    Parameters
    ----------
    counts : path or Counts, optional
        A counts store; or say how many users, items and distinct pairs there will be.
    users, items, pairs : float, optional
        How many.
    workers : int, optional
        Worker processes of a cluster; none is one process.
    threads : int, optional
        Tasks under way at a time in a process; all cores without a cluster, 1 with one.
    memory : int or str, optional
        Budget of a process, such as "8GiB".
    deadline : str or float, optional
        "2h", "30min" or seconds: the cheapest cluster that does all sweeps in that time is looked for.
    sweeps : int
        Of the fit.
    measured : bool
        Measure this machine's core and disk by a small fit, which takes some seconds.
    rates : dict, optional
        Known ones: speed, task, network, read, write, call, writes.
    **settings
        Of the model, as for `PairedSymbols`.

    Returns
    -------
    FitPlan
        Words, and the numbers of a sweep in `sweep`.

    Examples
    --------
    >>> found = ps.plan(users=1e9, items=1e7, pairs=1e11, factors=64, workers=256, memory="16GiB")
    >>> found.sweep.workers
    256
    """
    shape = {"users": users, "items": items, "pairs": pairs}
    given = Settings(**settings)
    if given.inference != "variational":
        raise InputError("plans are of variational fits; draws take as much as one with the same factors, a sweep each")
    geometry, stored = _geometry(counts, shape, given)
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    threads = threads or (1 if workers else os.cpu_count() or 1)
    known = Rates.given(rates or {}, measure(geometry, given) if measured else None)
    geometry = in_shards(geometry, given, known)
    lines, sweep = _describe(geometry, given, stored), None
    try:
        sweep = project(geometry, given, memory or geometry.peak_bytes(threads) * 4, workers or 0, threads, known)
        lines += _needs(geometry, threads, workers or 1) + _takes(sweep, sweeps)
        if memory is not None:
            lines.append(_budget(geometry, memory, threads, workers or 1))
        if deadline is not None:
            lines.append(_meets(geometry, given, memory, threads, known, deadline, sweeps))
    except MemoryBudgetError as error:
        lines += [*_needs(geometry, threads, workers or 1), f"  {error}"]
    return FitPlan("\n".join(lines), sweep, known)


def _geometry(counts: Any, shape: dict[str, Any], settings: Settings) -> tuple[Plan, int]:
    """The plan of a fit, and bytes of a stored count."""
    if counts is not None:
        if any(number is not None for number in shape.values()):
            raise InputError("give a counts store, or users, items and pairs, not both")
        store = open_counts(counts)
        return Plan.make(store, settings), np.dtype(store.layout.count_dtype).itemsize
    for name, number in shape.items():
        if number is None:
            raise InputError(f"give a counts store, or users, items and pairs: {name} is missing")
        if number < 1:
            raise InputError(f"{name} must be at least 1, not {number:g}")
    users, items, pairs = (round(number) for number in shape.values())
    if pairs > users * items:
        raise InputError(
            f"{users:,} users and {items:,} items have at most {users * items:,} distinct pairs, not {pairs:,}"
        )
    return Plan.of_shape(users, items, pairs, settings), 1


def _describe(plan: Plan, settings: Settings, stored: int) -> list[str]:
    symbols = sum(cut.rows for cut in plan.cuts.values())
    tiles, sweep = plan.pairs * 2 * (4 + stored) + 24 * symbols, plan.generation_bytes()
    return [
        f"{plan.cuts['users'].rows:,} users x {plan.cuts['items'].rows:,} items, {plan.pairs:,} distinct pairs, "
        f"K = {plan.factors}, {settings.dtype}",
        f"  disk: counts store at most about {format_bytes(tiles)} and the labels, and "
        f"{format_bytes(SCRATCH * plan.pairs)} beside it while it is made; "
        f"a sweep {format_bytes(sweep)}, a model store {format_bytes(3 * sweep)} while it is fitted",
    ]


def _needs(plan: Plan, threads: int, processes: int) -> list[str]:
    kept = plan.short_tiles_bytes() + plan.table_bytes()
    return [
        f"  memory: at least {format_bytes(plan.peak_bytes(1, processes))}, with {threads} tasks at a time "
        f"{format_bytes(plan.peak_bytes(threads, processes))}, above an idle interpreter of {format_bytes(IDLE)}; "
        f"{format_bytes(kept)} more keep all that sweeps read again",
    ]


def _takes(sweep: Projection, sweeps: int) -> list[str]:
    where = f"{sweep.workers} workers of {sweep.threads}" if sweep.workers else f"{sweep.threads}"
    parts = [("arithmetic", sweep.arithmetic), ("store", sweep.store)]
    if sweep.workers:
        parts[1:1] = [("scheduler", sweep.scheduler), ("network", sweep.network)]
    told = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts)
    lines = [
        f"  time: {duration(sweep.seconds)} a sweep on {where} threads ({told}; limited by {_limit(sweep)}), "
        f"{duration(sweeps * sweep.seconds)} for {sweeps}",
        f"  a sweep: {sweep.tasks:,} tasks, {sweep.objects:,} objects and {format_bytes(int(sweep.written))} written, "
        f"{format_bytes(int(sweep.read))} read, a commit record of {format_bytes(sweep.record)}",
    ]
    if sweep.workers:
        lines.append(f"  {format_bytes(int(sweep.travelling))} travel between workers and the driver")
    return lines


def _limit(sweep: Projection) -> str:
    words = {"scheduler": "dask's scheduler", "network": "what travels", "store": "reading and writing the store"}
    return words.get(sweep.limit, sweep.limit)


def _budget(plan: Plan, memory: Any, threads: int, processes: int) -> str:
    """What a budget is enough for."""
    room, kept = make_room(plan, memory, threads, processes), plan.short_tiles_bytes() + plan.table_bytes()
    budget = f"  a budget of {format_bytes(room.budget)}: {room.tasks} tasks at a time"
    return f"{budget}, {min(1.0, room.cache / kept):.0%} of what is read again is kept"


def _meets(
    plan: Plan, settings: Settings, memory: Any, threads: int, rates: Rates, deadline: str | float, sweeps: int
) -> str:
    """The cheapest cluster for a deadline."""
    seconds = _seconds(deadline)
    found = cheapest(plan, settings, memory or plan.peak_bytes(threads) * 4, threads, rates, seconds / sweeps)
    if found is None:
        return f"  deadline: no cluster of up to 4,096 workers does {sweeps} sweeps in {duration(seconds)}"
    return (
        f"  deadline: {found.workers} workers of {threads} threads do {sweeps} sweeps in "
        f"{duration(sweeps * found.seconds)}, limited by {_limit(found)}"
    )


def _seconds(deadline: str | float) -> float:
    """Seconds of a length of time.

    >>> _seconds("2h"), _seconds("30min"), _seconds(90)
    (7200.0, 1800.0, 90.0)
    """
    if isinstance(deadline, str) and not re.fullmatch(r"\s*[\d.]+\s*", deadline):
        return a_length("deadline", deadline) / SECOND
    try:
        seconds = float(deadline)
    except (TypeError, ValueError):
        seconds = 0.0
    if seconds > 0:
        return seconds
    raise InputError(f'deadline must be a length of time such as "2h" or a number of seconds, not {deadline!r}')
