"""Symbols that have tags and no pairs: what a fitted model knows of them, and the tags themselves.

Nothing was seen of such a symbol, so its posterior is its prior: traits with mean sum_f x_jf E[h_f] and variance
1/tau + sum_f x_jf^2 Var[h_f], the bias alike. That is wide, so an upper quantile or a draw explores it.

The less is known of a symbol's tags, the shorter is its prior mean, and the lower its energies with those who would
like it. Where the posterior is taken at its word that is as it should be. A fit that was made cold for the sake of
lists (T < 1) ranks by odds, and lengths would order its lists of new items: there they are drawn towards a common one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from ..errors import InputError
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.cuts import Tile
from ..store.tags import Tags
from ..sweep.job import prior_growth
from ..sweep.tag_prior import TagPrior, mixed, tag_group
from .predict import Symbols

DRAWN = 0.5  # how far, as an exponent: lengths differ by their power 1 - DRAWN
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
        found = self.symbols(rows)
        return replace(found, mean=found.mean * self.stretch(found.mean)[:, None])

    def stretch(self, mean: np.ndarray) -> np.ndarray:
        """What prior means of new symbols are multiplied with, so that their lengths come nearer to a common one."""
        size = np.linalg.norm(mean, axis=1)
        if self.commit.settings.temperature == 1:
            return np.ones_like(size)
        return np.divide(self.length, size, out=np.ones_like(size), where=size > 0) ** DRAWN

    @cached_property
    def length(self) -> float:
        """The geometric mean of the lengths of prior means, over the side's symbols with tags."""
        logs, rows = [], self.prior.rows[self.prior.known]
        for first in range(0, rows.size, ROWS):
            mean = mixed(self.prior.scaled(rows[first : first + ROWS]), self.effects[:, :-1])
            size = np.linalg.norm(mean, axis=1)
            logs.append(np.log(size[size > 0]))
        found = np.concatenate(logs)
        return float(np.exp(found.mean())) if found.size else 1.0

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
        return tag_frame(self.prior.tags, square, self.variances[:-1, 0])

    def pulls(self, label: object, its: np.ndarray) -> pd.DataFrame:
        """What each tag of a symbol brings to its energies with traits `its` of the other side; strongest first."""
        labels = np.array([label], object if isinstance(label, str) else None)
        rows = self.prior.tags.find(labels)
        tile = self.prior.scaled(rows)
        effects = self.effects[tile.indices].astype(np.float64)
        stretch = 1.0
        if self.counts.find(self.side, labels)[0] < 0:  # a new one, as it is ranked
            (stretch,) = self.stretch(mixed(tile, self.effects[:, :-1]))
        energy = tile.counts * (stretch * (effects[:, :-1] @ its) + effects[:, -1])
        names = np.array([*self.prior.tags.tag_ids.tolist(), None], object)  # the level has no name
        table = pd.DataFrame(
            {
                "side": np.full(tile.indices.size, self.side[:-1], object),
                "tag": names[tile.indices],
                "weight": tile.counts,
                "energy": energy,
            }
        )
        return table.iloc[np.lexsort((tile.indices, -np.abs(energy)))].reset_index(drop=True)


def tag_frame(tags: Tags, square: np.ndarray, variance: np.ndarray) -> pd.DataFrame:
    """A row a tag, the most relevant first, by the mean squares of what is known of effects, and their variances."""
    table = pd.DataFrame(
        {
            "tag": tags.tag_ids,
            "relevance": square / (square + variance),  # |E[h]|^2 / E|h|^2
            "effect": np.sqrt(square),
            "sd": np.sqrt(variance),
            "symbols": tags.symbols_a_tag(),
        }
    )
    order = np.lexsort((np.arange(len(table)), -table["relevance"].to_numpy()))
    return table.iloc[order].reset_index(drop=True)
