"""Tasks of the short side's conjugate gradients: sums gathered once, then a product gathered for every step.

Blocks of rows go their own ways: a step of one waits for nothing but its own parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels import cold_gathered, gathered
from ..kernels.gradients import SUMS, State
from ..kernels.outer import stride_of
from ..kernels.rows import OtherSide, Pairs
from ..kernels.simd import LANES
from ..store.arrays import Sealed
from .ahead import Lazily
from .background import Background
from .job import Job
from .shelf import SHELF, Key
from .tasks import Updated, ask_parts, close_block, on_worker, reading_ahead, tiles_of, visit_runs, weights_of


@dataclass(frozen=True)
class Gathering:
    """What the gathering tasks of a bundle of blocks share: which rows, and how their pairs weigh."""

    side: str
    own: Sealed
    its: Sealed
    two_lambda_star: float
    logits: list[np.ndarray | None]
    log_z: float
    blocks: range

    def censored(self, job: Job) -> list[np.ndarray]:
        """D' s_i of the rows, block by block."""
        pairs = zip(self.blocks, self.logits, strict=True)
        return [
            job.censored * weights_of(job, self.side, self.own, block, logits, self.log_z) for block, logits in pairs
        ]

    def parts(self, job: Job) -> list[range]:
        """The blocks, by the tile block that they lie in."""
        return job.plan.by_tile(self.side, self.blocks)

    def rows(self, job: Job) -> int:
        """Bytes of the long side's rows that may stay from the sums to the steps."""
        return job.room.rows(len(self.blocks)) if job.scattered else 0

    def visit(
        self, job: Job, group: int, kept: list[np.ndarray | None],
        visit: Callable[[int, Pairs, OtherSide, np.ndarray], None],
    ) -> list[np.ndarray]:  # fmt: skip
        """Call `visit(k, pairs, others, weights)` for every block k of the bundle and a group of columns.

        `kept` has W of the pairs of each part, or None; so has what is returned, with new arrays in the place of None.
        """
        parts, places = self.parts(job), job.plan.places[self.side]
        tiles = tiles_of(job, self.side, parts, group)

        def end(k: int) -> slice:
            """Pairs of these blocks alone."""
            tile, rows = tiles[k]
            return slice(int(tile.indptr[rows.start]), int(tile.indptr[rows.stop]))

        def weigh(k: int) -> np.ndarray:
            found = kept[k]
            return np.empty(ends[k].stop - ends[k].start, job.settings.dtype) if found is None else found

        ends, weights = Lazily(end, len(parts)), Lazily(weigh, len(parts))

        def each(k: int, pairs: Pairs, others: OtherSide) -> None:
            at, end = 0, ends[k]
            for block in parts[k]:
                size = places[block].stop - places[block].first
                starts, stops = (some[at : at + size] - end.start for some in (pairs.starts, pairs.stops))
                at += size
                mine = Pairs(starts, stops, pairs.indices[end], pairs.counts[end])
                visit(block - self.blocks.start, mine, others, weights[k])

        visit_runs(job, self.its, group, tiles, each)
        return [weights[k] for k in range(len(parts))]

    def weights_key(self, job: Job, part: range, group: int) -> Key:
        return _weights_key(job, self.side, part[0], group)


def _weights_key(job: Job, side: str, block: int, group: int) -> Key:
    return Key("weights", job.storage.url, job.folder, side, block, group)


@on_worker
def gather_sums(job: Job, what: Gathering, share: int) -> list[np.ndarray]:
    """Partial sums of a bundle of blocks over a share of the columns; the pairs' W are kept if there is room."""
    width, factors, cold = job.width, job.settings.factors, job.plan.cold(job.settings)
    censored = what.censored(job)
    size = cold_gathered.cold_sums_size(factors) if cold else SUMS * width
    out = [np.zeros((each.size, size), job.settings.dtype) for each in censored]

    def visit(k: int, pairs: Pairs, others: OtherSide, weights: np.ndarray) -> None:
        rest = width, factors, censored[k], what.two_lambda_star
        if cold:
            cold_gathered.add_cold_sums(pairs, others, tables[k], *rest, weights, out[k])
        else:
            gathered.add_sums(pairs, others, tables[k], *rest, job.cold, weights, out[k])

    parts, groups = what.parts(job), job.plan.shares[share]
    with reading_ahead(job, groups=groups, rows=what.rows(job)) as reading:
        ask_parts(reading, what.side, what.own, parts, groups[0])
        tables = Lazily(lambda k: reading.table(what.side, what.own, what.blocks[k]), len(what.blocks))
        for group in groups:
            made = what.visit(reading, group, [None for _ in parts], visit)
            for part, weights in zip(parts, made, strict=True):
                SHELF.put(what.weights_key(job, part, group), weights, job.room.cache)
    return out


@dataclass(frozen=True)
class Kept:
    """What W of a bundle's pairs over some groups of columns are kept under, by first block of a part and group."""

    key: Key  # of any of them
    parts: tuple[int, ...]
    groups: range

    @staticmethod
    def of(job: Job, side: str, blocks: range, shares: range) -> Kept:
        plan = job.plan
        groups = range(plan.shares[shares[0]].start, plan.shares[shares[-1]].stop)
        parts = tuple(part[0] for part in plan.by_tile(side, blocks))
        return Kept(_weights_key(job, side, blocks[0], groups[0]), parts, groups)


def take_weights(kept: Kept, gathered: Any) -> dict[tuple[int, int], np.ndarray]:
    """W of a bundle's pairs as the process has kept them that has `gathered` its sums, by first block and group.

    They travel where steps are taken elsewhere, which takes less time than to make them again. A task of this needs
    nothing but the sums, so that it runs where they are.
    """
    keys = {(part, group): kept.key._replace(block=part, part=group) for group in kept.groups for part in kept.parts}
    found = {where: SHELF.peek(key) for where, key in keys.items()}
    SHELF.drop(set(keys.values()).__contains__)
    return {where: weights for where, weights in found.items() if weights is not None}


@on_worker
def gather_products(
    job: Job, what: Gathering, directions: list[np.ndarray], last: bool, taken: dict[tuple[int, int], np.ndarray],
    share: int,
) -> list[np.ndarray]:  # fmt: skip
    """Partial sums of W (z.p) z of a bundle of blocks over a share of the columns, p the blocks' directions.

    W are `taken` from the process that has them, or on this one's shelf, or made again. Cold rows need no more than the
    number sum W (z.p)^2 for the `last` step.
    """
    width, factors, cold = job.width, job.settings.factors, job.plan.cold(job.settings)
    numbers = 1 if cold and last else stride_of(width)
    out = [np.zeros((direction.shape[0], numbers), direction.dtype) for direction in directions]
    parts, groups = what.parts(job), job.plan.shares[share]
    missing: set[int] = set()  # blocks whose weights had no room, or were gathered by another process
    censored: list[np.ndarray] = []

    def visit(k: int, pairs: Pairs, others: OtherSide, weights: np.ndarray) -> None:
        if k in missing:
            rest = width, factors, censored[k], what.two_lambda_star
            if cold:
                cold_gathered.weigh_cold_pairs(pairs, others, tables[k], *rest, weights)
            else:
                gathered.weigh_pairs(pairs, others, tables[k], *rest, job.cold, weights)
        if cold:
            cold_gathered.add_cold_products(pairs, others, width, factors, weights, directions[k], last, out[k])
        else:
            gathered.add_products(pairs, others, width, weights, directions[k], out[k])

    with reading_ahead(job, groups=groups, rows=what.rows(job)) as reading:
        ask_parts(reading, what.side, None, parts, groups[0])
        tables = Lazily(lambda k: reading.table(what.side, what.own, what.blocks[k]), len(what.blocks))
        for group in groups:
            kept = [
                taken[part[0], group] if (part[0], group) in taken else SHELF.peek(what.weights_key(job, part, group))
                for part in parts
            ]
            missing = {
                block - what.blocks.start
                for part, weights in zip(parts, kept, strict=True)
                if weights is None
                for block in part
            }
            if missing and not censored:
                censored = what.censored(job)
            what.visit(reading, group, kept, visit)
    return out


@dataclass(frozen=True)
class Standing:
    """Where the steps of a block stand."""

    state: State
    precision: np.ndarray
    bias: np.ndarray
    bias_precision: np.ndarray


def direction(job: Job, standing: Standing) -> np.ndarray:
    """What the next step's products are gathered for."""
    rows = np.asarray(standing.state.direction)
    return cold_gathered.as_direction(rows, job.settings.factors) if job.plan.cold(job.settings) else rows


@on_worker
def begin_block(job: Job, what: Gathering, sums: np.ndarray, base: Background, block: int) -> Standing:
    """The first directions of a block, from its gathered sums."""
    n, dtype = sums.shape[0], job.settings.dtype
    logits = what.logits[block - what.blocks[0]]
    weights = weights_of(job, what.side, what.own, block, logits, what.log_z)
    terms = job.terms(what.side, what.own, block, base, what.two_lambda_star, weights)
    shape = (-(-n // LANES) * LANES, stride_of(job.width))
    rows, scalars = ([np.zeros(size, dtype) for _ in range(many)] for size, many in ((shape, 5), (n, 2)))
    state = State._make([*rows, *scalars])
    values = job.empty_values(n)
    own_table = job.table(what.side, what.own, block)
    if job.plan.cold(job.settings):
        sums = cold_gathered.as_sums(sums, job.width, job.settings.factors)
    if terms.pull.size:  # beside sum (c/2 - W b) z, in a new array
        sums = sums.copy()
        sums[:, 3 * job.width : 4 * job.width] += terms.pull
    square, variances = base.dense(dtype)
    gathered.begin_steps(
        sums, own_table, terms, square, variances, state, values.precision, values.bias, values.bias_precision
    )
    return Standing(state, values.precision, values.bias, values.bias_precision)


@on_worker
def step_block(job: Job, standing: Standing, products: np.ndarray, base: Background, last: bool) -> Standing:
    """One step of a block; new arrays, so that a repeated task finds its inputs unchanged."""
    square, _ = base.dense(job.settings.dtype)
    before = standing.state
    state = before._replace(
        mean=before.mean.copy(), residual=before.residual.copy(), direction=before.direction.copy(),
        product=before.product.copy(),
    )  # fmt: skip
    if last and job.plan.cold(job.settings):
        cold_gathered.take_last_step(products, job.settings.factors, square, job.width, state)
    else:
        gathered.take_step(products.copy(), job.settings.factors, square, job.width, state)
    return Standing(state, standing.precision, standing.bias, standing.bias_precision)


@on_worker
def settle_block(job: Job, what: Gathering, standing: Standing, block: int) -> Updated:
    """Write a block after its last step."""
    before = job.read(what.own, f"{what.side}/background", block)
    logits = what.logits[block - what.blocks[0]]
    weights = weights_of(job, what.side, what.own, block, logits, what.log_z)
    values = job.empty_values(before.size)
    values.mean[:] = standing.state.mean[: before.size, : job.settings.factors]
    values = values._replace(precision=standing.precision, bias=standing.bias, bias_precision=standing.bias_precision)
    return close_block(job, what.side, block, values, before, weights)
