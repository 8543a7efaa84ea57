"""What a task of a sweep has at hand: settings, geometry, and its blocks of stores as tiles, tables and weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..kernels.keys import sum_rows
from ..kernels.layout import empty_table, padded_width, row_offsets, statistics_size
from ..kernels.rows import Terms, Values, fill_table
from ..kernels.turn import turned_table
from ..run.machine import on_this_machine
from ..run.workers import Requirements
from ..settings import SIDES, Settings
from ..store.arrays import ArraySpec, Sealed
from ..store.counts import Counts
from ..store.cuts import Tile
from ..store.sharded import Output
from ..store.shards import Shards
from ..store.storage import Storage, digest
from .ahead import Ahead
from .background import Background
from .discount import Discount
from .lent import POOL
from .plan import Plan
from .room import Room
from .shelf import ROWS, SHELF, TABLES, Key
from .tag_prior import TagPrior, mixed, tag_group
from .travelling import Travelling
from .turn import Turn

PRIOR_PAIRS = 100.0  # pairs, shown and censored, of a symbol whose prior precision is tau itself
VALUES = ("mean", "precision", "bias", "bias_precision")


class Rows(NamedTuple):
    """Posteriors of a block's rows as they were read, and their weights: half of a table's bytes, or less."""

    values: Values
    weights: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.weights.nbytes + sum(array.nbytes for array in {id(array): array for array in self.values}.values())


def empty_values(n: int, settings: Settings) -> Values:
    """Room for the posterior of n rows."""
    shape, dtype = (n, settings.factors), settings.dtype
    return Values(np.empty(shape, dtype), np.empty(shape, dtype), np.empty(n, dtype), np.empty(n, dtype))


def prior_growth(settings: Settings, marginal: np.ndarray, censored: np.ndarray) -> np.ndarray:
    """How the prior precision of rows grows with their pairs: (n_i / 100)^nu, n_i = c_i + D' s_i."""
    if settings.prior_growth == 0:
        return np.ones(marginal.size)
    return np.asarray(((marginal + censored) / PRIOR_PAIRS) ** settings.prior_growth)


def is_scattered(plan: Plan, room: Room) -> bool:
    """Whether a cluster's workers cannot keep all tables: what a task reads, no later one of its worker may need."""
    return plan.table_bytes() > room.tables


@dataclass(frozen=True)
class Job(Travelling):
    """What all tasks of a sweep need to know; one node of the graph."""

    counts: Counts
    settings: Settings
    plan: Plan
    room: Room
    storage: Storage
    folder: str
    specs: dict[str, ArraySpec]
    needed: Requirements | None  # on a cluster: what is asked of its workers
    width: int  # of a table's row, padded
    statistics: int  # numbers of a row's statistics, and of a background
    tau: dict[str, float]  # prior precision of a side's traits
    censored: float  # D' = r D
    cold: bool  # whether posterior variances count for nothing in the updates
    discount: Discount | None = None
    turn: Turn | None = None
    tags: dict[str, TagPrior] = field(default_factory=dict)  # by side, of the sides that have tags
    shards: Shards | None = None
    output: Output = field(default_factory=Output, compare=False)  # of each task its own
    crowded: bool = False  # whether other processes of the same machine may have tasks of this fit
    ahead: Ahead | None = field(default=None, compare=False)  # of a task on a cluster, while it runs

    @staticmethod
    def make(
        counts: Counts, settings: Settings, plan: Plan, room: Room, storage: Storage, specs: dict[str, ArraySpec],
        needed: Requirements | None, tags: dict[str, TagPrior], shards: Shards | None,
    ) -> Job:  # fmt: skip
        """What all sweeps of a fit share; the folder of each is still to be named."""
        width, statistics = padded_width(settings.factors), statistics_size(settings.factors)
        tau, censored = {side: settings.tau(side) for side in SIDES}, settings.censored_ratio * counts.total
        cold = settings.temperature == 0
        return Job(
            counts, settings, plan, room, storage, "", specs, needed, width, statistics, tau, censored, cold,
            tags=tags, shards=shards,
        )  # fmt: skip

    @cached_property
    def scattered(self) -> bool:
        """Whether the shelf is for the pairs' weights alone, because tables and tiles are met by any worker."""
        return self.needed is not None and is_scattered(self.plan, self.room)

    def read(self, sealed: Sealed, path: str, block: int) -> np.ndarray:
        return sealed.read_next(self.specs[path], block)

    def part(self, sealed: Sealed, side: str, blocks: Iterable[int] | None = None) -> Sealed:
        """What a task needs of a generation: some blocks of a side (all where none are named), and the tags.

        The manifest of all blocks of the long side would be most of what travels.
        """
        blocks = range(len(self.plan.places[side])) if blocks is None else blocks
        wanted = list(
            sealed.holders([spec for path, spec in self.specs.items() if path.startswith(f"{side}/")], blocks)
        )
        for tagged in self.tags:
            group = f"{tag_group(tagged)}/"
            for path, spec in self.specs.items():
                if path.startswith(group):
                    wanted += [sealed.holder(spec, block) for block in range(spec.grid[0])]
        return replace(sealed, manifest={key: sealed.manifest[key] for key in wanted if key in sealed.manifest})

    # Pairs

    def row_pairs(self, side: str) -> np.ndarray:
        """Pairs of each tile block of a side."""
        return np.reshape(self.counts.record["tiles"][side], (self.plan.cuts[side].blocks, -1)).sum(1)

    def tile(self, side: str, block: int, group: int) -> Tile:
        """A tile of pairs as the fit counts them, kept if there is room."""
        long, ahead = side == self.plan.long, self.ahead

        def make() -> Tile:
            # What is not kept is read again and again: ask for the tile that comes after those under way.
            if ahead is None:
                cut, after = self.plan.cuts[side], (block + self.room.tasks, group) if long else (block, group + 1)
                if after[0] < cut.blocks and after[1] < cut.groups:
                    self.counts.ask_tile(side, *after)
                return self._read_tile(side, block, group)
            after = (block + 1, group) if long else (block, group + 1)
            if after[0] in ahead.blocks if long else after[1] in ahead.groups:
                self.ask_tile(side, *after)
            found: Tile = ahead.take(self._tile_key(side, block, group), lambda: self._read_tile(side, block, group))
            return found

        kept: Tile = SHELF.get(self._tile_key(side, block, group), make, 0 if self.scattered else self.room.cache)
        return kept

    def ask_tile(self, side: str, block: int, group: int) -> None:
        """Have a tile read that the task will come to, where it reads ahead."""
        key = self._tile_key(side, block, group)
        if self.ahead is not None and SHELF.peek(key) is None:
            self.ahead.ask(key, lambda: self._read_tile(side, block, group))

    def _tile_key(self, side: str, block: int, group: int) -> Key:
        state = self.counts.digest if self.discount is None else f"{self.counts.digest} {self.discount.exponent}"
        return Key("tile", self.counts.path, state, side, block, group)

    def _read_tile(self, side: str, block: int, group: int) -> Tile:
        tile = self.counts.read_tile(side, block, group)
        if self.discount is None:
            return tile
        return self.discount.tile(self.counts, tile, side, block, group, self.settings.dtype)

    def marginal(self, side: str, block: int) -> np.ndarray:
        """c_i of a block of rows as the fit counts them."""
        place = self.plan.places[side][block]
        if self.discount is None:
            return self.counts.marginal(side, place.tile_block)[place.rows]
        if side != self.plan.long:
            return self.discount.short_marginal[place.first : place.stop]

        def make() -> np.ndarray:
            tile = self.tile(side, place.tile_block, 0)
            return np.asarray(sum_rows(tile.indptr, tile.counts))

        key = Key("marginal", self.counts.path, f"{self.counts.digest} {self.discount.exponent}", side, block)
        kept: np.ndarray = SHELF.get(key, make, self.room.cache)
        return kept[place.rows]

    # Tables

    @property
    def _tables(self) -> int:
        return 0 if self.scattered else self.room.tables

    def fill(self, values: Values, weights: np.ndarray) -> np.ndarray:
        """A new table of rows with these posteriors and background weights."""
        table = self.empty_table(weights.size)
        fill_table(values, weights, self.settings.temperature, self.width, table)
        return table

    def keep_table(self, side: str, block: int, table: np.ndarray) -> None:
        """Keep the table of a new block, if there is room, in place of the old one."""
        SHELF.put(Key("table", self.storage.url, self.folder, side, block), table, self._tables)

    def table(self, side: str, sealed: Sealed, block: int, turned: bool = True) -> np.ndarray:
        """Table of one block, kept if there is room; on this sweep's axes, or as it was written."""
        ahead, key = self.ahead, self._table_key(side, sealed, block)

        def make() -> np.ndarray:
            # Another process has made this one; what is here of an earlier sweep would stay, and take its room.
            SHELF.drop(lambda kept: kept.outdated_by(key))
            if ahead is None:
                after = block + self.room.tasks
                if side == self.plan.long and after < len(self.plan.places[side]):
                    for name in ("mean",) if self.cold else ("mean", "precision"):
                        sealed.ask_block(self.specs[f"{side}/{name}"], after, 0)
                return self._read_table(side, sealed, block)
            if side == self.plan.long and block + 1 in ahead.blocks:
                self.ask_table(side, sealed, block + 1)
            found: np.ndarray = ahead.take(key, lambda: self._read_table(side, sealed, block))
            return found

        kept: np.ndarray = SHELF.get(key, make, self._tables)
        if self.turn is None or not turned or sealed.prefix != self.turn.before:
            return kept
        return turned_table(kept, self.turn.axes, self.settings.factors)

    def ask_table(self, side: str, sealed: Sealed, block: int) -> None:
        """Have the table of a block read that the task will come to, where it reads ahead."""
        key = self._table_key(side, sealed, block)
        if self.ahead is not None and SHELF.peek(key) is None:
            self.ahead.ask(key, lambda: self._read_table(side, sealed, block))

    def _table_key(self, side: str, sealed: Sealed, block: int) -> Key:
        return Key("table", self.storage.url, sealed.prefix, side, block)

    def _read_table(self, side: str, sealed: Sealed, block: int) -> np.ndarray:
        def read() -> Rows:
            # Precisions are half of the bytes; at temperature 0 no table has variances.
            names = [name for name in (*VALUES, "background") if name != "precision" or not self.cold]
            found = sealed.read_several([(self.specs[f"{side}/{name}"], block) for name in names])
            parts = dict(zip(names, found, strict=True))
            return Rows(Values(*(parts.get(name, parts["mean"]) for name in VALUES)), parts["background"])

        if self.ahead is None or not self.ahead.rows or side != self.plan.long:
            return self.fill(*read())
        return self.fill(*ROWS.get(self._table_key(side, sealed, block), read, self.ahead.rows))

    def tables_by_run(self, sealed: Sealed, group: int) -> Iterator[tuple[range, list[np.ndarray]]]:
        """Runs of the long side's blocks for a group of columns, each with its tables.

        Workers of a cluster that cannot keep all tables read those of the next run meanwhile, from whatever store.
        """
        runs = self.plan.runs[group]

        def read(run: range) -> list[np.ndarray]:
            return [self.table(self.plan.long, sealed, block) for block in run]

        if not self.scattered:
            yield from ((run, read(run)) for run in runs)
            return
        with ThreadPoolExecutor(1, "pairsym-read") as reader:
            coming = reader.submit(read, runs[0])
            for run, after in pairwise([*runs, range(0)]):
                tables = coming.result()
                if after:
                    coming = reader.submit(read, after)
                yield run, tables

    def whole_table(self, side: str, sealed: Sealed) -> np.ndarray:
        """Table of all rows of the short side, kept until the next one is asked for: once a process, or a machine.

        What the sweep before has ended with, this one begins with: a process that still has it turns it, if need be.
        """
        turned = self.turn is not None and sealed.prefix == self.turn.before
        key = Key("whole table", self.storage.url, sealed.prefix + (f" in {self.folder}" if turned else ""), side, 0)
        source = key._replace(state=sealed.prefix) if turned and not self.crowded else None
        stride = 2 * self.width

        def fill(table: np.ndarray) -> None:
            for block, place in enumerate(self.plan.places[side]):
                table[place.first * stride : place.stop * stride] = self.table(side, sealed, block)

        def make() -> np.ndarray:
            ROWS.drop(lambda kept: True)
            rows = self.plan.cuts[side].rows
            if self.crowded:
                # Attempts have names of their own, and with them the states that tables are of.
                name, size = digest(repr(key).encode()), 2 * self.width * rows
                shared = on_this_machine(name, size, self.settings.dtype, fill)
                if shared is not None:
                    return shared
            table = None if source is None else TABLES.take(source)
            if table is not None and self.turn is not None:
                for place in self.plan.places[side]:
                    part = table[place.first * stride : place.stop * stride]
                    part[:] = turned_table(part, self.turn.axes, self.settings.factors)
                return table  # type: ignore[no-any-return]
            table = empty_table(rows, self.width, self.settings.dtype)
            fill(table)
            return table

        kept: np.ndarray = TABLES.get(key, make, source=source)
        return kept

    def clear_for_sums(self) -> None:
        """Let the table of all rows of the short side go, whose place sums for many blocks take, and rows of no use."""
        TABLES.drop(lambda key: key.store == self.storage.url)
        ROWS.drop(lambda key: key.store != self.storage.url or key.state != self.folder)

    # Updates

    def empty_values(self, n: int) -> Values:
        shape, dtype = (n, self.settings.factors), self.settings.dtype
        traits = (POOL.empty(shape, dtype, self.room.idle) for _ in range(2))
        return Values(next(traits), next(traits), np.empty(n, dtype), np.empty(n, dtype))

    def empty_table(self, rows: int) -> np.ndarray:
        return POOL.empty((rows * 2 * self.width,), self.settings.dtype, self.room.idle)

    def growth(self, marginal: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Growth of a block's prior precisions."""
        return prior_growth(self.settings, marginal, self.censored * weights)

    def pulling(self, side: str, block: int, weights: np.ndarray) -> np.ndarray:
        """Precisions with which tags pull at a block's traits: each that of a symbol without pairs.

        Were they to grow with pairs as the prior does, tags would never give way to what pairs say.
        """
        settings, marginal = self.settings, self.marginal(side, block)
        if self.tags[side].fades and settings.prior_growth:
            # s_j is in proportion to (alpha + c_j)^beta
            weights = weights * (settings.alpha / (settings.alpha + marginal)) ** settings.background_exponent(side)
            marginal = np.zeros_like(marginal)
        return self.tau[side] * self.growth(marginal, weights)

    def tag_table(self, side: str, sealed: Sealed) -> np.ndarray:
        """Effects [h_f, e_f] of a side's tags in a generation, on this sweep's axes; kept once a process."""

        def make() -> np.ndarray:
            mean, bias = (sealed.read_array(self.specs[f"{tag_group(side)}/{name}"]) for name in ("mean", "bias"))
            if self.turn is not None and sealed.prefix == self.turn.before:
                mean = mean @ self.turn.axes[: self.settings.factors, : self.settings.factors]
            return np.hstack([mean, bias[:, None].astype(mean.dtype)])

        key = Key("tags", self.storage.url, f"{sealed.prefix} in {self.folder}", side, 0)
        kept: np.ndarray = SHELF.get(key, make)
        SHELF.drop(lambda old: old.outdated_by(key))
        return kept

    def pull(self, side: str, own: Sealed, block: int, weights: np.ndarray) -> np.ndarray:
        """Precisions times prior means of a block's traits and biases, a table's width a row."""
        settings = self.settings
        if side not in self.tags:
            return np.empty((0, 0), settings.dtype)
        place, k = self.plan.places[side][block], settings.factors
        tile = SHELF.get(
            Key("links", self.tags[side].tags.path, self.tags[side].tags.digest, side, block),
            lambda: self.tags[side].of_rows(place.first, place.stop),
            self.room.cache,
        )
        means = mixed(tile, self.tag_table(side, own))
        out = np.zeros((means.shape[0], self.width), settings.dtype)
        out[:, :k] = self.pulling(side, block, weights)[:, None] * means[:, :k]
        out[:, k] = settings.tau_b * means[:, k]
        return out

    def terms(
        self, side: str, own: Sealed, block: int, base: Background, two_lambda_star: float, weights: np.ndarray
    ) -> Terms:
        """What the update of a block takes beside its pairs."""
        settings = self.settings
        tau = self.tau[side] * self.growth(self.marginal(side, block), weights)
        return Terms(
            settings.factors,
            row_offsets(self.width),
            self.censored * weights,
            two_lambda_star,
            base.packed.astype(settings.dtype),
            tau.astype(settings.dtype),
            settings.tau_b,
            settings.biases,
            self.cold,
            self.pull(side, own, block, weights),
        )
