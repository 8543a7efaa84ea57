"""Setting damaged sweeps aside, when somebody asks for it."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator

from ..errors import DamagedStoreError, StoreError
from .attempts import give_up
from .commit import Commit
from .model_store import GENERATION, ModelStore, commit_key


def problems(commit: Commit) -> Iterator[str]:
    """What is wrong with a commit's generation, every file read."""
    try:
        sealed = commit.sealed
    except StoreError as error:
        yield str(error)
        return
    for key in sorted(sealed.manifest):
        try:
            sealed.read_bytes(key)
        except StoreError as error:
            yield str(error)


def set_aside_damaged(store: ModelStore) -> list[str]:
    """Set aside all that came after the last sound sweep; what was moved, in words. Nothing is deleted."""
    storage = store.storage
    aside = f"damaged-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    moved: list[str] = []
    keys = store.commit_keys()
    mark = store.expected_mark()
    if keys and (not storage.exists("zarr.json") or storage.read("zarr.json") != mark):
        _set_aside(store, "zarr.json", aside, moved)
        storage.write("zarr.json", mark)
    chain: list[Commit] = []
    try:
        for key, data in zip(keys, storage.read_many(keys), strict=True):
            chain.append(store.chained(chain, key, data, mark))
    except DamagedStoreError:
        pass
    sound = len(chain)
    while sound and any(True for _ in problems(chain[sound - 1])):
        sound -= 1
    good = {commit.folder for commit in chain[:sound]}
    late = [
        name
        for name in storage.folders()
        if (match := GENERATION.fullmatch(name)) and name not in good and int(match[1]) >= sound
    ]
    receipts = [name for name in late if storage.exists(f"{name}/receipt")]
    if sound == len(keys) and not receipts:
        return moved
    if not sound:
        raise StoreError(f"{store.url} holds no sound sweep any more; start again with another path")
    # Newest first: whatever interrupts this, the records that stay are a chain.
    for name in [*reversed(keys[sound:]), *receipts]:
        _set_aside(store, name, aside, moved)
    for name in late:
        # An attempt that its driver has declared stays: that driver may wake, and look for its files.
        if name not in receipts and (_key_of(name) in keys or give_up(storage, name)):
            _set_aside(store, name, aside, moved)
    storage.sync()
    return moved


def _key_of(generation: str) -> str:
    """Key of the commit of a generation's sweep."""
    match = GENERATION.fullmatch(generation)
    return commit_key(int(match[1])) if match else ""


def _set_aside(store: ModelStore, name: str, aside: str, moved: list[str]) -> None:
    try:
        store.storage.move(name, f"{aside}/{name}")
    except FileNotFoundError:
        moved.append(f"{store.url}/{name} was missing")
    else:
        moved.append(f"{store.url}/{name} is now {store.url}/{aside}/{name}")
