"""Packing: one committed sweep with what it needs to answer by label, in a folder that can be carried elsewhere.

The model's commits and the generations that answer are copied as they are. Of the counts store go the labels and the
marginals and, so that seen items can be left out, the pairs by user; its record says which pairs it has kept. Tag
stores go whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import StoreError
from .commit import Commit
from .counts import RECORD, Counts
from .model_store import PACKED, commit_key, receipt
from .records import seal
from .storage import Storage, open_storage
from .tags import Tags
from .versions import COUNTS, MODEL, TAGS, Version, write_version


def pack(
    commits: Sequence[Commit],
    answering: Sequence[Commit],
    counts: Counts,
    path: str | os.PathLike[str],
    seen: bool,
    tags: dict[str, Tags],
    options: dict[str, Any] | None,
) -> Version:
    """Copy commits, the generations of those that answer, and labels; with `seen` also the pairs by user."""
    storage = open_storage(path, options)
    if not storage.is_empty():
        raise StoreError(f"{storage.url} exists already; remove it first, or give another path")
    source = commits[-1].storage
    keys = ["zarr.json", *(commit_key(commit.sweep) for commit in commits)]
    for key in keys:
        storage.write_soon(f"{MODEL}/{key}", source.read(key))
    for commit in answering:
        for key in commit.sealed.manifest:
            storage.write_soon(f"{MODEL}/{commit.folder}/{key}", commit.sealed.read_bytes(key))
        storage.write_soon(f"{MODEL}/{commit.folder}/receipt", receipt(commit.record))
    storage.write_soon(f"{MODEL}/{PACKED}", seal({"sweeps": [commit.sweep for commit in answering]}))
    _copy_counts(counts, storage, seen)
    for side, store in tags.items():
        for key in store.links.sealed.manifest:
            storage.write_soon(f"{TAGS[side]}/{key}", store.links.sealed.read_bytes(key))
        storage.write_soon(f"{TAGS[side]}/{RECORD}", store.links.storage.read(RECORD))
    storage.settle()
    storage.sync()
    return write_version(storage, "", ())


def _copy_counts(counts: Counts, storage: Storage, seen: bool) -> None:
    kept = ["users"] if seen and "users" in counts.kept else []
    left_out = tuple(f"by_{side[:-1]}/" for side in ("users", "items") if side not in kept)
    files = {key: entry for key, entry in counts.record["files"].items() if not key.startswith(left_out)}
    for key in (*files, *counts.ends):
        storage.write_soon(f"{COUNTS}/{key}", counts.sealed.read_bytes(key))
    record: dict[str, Any] = {**counts.record, "files": files, "kept": kept}
    if counts.ends:
        record["ends"] = counts.ends
    if counts.faded is not None:
        record["faded"] = list(counts.faded)
    storage.write_soon(f"{COUNTS}/{RECORD}", seal(record))
