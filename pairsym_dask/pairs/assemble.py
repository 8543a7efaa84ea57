"""From runs to a counts store: tiles of both orders, then the rest.

Once the distinct pairs of all rows are counted the tiles are cut from the runs: the long side's directly, the short
side's after its blocks' pairs are brought together, which tells how full they would be. No task holds more than a few
million pairs, and nobody anything of all rows of the long side.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..kernels.keys import LOW, SHIFT, order_by_part, sum_rows, turn
from ..settings import SIDES, other
from ..store.arrays import ArraySpec, Sealed
from ..store.counts import Counts
from ..store.counts_writer import LabelChunk, finish, label_dtype, write_labels, write_marginal, write_tile
from ..store.cuts import Cut, Layout, Tile
from ..store.finer import blocks_of, cut_columns, cut_rows
from ..store.scratch import Scratch, Stored
from .checks import WHOLE_LIMIT
from .runs import Run
from .writing import Stages

SUMMED = 2**20  # sums of rows that are read back at a time


@dataclass(frozen=True)
class Stretch:
    """Consecutive pairs of a run."""

    first: int  # of the run
    keys: Stored
    counts: Stored | None
    lengths: Stored


@dataclass(frozen=True)
class Written:
    """What a task that wrote tiles has to tell: entries of the manifest, and the sum of counts."""

    entries: list[Any]
    total: float
    pairs: int
    sums: np.ndarray | None = None  # row by row, of the short side


@dataclass(frozen=True)
class Turned:
    """Pairs of consecutive tiles of the long side, by blocks of the short side, and there by blocks of the long one."""

    blocks: range
    keys: Stored
    counts: Stored | None
    offsets: np.ndarray  # of each block of the short side: where those of the long one begin, and the end; uint32

    def part(self, block: int, blocks: range) -> tuple[Stored, Stored | None]:
        """Pairs of a block of the short side and some blocks of the long side, as far as they are here."""
        first, stop = (min(max(k, self.blocks.start), self.blocks.stop) for k in (blocks.start, blocks.stop))
        part = slice(*(int(self.offsets[block, k - self.blocks.start]) for k in (first, stop)))
        return self.keys[part], None if self.counts is None else self.counts[part]


def _load(scratch: Scratch, keys: Stored, counts: Stored | None, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.ones(keys.size, dtype) if counts is None else scratch.read(counts).astype(dtype, copy=False)
    return scratch.read(keys), values


def write_long_tiles(
    scratch: Scratch, key: str, layout: Layout, long: str, blocks: range, stretches: list[Stretch]
) -> tuple[Written, Turned]:
    """Task: write consecutive tiles of the long side, and put their pairs aside by blocks of the short side."""
    loaded = [_load(scratch, part.keys, part.counts, layout.count_dtype) for part in stretches]
    for (keys, _), part in zip(loaded, stretches, strict=True):
        keys += np.uint64(part.first) << SHIFT
    keys = np.concatenate([keys for keys, _ in loaded])
    counts = np.concatenate([counts for _, counts in loaded])
    del loaded
    lengths = np.concatenate([scratch.read(part.lengths) for part in stretches])
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices = (keys & LOW).astype(np.uint32)
    cut = layout.cuts[long]
    begin = cut.row_range(blocks.start)[0]
    entries, sums = [], sum_rows(indptr, counts)
    for block in blocks:
        first, stop = (row - begin for row in cut.row_range(block))
        pairs = slice(indptr[first], indptr[stop])
        tile = Tile(indptr[first : stop + 1] - indptr[first], indices[pairs], counts[pairs])
        entries += write_tile(scratch.storage, layout, long, block, 0, tile)
        entries.append(write_marginal(scratch.storage, layout, long, block, sums[first:stop]))
    written = Written(entries, float(sums.sum()), keys.size)
    short = layout.cuts[other(long)]
    rows = np.array([cut.row_range(block)[0] for block in blocks] + [cut.row_range(blocks[-1])[1]], np.uint64)
    offsets = indptr[None, rows - np.uint64(begin)]
    if short.blocks > 1:
        order, bounds = order_by_part(indices // np.uint32(short.block), short.blocks)
        keys, counts = keys[order], counts[order]
        parts = ((start, keys[start:stop]) for start, stop in pairwise(bounds))
        offsets = np.array([start + np.searchsorted(part, rows << SHIFT) for start, part in parts])
    ones = all(part.counts is None for part in stretches)
    stored = scratch.write(key, keys) if ones else scratch.write(key, keys, counts)
    return written, Turned(blocks, stored[0], None if ones else stored[1], offsets.astype(np.uint32))


def write_short_tile(
    scratch: Scratch, layout: Layout, side: str, block: int, group: int, parts: list[tuple[Stored, Stored | None]]
) -> Written:
    """Task: write one tile of the short side from the pairs of its span of the long side, which come in order."""
    loaded = [_load(scratch, keys, counts, layout.count_dtype) for keys, counts in parts]
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in loaded)])
    counts = np.concatenate([np.empty(0, layout.count_dtype), *(counts for _, counts in loaded)])
    del loaded
    first, stop = layout.cuts[side].row_range(block)
    tile = Tile(*turn(keys, counts, first, stop - first))
    entries = write_tile(scratch.storage, layout, side, block, group, tile)
    sums = sum_rows(tile.indptr, tile.counts)
    return Written(entries, float(sums.sum()), keys.size, sums)


def write_label_chunks(scratch: Scratch, layout: Layout, side: str, labels: Any, chunks: range) -> list[LabelChunk]:
    """Task: write some chunks of labels."""
    return write_labels(scratch.storage, layout, side, labels, chunks)


@dataclass(frozen=True)
class Numbers:
    """Labels 0, 1, .., made when they are wanted."""

    size: int
    dtype = np.dtype(np.int64)

    def __getitem__(self, part: slice) -> np.ndarray:
        return np.arange(*part.indices(self.size))


def write_store(
    stages: Stages,
    scratch: Scratch,
    shape: tuple[int, int],
    runs: list[Run],
    labels: dict[str, Any],
    source: str,
    entries: Iterable[Any] = (),
    faded: tuple[int, int] | None = None,
    holds: str = "pairs",
) -> Counts:
    """Tiles of both orders from runs that cover the long side's rows in order, then the rest of the store."""
    whole, largest = all(run.whole for run in runs), max(run.largest for run in runs)
    dtype = np.min_scalar_type(int(largest)).name if whole else "float64"
    layout = Layout(*shape, sum(run.keys.size for run in runs), dtype)
    long, short = layout.long, other(layout.long)

    scratch.make("turned")
    finest = replace(layout.cuts[long], block=blocks_of(layout)[-1])
    offsets = Offsets.read(scratch, runs, finest)
    layout = cut_rows(layout, offsets.held(finest))
    batches = cut_batches(layout, long, offsets, stages.rows)
    tasks: list[Any] = [
        (scratch, f"turned/{k}", layout, long, blocks, list(_stretches(layout, long, blocks, runs, offsets)))
        for k, blocks in enumerate(batches)
    ]
    longs: list[tuple[Written, Turned]] = stages.run(f"write-tile-by-{long[:-1]}", write_long_tiles, tasks)
    scratch.remove("runs")

    layout = cut_columns(layout, np.concatenate([np.diff(turned.offsets).T for _, turned in longs]))
    cut, spans = layout.cuts[short], _spans(layout)
    groups: list[list[Turned]] = [[] for _ in spans]
    for _, turned in longs:
        first, last = (_group(layout, long, turned.blocks[k]) for k in (0, -1))
        for group in groups[first : last + 1]:
            group.append(turned)
    places = [(block, group) for block in range(cut.blocks) for group in range(cut.groups)]  # as tiles are numbered
    tasks = [(scratch, layout, short, b, g, [turned.part(b, spans[g]) for turned in groups[g]]) for b, g in places]
    shorts: list[Written] = stages.run(f"write-tile-by-{short[:-1]}", write_short_tile, tasks)
    chunks = {side: _write_labels(stages, scratch, layout, side, labels[side]) for side in SIDES}
    scratch.remove()

    sums = np.zeros(cut.rows)
    for (block, _), written in zip(places, shorts, strict=True):  # always in this order: the bits of sums are fixed
        assert written.sums is not None
        sums[slice(*cut.row_range(block))] += written.sums
    files = [*entries]
    for written in [*(written for written, _ in longs), *shorts]:
        files += written.entries
    for block in range(cut.blocks):
        part = sums[slice(*cut.row_range(block))]
        files.append(write_marginal(scratch.storage, layout, short, block, part))
    total = float(sum(written.total for written, _ in longs))
    if not whole or total >= WHOLE_LIMIT:  # the bits of the sum are those of all users' sums in one array
        manifest = {key: (size, check) for key, size, check in files}
        total = _add_up(Sealed(scratch.storage, "", manifest), layout.marginal("users"), 0, shape[0])
    tile_pairs = {long: offsets.held(layout.cuts[long]).tolist(), short: [written.pairs for written in shorts]}
    return finish(scratch.storage, layout, _by_side(tile_pairs), total, chunks, files, source, faded, holds)


def _write_labels(stages: Stages, scratch: Scratch, layout: Layout, side: str, labels: Any) -> list[LabelChunk]:
    """All labels of a side, a task's worth of chunks at a time."""
    spec = layout.label(side, label_dtype(labels.dtype))
    each = max(1, stages.rows // (4 * spec.chunks[0]))
    starts = range(0, spec.count, each)
    tasks = [(scratch, layout, side, labels, range(k, min(k + each, spec.count))) for k in starts]
    return [chunk for part in stages.run(f"write-{side[:-1]}-labels", write_label_chunks, tasks) for chunk in part]


def _add_up(sealed: Sealed, spec: ArraySpec, first: int, stop: int) -> float:
    """The sum of a range of an array, to the bits of numpy's: by halves, which begin at multiples of eight."""
    size = stop - first
    if size > max(SUMMED, 128):
        half = size // 2 // 8 * 8
        return _add_up(sealed, spec, first, first + half) + _add_up(sealed, spec, first + half, stop)
    step = spec.chunks[0]
    start = first // step
    parts = np.concatenate([sealed.read_block(spec, k) for k in range(start, -(-stop // step))])
    return float(parts[first - start * step : stop - start * step].sum())


@dataclass(frozen=True)
class Offsets:
    """Pairs before certain rows of the long side: those at which blocks and runs begin, and the end."""

    rows: np.ndarray
    pairs: np.ndarray

    @staticmethod
    def read(scratch: Scratch, runs: list[Run], cut: Cut) -> Offsets:
        """Of runs that cover all rows in order."""
        rows = np.unique([*range(0, cut.rows, cut.block), *(run.first for run in runs), cut.rows])
        pairs, total = np.zeros(rows.size, np.int64), 0
        for run in runs:
            before = np.concatenate([[0], np.cumsum(scratch.read(run.lengths), dtype=np.int64)])
            here = slice(*np.searchsorted(rows, [run.first, run.first + run.rows]))
            pairs[here] = total + before[rows[here] - run.first]
            total += int(before[-1])
        pairs[-1] = total
        return Offsets(rows, pairs)

    def __getitem__(self, row: int) -> int:
        return int(self.pairs[np.searchsorted(self.rows, row)])

    def held(self, cut: Cut) -> np.ndarray:
        """Pairs of each block."""
        rows = np.minimum(np.arange(cut.blocks + 1) * cut.block, cut.rows)
        return np.diff(self.pairs[np.searchsorted(self.rows, rows)])


def _by_side(values: dict[str, Any]) -> dict[str, Any]:
    return {side: values[side] for side in SIDES}


def _group(layout: Layout, long: str, block: int) -> int:
    """The group of the short side's tiles that a block of the long side belongs to."""
    return layout.cuts[long].row_range(block)[0] // layout.cuts[other(long)].span


def _spans(layout: Layout) -> list[range]:
    """Blocks of the long side that each group of the short side's tiles spans."""
    cut, block = layout.cuts[other(layout.long)], layout.cuts[layout.long].block
    ranges = (cut.column_range(group) for group in range(cut.groups))
    return [range(first // block, -(-stop // block)) for first, stop in ranges]


def cut_batches(layout: Layout, long: str, offsets: Offsets, pairs: int) -> list[range]:
    """Consecutive blocks of the long side that one task writes: about so many pairs, all of one group."""
    batches: list[range] = []
    cut, start = layout.cuts[long], 0
    for block in range(1, cut.blocks + 1):
        first, stop = cut.row_range(start)[0], cut.row_range(min(block, cut.blocks - 1))[1]
        if (
            block == cut.blocks
            or offsets[stop] - offsets[first] > pairs
            or _group(layout, long, block) != _group(layout, long, start)
        ):
            batches.append(range(start, block))
            start = block
    return batches


def _stretches(layout: Layout, long: str, blocks: range, runs: list[Run], offsets: Offsets) -> Iterator[Stretch]:
    cut = layout.cuts[long]
    begin, end = cut.row_range(blocks.start)[0], cut.row_range(blocks.stop - 1)[1]
    at = bisect.bisect_right(runs, begin, key=lambda run: run.first) - 1
    while at < len(runs) and runs[at].first < end:
        run = runs[at]
        first, stop = max(begin, run.first), min(end, run.first + run.rows)
        pairs = slice(*(offsets[row] - offsets[run.first] for row in (first, stop)))
        counts = None if run.counts is None else run.counts[pairs]
        yield Stretch(run.first, run.keys[pairs], counts, run.lengths[first - run.first : stop - run.first])
        at += 1
