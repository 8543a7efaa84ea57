"""Tasks of the short side's conjugate gradients: sums gathered once, then a product gathered for every step.

Blocks of rows go their own ways: a step of one waits for nothing but its own parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..kernels import cold_gathered, gathered
from ..kernels.gradients import SUMS, State
from ..kernels.outer import stride_of
from ..kernels.rows import OtherSide, Pairs
from ..kernels.simd import LANES
from ..store.arrays import Sealed
from .background import Background
from .job import Job
from .shelf import SHELF, Key
from .tasks import Updated, close_block, on_worker, visit_pairs, weights_of


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

    def visit(self, job: Job, share: int, visit: Callable[[int, Pairs, OtherSide, int], None]) -> None:
        """Call `visit(k, pairs, others, group)` for every block k of the bundle and every group of a share."""
        places = [job.plan.places[self.side][block] for block in self.blocks]
        tile_block, rows = places[0].tile_block, slice(places[0].rows.start, places[-1].rows.stop)
        sizes = [place.stop - place.first for place in places]

        for group in job.plan.shares[share]:
            indptr = job.tile(self.side, tile_block, group).indptr
            part = slice(indptr[rows.start], indptr[rows.stop])  # pairs of these blocks alone

            def each(pairs: Pairs, others: OtherSide, group: int = group, part: slice = part) -> None:
                at = 0
                for k, size in enumerate(sizes):
                    starts, stops = (ends[at : at + size] - part.start for ends in (pairs.starts, pairs.stops))
                    at += size
                    visit(k, Pairs(starts, stops, pairs.indices[part], pairs.counts[part]), others, group)

            visit_pairs(job, self.side, self.its, tile_block, rows, [group], each)

    def weights_key(self, job: Job, group: int) -> Key:
        return Key("weights", job.storage.url, job.folder, self.side, self.blocks[0], group)


@on_worker
def gather_sums(job: Job, what: Gathering, share: int) -> list[np.ndarray]:
    """Partial sums of a bundle of blocks over a share of the columns; the pairs' W are kept if there is room."""
    width, factors, cold = job.width, job.settings.factors, job.plan.cold(job.settings)
    censored = what.censored(job)
    tables = [job.table(what.side, what.own, block) for block in what.blocks]
    size = cold_gathered.cold_sums_size(width) if cold else SUMS * width
    out = [np.zeros((each.size, size), job.settings.dtype) for each in censored]
    kept: dict[int, np.ndarray] = {}

    def visit(k: int, pairs: Pairs, others: OtherSide, group: int) -> None:
        weights = kept.setdefault(group, np.empty(pairs.indices.size, job.settings.dtype))
        rest = width, factors, censored[k], what.two_lambda_star
        if cold:
            cold_gathered.add_cold_sums(pairs, others, tables[k], *rest, weights, out[k])
        else:
            gathered.add_sums(pairs, others, tables[k], *rest, job.cold, weights, out[k])

    what.visit(job, share, visit)
    for group, weights in kept.items():
        SHELF.put(what.weights_key(job, group), weights, job.room.cache)
    return out


@on_worker
def gather_products(
    job: Job, what: Gathering, directions: list[np.ndarray], last: bool, share: int
) -> list[np.ndarray]:
    """Partial sums of W (z.p) z of a bundle of blocks over a share of the columns, p the blocks' directions.

    Cold rows need no more than the number sum W (z.p)^2 for the `last` step.
    """
    width, factors, cold = job.width, job.settings.factors, job.plan.cold(job.settings)
    out = [np.zeros_like(direction[:, :1] if cold and last else direction) for direction in directions]
    kept = {group: SHELF.peek(what.weights_key(job, group)) for group in job.plan.shares[share]}
    if any(weights is None for weights in kept.values()):  # no room, or gathered by another process
        censored = what.censored(job)
        tables = [job.table(what.side, what.own, block) for block in what.blocks]
        made: dict[int, np.ndarray] = {}

        def weigh(k: int, pairs: Pairs, others: OtherSide, group: int) -> None:
            weights = made.setdefault(group, np.empty(pairs.indices.size, job.settings.dtype))
            rest = width, factors, censored[k], what.two_lambda_star
            if cold:
                cold_gathered.weigh_cold_pairs(pairs, others, tables[k], *rest, weights)
            else:
                gathered.weigh_pairs(pairs, others, tables[k], *rest, job.cold, weights)

        what.visit(job, share, weigh)
        kept = dict(made)

    def visit(k: int, pairs: Pairs, others: OtherSide, group: int) -> None:
        if cold:
            cold_gathered.add_cold_products(pairs, others, width, factors, kept[group], directions[k], last, out[k])
        else:
            gathered.add_products(pairs, others, width, kept[group], directions[k], out[k])

    what.visit(job, share, visit)
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
    return np.asarray(standing.state.direction)


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
