"""Where held-out items stand among all unseen items of their users, a block of users at a time, as dask tasks.

The geometry (blocks of users, rows scored together) comes from the counts store alone, so that ranks do not depend
on the scheduler; the memory budget decides only how many blocks are under way.
"""

from __future__ import annotations

import inspect
import uuid
from dataclasses import dataclass
from typing import Any, Protocol

import dask
import numpy as np
from threadpoolctl import threadpool_limits

from ..answers.predict import Predictor, Symbols, energy, energy_of_pairs, predictor_of, sigma_of
from ..errors import InputError, MemoryBudgetError
from ..kernels.accelerate import compiled
from ..kernels.logistic import moderated
from ..run.execute import Executor, Nodes
from ..run.memory import MIB, memory_budget
from ..run.process import at_most
from ..store.commit import Commit
from ..store.counts import Counts
from ..sweep.room import Room
from .held_out import HeldOutPairs
from .lists import describe_lists, information, mark_seen

CELLS = 2**20  # scores computed together: more would leave the cache, fewer would not pay for their preparation
COPIES = 56  # bytes that one score takes on its way: energies, sigma, scores, float64 copies
BATCH = 2**20  # held-out pairs in one graph, so that no graph is large


@dataclass(frozen=True)
class Ranks:
    """Where held-out items stand, by way of scoring and pair, and what the users' lists are like, by cut-off."""

    above: np.ndarray  # (ways, pairs): unseen items that score above the held-out one
    ties: np.ndarray  # (ways, pairs): that score the same, the held-out item itself not among them
    unseen: np.ndarray  # J - |G(i)|, the held-out item among them
    log_likelihood: np.ndarray  # log p(j* | i)
    novelty: np.ndarray  # (ways, cut-offs, users with pairs)
    covered: np.ndarray  # (ways, cut-offs, items as bits): items in any of the lists

    @staticmethod
    def join(parts: list[Ranks]) -> Ranks:
        names = ("above", "ties", "unseen", "log_likelihood", "novelty")
        joined = {name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names}
        return Ranks(**joined, covered=np.bitwise_or.reduce([part.covered for part in parts]))


class ScoreSource(Protocol):
    """Where scores come from."""

    @property
    def ways(self) -> int:
        """How many scores it gives a pair."""

    @property
    def anywhere(self) -> bool:
        """Whether it can travel to other processes."""

    def load(self, counts: Counts, positions: np.ndarray) -> Any:
        """What scoring these users needs."""

    def score(self, loaded: Any, part: slice, row: np.ndarray, item: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Scores (users of the part, items) in every way, and log p(item | user) of the pairs, `row` in the part."""

    def shared_bytes(self, items: int) -> int:
        """What a process holds once."""

    def row_bytes(self) -> int:
        """What one loaded user takes."""


class ByExponents:
    """A source that reads stores, and so can travel, with a score for each exponent of the popularity."""

    exponents: tuple[float, ...]
    anywhere = True

    @property
    def ways(self) -> int:
        return len(self.exponents)


@dataclass(frozen=True)
class Committed(ByExponents):
    """A committed sweep, ranking as `recommend` does for one or several exponents from the same energies."""

    commit: Commit
    counts: Counts
    exponents: tuple[float, ...]

    def load(self, counts: Counts, positions: np.ndarray) -> tuple[Predictor, Symbols]:
        predictor = predictor_of(self.commit, self.counts)
        return predictor, predictor.users(positions)

    def score(
        self, loaded: tuple[Predictor, Symbols], part: slice, row: np.ndarray, item: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        predictor, users = loaded[0], loaded[1].take(part)
        energies = energy(users, predictor.items)
        total = sigma_of(*energies).astype(np.float64) @ predictor.popularity
        mean, variance = energy_of_pairs(users.take(row), predictor.items.take(item))
        x = moderated(mean.astype(np.float64), variance.astype(np.float64))
        log_p = -np.logaddexp(0, -x) + np.log(predictor.popularity[item]) - np.log(total[row])
        return predictor.ranking.scores(*energies, predictor.popularity, self.exponents), log_p

    def shared_bytes(self, items: int) -> int:
        return 2 * items * self.row_bytes()

    def row_bytes(self) -> int:
        settings = self.commit.settings
        return 2 * (2 * settings.factors + 2) * np.dtype(settings.dtype).itemsize


class Scorer:
    """Any object with `scores(users)` of labels, a row a user in the store's item order; p(j | i) if `conditional`.

    Baselines give p(j | i) of many users at once.
    """

    ways = 1
    anywhere = False

    def __init__(self, model: Any, popularity: float) -> None:
        self.model = model
        takes = "popularity" in inspect.signature(model.scores).parameters
        self.arguments = {"popularity": popularity} if takes else {}

    def load(self, counts: Counts, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return positions, np.asarray(counts.user_ids[positions])

    def score(
        self, loaded: tuple[np.ndarray, np.ndarray], part: slice, row: np.ndarray, item: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        positions, users = (one[part] for one in loaded)
        scores = np.asarray(self.model.scores(users, **self.arguments))
        log_p = np.full(row.size, np.nan)
        with np.errstate(divide="ignore"):  # p = 0 is -inf, and shown so
            if hasattr(self.model, "conditionals"):
                log_p = np.log(self.model.conditionals(positions)[row, item])
            elif hasattr(self.model, "conditional"):
                for k, r in enumerate(row):
                    if k == 0 or r != row[k - 1]:
                        p = np.asarray(self.model.conditional(users[r]), np.float64)
                    log_p[k] = np.log(p[item[k]])
        return [scores], log_p

    def shared_bytes(self, items: int) -> int:
        return 0

    def row_bytes(self) -> int:
        return 8


@dataclass(frozen=True)
class RankJob:
    """What all blocks share; one node of the graph."""

    counts: Counts
    source: ScoreSource
    cutoffs: tuple[int, ...]
    room: Room


def rank(
    source: ScoreSource,
    counts: Counts,
    pairs: HeldOutPairs,
    cutoffs: tuple[int, ...] = (),
    *,
    client: Any = None,
    threads: int | None = None,
    memory: Any = None,
) -> Ranks:
    """Ranks of all pairs, in the order of `pairs`; lists of the users with pairs are looked at up to each cut-off."""
    if source.anywhere:
        return _rank(source, counts, pairs, cutoffs, Executor(client, threads), memory)
    # A live object stays in this process, whatever client is current.
    alone = dask.config.get("scheduler", None) in ("sync", "synchronous", "single-threaded")
    with dask.config.set(scheduler="synchronous" if alone else "threads"):
        return _rank(source, counts, pairs, cutoffs, Executor(None, threads), memory)


def _rank(
    source: ScoreSource, counts: Counts, pairs: HeldOutPairs, cutoffs: tuple[int, ...], executor: Executor, memory: Any
) -> Ranks:
    job = RankJob(counts, source, cutoffs, _room(source, counts, *executor.resources(memory)))
    blocks = np.unique(pairs.user // counts.cuts["users"].block)
    run, parts, graph, waiting = uuid.uuid4().hex[:12], [], {}, 0
    for block in blocks:
        first, stop = counts.cuts["users"].row_range(int(block))
        here = slice(*np.searchsorted(pairs.user, [first, stop]))
        row, item = (pairs.user[here] - first).astype(np.uint32), pairs.item[here].astype(np.uint32)
        graph[f"rank-held-out-{run}-{block}"] = (rank_block, "job", int(block), row, item)
        waiting += row.size
        if waiting >= BATCH or block == blocks[-1]:
            nodes: Nodes = {"job": job, **graph}
            parts.append(Ranks.join(executor.run(nodes, list(graph))))
            graph, waiting = {}, 0
    return Ranks.join(parts)


def _room(source: ScoreSource, counts: Counts, memory: Any, tasks: int) -> Room:
    """How many blocks fit a budget at a time, or a refusal with the arithmetic."""
    cut, tiles = counts.cuts["users"], counts.record["tiles"]["users"]
    fullest = max(sum(tiles[cut.tile(b, 0) : cut.tile(b + 1, 0)]) for b in range(cut.blocks))
    items = counts.shape[1]
    cells = max(CELLS, items)
    # Items of the block's pairs, one decoded tile beside its bytes, loaded users, results, and one matrix of scores.
    task = 4 * fullest + max(tiles) * 8 + 2 * MIB + cut.block * (source.row_bytes() + 64) + cells * COPIES
    shared = source.shared_bytes(items)
    budget = memory_budget(memory)
    fit = (budget - shared) // task
    if fit < 1:
        raise MemoryBudgetError(
            f"a memory budget of {-(-budget // MIB)} MiB is too small to evaluate: one block of {cut.block} users "
            f"needs {-(-task // MIB)} MiB beside {-(-shared // MIB)} MiB for the items; "
            f"give at least {-(-(task + shared) // MIB)} MiB"
        )
    return Room(int(min(tasks, fit)), 0, 0, 1, budget)


def rank_block(job: RankJob, block: int, row: np.ndarray, item: np.ndarray) -> Ranks:
    """Task: ranks of the held-out pairs (row in the block, item) of one block of users, sorted by row."""
    with at_most(job.room.tasks), threadpool_limits(1, "blas"):
        return _rank_block(job, block, row, item)


def _rank_block(job: RankJob, block: int, row: np.ndarray, item: np.ndarray) -> Ranks:
    counts, cut = job.counts, job.counts.cuts["users"]
    tiles = []
    for group in range(cut.groups):
        tile = counts.read_tile("users", block, group)
        tiles.append((tile.indptr, tile.indices))
    for indptr, indices in tiles:
        inside = find_inside(row, item, indptr, indices)
        if inside >= 0:
            user, what = counts.user_ids[cut.row_range(block)[0] + int(row[inside])], counts.item_ids[item[inside]]
            raise InputError(f"the held-out pair ({user!r}, {what!r}) is in the training store {counts.path} too")
    rows, inverse = np.unique(row, return_inverse=True)  # a user may have several held-out items
    loaded = job.source.load(counts, cut.row_range(block)[0] + rows.astype(np.int64))
    step = max(1, CELLS // counts.shape[1])
    bits = information(counts.marginal("items")) if job.cutoffs else np.empty(0)
    parts = []
    for first in range(0, rows.size, step):
        here = slice(*np.searchsorted(inverse, [first, first + step]))
        part = slice(first, min(first + step, rows.size))
        local, items = inverse[here] - first, item[here].astype(np.int64)
        scores, log_p = job.source.score(loaded, part, local, items)
        above, below = np.zeros((2, job.source.ways, local.size), np.int64)
        unseen = np.full(local.size, counts.shape[1], np.int64)
        for indptr, _ in tiles:
            unseen -= np.diff(indptr)[row[here]]
        for way, matrix in enumerate(scores):
            if matrix.shape != (part.stop - part.start, counts.shape[1]):
                raise InputError(
                    f"scores of {part.stop - part.start} users and {counts.shape[1]} items have shape {matrix.shape}"
                )
            ties = count_all(matrix, local, items, above[way], below[way])
            if ties < 0:
                bad = counts.user_ids[cut.row_range(block)[0] + int(rows[part][local[-1 - ties]])]
                raise InputError(f"a score of user {bad!r} is not a number")
            for indptr, indices in tiles:
                leave_out_seen(matrix, local, row[here], items, indptr, indices, above[way], below[way])
        lists = _lists(job.cutoffs, scores, rows[part], tiles, bits)
        parts.append(Ranks(above, unseen - 1 - above - below, unseen, log_p, *lists))
    return Ranks.join(parts)


def _lists(
    cutoffs: tuple[int, ...], scores: list[np.ndarray], rows: np.ndarray, tiles: list[Any], bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Novelty and covered items of some users' lists, in every way of scoring."""
    if not cutoffs:
        return np.empty((len(scores), 0, rows.size)), np.empty((len(scores), 0, 0), np.uint8)
    seen = np.zeros((rows.size, bits.size), bool)
    for indptr, indices in tiles:
        mark_seen(seen, rows, indptr, indices)
    found = [describe_lists(matrix, seen, cutoffs, bits) for matrix in scores]
    return np.stack([novelty for novelty, _ in found]), np.packbits([covered for _, covered in found], axis=-1)


@compiled
def find_inside(row: Any, item: Any, indptr: Any, indices: Any) -> int:
    """The first pair that is among a tile's pairs, or -1."""
    for p in range(row.size):
        for k in range(indptr[row[p]], indptr[row[p] + 1]):
            if indices[k] == item[p]:
                return p
    return -1


@compiled
def count_all(scores: Any, local: Any, item: Any, above: Any, below: Any) -> int:
    """Count scores above and below the held-out item's over all items; -1 - p where pair p meets a NaN, else 0."""
    for p in range(local.size):
        line = scores[local[p]]
        f = line[item[p]]
        more, less, same = 0, 0, 0
        for j in range(line.size):
            more += line[j] > f
            less += line[j] < f
            same += line[j] == f
        if more + less + same != line.size:
            return -1 - p
        above[p], below[p] = more, less
    return 0


@compiled
def leave_out_seen(
    scores: Any, local: Any, row: Any, item: Any, indptr: Any, indices: Any, above: Any, below: Any
) -> None:
    """Take a tile's pairs, items the user has seen, out of the counts."""
    for p in range(local.size):
        line = scores[local[p]]
        f = line[item[p]]
        for k in range(indptr[row[p]], indptr[row[p] + 1]):
            above[p] -= line[indices[k]] > f
            below[p] -= line[indices[k]] < f
