"""How a gathering pass over the short side is spread over tasks; no bits hang on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..run.bundles import ARITY, LONGEST, TASK_SECONDS, Hands, evened, in_runs
from .costs import GATHER, START, STEP, pass_seconds
from .plan import Plan
from .room import Room

READ = 1e9  # bytes a second that a worker reads of a store
NETWORK = 1e9  # bytes a second that come to a worker from others
SHARED = 0.1  # of the seconds that reading would take alone, what it costs beside arithmetic
SCAN = 30.0  # seconds of a task that reads tables for all it gathers for: shorter ones would read them more often


@dataclass(frozen=True)
class Spread:
    """What a gathering task does, and what becomes of its sums."""

    bundles: list[range]  # blocks of the short side that a task gathers for
    shares: list[range]  # of the columns, a run a task, whose partial sums it adds up
    piece: int  # blocks of a bundle that go on together, at most

    def pieces(self, bundle: range) -> list[range]:
        """Blocks of a bundle that go on together."""
        many = -(-len(bundle) // self.piece)
        bounds = [bundle.start + len(bundle) * k // many for k in range(many + 1)]
        return [range(first, stop) for first, stop in pairwise(bounds)]

    def placed(self, threads: int) -> bool:
        """Whether there is a thread of its own for every gathering task of a pass."""
        return 1 < len(self.bundles) * len(self.shares) <= threads

    def relays(self) -> list[range]:
        """Runs of shares that directions are passed on to together, by who has got them; one if by who made them."""
        runs = len(self.shares)
        return in_runs(runs, each) if (each := math.isqrt(runs)) > 1 else [range(runs)]


def spread(plan: Plan, room: Room, hands: Hands, pairs: np.ndarray | None = None) -> Spread:
    """On threads a task a share, each block going its own way; on a cluster what takes the least time.

    Bundles are even in the pairs of the tile blocks, where these are known.
    """
    if not hands.threads:
        return Spread(plan.bundles(plan.short, room.bundle), in_runs(len(plan.shares), 1), 1)
    sizes = _sizes(plan, room.bundle)
    # The sums of a run of 2^n shares wait in a tree of n + 1 levels.
    levels = room.bundle + plan.waiting_bytes() // (room.tasks * plan.statistics_bytes())
    ways = [
        (size, 2**n)
        for size in sizes
        for n in range(len(plan.shares).bit_length() + 1)
        if not n or (n + 1) * size <= levels
    ]
    # There should be room for the pieces that a task adds up.
    found = {way: _pieces(plan, hands, *way, max(1, int(levels // ARITY))) for way in ways}

    def seconds(way: tuple[int, int]) -> tuple[bool, float]:
        too_long, gathering = _seconds(plan, room, hands, *way)
        return too_long, gathering + found[way][0]

    size, run = min(ways, key=seconds)
    bundles = plan.bundles(plan.short, size)
    if pairs is not None and size >= plan.places[plan.short].each:
        bundles = _by_pairs(plan, bundles, pairs, room.bundle)
    return Spread(bundles, in_runs(len(plan.shares), run), found[size, run][1])


def _by_pairs(plan: Plan, bundles: list[range], pairs: np.ndarray, most: int) -> list[range]:
    """Bundles of whole tile blocks with about as many pairs each, unless one would have more blocks than there is
    room for."""
    each, blocks = plan.places[plan.short].each, len(plan.places[plan.short])
    runs = evened([range(bundle.start // each, -(-bundle.stop // each)) for bundle in bundles], pairs)
    found = [range(run.start * each, min(run.stop * each, blocks)) for run in runs]
    return found if max(map(len, found)) <= most else bundles


def _pieces(plan: Plan, hands: Hands, size: int, run: int, most: int) -> tuple[float, int]:
    """The least seconds from gathered sums of so many blocks and shares a task to new rows, and blocks a piece for it.

    Many pieces cost the scheduler much, a task a gathered sum for each; few leave most workers without any.
    """
    bundles, runs = -(-len(plan.places[plan.short]) // size), -(-len(plan.shares) // run)
    sums, solving = size * plan.statistics_bytes(), pass_seconds(plan, START, plan.short)

    def seconds(pieces: int) -> float:
        tasks = bundles * runs * pieces if pieces > 1 else 0
        took, left = 0.0, runs
        while left > 1:
            met, left = min(ARITY, left), -(-left // ARITY)
            tasks += bundles * pieces * left
            took += -(-bundles * pieces * left // hands.threads) * met * sums / pieces / NETWORK
        return took + TASK_SECONDS * tasks + -(-bundles * pieces // hands.threads) * solving / (bundles * pieces)

    ways = {-(-size // blocks): blocks for blocks in range(min(most, size), 0, -1)}
    pieces = min(ways, key=seconds)
    return seconds(pieces), ways[pieces]


def _sizes(plan: Plan, most: int) -> list[int]:
    """Blocks a bundle that make a difference, at most so many."""
    each, tile_blocks = plan.places[plan.short].each, plan.cuts[plan.short].blocks
    whole = {-(-tile_blocks // -(-tile_blocks // many)) * each for many in range(1, min(most // each, tile_blocks) + 1)}
    return [*range(1, min(most, each - 1) + 1), *sorted(whole)] or [1]


def _seconds(plan: Plan, room: Room, hands: Hands, size: int, run: int) -> tuple[bool, float]:
    """Of the passes that gather for so many blocks over so many shares a task; first whether tasks are too long."""
    blocks, shares = len(plan.places[plan.short]), len(plan.shares)
    bundles = -(-blocks // size)
    tasks = bundles * -(-shares // run)
    part = min(1.0, size / blocks) * min(1.0, run / shares)  # of a pass, that a task is
    whole, too_long = 0.0, False
    for kind, read in zip(passes(plan), gather_reads(plan, room, bundles, hands.threads), strict=True):
        one = pass_seconds(plan, kind) * part
        least = size == 1 and run == 1
        too_long |= one > (SCAN if plan.table_bytes() > room.tables else LONGEST) and not least
        # Tables and pairs are read while others are computed with; but all workers read from one store.
        reading = (read + 5.0 * plan.pairs) / tasks / READ
        whole += TASK_SECONDS * tasks + -(-tasks // hands.threads) * (max(one, reading) + SHARED * reading)
    return too_long, whole


def passes(plan: Plan) -> list[str]:
    """Kinds of the gathering passes of a sweep."""
    return [GATHER] + [STEP] * plan.short_steps


def table_traits(plan: Plan) -> int:
    """Means and precisions that a row of a table is made of; cold fits, as those with xi* last are, need no latter."""
    return plan.factors if plan.xi_star_last else 2 * plan.factors


def table_read(plan: Plan) -> float:
    """Bytes of the store that the long side's tables are made of."""
    return plan.cuts[plan.long].rows * ((table_traits(plan) + 2) * plan.itemsize + 8.0)


def gather_reads(plan: Plan, room: Room, bundles: int, workers: int) -> list[float]:
    """Bytes of the long side's tables that the passes read which gather for so many bundles, all workers together.

    A worker that can keep all tables reads them once, as far as it meets them; else every bundle reads all, but for the
    rows that stay from the sums to the steps.
    """
    if plan.table_bytes() > room.tables:
        first = bundles * table_read(plan)
        stay = workers * room.rows(-(-len(plan.places[plan.short]) // bundles))
        return [first] + [max(0.0, first - stay)] * plan.short_steps
    return [min(bundles, workers) * table_read(plan)] + [0.0] * plan.short_steps
