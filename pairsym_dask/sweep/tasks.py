"""What runs on a worker: each task reads its blocks, computes without the GIL, writes whole chunks, returns sums.

Tasks are idempotent: the same task run twice writes the same bytes under the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import NumericError
from ..kernels import cold, cold_close, gradients, moments, rows
from ..kernels.layout import WHOLE, side_by_side
from ..kernels.rows import SQUARE, WEIGHT, OtherSide, Pairs, Values
from ..run.allocator import keep_memory
from ..run.bundles import add_in_tree, in_runs
from ..run.process import at_most
from ..run.workers import admit
from ..store.arrays import Sealed
from ..store.cuts import Tile
from .ahead import Ahead, Lazily
from .background import Background, add_packed, messages, observed_messages
from .elbo import SideSums, dirichlet_parameters, dirichlet_total, expected_log, side_sums
from .job import VALUES, Job


class Normaliser(NamedTuple):
    """A block's part of a sum of exponentials: their largest exponent, and the sum without it."""

    top: float
    total: float


@dataclass(frozen=True)
class Updated:
    """What an update of a block sends back: manifest entries, its part of the background, its part of the bound."""

    entries: list[Any]
    background: np.ndarray
    sums: SideSums

    @staticmethod
    def join(parts: list[Updated]) -> Updated:
        """Several blocks as one, added up in the blocks' order."""
        entries = [entry for part in parts for entry in part.entries]
        background = add_packed([part.background for part in parts])
        return Updated(entries, background, SideSums.add([part.sums for part in parts]))


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a task within its process's room: so many at a time."""

    def run(job: Job, *args: Any) -> Any:
        needed, job = job.needed, job.for_task()
        with at_most(job.room.tasks):
            if needed is not None:
                admit(needed)
                keep_memory()
            result = function(job, *args)
        if needed is not None:
            job.storage.settle()  # whoever is told that a task is done, in whatever process, can read what it wrote
        return result

    # Under the function's own name it is pickled by reference; its closure holds what cannot travel.
    run.__name__, run.__qualname__, run.__module__ = function.__name__, function.__qualname__, function.__module__
    run.__wrapped__ = function  # type: ignore[attr-defined]
    return run


def alone(task: Callable[..., Any]) -> Callable[..., Any]:
    """A task as a part of another one, which has its place in the process already."""
    return getattr(task, "__wrapped__", task)


@contextmanager
def reading_ahead(job: Any, blocks: range = range(0), groups: range = range(0), rows: int = 0) -> Iterator[Any]:
    """The job of a task on a cluster that comes to these blocks of the long side, or groups of its columns, in turn.

    So many bytes of rows that it reads may stay for a later task.
    """
    if not isinstance(job, Job) or job.needed is None or not (blocks or groups):
        yield job
        return
    with Ahead(blocks, groups, rows) as ahead:
        yield replace(job, ahead=ahead)


@on_worker
def each(job: Any, task: Callable[..., Any], own: tuple[int, ...], *arguments: Any) -> list[Any]:
    """A task for several blocks, one after another; the arguments numbered by `own` have a value for each."""
    one, blocks = alone(task), arguments[own[-1]]
    with reading_ahead(job, blocks if isinstance(blocks, range) else range(0)) as reading:
        return [
            one(reading, *(value[k] if number in own else value for number, value in enumerate(arguments)))
            for k in range(len(arguments[own[0]]))
        ]


@on_worker
def update_each(job: Any, task: Callable[..., Any], own: tuple[int, ...], *arguments: Any) -> list[Updated]:
    """`each` of a task that writes blocks; of fits so large that their sums have runs, a result a run."""
    updated = alone(each)(job, task, own, *arguments)
    if job.plan.run == 1:
        return updated  # type: ignore[no-any-return]
    return [Updated.join([updated[k] for k in run]) for run in in_runs(len(updated), job.plan.run)]


@on_worker
def gather_each(job: Any, task: Callable[..., Any], shares: range, *arguments: Any) -> Any:
    """What a gathering task finds in some shares, added up before it travels."""
    one = alone(task)
    if job.needed is not None and job.room.bundle > 1:
        job.clear_for_sums()
    return add_in_tree((one(job, *arguments, share) for share in shares), _add)


@on_worker
def gather_steps(
    job: Any, task: Callable[..., Any], shares: range, its: Sealed, what: Any, pieces: Any = (), last: bool = False,
    taken: Any = None,
) -> Any:  # fmt: skip
    """`gather_each` for the steps of a bundle of blocks; the directions, if there are some, come in pieces.

    So may the pairs' weights, `taken` from the process that made them.
    """
    steps = ([direction for piece in pieces for direction in piece], last, taken or {}) if pieces else ()
    return alone(gather_each)(job, task, shares, replace(what, its=its), *steps)


def _add(one: Any, two: Any) -> Any:
    """New arrays, so that a repeated task finds its inputs unchanged."""
    return [_add(a, b) for a, b in zip(one, two, strict=True)] if isinstance(one, list) else one + two


def close_block(job: Job, side: str, block: int, values: Values, before: np.ndarray, weights: np.ndarray) -> Updated:
    """Sum up what others need of a new block, and write it; `before` is s or t of the sweep before."""
    settings, n = job.settings, before.size
    marginal = job.marginal(side, block)
    selection = dirichlet_parameters(marginal, before, job.censored, settings.alpha)
    growth = job.growth(marginal, weights)
    packed, sums = np.zeros(job.statistics), np.zeros(6)
    if job.plan.cold(settings):
        table = job.empty_table(n)
        row = cold_close.close_cold_rows(values, settings.biases, weights, growth, job.width, table, packed, sums)
        if row >= 0:
            _complain(job, side, block, row)
    else:
        _check_finite(job, side, block, values, weights)
        table = job.fill(values, weights)
        moments.add_background(table, n, weights, growth, settings.factors, job.plan.steps > 0, packed, sums)
    mine = side_sums(sums, selection, weights, marginal, growth, job.censored, job.tau[side], settings)
    if not (np.isfinite(packed).all() and np.isfinite(mine.gauss) and np.isfinite(mine.weighted)):
        _complain(job, side, block, 0)
    job.keep_table(side, block, table)
    arrays = (*zip(VALUES, values, strict=True), ("selection", selection), ("background", weights))
    entries = [entry for name, array in arrays for entry in job.write(f"{side}/{name}", block, array)]
    return Updated(entries, packed, mine)


def _check_finite(job: Job, side: str, block: int, values: Values, weights: np.ndarray) -> None:
    """Nothing that is not finite is ever written; a model without biases has them with infinite precision."""
    row = moments.first_unsound(*values, job.settings.biases, weights)
    if row >= 0:
        _complain(job, side, block, row)


def _complain(job: Job, side: str, block: int, row: int) -> None:
    label = job.counts.labels(side)[job.plan.places[side][block].first + row]
    raise NumericError(
        f"the update of {side[:-1]} {label!r} (block {block} of the {side}) is not finite; "
        'the last committed sweep is intact; dtype="float64" or other taus may help'
    )


def weights_of(job: Job, side: str, own: Sealed, block: int, logits: np.ndarray | None, log_z: float) -> np.ndarray:
    """s or t of a block: users' log weights are in the generation before, items' come from the driver."""
    logits = job.read(own, "users/next", block) if logits is None else logits
    return np.asarray(np.exp(logits - log_z))


@on_worker
def update_block(
    job: Job, side: str, own: Sealed, its: Sealed, base: Background, two_lambda_star: float,
    logits: np.ndarray | None, log_z: float, block: int,
) -> Updated:  # fmt: skip
    """Update rows whose pairs are all at hand: accumulate and solve in cache."""
    before = job.read(own, f"{side}/background", block)
    weights = weights_of(job, side, own, block, logits, log_z)
    values = job.empty_values(before.size)
    terms = job.terms(side, own, block, base, two_lambda_star, weights)
    turned = job.turn if side == job.plan.first else None  # to the axes of what the first half is based on
    alone = turned is not None and job.plan.cold(job.settings)  # its kernel turns rows by itself
    own_table = job.table(side, own, block, turned=not alone)

    def visit(pairs: Pairs, others: OtherSide) -> None:
        if turned is not None and alone:
            axes, (square, _) = turned.axes.reshape(-1), base.dense(job.settings.dtype)
            cold.update_cold_rows(pairs, others, own_table, axes, terms, square, job.plan.steps, values)
        elif job.plan.steps:
            square, variances = base.dense(job.settings.dtype)
            scratch = np.empty(pairs.indices.size, job.settings.dtype)
            gradients.update_rows_by_steps(
                pairs, others, own_table, terms, square, variances, turned is not None, job.plan.steps, scratch,
                values,
            )  # fmt: skip
        else:
            rows.update_rows(pairs, others, own_table, terms, values)

    place = job.plan.places[side][block]
    visit_pairs(job, side, its, place.tile_block, place.rows, 0, visit)  # once: it is all there
    return close_block(job, side, block, values, before, weights)


def visit_pairs(
    job: Job, side: str, its: Sealed, tile_block: int, part: slice, group: int,
    visit: Callable[[Pairs, OtherSide], None],
) -> None:  # fmt: skip
    """Call `visit(pairs, others)` for some rows of a tile block and a group of columns."""
    tile = job.tile(side, tile_block, group)
    if side == job.plan.short:
        visit_runs(job, its, group, Lazily(lambda _: (tile, part), 1), lambda _, *these: visit(*these))
        return
    others = OtherSide(WHOLE, job.whole_table(job.plan.short, its))
    visit(Pairs(tile.indptr[:-1][part], tile.indptr[1:][part], tile.indices, tile.counts), others)


def visit_runs(
    job: Job, its: Sealed, group: int, parts: Lazily, visit: Callable[[int, Pairs, OtherSide], None]
) -> None:
    """Call `visit(k, pairs, others)` for the k-th of some tiles' rows, over runs of a group of the long side's columns.

    Tables of a run of blocks are read once for all of them.
    """
    plan = job.plan
    cursors = Lazily(lambda k: parts[k][0].indptr[:-1][parts[k][1]], len(parts))
    # Tables of several blocks are anywhere in memory; they must live until the visits are over.
    for run, tables in job.tables_by_run(its, group):
        table, where = side_by_side(plan.places[plan.long][run[0]].first, plan.blocks[plan.long], tables)
        for k in range(len(parts)):
            tile, part = parts[k]
            stops = np.empty_like(cursors[k])
            rows.advance(cursors[k], tile.indptr[1:][part], tile.indices, plan.places[plan.long][run[-1]].stop, stops)
            visit(k, Pairs(cursors[k], stops, tile.indices, tile.counts), OtherSide(where, table))
            cursors[k] = stops


def tiles_of(job: Job, side: str, parts: list[range], group: int) -> Lazily:
    """Tiles of a group of columns and their rows, for some runs of blocks, each within a tile block."""
    places = job.plan.places[side]

    def tile(k: int) -> tuple[Tile, slice]:
        first, last = places[parts[k][0]], places[parts[k][-1]]
        return job.tile(side, first.tile_block, group), slice(first.rows.start, last.rows.stop)

    return Lazily(tile, len(parts))


def ask_parts(job: Job, side: str, own: Sealed | None, parts: list[range], group: int) -> None:
    """Have read what some runs of blocks need that are visited one after the other: own tables, and first tiles."""
    for part in parts:
        if own is not None:
            for block in part:
                job.ask_table(side, own, block)
        job.ask_tile(side, job.plan.places[side][part[0]].tile_block, group)


@on_worker
def gather_statistics(
    job: Job, its: Sealed, side: str, own: Sealed, two_lambda_star: float, logits: list[np.ndarray | None],
    log_z: float, blocks: range, share: int,
) -> list[np.ndarray]:  # fmt: skip
    """Partial statistics of blocks of the short side's rows over a share of the columns."""
    factors = job.settings.factors
    censored = [
        job.censored * weights_of(job, side, own, block, logit, log_z)
        for block, logit in zip(blocks, logits, strict=True)
    ]
    out = [np.zeros((each.size, job.statistics), job.settings.dtype) for each in censored]
    parts, groups = job.plan.by_tile(side, blocks), job.plan.shares[share]

    def visit(k: int, pairs: Pairs, others: OtherSide) -> None:
        at = 0
        for block in parts[k]:
            n = block - blocks.start
            mine = slice(at, at + censored[n].size)
            at = mine.stop
            part = pairs._replace(starts=pairs.starts[mine], stops=pairs.stops[mine])
            rows.add_statistics(
                part, others, tables[n], job.width, factors, censored[n], two_lambda_star, job.cold, out[n]
            )

    with reading_ahead(job, groups=groups) as reading:
        ask_parts(reading, side, own, parts, groups[0])
        tables = Lazily(lambda n: reading.table(side, own, blocks[n]), len(blocks))
        for group in groups:
            visit_runs(reading, its, group, tiles_of(reading, side, parts, group), visit)
    return out


def pick(gathered: list[Any], part: slice) -> list[Any]:
    """Some blocks' statistics out of those gathered together; needs nothing else, so that it runs where they are."""
    return gathered[part]


def pass_on(what: Any) -> Any:
    """What another task has found; whoever needs it takes it from here."""
    return what


def add_up(job: Any, *parts: Any) -> Any:
    """One node of a reduction tree, which is a tree itself where it has many parts."""
    return add_in_tree(parts, _add)


@on_worker
def solve_block(
    job: Job, side: str, own: Sealed, stats: np.ndarray, base: Background, two_lambda_star: float,
    logits: np.ndarray | None, log_z: float, block: int,
) -> Updated:  # fmt: skip
    """Update rows of the short side from their gathered statistics."""
    before = job.read(own, f"{side}/background", block)
    weights = weights_of(job, side, own, block, logits, log_z)
    values = job.empty_values(before.size)
    terms = job.terms(side, own, block, base, two_lambda_star, weights)
    if terms.pull.size:  # beside sum c/2 z, in a new array
        stats = stats.copy()
        stats[:, -job.width :] += terms.pull
    rows.solve_statistics(stats, job.table(side, own, block), terms, values)
    return close_block(job, side, block, values, before, weights)


@on_worker
def select_tile(job: Job, side: str, own: Sealed, its: Sealed, tile_block: int, group: int) -> np.ndarray:
    """Selection statistics (rows, 4) of a tile block over a group of columns."""
    tables = [job.table(side, own, block) for block in job.plan.tile_blocks[side][tile_block]]
    return select_rows(job, side, tables[0] if len(tables) == 1 else np.concatenate(tables), its, tile_block, group)


def select_rows(job: Job, side: str, own_table: np.ndarray, its: Sealed, tile_block: int, group: int) -> np.ndarray:
    out = np.zeros((own_table.size // (2 * job.width), 4))

    def visit(pairs: Pairs, others: OtherSide) -> None:
        if job.plan.cold(job.settings):
            cold_close.select_cold_rows(pairs, others, own_table, job.width, job.settings.factors, out)
        else:
            rows.select_rows(pairs, others, own_table, job.width, job.settings.factors, job.cold, out)

    visit_pairs(job, side, its, tile_block, slice(None), group, visit)
    return out


def take_rows(job: Job, side: str, stats: np.ndarray, block: int) -> np.ndarray:
    """The rows of a block out of its tile's."""
    return stats[job.plan.places[side][block].rows]


def logits_of(
    job: Job, side: str, table: np.ndarray, stats: np.ndarray | None, base: Background, xi_star: float,
    weights: np.ndarray, block: int,
) -> tuple[np.ndarray, np.ndarray, Normaliser]:  # fmt: skip
    """Messages of a block, log weights up to their normaliser, and the block's part of that normaliser.

    Messages are those of observed pairs alone where weights do not need them, and zero without statistics.
    """
    settings, marginal = job.settings, job.marginal(side, block)
    if settings.selection == "counts":  # the bound has the rest of the messages from the backgrounds
        message = np.zeros(0) if stats is None else observed_messages(stats, xi_star)
        logits = settings.background_exponent(side) * np.log(settings.alpha + marginal)
    else:
        assert stats is not None
        message = messages(stats, table, base, xi_star)
        selection = dirichlet_parameters(marginal, weights, job.censored, settings.alpha)
        whole = dirichlet_total(job.plan.cuts[side].rows, job.counts.total, job.censored, settings.alpha)
        logits = expected_log(selection, whole)
        if settings.selection == "bayes":
            logits = logits + message
    top = float(logits.max())
    return message, logits, Normaliser(top, float(np.sum(np.exp(logits - top))))


@on_worker
def weigh_block(
    job: Job, side: str, own: Sealed, stats: np.ndarray | None, base: Background, xi_star: float, block: int
) -> tuple[np.ndarray, Normaliser]:
    """Log weights of a block for this sweep, and its part of the normaliser."""
    before = job.read(own, f"{side}/background", block)
    table = np.zeros(0) if stats is None else job.table(side, own, block)
    _, logits, part = logits_of(job, side, table, stats, base, xi_star, before, block)
    return logits, part


@on_worker
def observed_sums(job: Job, side: str, own: Sealed, stats: np.ndarray, block: int) -> tuple[float, float]:
    """sum t_j S0_j and sum t_j S2_j of a block, for xi*."""
    before = job.read(own, f"{side}/background", block)
    return float(before @ stats[:, WEIGHT]), float(before @ stats[:, SQUARE])
