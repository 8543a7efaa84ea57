"""Tags of a side as its prior means: v_j ~ N(sum_f x_jf h_f, 1/tau) and b_j ~ N(sum_f x_jf e_f, 1/tau_b).

Where prior precisions tau_j grow with a symbol's pairs, tau is that of a symbol without pairs, and the prior of v_j the
product of this one and N(0, 1/(tau_j - tau)): tags pull at all symbols alike, and fade beside pairs.
x_jf are the weights of the tag store, scaled so that their squares sum to one for every symbol. The effects h_f have
the prior N(0, 1/gamma_f), whose precision gamma_f is learned: a tag that says nothing is switched off by a large one.
The effects e_f on biases have N(0, 1/tau_b). Beside its own tags every symbol that has any has one more, with weight
one, after all others: the *level*. Without it tags would have to say what is common to all symbols, each a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InputError
from ..kernels.keys import sum_rows
from ..kernels.tags import mix_tags, sum_squares
from ..settings import Settings
from ..store.counts import Counts, iterate_rows
from ..store.cuts import Tile
from ..store.tags import Tags

SURENESS = (3.0, 0.1)  # how far gamma_f is known beforehand: so much at least, and so much for every trait
RESIDUALS = 128 * 2**20  # bytes of residuals that are worked on at a time


def gamma_prior(factors: int) -> float:
    """Both parameters of gamma_f ~ Gamma(a, a), whose mean is 1.

    With many traits much is seen of a tag, and the prior gives way: it weighs a fifth of what the tag's own effects do.
    With few it must not, or tags would be switched off by chance.
    """
    least, each = SURENESS
    return least + each * factors


def tag_group(side: str) -> str:
    """The group of a generation that holds the effects of a side's tags.

    >>> tag_group("items")
    'item_tags'
    """
    return f"{side[:-1]}_tags"


@dataclass(frozen=True)
class TagPrior:
    """The tags of one side of a fit."""

    side: str
    tags: Tags
    rows: np.ndarray  # of every symbol of the side its row in the tag store, -1 for one without tags
    sizes: np.ndarray  # of every row of the tag store: the root of the sum of its squared weights
    fades: bool  # whether its pull is that of a symbol without pairs for all, or grows with pairs as the prior does

    @staticmethod
    def make(side: str, tags: Tags, counts: Counts, fades: bool = True) -> TagPrior:
        """Find the symbols of a counts store among those with tags."""
        mine, theirs = (store.record["labels"][name] for store, name in ((counts, side), (tags.links, "users")))
        if mine != theirs:
            kinds = {"int64": "whole numbers", "string": "strings"}
            raise InputError(
                f"the {side} of {counts.path} are {kinds[mine]}, but the symbols of {tags.path} are {kinds[theirs]}: "
                "make the tag store with labels of the same type"
            )
        rows = tags.find(counts.labels(side))
        if not (rows >= 0).any():
            raise InputError(
                f"no symbol of {tags.path} is among the {side} of {counts.path}: its symbols are such as "
                f"{tags.symbol_ids[:1].tolist()[0]!r}, the {side} such as {counts.labels(side)[:1].tolist()[0]!r}"
            )
        sizes = np.empty(tags.shape[0])
        for first, tile in iterate_rows(tags.links, "users"):
            squares = sum_rows(tile.indptr, tile.counts.astype(np.float64) ** 2)
            sizes[first : first + squares.size] = np.sqrt(squares)
        return TagPrior(side, tags, rows, sizes, fades)

    @property
    def number(self) -> int:
        """Tags, the level among them."""
        return self.tags.shape[1] + 1

    @cached_property
    def known(self) -> np.ndarray:
        """Symbols of the side that have tags."""
        return np.flatnonzero(self.rows >= 0)

    @cached_property
    def _places(self) -> np.ndarray:
        """Of every row of the tag store its place among `known`, -1 for a symbol that is not of the side."""
        places = np.full(self.tags.shape[0], -1, np.int64)
        places[self.rows[self.known]] = np.arange(self.known.size)
        return places

    def of_rows(self, first: int, stop: int) -> Tile:
        """Tags and scaled weights x_jf of a range of the side's symbols."""
        return self.scaled(self.rows[first:stop])

    def scaled(self, positions: np.ndarray) -> Tile:
        """Tags and scaled weights of rows of the tag store, and the level; none at -1."""
        return scale_links(self.tags.rows(positions), self.number - 1)

    def by_tag(self) -> Iterator[tuple[slice, Tile]]:
        """Blocks of tags, and for each tag the places among `known` of its symbols, with scaled weights.

        The level comes first: the others are then about what differs.
        """
        links, n = self.tags.links, self.known.size
        yield slice(self.number - 1, self.number), Tile(np.array([0, n]), np.arange(n, dtype=np.uint32), np.ones(n))
        for block in range(links.cuts["items"].blocks):
            tile = links.rows("items", block)
            places = self._places[tile.indices]
            kept = places >= 0
            indptr = np.concatenate([[0], np.cumsum(kept)])[tile.indptr]
            weights = tile.counts[kept] / self.sizes[tile.indices[kept]]
            yield slice(*links.cuts["items"].row_range(block)), Tile(indptr, places[kept].astype(np.uint32), weights)

    def squares(self) -> np.ndarray:
        """sum_j x_jf^2 of every tag."""
        found, ones = np.empty(self.number), np.ones(self.known.size)
        for tags, tile in self.by_tag():
            sum_squares(tile.indptr, tile.indices, tile.counts, ones, found[tags])
        return found

    def columns(self, factors: int) -> list[slice]:
        """Traits that are worked on together, so that residuals of all symbols fit their room."""
        step = max(1, RESIDUALS // (8 * max(1, self.known.size)))
        return [slice(k, min(k + step, factors)) for k in range(0, factors, step)]

    def nbytes(self, settings: Settings) -> int:
        """Memory of a process: tables of old and new effects, residuals, links, rows and sizes."""
        width = min(settings.factors, self.columns(settings.factors)[0].stop)
        tables = self.number * (settings.factors + 4) * (np.dtype(settings.dtype).itemsize + 16)
        links = 12 * (self.tags.nnz + self.known.size)
        return tables + self.known.size * (width + 4) * 8 + links + 16 * (self.rows.size + self.sizes.size)


def scale_links(tile: Tile, level: int) -> Tile:
    """Links with weights whose squares sum to one for every row, and the level where a row has any."""
    lengths = np.diff(tile.indptr)
    weights = tile.counts.astype(np.float64)
    sizes = np.sqrt(sum_rows(tile.indptr, weights**2))
    ends = tile.indptr[1:][lengths > 0]
    indptr = tile.indptr + np.concatenate([[0], np.cumsum(lengths > 0)])
    indices = np.insert(tile.indices.astype(np.uint32), ends, level)
    return Tile(indptr, indices, np.insert(weights / np.repeat(sizes, lengths), ends, 1.0))


def mixed(tile: Tile, table: np.ndarray) -> np.ndarray:
    """sum_f x_jf table[f] of every row of a tile, float64."""
    out = np.empty((tile.indptr.size - 1, table.shape[1]))
    mix_tags(tile.indptr, tile.indices, tile.counts, table, out)
    return out
