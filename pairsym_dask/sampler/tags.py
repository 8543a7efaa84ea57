"""Draws of tags: their effects on traits and biases given a side's rows, and how relevant each tag is.

    v_j ~ N(mu + sum_f x_jf h_f, Lambda^-1)      b_j ~ N(m + sum_f x_jf e_f, 1 / t)
    h_f ~ N(0, 1/gamma_f I)                      e_f ~ N(0, 1/tau_b)                  gamma_f ~ Gamma(a, a)

mu, Lambda, m and t are the side's prior (`hyper`), drawn given what tags leave of its rows; then tags are drawn, one
after another, beside what the others leave. On the axes of Lambda the traits of h_f are independent of each other, so
that a tag costs its symbols times K. mu and the level, which all symbols with tags have, say the same of them: both are
kept, and where all symbols have tags only their sum is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..kernels.random import fill_normals_at
from ..kernels.streams import draw_gammas
from ..kernels.tags import draw_tags, sum_squares, take_off_tags
from ..settings import Settings
from ..store.arrays import Sealed
from ..store.commit import Commit
from ..store.cuts import Tile
from ..sweep.tag_prior import TagPrior, gamma_prior, tag_group
from ..sweep.tags import write_effects
from ..sweep.tasks import on_worker
from .halves import RELEVANCE, TAG_BIASES, TAG_START, TAGS, Keys
from .hyper import Prior
from .tasks import DrawJob

PASSES = 2  # over the tags, each sweep: tags that symbols share move slowly beside each other

Tiles = Sequence[tuple[slice, Tile]]  # blocks of tags, and the symbols of each tag: `TagPrior.by_tag`


@dataclass(frozen=True)
class DrawnTags:
    """One draw of the tags of a side, a row a tag, the level last."""

    traits: np.ndarray  # h_f
    bias: np.ndarray  # e_f
    gamma: np.ndarray

    @staticmethod
    def start(number: int, settings: Settings) -> DrawnTags:
        """Before anything is known."""
        return DrawnTags(np.zeros((number, settings.factors), settings.dtype), np.zeros(number), np.ones(number))

    @staticmethod
    def read(sealed: Sealed, specs: Any, side: str) -> DrawnTags:
        return DrawnTags(
            *(sealed.read_array(specs[f"{tag_group(side)}/{name}"]) for name in ("traits", "bias", "gamma"))
        )

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def draw_effects(
    keys: Keys, settings: Settings, side: str, tiles: Tiles, old: DrawnTags, prior: Prior,
    turned: Callable[[np.ndarray], np.ndarray], bias: np.ndarray, groups: Sequence[slice],
) -> DrawnTags:  # fmt: skip
    """New effects of a side's tags, then gamma.

    `turned` gives traits of the symbols with tags times some axes (K, axes), `bias` are their biases, and `groups` axes
    that are worked on together.
    """
    squares, ones = np.empty(old.gamma.size), np.ones(bias.size)
    for tags, tile in tiles:
        sum_squares(tile.indptr, tile.indices, tile.counts, ones, squares[tags])
    with threadpool_limits(1, "blas"):  # the same bits whatever the number of threads
        spectrum, axes = np.linalg.eigh(prior.precision)
        effects = old.traits.astype(np.float64) @ axes
        for columns in groups:
            values = turned(axes[:, columns]) - prior.mean @ axes[:, columns]
            some = np.ascontiguousarray(effects[:, columns])
            place = np.arange(columns.start, columns.stop)
            _draw(keys.of(TAGS, side), place, tiles, spectrum[columns], old.gamma, squares, some, values)
            effects[:, columns] = some
        traits = effects @ axes.T
    e = old.bias.astype(np.float64)
    if settings.biases:
        own, scale = np.full(e.size, settings.tau_b), np.array([prior.bias_precision])
        left = (bias - prior.bias_mean)[:, None]
        _draw(keys.of(TAG_BIASES, side), np.zeros(1), tiles, scale, own, squares, e[:, None], left)
    known, k = gamma_prior(settings.factors), settings.factors
    gamma = np.empty((e.size, 1))
    draw_gammas(keys.of(RELEVANCE, side), 0, np.full((e.size, 1), known + k / 2), gamma)
    return DrawnTags(traits.astype(settings.dtype), e, gamma[:, 0] / (known + (traits**2).sum(1) / 2))


def _draw(
    key: np.uint64, place: np.ndarray, tiles: Tiles, scales: np.ndarray, gamma: np.ndarray, squares: np.ndarray,
    effects: np.ndarray, values: np.ndarray,
) -> None:  # fmt: skip
    """Draw effects on some traits, of numbers `place`, in place; `values` of symbols become what tags leave of them."""
    for tags, tile in tiles:
        take_off_tags(tile.indptr, tile.indices, tile.counts, effects[tags], values)
    for turn in range(PASSES):
        for tags, tile in tiles:
            noise = normals(key, turn, np.arange(tags.start, tags.stop), place)
            draw_tags(
                tile.indptr, tile.indices, tile.counts, scales, gamma[tags], squares[tags], noise, effects[tags], values
            )


def normals(key: np.uint64, stream: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Standard normals (rows, columns), each by key, stream, row number and column number alone."""
    out = np.empty((rows.size, columns.size))
    with np.errstate(over="ignore"):  # the generator counts modulo 2**64
        fill_normals_at(key, stream, rows.astype(np.uint64), columns.astype(np.uint64), out)
    return out


# Tasks ---------------------------------------------------------------------------------------------------------------


@on_worker
def draw_side(job: DrawJob, side: str, before: Sealed, state: Sealed, prior: Prior) -> list[Any]:
    """Draw the tags of a side after those of the generation before, given its rows in a state; manifest entries."""
    tags, settings = job.tags[side], job.settings
    bias = np.empty(tags.known.size)
    for block, here, mine in _known(job, tags):
        bias[here] = job.read(state, side, block).bias[mine]

    def turned(axes: np.ndarray) -> np.ndarray:
        out = np.empty((tags.known.size, axes.shape[1]))
        for block, here, mine in _known(job, tags):
            out[here] = job.read(state, side, block).traits[mine].astype(np.float64) @ axes
        return out

    old = DrawnTags.read(before, job.specs, side)
    groups, tiles = tags.columns(settings.factors), list(tags.by_tag())
    drawn = draw_effects(job.keys, settings, side, tiles, old, prior, turned, bias, groups)
    return write_effects(job, side, drawn.arrays())


@on_worker
def start_effects(job: DrawJob, side: str, start: Commit | None, rows: np.ndarray | None) -> list[Any]:
    """Write where the tags of a side begin: at nothing, or in a warm start where an earlier fit or chain has them.

    `rows` are the tags' rows there, -1 for new ones. Of a variational fit it is a draw of its posterior.
    """
    effects = DrawnTags.start(job.tags[side].number, job.settings)
    if start is None or rows is None:
        return write_effects(job, side, effects.arrays())
    known, k = rows >= 0, job.settings.factors

    def take(name: str) -> np.ndarray:
        path = f"{tag_group(side)}/{name}"
        return start.sealed.read_array(start.arrays[path])[rows[known]].astype(np.float64)

    if start.settings.inference == "gibbs":
        traits, bias = take("traits"), take("bias")
    else:
        noise = normals(job.keys.of(TAG_START, side), 0, np.flatnonzero(known), np.arange(k + 1))
        traits = take("mean") + noise[:, :k] / np.sqrt(take("precision"))[:, None]
        bias = take("bias") + noise[:, k] / np.sqrt(take("bias_precision"))
    effects.traits[known], effects.gamma[known] = traits, take("gamma")
    effects.bias[known] = bias * job.settings.biases
    return write_effects(job, side, effects.arrays())


def _known(job: DrawJob, tags: TagPrior) -> Iterator[tuple[int, slice, np.ndarray]]:
    """Blocks of a side that have symbols with tags: number, places among `known`, rows of the block."""
    for block in range(job.plan.count(tags.side)):
        begin, end = job.plan.row_range(tags.side, block)
        first, stop = np.searchsorted(tags.known, [begin, end])
        if first < stop:
            yield block, slice(first, stop), tags.known[first:stop] - begin
