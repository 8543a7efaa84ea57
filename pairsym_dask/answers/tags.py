"""Symbols that have tags and no pairs: what a fitted model knows of them, and the tags themselves.

Nothing was seen of such a symbol, so its posterior is its prior: traits with mean sum_f x_jf E[h_f] and variance
1/tau + sum_f x_jf^2 Var[h_f], the bias alike. That is wide, so an upper quantile or a draw explores it.

Where the posterior is taken at its word (T = 1) that is all. A fit that was made cold for the sake of lists takes
traits as if they were known, and so what tags seem to say of them, too: there effects are shrunk by what chance alone
would have made of them, and new symbols, which are ranked by odds, all have means of one length, for the less is known
of a symbol's tags, the shorter is its prior mean, and lengths would order the lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from ..errors import InputError
from ..kernels.keys import sum_rows
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from ..store.cuts import Tile
from ..store.tags import Tags
from ..sweep.job import prior_growth
from ..sweep.tag_prior import TagPrior, mixed, tag_group
from .predict import Symbols

# A tag's effects are nothing to show, or to rank by, up to so many times the square that chance would give them.
SHOWN, RANKED = 2.0, 10.0
ROWS = 65_536  # symbols whose prior means are looked at together


@dataclass(frozen=True)
class SideTags:
    """The tags of one side of a fitted model."""

    commit: Commit
    counts: Counts
    prior: TagPrior

    @staticmethod
    def open(commit: Commit, counts: Counts, side: str, tags: Tags) -> SideTags:
        return SideTags(commit, counts, TagPrior.make(side, tags, counts))

    @property
    def side(self) -> str:
        return self.prior.side

    def _read(self, name: str) -> np.ndarray:
        return self.commit.sealed.read_array(self.commit.arrays[f"{tag_group(self.side)}/{name}"])

    @cached_property
    def effects(self) -> np.ndarray:
        """E[h_f] and, last, E[e_f] of every tag."""
        return np.hstack([self._read("mean"), self._read("bias")[:, None]])

    @cached_property
    def variances(self) -> np.ndarray:
        """Of h_f (one for all traits) and of e_f."""
        return np.stack([1 / self._read("precision"), 1 / self._read("bias_precision")], axis=1)

    @cached_property
    def new(self) -> np.ndarray:
        """Labels of the symbols that have tags and no place in the counts store."""
        known = np.zeros(self.prior.tags.shape[0], bool)
        known[self.prior.rows[self.prior.known]] = True
        return self.prior.tags.symbol_ids[~known]

    def find(self, labels: np.ndarray) -> np.ndarray:
        """Rows of symbols in the tag store; a symbol without tags is an error that names it."""
        rows = self.prior.tags.find(labels)
        if (rows < 0).any():
            word, unknown = self.side[:-1], labels[rows < 0]
            more = f" and {unknown.size - 5} more" if unknown.size > 5 else ""
            raise InputError(
                f"unknown {word} label{'s' if unknown.size > 1 else ''}: {', '.join(map(str, unknown[:5]))}{more}; "
                f"neither {self.counts.path} nor the tags of {self.prior.tags.path} know of "
                f"{'them' if unknown.size > 1 else 'it'}"
            )
        return rows

    def symbols(self, rows: np.ndarray) -> Symbols:
        """The priors of symbols by row of the tag store."""
        return self.mixed(self.prior.scaled(rows))

    def newcomers(self, rows: np.ndarray) -> Symbols:
        """The same of symbols without pairs, as they are ranked."""
        tile = self.prior.scaled(rows)
        mean = mixed(tile, self.telling) * self.stretch(tile)[:, None]
        return replace(self.mixed(tile), mean=mean.astype(self.commit.settings.dtype))

    def stretch(self, tile: Tile) -> np.ndarray:
        """What prior means of new symbols are multiplied with, so that all are of one length."""
        size = np.linalg.norm(mixed(tile, self.telling), axis=1)
        if self.commit.settings.temperature == 1:
            return np.ones_like(size)
        return np.divide(self.length, size, out=np.ones_like(size), where=size > 0)

    @cached_property
    def length(self) -> float:
        """The geometric mean of the lengths of prior means, over the side's symbols with tags."""
        logs = []
        for _, tile in self._known():
            size = np.linalg.norm(mixed(tile, self.telling), axis=1)
            logs.append(np.log(size[size > 0]))
        found = np.concatenate(logs)
        return float(np.exp(found.mean())) if found.size else 1.0

    def _known(self) -> Iterator[tuple[np.ndarray, Tile]]:
        """Positions of the side's symbols with tags, and their links, some at a time."""
        known = self.prior.known
        for first in range(0, known.size, ROWS):
            some = known[first : first + ROWS]
            yield some, self.prior.scaled(self.prior.rows[some])

    @cached_property
    def telling(self) -> np.ndarray:
        """E[h_f] as new symbols are ranked by it: of a cold fit less what chance would have made."""
        mean = self.effects[:, :-1]
        if self.commit.settings.temperature == 1:
            return mean
        told, chance = self._chance
        kept = 1 - told * np.minimum(RANKED * chance, 1.0)
        kept[-1] = 1  # the level is what all symbols share
        return np.asarray(mean * kept[:, None])

    @cached_property
    def _chance(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every tag the share of symbols, not of its prior, in its precision, and that of chance in its effects.

        A tag that says nothing has effects all the same: tau / precision_f sum_j x_jf r_j of what others leave, r_j,
        whose mean square is S^2 sum_j (tau x_jf / precision_f)^2. What is left of a symbol when it is itself left
        out is r_j (1 + sum_f tau x_jf^2 / (precision_f - tau x_jf^2)); S^2 is the mean square of that.
        """
        tau, precision, total = self.tau, 1 / self.variances[:, 0], 0.0
        for some, tile in self._known():
            left = read_rows(self.commit, f"{self.side}/mean", some) - mixed(tile, self.effects[:, :-1])
            square = tau * tile.counts**2
            own = sum_rows(tile.indptr, square / (precision[tile.indices] - square))
            total += float(((left * (1 + own)[:, None]) ** 2).sum())
        spread = total / (self.prior.known.size * self.commit.settings.factors)
        told = np.minimum(tau * self.prior.squares() / precision, 1.0)
        chance, mean = spread * tau * told / precision, (self.effects[:, :-1].astype(np.float64) ** 2).mean(1)
        return told, np.divide(chance, mean, out=np.ones_like(mean), where=mean > 0)

    def mixed(self, tile: Tile) -> Symbols:
        """The priors of symbols by their tags and scaled weights."""
        settings, dtype = self.commit.settings, self.commit.settings.dtype
        mean = mixed(tile, self.effects)
        tag_variance = mixed(Tile(tile.indptr, tile.indices, tile.counts**2), self.variances)
        k = settings.factors
        variance = np.repeat(1 / self.tau + tag_variance[:, :1], k, axis=1)
        bias = mean[:, k] if settings.biases else np.zeros(len(mean))
        bias_variance = 1 / settings.tau_b + tag_variance[:, 1] if settings.biases else np.zeros(len(mean))
        return Symbols(*(values.astype(dtype) for values in (mean[:, :k], variance, bias, bias_variance)))

    @cached_property
    def tau(self) -> float:
        """Prior precision of the traits of a symbol without pairs."""
        settings, censored = self.commit.settings, 0.0
        if settings.selection == "counts":
            log_z = self.commit.scalar("log_z_items" if self.side == "items" else "log_z_next")
            weight = np.exp(settings.background_exponent(self.side) * np.log(settings.alpha) - log_z)
            censored = settings.censored_ratio * self.counts.total * float(np.nan_to_num(weight))
        growth = prior_growth(settings, np.zeros(1), np.array([censored]))
        return float(settings.tau(self.side) * growth[0])

    @cached_property
    def selection(self) -> float:
        """What stands for alpha_j of a symbol without pairs: the geometric mean of the store's, no more and no less."""
        whole = self.commit.sealed.read_array(self.commit.arrays[f"{self.side}/selection"])
        return float(np.exp(np.log(whole).mean()))

    def frame(self) -> pd.DataFrame:
        """A row a tag, without the level: tag, relevance, effect, sd, symbols."""
        square = (self.effects[:-1, :-1].astype(np.float64) ** 2).mean(1)
        variance = self.variances[:-1, 0]
        if self.commit.settings.temperature == 1:
            return tag_frame(self.prior.tags, square / (square + variance), square, variance)  # |E[h]|^2 / E|h|^2
        told, chance = self._chance
        relevance = told * np.maximum(1 - SHOWN * chance, 0.0)
        return tag_frame(self.prior.tags, relevance[:-1], square, variance)

    def pulls(self, label: object, its: np.ndarray) -> pd.DataFrame:
        """What each tag of a symbol brings to its energies with traits `its` of the other side; strongest first."""
        labels = np.array([label], object if isinstance(label, str) else None)
        rows = self.prior.tags.find(labels)
        tile = self.prior.scaled(rows)
        traits, stretch = self.effects[:, :-1], 1.0
        if self.counts.find(self.side, labels)[0] < 0:  # a new one, as it is ranked
            traits, (stretch,) = self.telling, self.stretch(tile)
        taste = traits[tile.indices].astype(np.float64) @ its
        energy = tile.counts * (stretch * taste + self.effects[tile.indices, -1])
        return pull_frame(self.prior, tile, energy)


def pull_frame(prior: TagPrior, tile: Tile, energy: np.ndarray) -> pd.DataFrame:
    """A row a tag of one symbol, the strongest first: side, tag, weight and the energy that it brings."""
    names = np.array([*prior.tags.tag_ids.tolist(), None], object)  # the level has no name
    side = np.full(tile.indices.size, prior.side[:-1], object)
    table = pd.DataFrame({"side": side, "tag": names[tile.indices], "weight": tile.counts, "energy": energy})
    return table.iloc[np.lexsort((tile.indices, -np.abs(energy)))].reset_index(drop=True)


def tag_frame(tags: Tags, relevance: np.ndarray, square: np.ndarray, variance: np.ndarray) -> pd.DataFrame:
    """A row a tag, the most relevant first, with mean squares of what is known of effects, and their variances."""
    table = pd.DataFrame(
        {
            "tag": tags.tag_ids,
            "relevance": relevance,
            "effect": np.sqrt(square),
            "sd": np.sqrt(variance),
            "symbols": tags.symbols_a_tag(),
        }
    )
    order = np.lexsort((np.arange(len(table)), -square / (square + variance), -relevance))
    return table.iloc[order].reset_index(drop=True)
