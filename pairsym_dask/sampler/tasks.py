"""What runs on a worker: each task reads its blocks, draws without the GIL, writes whole chunks, returns sums.

Tasks are idempotent: the same task run twice draws the same numbers and writes the same bytes under the same keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import NumericError
from ..kernels.draws import TOTALS, draw_statistics_size
from ..kernels.random import fill_normals
from ..kernels.row_draws import add_moments
from ..run.workers import Requirements
from ..settings import Settings
from ..store.arrays import ArraySpec, Sealed
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from ..store.cuts import Tile
from ..store.sharded import Output
from ..store.shards import Shards
from ..store.storage import Storage
from ..sweep.room import Room
from ..sweep.shelf import SHELF, TABLES, Key
from ..sweep.start import start_scale
from ..sweep.tag_prior import TagPrior, mixed, tag_group
from ..sweep.tasks import on_worker
from ..sweep.travelling import Travelling
from .halves import (
    MIXTURE,
    NO_CENTRES,
    START,
    Drawn,
    Keys,
    ProposedSide,
    draw_gathered,
    draw_own,
    draw_selection,
    gather,
)
from .hyper import Prior
from .plan import DrawPlan
from .shifts import Shifting, Slope, accept, shift_rows, weigh_columns

ARRAYS = ("traits", "bias", "selection")


@dataclass(frozen=True)
class DrawJob(Travelling):
    """What all tasks of a sweep need to know; one node of the graph."""

    counts: Counts
    settings: Settings
    plan: DrawPlan
    room: Room
    storage: Storage
    folder: str
    specs: dict[str, ArraySpec]
    sweep: int
    needed: Requirements | None = None  # on a cluster: what is asked of its workers
    tags: dict[str, TagPrior] = field(default_factory=dict)  # by side, of the sides that have tags
    shards: Shards | None = None
    output: Output = field(default_factory=Output, compare=False)  # of each task its own

    @property
    def scattered(self) -> bool:
        """Whether pairs that a task has read are of no use to later ones."""
        return not self.room.cache

    @property
    def keys(self) -> Keys:
        return Keys(self.settings.random_state, self.sweep)

    def read(self, sealed: Sealed, side: str, block: int) -> Drawn:
        """A committed or newly written block."""
        return Drawn(*sealed.read_several([(self.specs[f"{side}/{name}"], block) for name in ARRAYS]))

    def tile(self, block: int) -> Tile:
        """Pairs of a block of the long side, kept if there is room."""
        side = self.plan.long

        def make() -> Tile:
            # What is not kept is read again and again: ask for the tile that comes after those under way.
            if block + self.room.tasks < self.plan.count(side):
                self.counts.ask_tile(side, block + self.room.tasks, 0)
            return self.counts.read_tile(side, block, 0)

        kept: Tile = SHELF.get(Key("tile", self.counts.path, self.counts.digest, side, block), make, self.room.cache)
        return kept

    def short(self, sealed: Sealed) -> Drawn:
        """The whole short side of a state."""
        side = self.plan.short
        parts = [self.read(sealed, side, block) for block in range(self.plan.count(side))]
        return Drawn(*(np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS))

    def columns(self, sealed: Sealed, slope: Slope | None = None, steps: np.ndarray | None = None) -> ProposedSide:
        """The short side of a state, after its steps if it took some; kept."""

        def make() -> ProposedSide:
            whole = self.short(sealed)
            moved = whole if slope is None or steps is None else slope.shifted(whole, steps)
            return ProposedSide.make(moved, self.settings.factors)

        kept: ProposedSide = self._once("columns" if steps is None else "shifted", sealed, make)
        return kept

    def shifting(self, sealed: Sealed) -> Shifting:
        """The short side of a state while it may shift; kept."""
        side = self.plan.short

        def make() -> Shifting:
            counts = np.concatenate([self.marginal(side, block) for block in range(self.plan.count(side))])
            return Shifting.make(self.keys, self.settings, side, self.short(sealed), counts)

        kept: Shifting = self._once("shifting", sealed, make)
        return kept

    def _once(self, kind: str, sealed: Sealed, make: Callable[[], Any]) -> Any:
        """What is made of the whole short side, kept once a process until the next such thing is asked for."""
        return TABLES.get(Key(f"{kind} {self.sweep}", self.storage.url, sealed.prefix, self.plan.short, 0), make)

    def tag_table(self, side: str, sealed: Sealed) -> np.ndarray:
        """Effects [h_f, e_f] of a side's tags in a state; kept once a process."""

        def make() -> np.ndarray:
            traits, bias = (sealed.read_array(self.specs[f"{tag_group(side)}/{name}"]) for name in ("traits", "bias"))
            return np.hstack([traits, bias[:, None]])

        key = Key("drawn tags", self.storage.url, sealed.prefix, side, 0)
        kept: np.ndarray = SHELF.get(key, make)
        SHELF.drop(lambda old: old.outdated_by(key))
        return kept

    def centres(self, side: str, own: Sealed, block: int) -> np.ndarray:
        """What the tags of a state add to the prior means of a block's [traits, bias]; no rows without tags."""
        if side not in self.tags:
            return NO_CENTRES
        prior = self.tags[side]
        tile = SHELF.get(
            Key("links of draws", prior.tags.path, prior.tags.digest, side, block),
            lambda: prior.of_rows(*self.plan.row_range(side, block)),
            self.room.cache,
        )
        return mixed(tile, self.tag_table(side, own))

    def marginal(self, side: str, block: int) -> np.ndarray:
        """c_i of a block of rows."""
        first, stop = self.plan.row_range(side, block)
        tile_block = first // self.counts.cuts[side].block
        offset = tile_block * self.counts.cuts[side].block
        return self.counts.marginal(side, tile_block)[first - offset : stop - offset]

    def complain(self, side: str, block: int, row: int) -> None:
        position = self.plan.row_range(side, block)[0] + row
        label = self.counts.labels(side)[position : position + 1].tolist()[0]
        raise NumericError(
            f"the draw of {side[:-1]} {label!r} (block {block} of the {side}) in sweep {self.sweep} is not finite; "
            'the last committed sweep is intact; dtype="float64" or hyperpriors=True may help'
        )


@dataclass(frozen=True)
class Closed:
    """What a drawn block sends back: manifest entries, and sums of what it holds."""

    entries: list[Any]
    moments: np.ndarray  # of [traits, bias, 1], above the diagonal; traits and biases less what tags add to their means
    selection: np.ndarray  # sums of its Gamma numbers, by component
    log_selection: float  # sum c_i log of them
    totals: np.ndarray  # of its pairs, where it drew them
    shifted: float = 0.0  # sum c_i t_i over the steps it took before it was drawn


@dataclass(frozen=True)
class Gathered:
    """Statistics and pairs by component of some blocks of the short side, and totals of the pairs."""

    stats: list[np.ndarray]
    pairs: list[np.ndarray]
    totals: np.ndarray


def _close(
    job: DrawJob, side: str, block: int, drawn: Drawn, totals: np.ndarray, steps: np.ndarray | None = None,
    centres: np.ndarray = NO_CENTRES,
) -> Closed:  # fmt: skip
    """Sum up a new block and write it."""
    finite = np.isfinite(drawn.traits).all(1) & np.isfinite(drawn.bias) & (drawn.chosen > 0).all(1)
    if not finite.all():
        job.complain(side, block, int(np.argmin(finite)))
    moments = np.zeros((job.settings.factors + 2, job.settings.factors + 2))
    if centres.size:
        add_moments(drawn.traits - centres[:, :-1], drawn.bias - centres[:, -1], moments)
    else:
        add_moments(drawn.traits, drawn.bias, moments)
    entries = [entry for name in ARRAYS for entry in job.write(f"{side}/{name}", block, getattr(drawn, name))]
    pairs = job.marginal(side, block)
    log_selection = float(np.sum(pairs * np.log(drawn.chosen.sum(1))))
    moved = 0.0 if steps is None else float(np.sum(pairs * steps))
    chosen = np.array([np.sum(column) for column in np.ascontiguousarray(drawn.chosen.T)])
    return Closed(entries, moments, chosen, log_selection, totals, moved)


def _by_component(job: DrawJob, side: str, first: int, selection: np.ndarray) -> np.ndarray:
    """Selection of a start for as many components as are asked for: at random, so that they can become different."""
    components = job.settings.components
    if selection.reshape(len(selection), -1).shape[1] == components:
        return selection
    noise = np.empty((len(selection), components))
    with np.errstate(over="ignore"):
        fill_normals(job.keys.of(MIXTURE, side), 0, first, 1.0, noise)
    weights = np.exp(noise)
    total = selection.reshape(len(selection), -1).sum(1, keepdims=True)
    started = total * weights / weights.sum(1, keepdims=True)
    return started[:, 0] if components == 1 else started


@on_worker
def start_block(job: DrawJob, side: str, block: int) -> Closed:
    """Write the start of a block: small random traits by (seed, side, row), no biases, selection by the counts."""
    first, stop = job.plan.row_range(side, block)
    factors, dtype = job.settings.factors, job.settings.dtype
    traits = np.empty((stop - first, factors))
    key = job.keys.of(START, side)
    with np.errstate(over="ignore"):
        fill_normals(key, 0, first, start_scale(factors), traits)
    selection = _by_component(job, side, first, job.settings.alpha + job.marginal(side, block))
    drawn = Drawn(traits.astype(dtype), np.zeros(stop - first, dtype), selection)
    return _close(job, side, block, drawn, np.zeros(TOTALS))


@on_worker
def take_over_block(
    job: DrawJob, side: str, start: Commit, there: np.ndarray | None, prior: Prior, block: int
) -> Closed:
    """Write a start of a block from a committed fit: a draw of its factorised posterior, or its draw as it is.

    `there` are the rows in the fit, all the same where it is None; new symbols (-1) begin at the prior's mean.
    """
    first, stop = job.plan.row_range(side, block)
    rows, dtype, factors = np.arange(first, stop), job.settings.dtype, job.settings.factors
    known = np.ones(rows.size, bool) if there is None else there >= 0
    taken = rows if there is None else there[known]
    traits, bias = np.tile(prior.mean, (rows.size, 1)), np.full(rows.size, prior.bias_mean * job.settings.biases)
    selection = job.settings.alpha + (1 + job.settings.censored_ratio) * job.marginal(side, block)
    chosen = read_rows(start, f"{side}/selection", taken)
    if chosen.ndim == 2:  # new symbols have of each component what the start has of it on the whole
        selection = selection[:, None] * start.selected(side) / start.selected(side).sum()
    selection[known] = chosen
    selection = _by_component(job, side, first, selection)
    if start.settings.inference == "gibbs":
        traits[known], bias[known] = (read_rows(start, f"{side}/{name}", taken) for name in ARRAYS[:2])
    else:
        noise = np.empty((rows.size, factors + 1))
        with np.errstate(over="ignore"):
            fill_normals(job.keys.of(START, side), 0, first, 1.0, noise)
        mean, precision, middle, middle_precision = (
            read_rows(start, f"{side}/{name}", taken).astype(float)
            for name in ("mean", "precision", "bias", "bias_precision")
        )
        traits[known] = mean + noise[known, :-1] / np.sqrt(precision)
        bias[known] = middle + noise[known, -1] / np.sqrt(middle_precision)
    return _close(job, side, block, Drawn(traits.astype(dtype), bias.astype(dtype), selection), np.zeros(TOTALS))


@on_worker
def draw_block(
    job: DrawJob, side: str, own: Sealed, its: Sealed, scale: np.ndarray, prior: Prior, slope: Slope | None, block: int
) -> Closed:
    """Draw a block of the long side: steps, pairs, then rows; `scale` times old selection are expected proposals."""
    first, _ = job.plan.row_range(side, block)
    old, counts, steps = job.read(own, side, block), job.marginal(side, block), None
    tile, columns, centres = job.tile(block), job.columns(its), job.centres(side, own, block)
    if slope is not None:
        steps = shift_rows(
            job.keys, job.settings, side, first, old, counts, float(scale[0]), tile, columns, slope, centres
        )
        old = slope.shifted(old, steps)
    traits, bias, pairs, totals = draw_own(
        job.keys, job.settings, side, first, old, scale * old.chosen, tile, columns, prior,
        lambda row: job.complain(side, block, row), centres,
    )  # fmt: skip
    selection = draw_selection(job.keys, job.settings, side, first, pairs)
    return _close(job, side, block, Drawn(traits, bias, selection), totals, steps, centres)


@on_worker
def weigh_share(
    job: DrawJob, side: str, own: Sealed, its: Sealed, scale: np.ndarray, slope: Slope, share: int
) -> np.ndarray:
    """Log ratios of the steps of the short side, as far as a share of the long side has its pairs."""
    shifting = job.shifting(own)
    ratios = np.zeros(shifting.steps.size)
    for block in job.plan.shares[share]:
        first, _ = job.plan.row_range(job.plan.long, block)
        weigh_columns(
            job.keys, job.settings, side, first, job.read(its, job.plan.long, block), float(scale[0]),
            job.tile(block), shifting, slope, ratios,
        )  # fmt: skip
    return ratios


def add_ratios(job: DrawJob, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return one + two


@on_worker
def take_steps(job: DrawJob, side: str, own: Sealed, slope: Slope, ratios: np.ndarray) -> np.ndarray:
    """The steps that the short side takes."""
    shifting = job.shifting(own)
    centres = np.concatenate([job.centres(side, own, block) for block in range(job.plan.count(side))])
    return accept(job.keys, job.settings, side, 0, shifting.columns.table, shifting.steps, ratios, slope, centres)


@on_worker
def gather_pairs(
    job: DrawJob, side: str, own: Sealed, its: Sealed, scale: np.ndarray, slope: Slope | None,
    steps: np.ndarray | None, bundle: range, share: int,
) -> Gathered:  # fmt: skip
    """Statistics of some blocks of the short side over a share of the long side; `scale` as in `draw_block`."""
    plan, size = job.plan, draw_statistics_size(job.settings.factors)
    start, stop = plan.row_range(side, bundle[0])[0], plan.row_range(side, bundle[-1])[1]
    stats = np.zeros((stop - start, size), job.settings.dtype)
    pairs = np.zeros((stop - start, job.settings.components), np.int64)
    totals, columns = np.zeros(TOTALS), job.columns(own, slope, steps)
    for block in plan.shares[share]:
        long = job.read(its, plan.long, block)
        gather(
            job.keys, job.settings, side, plan.row_range(plan.long, block)[0], long, scale * long.chosen,
            job.tile(block), columns, start, plan.buffer, stats, pairs, totals,
        )  # fmt: skip
    parts = [slice(plan.row_range(side, block)[0] - start, plan.row_range(side, block)[1] - start) for block in bundle]
    return Gathered([stats[part] for part in parts], [pairs[part] for part in parts], totals)


def pick(job: DrawJob, gathered: Gathered, k: int, block: int) -> Gathered:
    """One block's statistics out of those gathered together; every bundle drew all pairs, but totals count once."""
    totals = gathered.totals if block == 0 else np.zeros(TOTALS)
    return Gathered([gathered.stats[k]], [gathered.pairs[k]], totals)


def add_up(job: DrawJob, one: Gathered, two: Gathered) -> Gathered:
    """One node of a reduction tree; new arrays, so that a repeated task finds its inputs unchanged."""
    return Gathered(
        [a + b for a, b in zip(one.stats, two.stats, strict=True)],
        [a + b for a, b in zip(one.pairs, two.pairs, strict=True)],
        one.totals + two.totals,
    )


@on_worker
def draw_gathered_block(
    job: DrawJob, side: str, own: Sealed, gathered: Gathered, prior: Prior, steps: np.ndarray | None, block: int
) -> Closed:
    """Draw a block of the short side from its gathered statistics."""
    first, stop = job.plan.row_range(side, block)
    centres = job.centres(side, own, block)
    traits, bias = draw_gathered(
        job.keys, job.settings, side, first, gathered.stats[0], prior, lambda row: job.complain(side, block, row),
        centres,
    )  # fmt: skip
    selection = draw_selection(job.keys, job.settings, side, first, gathered.pairs[0])
    taken = None if steps is None else steps[first:stop]
    return _close(job, side, block, Drawn(traits, bias, selection), gathered.totals, taken, centres)
