"""Writing a counts store: tiles in any order by anyone, the record last."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from typing import Any

import numpy as np

from ..errors import StoreError
from ..settings import SIDES
from .arrays import STRING, ArraySpec, Manifest, write_block, write_metadata
from .counts import FORMAT, MARK, RECORD, VERSION, Counts, open_counts
from .cuts import Layout, Tile
from .ours import ARRAYS, Names
from .records import canonical, seal
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


def finish(
    storage: Storage,
    layout: Layout,
    tile_pairs: dict[str, list[int]],
    marginals: dict[str, np.ndarray],
    labels: dict[str, np.ndarray],
    entries: list[Any],
    source: str,
    faded: tuple[int, int] | None = None,
    holds: str = "pairs",
) -> Counts:
    """Write labels, marginals and metadata, then the record that makes the folder a store."""
    files: Manifest = {key: (size, check) for key, size, check in entries}
    specs: list[ArraySpec] = []
    dtypes: dict[str, str] = {}
    for side in SIDES:
        dtypes[side] = "int64" if np.issubdtype(labels[side].dtype, np.integer) else STRING
        slots = max(1, max(layout.slots(pairs) for pairs in tile_pairs[side]))
        label, marginal = layout.label(side, dtypes[side]), layout.marginal(side)
        specs += [*layout.pair_arrays(side, slots), label, marginal]
        for spec, values in ((label, labels[side]), (marginal, marginals[side])):
            for k in range(spec.grid[0]):
                part = values[k * spec.chunks[0] : (k + 1) * spec.chunks[0]]
                key, size, check = write_block(storage, "", spec, (k,), part)
                files[key] = (size, check)
    files |= write_metadata(storage, "", specs, {"format": FORMAT, "version": VERSION})
    body = {
        "format": FORMAT,
        "version": VERSION,
        "layout": asdict(layout),
        "cuts": {side: [cut.block, cut.span] for side, cut in layout.cuts.items()},
        "chunk": layout.chunk,
        "total": float(marginals["users"].sum()).hex(),
        "labels": dtypes,
        "tiles": tile_pairs,
        "files": files,
    }
    body["content"] = digest(canonical(body))
    storage.sync()
    # Addresses may carry credentials, which never enter a store.
    told: dict[str, Any] = {"source": re.sub(r"://[^/@\s]*@", "://", source)}
    if faded is not None:
        told["faded"] = list(faded)
    if holds != "pairs":
        told["holds"] = holds
    storage.write(RECORD, seal({**body, **told}))
    storage.sync()
    storage.remove(MARK)
    return open_counts(storage)
