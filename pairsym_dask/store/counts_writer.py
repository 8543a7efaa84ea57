"""Writing a counts store: tiles in any order by anyone, the record last."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np

from ..errors import StoreError
from ..settings import SIDES
from .arrays import STRING, ArraySpec, Manifest, write, write_block, write_metadata
from .counts import FORMAT, MARK, RECORD, Counts, open_counts
from .cuts import Layout, Tile, label_ends
from .finer import format_version, listed
from .ours import ARRAYS, Names
from .records import LayoutRecord, canonical, seal
from .scratch import FOLDERS
from .storage import Storage, digest, open_storage

UNFINISHED = b"This counts store is being written, or its writer was interrupted.\n"
NAMES: Names = {"zarr.json": None, "by_user|by_item|users|items|truth": ARRAYS, **FOLDERS}


def write_tile(storage: Storage, layout: Layout, side: str, block: int, group: int, tile: Tile) -> list[Any]:
    """Write one tile's chunks; manifest entries. Rows of the tile are those of the block."""
    t = layout.cuts[side].tile(block, group)
    pairs = tile.indices.size
    index, count, length = layout.pair_arrays(side, max(1, layout.slots(pairs)))
    entries = [write_block(storage, "", length, (t, 0), np.diff(tile.indptr).astype(np.uint32)[None])]
    for slot in range(layout.slots(pairs)):
        part = slice(slot * layout.chunk, (slot + 1) * layout.chunk)
        entries.append(write_block(storage, "", index, (t, slot), tile.indices[None, part]))
        entries.append(write_block(storage, "", count, (t, slot), tile.counts[None, part]))
    return entries


def begin(path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> Storage:
    """An empty folder for a new store, marked unfinished; leftovers of an interrupted writer are removed."""
    storage = open_storage(path, storage_options)
    if storage.exists(RECORD):
        raise StoreError(f"{storage.url} exists already; remove it first, or give another path")
    claim(storage, "counts store", UNFINISHED, NAMES)
    return storage


def give_back(storage: Storage) -> None:
    """Remove what a writer has left after `begin`, for one whose input is refused."""
    storage.remove_ours("", NAMES)
    storage.remove(MARK)


def claim(storage: Storage, what: str, text: bytes, names: Names) -> None:
    """Mark a folder as one that is being written; what an interrupted writer of the same kind left there is removed.

    The mark's text says whose it is. Anything in the folder that is not by its name such a writer's is left alone, and
    the folder is refused.
    """
    if storage.exists(MARK) and storage.size(MARK) == len(text) and storage.read(MARK) == text:
        strangers = storage.strangers({**names, MARK: None})
        if strangers:
            raise StoreError(
                f"{storage.url} holds {strangers[0]}, which no writer of an unfinished {what} has left there; "
                "move it away, or give another path"
            )
        storage.remove_ours("", names)
    elif storage.exists(MARK) or storage.strangers({MARK: None}):
        raise StoreError(f"{storage.url} exists already and is not an unfinished {what}; give another path")
    storage.write(MARK, text)


class LabelChunk(NamedTuple):
    """A written chunk of labels: its entry in the manifest, its first and its last label."""

    entry: Any
    first: Any
    last: Any


def write_labels(
    storage: Storage, layout: Layout, side: str, labels: Any, chunks: range | None = None
) -> list[LabelChunk]:
    """Write chunks of labels, all by default, of anything that gives an array for a slice."""
    spec = layout.label(side, label_dtype(labels.dtype))
    written = []
    for k in range(spec.count) if chunks is None else chunks:
        part = labels[k * spec.chunks[0] : (k + 1) * spec.chunks[0]]
        first, last = part[[0, -1]].tolist()
        written.append(LabelChunk(write_block(storage, "", spec, (k,), part), first, last))
    return written


def label_dtype(dtype: np.dtype) -> str:
    return "int64" if np.issubdtype(dtype, np.integer) else STRING


def write_marginal(storage: Storage, layout: Layout, side: str, block: int, sums: np.ndarray) -> Any:
    """Write the sums of counts of a block's rows; their manifest entry."""
    return write_block(storage, "", layout.marginal(side), (block,), sums)


def finish(
    storage: Storage,
    layout: Layout,
    tile_pairs: dict[str, list[int]],
    total: float,
    labels: dict[str, list[LabelChunk]],
    entries: list[Any],
    source: str,
    faded: tuple[int, int] | None = None,
    holds: str = "pairs",
) -> Counts:
    """Write metadata and the ends of label chunks, then the record that makes the folder a store.

    `entries` are those of tiles and marginals; `total` is the sum of all counts.
    """
    chunks = [chunk.entry for side in SIDES for chunk in labels[side]]
    files: Manifest = {key: (size, check) for key, size, check in [*entries, *chunks]}
    specs: list[ArraySpec] = []
    dtypes: dict[str, str] = {}
    for side in SIDES:
        dtypes[side] = "int64" if isinstance(labels[side][0].first, int) else STRING
        slots = max(1, max(layout.slots(pairs) for pairs in tile_pairs[side]))
        specs += [*layout.pair_arrays(side, slots), layout.label(side, dtypes[side]), layout.marginal(side)]
    version = format_version(layout)
    files |= write_metadata(storage, "", specs, {"format": FORMAT, "version": version})
    body = {
        "format": FORMAT,
        "version": version,
        "layout": LayoutRecord(
            users=layout.users, items=layout.items, pairs=layout.pairs, count_dtype=layout.count_dtype
        ),
        "cuts": listed(layout),
        "chunk": layout.chunk,
        "total": total.hex(),
        "labels": dtypes,
        "tiles": tile_pairs,
        "files": files,
    }
    body["content"] = digest(canonical(body))
    # Addresses may carry credentials, which never enter a store.
    told: dict[str, Any] = {"source": re.sub(r"://[^/@\s]*@", "://", source)}
    ends: Manifest = {}
    for side in SIDES:
        ends |= _write_ends(storage, layout.label(side, dtypes[side]), labels[side])
    if ends:  # beside the content: the same labels give the same digest as in stores without them
        told["ends"] = ends
    if faded is not None:
        told["faded"] = list(faded)
    if holds != "pairs":
        told["holds"] = holds
    storage.sync()
    storage.write(RECORD, seal({**body, **told}))
    storage.sync()
    storage.remove(MARK)
    return open_counts(storage)


def _write_ends(storage: Storage, label: ArraySpec, chunks: list[LabelChunk]) -> Manifest:
    """Write first and last label of each chunk, where there are several."""
    if len(chunks) < 2:
        return {}
    spec = label_ends(label)
    values = np.array([[chunk.first, chunk.last] for chunk in chunks], object if label.dtype == STRING else np.int64)
    written = [
        write(storage, f"{spec.path}/zarr.json", spec.metadata()), write_block(storage, "", spec, (0, 0), values)
    ]  # fmt: skip
    return {key: (size, check) for key, size, check in written}
