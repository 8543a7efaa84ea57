"""The counts store: observed pairs in the order each half-sweep wants them, immutable once written.

Pairs are kept twice, by user and by item, in *tiles* (a block of rows x a span of columns), sorted by row and
then column. A tile owns whole chunks of the arrays `by_<side>/index`, `count` and `length` (pairs a row), all of
shape (tiles, ..), so that tiles can be written in any order by anyone. `counts.json` is written last: a folder
without it is not a store. See docs/file_formats.md.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from dask.utils import format_bytes

from ..display.cards import card, nearby
from ..errors import DamagedStoreError, InputError, StoreError
from ..settings import SIDES
from .arrays import ArraySpec, Manifest, Sealed, read_sums
from .complete import check_complete
from .cuts import Cut, Layout, Tile, label_ends
from .fields import Fields
from .finer import as_recorded
from .labels import Labels, all_whole, arrow_labels
from .records import CountsRecord, counts_record, read_record, unseal
from .storage import Storage, open_storage

FORMAT, VERSIONS = "pairsym-counts", (1, 2)  # of even and of finer cuts
RECORD = "counts.json"
MARK = "unfinished"  # key that marks a folder as one that is being written


@dataclass(frozen=True)
class Counts:
    """An open counts store."""

    storage: Storage
    layout: Layout
    record: CountsRecord
    kept: tuple[str, ...] = SIDES  # the orders in which pairs are there; a pack for serving has fewer
    faded: tuple[int, int] | None = None  # half-life of the events, and the present of their counts; microseconds
    holds: str = "pairs"  # or "tags": the users are symbols then, the items their tags, the counts weights
    ends: Manifest = field(default_factory=dict)  # files of the ends of label chunks, beside the content's

    @cached_property
    def path(self) -> str:
        return self.storage.url

    @property
    def shape(self) -> tuple[int, int]:
        return self.layout.users, self.layout.items

    @property
    def nnz(self) -> int:
        """Distinct pairs."""
        return self.layout.pairs

    @cached_property
    def total(self) -> float:
        """Sum of all counts, D."""
        return float.fromhex(self.record["total"])

    @property
    def dtype(self) -> np.dtype:
        """Type of the counts as matrices: wide, because sums of the stored bytes would wrap round."""
        return np.dtype(np.int64 if np.dtype(self.layout.count_dtype).kind == "u" else np.float64)

    @cached_property
    def digest(self) -> str:
        """Digest of the content: the same pairs and labels give the same one, wherever they came from."""
        return str(self.record["content"])

    @cached_property
    def sealed(self) -> Sealed:
        return Sealed(self.storage, "", {**self.ends, **self.record["files"]})

    @property
    def cuts(self) -> dict[str, Cut]:
        return self.layout.cuts

    def tile_pairs(self, side: str, block: int, group: int) -> int:
        return int(self.record["tiles"][side][self.cuts[side].tile(block, group)])

    @cached_property
    def slots(self) -> dict[str, list[int]]:
        """Chunks of pairs that each tile of a side fills."""
        return {side: [self.layout.slots(pairs) for pairs in self.record["tiles"][side]] for side in SIDES}

    @cached_property
    def pair_arrays(self) -> dict[str, tuple[ArraySpec, ArraySpec, ArraySpec]]:
        """index, count and length of both orders."""
        return {side: self.layout.pair_arrays(side, max([1, *self.slots[side]])) for side in SIDES}

    @cached_property
    def marginals(self) -> dict[str, ArraySpec]:
        return {side: self.layout.marginal(side) for side in SIDES}

    def ask_tile(self, side: str, block: int, group: int) -> None:
        """Say that a tile will be read soon."""
        t = self.cuts[side].tile(block, group)
        index, count, length = self.pair_arrays[side]
        self.sealed.ask_block(length, t, 0)
        for slot in range(self.slots[side][t]):
            self.sealed.ask_block(index, t, slot)
            self.sealed.ask_block(count, t, slot)

    def read_tile(self, side: str, block: int, group: int) -> Tile:
        """One tile, checked against its digests, and that what it says can be."""
        if side not in self.kept:
            raise StoreError(
                f"{self.path} was packed for serving, without its pairs by {side[:-1]}: seen items cannot be left out "
                "(exclude_seen=False) where none were packed, and fits need the store that it was packed from"
            )
        cut, pairs = self.cuts[side], self.tile_pairs(side, block, group)
        t = cut.tile(block, group)
        index, count, length = self.pair_arrays[side]
        first, stop = cut.row_range(block)
        lengths = self.sealed.read_block(length, t, 0)[0, : stop - first]
        indptr = np.zeros(stop - first + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        if indptr[-1] != pairs:
            raise DamagedStoreError(
                f"{self.sealed.where(length.key(t, 0))} gives its rows {indptr[-1]} pairs, but its tile has {pairs}"
            )
        indices, counts = np.empty(pairs, np.uint32), np.empty(pairs, self.layout.count_dtype)
        for slot in range(self.slots[side][t]):
            part = slice(slot * self.layout.chunk, min((slot + 1) * self.layout.chunk, pairs))
            indices[part] = self.sealed.read_block(index, t, slot)[0, : part.stop - part.start]
            counts[part] = self.sealed.read_block(count, t, slot)[0, : part.stop - part.start]
        tile = Tile(indptr, indices, counts)
        try:
            tile.check(cut.column_range(group))
        except ValueError as error:
            raise DamagedStoreError(f"tile {t} of {self.sealed.where(index.path)} cannot be: {error}") from None
        return tile

    def rows(self, side: str, block: int) -> Tile:
        """All pairs of a block of rows, over all columns."""
        cut = self.cuts[side]
        tiles = [self.read_tile(side, block, group) for group in range(cut.groups)]
        if len(tiles) == 1:
            return tiles[0]
        first, stop = cut.row_range(block)
        row = np.concatenate([np.repeat(np.arange(stop - first), np.diff(tile.indptr)) for tile in tiles])
        order = np.argsort(row, kind="stable")
        indptr = np.sum([tile.indptr for tile in tiles], axis=0)
        indices = np.concatenate([tile.indices for tile in tiles])[order]
        return Tile(indptr, indices, np.concatenate([tile.counts for tile in tiles])[order])

    def marginal(self, side: str, block: int | None = None) -> np.ndarray:
        """c_i or c_j, of one block or of all."""
        spec = self.marginals[side]
        return read_sums(self.sealed, spec, self.total) if block is None else self.sealed.read_block(spec, block)

    @cached_property
    def columns(self) -> dict[str, Labels]:
        """Labels of both sides, read a chunk at a time."""
        specs = {side: self.layout.label(side, self.record["labels"][side]) for side in SIDES}
        return {side: Labels(self.sealed, spec, label_ends(spec)) for side, spec in specs.items()}

    def labels(self, side: str) -> np.ndarray:
        """All labels of a side; `some_labels` and `label_rows` read only what is wanted."""
        if side not in self._whole:
            self._whole[side] = pa.chunked_array([arrow_labels(chunk) for chunk in self.columns[side].chunks()])
        return np.asarray(self._whole[side].to_numpy())

    @cached_property
    def _whole(self) -> dict[str, pa.ChunkedArray]:
        return {}

    def some_labels(self, side: str, first: int, stop: int) -> np.ndarray:
        """Labels of a range of rows, reading only their chunks."""
        return self.columns[side][first:stop]

    def label_rows(self, side: str, rows: np.ndarray) -> np.ndarray:
        """Labels of rows, in the given order, reading only their chunks."""
        return self.columns[side].take(rows)

    @property
    def user_ids(self) -> np.ndarray:
        return self.labels("users")

    @property
    def item_ids(self) -> np.ndarray:
        return self.labels("items")

    def find(self, side: str, labels: np.ndarray) -> np.ndarray:
        """Row numbers of labels, -1 for unknown ones."""
        return self.columns[side].find(labels)

    def positions(self, side: str, labels: Any) -> np.ndarray:
        """Row numbers of labels; unknown ones are an error that names them."""
        wanted = np.atleast_1d(np.asarray(labels, None if all_whole(labels) else object))
        try:
            found = self.find(side, wanted)
        except (TypeError, UnicodeEncodeError):  # of what cannot be in a store: containers, half surrogate pairs
            raise InputError(f"{side[:-1]} labels must be integers or text, not {reprlib.repr(labels)}") from None
        if (found < 0).any():
            unknown = [str(label) for label in wanted[found < 0][:5]]
            more = int((found < 0).sum()) - len(unknown)
            raise InputError(
                f"unknown {side[:-1]} label{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}"
                + (f" and {more} more" if more > 0 else "")
                + f"; the store knows {self.cuts[side].rows} {side}, "
                f"for instance {self.some_labels(side, 0, 1).tolist()[0]!r}"
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        """A store travels without the labels that have been read."""
        return {name: value for name, value in self.__dict__.items() if name != "_whole"}

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """The whole matrix in memory.

        Returns
        -------
        scipy.sparse.csr_matrix
            Users x items, in the order of `user_ids` and `item_ids`.

        Examples
        --------
        >>> ps.open_counts("plays.zarr").to_scipy().toarray().tolist()
        [[1, 1, 0], [0, 1, 1], [1, 1, 0]]
        """
        tiles = [self.rows("users", b) for b in range(self.cuts["users"].blocks)]
        indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(tile.indptr) for tile in tiles]))])
        indices = np.concatenate([tile.indices for tile in tiles]).astype(np.int64)
        data = np.concatenate([tile.counts for tile in tiles]).astype(self.dtype)
        return scipy.sparse.csr_matrix((data, indices, indptr), self.shape)

    def to_dask(self) -> Any:
        """The matrix as a lazy dask array, a block of users at a time.

        Returns
        -------
        dask.array.Array
            Users x items, of sparse.GCXS blocks.

        Examples
        --------
        >>> ps.open_counts("plays.zarr").to_dask().compute().todense().sum().item()
        6
        """
        import dask
        import dask.array as da
        import sparse

        cut = self.cuts["users"]
        load = dask.delayed(_gcxs, pure=True)
        meta = sparse.GCXS.from_numpy(np.zeros((0, 0), self.dtype))
        blocks = []
        for b in range(cut.blocks):
            first, stop = cut.row_range(b)
            delayed = load(self, b, dask_key_name=f"read-counts-{self.digest[:8]}-{b}")
            blocks.append(da.from_delayed(delayed, (stop - first, cut.columns), self.dtype, meta=meta))
        return da.concatenate(blocks, axis=0)

    def __repr__(self) -> str:
        users, items = self.shape
        what = f"{users:,} users x {items:,} items, {self.nnz:,} pairs, total {self.total:,.10g}"
        return f"Counts({nearby(self.path)!r}, {what})"

    def _repr_html_(self) -> str:
        users, items = self.shape
        files = self.record["files"]
        return card(
            "Counts",
            {
                "store": nearby(self.path),
                "shape": f"{users:,} users x {items:,} items",
                "pairs": f"{self.nnz:,}, total count {self.total:,.10g}, density {self.nnz / (users * items):.3%}",
                "blocks": ", ".join(
                    f"{self.cuts[side].blocks:,} of {self.cuts[side].block:,} {side}" for side in SIDES
                ),
                "on disk": f"{format_bytes(sum(int(size) for size, _ in files.values()))} in {len(files):,} files",
            },
        )


def _gcxs(counts: Counts, block: int) -> Any:
    import sparse

    first, stop = counts.cuts["users"].row_range(block)
    tile = counts.rows("users", block)
    shape = (stop - first, counts.shape[1])
    return sparse.GCXS(
        (tile.counts.astype(counts.dtype), tile.indices.astype(np.int64), tile.indptr),
        shape=shape,
        compressed_axes=(0,),
    )


def open_counts(
    path: str | os.PathLike[str] | Storage | Counts, storage_options: dict[str, Any] | None = None
) -> Counts:
    """Open a counts store; sizes of all its files are checked, digests and values when they are read.

    Parameters
    ----------
    path : path or Counts
        Where it is; an open one comes back as it is.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Counts
        The store, open.

    Examples
    --------
    >>> counts = ps.open_counts("plays.zarr")
    >>> counts.item_ids.tolist()
    ['chess', 'go', 'poker']
    """
    if isinstance(path, Counts):
        return path
    if not isinstance(path, (str, os.PathLike, Storage)):
        raise InputError(
            f"a counts store is wanted here, not a {type(path).__name__}; make one of it first: "
            'counts = ps.ingest(pairs, "counts.zarr")'
        )
    storage = open_storage(path, storage_options)
    try:
        counts = counts_as_recorded(storage)
    except (FileNotFoundError, NotADirectoryError):
        if storage.exists(MARK):
            raise StoreError(
                f"{storage.url} is not complete: its ingest was interrupted; run the ingest again"
            ) from None
        if os.path.isfile(storage.url):
            raise StoreError(f"{storage.url} is a file, not a counts store; ingest makes one of it") from None
        if storage.is_empty():
            raise StoreError(f"there is no counts store at {storage.url}: nothing is there") from None
        raise StoreError(f"{storage.url} is not a counts store: it has no {RECORD}") from None
    counts.sealed.check_sizes()
    return counts


def counts_as_recorded(storage: Storage) -> Counts:
    """What a counts store's record says, checked in itself, before any other file is looked at."""
    data = read_record(storage, RECORD)
    record = unseal(data, f"{storage.url}/{RECORD}")
    if record.get("format") != FORMAT:
        raise StoreError(f"{storage.url} is a {record.get('format')!r} store, not a counts store")
    if record.get("version") not in VERSIONS:
        raise StoreError(
            f"{storage.url} has counts format version {record.get('version')}; "
            f"this pairsym_dask reads versions {' and '.join(map(str, VERSIONS))}"
        )
    checked = counts_record(record, f"{storage.url}/{RECORD}")
    kept, faded = record.get("kept", list(SIDES)), record.get("faded")
    fades = isinstance(faded, list) and [type(one) for one in faded] == [int, int]
    if not isinstance(kept, list) or (faded is not None and not fades):
        raise DamagedStoreError(f"{storage.url}/{RECORD} is not a sound record: kept or faded cannot be")
    there = tuple(side for side in SIDES if side in kept)
    holds = "tags" if record.get("holds") == "tags" else "pairs"
    fading = (faded[0], faded[1]) if faded else None
    ends = Fields(record, f"{storage.url}/{RECORD}").manifest("ends") if "ends" in record else {}
    if not ends.keys() <= {f"{side}/label_ends/{name}" for side in SIDES for name in ("zarr.json", "c.0.0")}:
        raise DamagedStoreError(f"{storage.url}/{RECORD} is not a sound record: ends lists other files")
    layout = as_recorded(Layout(**checked["layout"]), checked["cuts"], checked["version"])
    if layout is None or layout.chunk != checked["chunk"]:
        raise StoreError(f"{storage.url} was cut into tiles by other rules than this pairsym_dask's")
    counts = Counts(storage, layout, checked, there, fading, holds, ends)
    check_complete(counts)
    return counts


def iterate_rows(counts: Counts, side: str) -> Iterator[tuple[int, Tile]]:
    """First row and pairs of every block of a side."""
    for block in range(counts.cuts[side].blocks):
        yield counts.cuts[side].row_range(block)[0], counts.rows(side, block)
