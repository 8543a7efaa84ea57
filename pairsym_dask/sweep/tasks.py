"""What runs on a worker: each task reads its blocks, computes without the GIL, writes whole chunks, returns sums.

Tasks are idempotent: the same task run twice writes the same bytes under the same keys.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..errors import NumericError
from ..kernels import rows as kernels
from ..kernels.layout import WHOLE, empty_table, padded_width, row_offsets, side_by_side, statistics_size
from ..run.workers import Pass, admit
from ..settings import Settings, other
from ..store.arrays import ArraySpec, Sealed, write_block
from ..store.counts import Counts
from ..store.cuts import Tile
from ..store.model_store import Commit, read_rows
from ..store.storage import Storage
from .background import Background
from .elbo import SideSums, dirichlet_total, expected_log, messages, share, side_sums
from .plan import Plan, Room

START_SCALE = 0.1  # of the starting means; zero is a fixed point, one ruins sparse data
Values = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
VALUES = ("mean", "precision", "bias", "bias_precision")


@dataclass(frozen=True)
class Job:
    """What all tasks of a sweep need to know; one node of the graph."""

    counts: Counts
    settings: Settings
    plan: Plan
    room: Room
    storage: Storage
    folder: str
    specs: dict[str, ArraySpec]
    passes: Pass | None = None  # on a cluster: what is asked of its workers

    @property
    def censored(self) -> float:
        """D' = r D."""
        return self.settings.censored_ratio * self.counts.total

    def write(self, path: str, block: int, values: np.ndarray) -> Any:
        index = (block, 0) if values.ndim == 2 else (block,)
        return write_block(self.storage, self.folder, self.specs[path], index, values, soon=True)

    def read(self, sealed: Sealed, path: str, block: int) -> np.ndarray:
        spec = self.specs[path]
        return sealed.read_block(spec, block, *([0] * (len(spec.shape) - 1)))


@dataclass(frozen=True)
class Updated:
    """What an update of a block sends back: manifest entries, its part of the background, its part of the bound."""

    entries: list[Any]
    background: np.ndarray
    sums: SideSums


class Shelf:
    """Decoded tiles and tables that a process keeps between tasks, within a number of bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], Any], limit: int) -> Any:
        """The kept value, else a new one, kept if it fits without pushing out others of this round."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
            value = make()
            with self._lock:
                # A scan that is larger than the shelf would only turn it over: keep the first ones.
                if self._bytes + value.nbytes <= limit:
                    self._kept[key] = value
                    self._bytes += value.nbytes
                self._locks.pop(key, None)
            return value

    def put(self, key: Hashable, value: Any, limit: int) -> None:
        """Keep a value that somebody made anyway, if it fits."""
        self.get(key, lambda: value, limit)

    def drop(self, unwanted: Callable[[Hashable], bool]) -> None:
        with self._lock:
            for key in [key for key in self._kept if unwanted(key)]:
                self._bytes -= self._kept.pop(key).nbytes


_shelf = Shelf()
_tables = Shelf()  # whole tables of the short side: one at a time, always kept
_slots: dict[int, threading.BoundedSemaphore] = {}
_slots_lock = threading.Lock()


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a task within its process's room: so many at a time."""

    def run(job: Job, *args: Any) -> Any:
        with _slots_lock:
            slot = _slots.setdefault(job.room.tasks, threading.BoundedSemaphore(job.room.tasks))
        with slot:
            admit(job.passes)
            result = function(job, *args)
        if job.passes is not None:
            job.storage.settle()  # the driver cannot wait for fsyncs of another process
        return result

    # Under the function's own name it is pickled by reference; its closure holds locks, which cannot travel.
    run.__name__, run.__qualname__, run.__module__ = function.__name__, function.__qualname__, function.__module__
    return run


def forget() -> None:
    """Empty this process's shelves; a fit under way in another thread reads again what it misses."""
    _shelf.drop(lambda key: True)
    _tables.drop(lambda key: True)


def _tile(job: Job, side: str, block: int, group: int) -> Tile:
    key = ("tile", job.counts.path, job.counts.digest, side, block, group)

    def make() -> Tile:
        # What is not kept is read again and again: ask for the tile that comes after those under way.
        cut = job.plan.cuts[side]
        ahead = (block + job.room.tasks, group) if side == job.plan.long else (block, group + 1)
        if ahead[0] < cut.blocks and ahead[1] < cut.groups:
            job.counts.ask_tile(side, *ahead)
        return job.counts.read_tile(side, block, group)

    return _shelf.get(key, make, job.room.cache)


def _block_table(job: Job, side: str, sealed: Sealed, block: int) -> np.ndarray:
    """Table of one block of a side."""
    width = padded_width(job.settings.factors)
    ahead = block + job.room.tasks
    if side == job.plan.long and ahead < job.plan.count(side):
        for name in ("mean", "precision"):
            sealed.ask_block(job.specs[f"{side}/{name}"], ahead, 0)
    mean, precision, bias, bias_precision = (job.read(sealed, f"{side}/{name}", block) for name in VALUES)
    table = empty_table(mean.shape[0], width, job.settings.dtype)
    kernels.fill_table(
        mean, precision, bias, bias_precision, job.read(sealed, f"{side}/background", block), width, table
    )
    return table


def _whole_table(job: Job, side: str, sealed: Sealed) -> np.ndarray:
    """Table of all rows of the short side, kept once a process until the next one is asked for."""
    key = ("whole", job.storage.url, sealed.prefix, side)

    def make() -> np.ndarray:
        _tables.drop(lambda kept: kept != key)
        stride = 2 * padded_width(job.settings.factors)
        table = empty_table(job.plan.cuts[side].rows, stride // 2, job.settings.dtype)
        for block in range(job.plan.count(side)):
            first, stop = job.plan.row_range(side, block)
            table[first * stride : stop * stride] = _table(job, side, sealed, block)
        return table

    return _tables.get(key, make, 2**62)


def _table(job: Job, side: str, sealed: Sealed, block: int) -> np.ndarray:
    """Table of one block, kept if there is room; tables of earlier states are dropped."""
    key = _table_key(job, side, sealed.prefix, block)
    return _shelf.get(key, lambda: _block_table(job, side, sealed, block), job.room.tables)


def _table_key(job: Job, side: str, folder: str, block: int) -> tuple[Any, ...]:
    return ("table", job.storage.url, folder, side, block)


def _marginal(job: Job, side: str, block: int) -> np.ndarray:
    tile_block, rows = job.plan.tile_rows(side, block)
    return job.counts.marginal(side, tile_block)[rows]


@on_worker
def start_block(job: Job, side: str, block: int) -> Updated:
    """Write the start of a block: small random means drawn by (seed, side, row), everything else flat."""
    factors, dtype = job.settings.factors, job.settings.dtype
    first, stop = job.plan.row_range(side, block)
    mean = START_SCALE * starting_normals(job.settings.random_state, side, first, stop, factors)
    n, rows = stop - first, job.plan.cuts[side].rows
    background = np.full(n, 1.0 / rows)
    bias_precision = np.ones(n, dtype) if job.settings.biases else np.full(n, np.inf, dtype)
    values = (mean.astype(dtype), np.ones((n, factors), dtype), np.zeros(n, dtype), bias_precision)
    return _close_block(job, side, block, values, background, background)


@dataclass(frozen=True)
class Start:
    """A committed sweep of fewer symbols to start from: its average symbol, and what all shares then sum to."""

    commit: Commit
    average: tuple[np.ndarray, np.ndarray, float, float]
    total: float


@on_worker
def take_over_block(job: Job, side: str, start: Start, rows: np.ndarray, block: int) -> Updated:
    """Write a warm start: rows of the earlier sweep, and where that is -1 its average symbol with the counts' share.

    Beside settled symbols the start from flat, wide posteriors would often lose the new ones all their censored pairs.
    """
    known, values = rows >= 0, _empty_values(job, rows.size)
    for array, name, value in zip(values, VALUES, start.average, strict=True):
        array[:] = value
        array[known] = read_rows(start.commit, f"{side}/{name}", rows[known])
    background = share(_marginal(job, side, block), job.plan.cuts[side].rows, job.counts.total, job.settings.alpha)
    background[known] = read_rows(start.commit, f"{side}/background", rows[known])
    background /= start.total
    return _close_block(job, side, block, values, background, background)


def starting_normals(seed: int, side: str, first: int, stop: int, factors: int) -> np.ndarray:
    """Standard normals (rows, factors) that depend on seed, side and row number only."""
    stride = -(-factors // 4)  # the generator's counter moves by one for four numbers
    key = np.array([seed, 0 if side == "users" else 1], np.uint64)
    bits = np.random.Philox(key=key, counter=np.array([first * stride, 0, 0, 0], np.uint64))
    uniform = np.random.Generator(bits).random((stop - first, 4 * stride))[:, :factors]
    return np.asarray(ndtri(uniform + 2.0**-54))


def _close_block(
    job: Job, side: str, block: int, values: Values, before: np.ndarray, background: np.ndarray
) -> Updated:
    """Sum up what others need of a new block, and write it; `before` is s or t of the sweep before."""
    settings, n = job.settings, before.size
    marginal = _marginal(job, side, block)
    selection = settings.alpha + marginal + job.censored * before
    width = padded_width(settings.factors)
    table = empty_table(n, width, settings.dtype)
    kernels.fill_table(*values, background, width, table)
    packed, moments = np.zeros(statistics_size(settings.factors)), np.zeros(6)
    kernels.add_background(table, n, background, settings.factors, packed, moments)
    sums = side_sums(moments, selection, background, marginal, job.censored, settings.tau(side), settings)
    if not (np.isfinite(packed).all() and np.isfinite(sums.gauss) and np.isfinite(sums.weighted)):
        _complain(job, side, block, *values, background)
    # This state's tables push out those of the state before, block by block.
    key = _table_key(job, side, job.folder, block)
    _shelf.drop(lambda kept: kept[0] == "table" and kept[-2:] == key[-2:] and kept != key)  # type: ignore[index]
    _shelf.put(key, table, job.room.tables)
    entries = [job.write(f"{side}/{name}", block, array) for name, array in zip(VALUES, values, strict=True)]
    entries.append(job.write(f"{side}/selection", block, selection))
    entries.append(job.write(f"{side}/background", block, background))
    return Updated(entries, packed, sums)


def _complain(
    job: Job, side: str, block: int, mean: np.ndarray, precision: np.ndarray, bias: np.ndarray,
    bias_precision: np.ndarray, background: np.ndarray,
) -> None:  # fmt: skip
    """Name the first row that is not finite."""
    sound = np.isfinite(mean).all(1) & np.isfinite(bias) & np.isfinite(background)
    sound &= (np.isfinite(precision) & (precision > 0)).all(1) & (bias_precision > 0)
    row = int(np.argmin(sound))
    label = job.counts.labels(side)[job.plan.row_range(side, block)[0] + row]
    raise NumericError(
        f"the update of {side[:-1]} {label!r} (block {block} of the {side}) is not finite; "
        'the last committed sweep is intact; dtype="float64" or larger taus may help'
    )


def _weights(job: Job, side: str, own: Sealed, block: int, logits: np.ndarray | None, log_z: float) -> np.ndarray:
    """s or t of a block: users' log weights are in the generation before, items' come from the driver."""
    logits = job.read(own, "users/next", block) if logits is None else logits
    return np.asarray(np.exp(logits - log_z))


@on_worker
def update_block(
    job: Job, side: str, own: Sealed, its: Sealed, base: Background, two_lambda_star: float,
    logits: np.ndarray | None, log_z: float, block: int,
) -> Updated:  # fmt: skip
    """Update rows whose pairs are all at hand: accumulate and solve in cache."""
    settings = job.settings
    before = job.read(own, f"{side}/background", block)
    weights = _weights(job, side, own, block, logits, log_z)
    own_table = _table(job, side, own, block)
    values = _empty_values(job, before.size)

    def visit(starts: np.ndarray, stops: np.ndarray, tile: Tile, parts: np.ndarray, table: np.ndarray) -> None:
        kernels.update_rows(
            starts, stops, tile.indices, tile.counts, parts, own_table, table,
            row_offsets(padded_width(settings.factors)), settings.factors, job.censored * weights,
            two_lambda_star, base.packed.astype(settings.dtype), settings.tau(side), settings.tau_b, settings.biases,
            *values,
        )  # fmt: skip

    _visit(job, side, its, *job.plan.tile_rows(side, block), [0], visit)  # once: it is all there
    return _close_block(job, side, block, values, before, weights)


def _empty_values(job: Job, n: int) -> Values:
    dtype = job.settings.dtype
    shape = (n, job.settings.factors)
    return np.empty(shape, dtype), np.empty(shape, dtype), np.empty(n, dtype), np.empty(n, dtype)


def _visit(
    job: Job, side: str, its: Sealed, tile_block: int, rows: slice, groups: Iterable[int], visit: Callable[..., None]
) -> None:
    """Call `visit(starts, stops, tile, parts, table)` for some rows of a tile block and groups of columns."""
    for group in groups:
        tile = _tile(job, side, tile_block, group)
        cursors, ends = tile.indptr[:-1][rows], tile.indptr[1:][rows]
        if side == job.plan.long:
            visit(cursors, ends, tile, WHOLE, _whole_table(job, other(side), its))
            continue
        for run in job.plan.runs(side, group):
            first, _ = job.plan.row_range(other(side), run[0])
            _, limit = job.plan.row_range(other(side), run[-1])
            stops = np.empty_like(cursors)
            kernels.advance(cursors, ends, tile.indices, limit, stops)
            # Tables of several blocks are anywhere in memory; they must live until the visit is over.
            tables = [_table(job, other(side), its, its_block) for its_block in run]
            table, parts = side_by_side(first, job.plan.blocks[other(side)], tables)
            visit(cursors, stops, tile, parts, table)
            cursors = stops


@on_worker
def gather_statistics(
    job: Job, side: str, own: Sealed, its: Sealed, two_lambda_star: float, logits: list[np.ndarray | None],
    log_z: float, blocks: range, share: int,
) -> list[np.ndarray]:  # fmt: skip
    """Partial statistics of blocks of the short side's rows, of one tile block, over a share of the columns."""
    factors = job.settings.factors
    width = padded_width(factors)
    shown = [
        job.censored * _weights(job, side, own, block, logit, log_z)
        for block, logit in zip(blocks, logits, strict=True)
    ]
    tables = [_table(job, side, own, block) for block in blocks]
    out = [np.zeros((each.size, statistics_size(factors)), job.settings.dtype) for each in shown]
    tile_block, first = job.plan.tile_rows(side, blocks[0])
    _, last = job.plan.tile_rows(side, blocks[-1])

    def visit(starts: np.ndarray, stops: np.ndarray, tile: Tile, parts: np.ndarray, table: np.ndarray) -> None:
        at = 0
        for sums, weights, own_table in zip(out, shown, tables, strict=True):
            rows = slice(at, at + weights.size)
            at += weights.size
            kernels.add_statistics(
                starts[rows], stops[rows], tile.indices, tile.counts, parts, own_table, table, width, factors, weights,
                two_lambda_star, sums,
            )  # fmt: skip

    _visit(job, side, its, tile_block, slice(first.start, last.stop), job.plan.shares[share], visit)
    return out


def pick(job: Job, gathered: list[np.ndarray], k: int) -> np.ndarray:
    """One block's statistics out of those gathered together."""
    return gathered[k]


def add_up(job: Job, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """One node of a reduction tree; a new array, so that a repeated task finds its inputs unchanged."""
    return one + two


@on_worker
def solve_block(
    job: Job, side: str, own: Sealed, stats: np.ndarray, base: Background, two_lambda_star: float,
    logits: np.ndarray | None, log_z: float, block: int,
) -> Updated:  # fmt: skip
    """Update rows of the short side from their gathered statistics."""
    settings = job.settings
    before = job.read(own, f"{side}/background", block)
    weights = _weights(job, side, own, block, logits, log_z)
    values = _empty_values(job, before.size)
    kernels.solve_statistics(
        stats, _table(job, side, own, block),
        row_offsets(padded_width(settings.factors)), settings.factors, job.censored * weights,
        two_lambda_star, base.packed.astype(settings.dtype), settings.tau(side), settings.tau_b, settings.biases,
        *values,
    )  # fmt: skip
    return _close_block(job, side, block, values, before, weights)


@on_worker
def select_tile(job: Job, side: str, own: Sealed, its: Sealed, tile_block: int, group: int) -> np.ndarray:
    """Selection statistics (rows, 4) of a tile block over a group of columns."""
    tables = [_table(job, side, own, block) for block in job.plan.tile_blocks(side, tile_block)]
    return _select(job, side, tables[0] if len(tables) == 1 else np.concatenate(tables), its, tile_block, group)


def _select(job: Job, side: str, own_table: np.ndarray, its: Sealed, tile_block: int, group: int) -> np.ndarray:
    width = padded_width(job.settings.factors)
    first, stop = job.plan.cuts[side].row_range(tile_block)
    out = np.zeros((stop - first, 4))

    def visit(starts: np.ndarray, stops: np.ndarray, tile: Tile, parts: np.ndarray, table: np.ndarray) -> None:
        kernels.select_rows(
            starts, stops, tile.indices, tile.counts, parts, own_table, table, width, job.settings.factors, out
        )

    _visit(job, side, its, tile_block, slice(None), [group], visit)
    return out


def take_rows(job: Job, side: str, stats: np.ndarray, block: int) -> np.ndarray:
    """The rows of a block out of its tile's."""
    return stats[job.plan.tile_rows(side, block)[1]]


def _logits(
    job: Job,
    side: str,
    table: np.ndarray,
    stats: np.ndarray,
    its: Background,
    xi_star: float,
    weights: np.ndarray,
    block: int,
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Messages of a block, log weights up to their normaliser, and the block's part of that normaliser."""
    message = messages(stats, table, its, xi_star)
    selection = job.settings.alpha + _marginal(job, side, block) + job.censored * weights
    whole = dirichlet_total(job.plan.cuts[side].rows, job.counts.total, job.censored, job.settings.alpha)
    logits = expected_log(selection, whole)
    if job.settings.selection == "bayes":
        logits = logits + message
    top = float(logits.max())
    return message, logits, (top, float(np.sum(np.exp(logits - top))))


@on_worker
def weigh_block(
    job: Job, side: str, own: Sealed, stats: np.ndarray, its: Background, xi_star: float, block: int
) -> tuple[np.ndarray, tuple[float, float]]:
    """Log weights of a block for this sweep, and its part of the normaliser."""
    before = job.read(own, f"{side}/background", block)
    _, logits, part = _logits(job, side, _table(job, side, own, block), stats, its, xi_star, before, block)
    return logits, part


@on_worker
def observed_sums(job: Job, side: str, own: Sealed, stats: np.ndarray, block: int) -> tuple[float, float]:
    """sum t_j S0_j and sum t_j S2_j of a block, for xi*."""
    before = job.read(own, f"{side}/background", block)
    return float(before @ stats[:, 0]), float(before @ stats[:, 2])


@on_worker
def finish_block(
    job: Job, own: Sealed, stats: np.ndarray | None, its: Background, xi_star: float, block: int
) -> tuple[Any, float, float, tuple[float, float]]:
    """End of a sweep for a block of users: next log weights written; the pairs' and messages' part of the bound.

    Without selection statistics, users are the long side, and the task finds them by itself: one look at its table.
    """
    weights = job.read(own, "users/background", block)
    table = _table(job, "users", own, block)
    if stats is None:
        stats = _select(job, "users", table, own, block, 0)
    message, logits, part = _logits(job, "users", table, stats, its, xi_star, weights, block)
    entry = job.write("users/next", block, logits)
    return entry, float(np.sum(stats[:, 3])), float(weights @ message), part
