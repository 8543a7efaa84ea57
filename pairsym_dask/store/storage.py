"""Bytes under keys, on a local disk or any fsspec file system: what every storage promises, and how one is opened.

Everything durable goes through `Storage`: `write` returns only when the bytes are on disk, `write_soon` promises it
for the next `settle`, `sync` makes names durable, `put_if_absent` has exactly one winner. `read` checks nothing by
itself (`arrays.Sealed` compares digests). Keys use forward slashes and never leave the store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import xxhash

from ..errors import StoreError
from .ours import Names

AZURE = ("az", "abfs", "abfss")  # kinds of places whose addresses may be container@account.host/path
BUCKETS = ("s3", "s3a", "gs", "gcs", *AZURE)  # that name a bucket, not a host; their clients know conditional puts


def digest(data: bytes | memoryview) -> str:
    """Fast 128-bit digest that tells damage (not malice) apart."""
    return xxhash.xxh3_128_hexdigest(data)


def check_key(key: str) -> None:
    """Refuse a key that could lead outside its store."""
    parts = key.split("/")
    if "\\" in key or not key.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"not a key inside a store: {key!r}")


def join_keys(prefix: str, key: str) -> str:
    """A key below a folder, or in the store's own.

    >>> join_keys("users", "zarr.json"), join_keys("", "zarr.json")
    ('users/zarr.json', 'zarr.json')
    """
    return f"{prefix}/{key}" if prefix else key


@dataclass(frozen=True)
class Entry:
    """Size in bytes and time of the last change, in seconds by the store's own clock."""

    size: int
    changed: float


class Storage:
    """A store's folder; made by `open_storage`, small enough to travel to workers. `url` holds no credentials."""

    url: str
    unsynced = False  # whether what is settled may still have to be synced
    far = False  # whether a call takes long whatever it brings: better few, or several at once

    def write(self, key: str, data: bytes | memoryview) -> None:
        """Put bytes under a key, durably; a reader sees the old bytes or the new ones, never a mixture."""
        raise NotImplementedError

    def write_soon(self, key: str, data: bytes | memoryview) -> None:
        """Put bytes under a key, seen at once by readers in this process, by all and durable after the next `settle`.

        The bytes must not change until then.
        """
        self.write(key, data)

    def settle(self) -> None:
        """Wait until all that was begun through this object is done and durable, or raise the error that was met."""

    def for_caller(self, unsynced: bool = False) -> Storage:
        """The same store for a caller of its own, who settles nothing but what it has begun itself.

        With `unsynced`, for a store with known `whereabouts`, what is settled can be read by all processes of the
        machine, and is durable only when one of them has given its key to `sync_soon`.
        """
        return self

    def whereabouts(self) -> Any:
        """Which folder this is, of which running system; None where that cannot be told.

        Processes with the same answer read and sync the same files, whatever of them is on disk yet.
        """
        return None

    def sync_soon(self, key: str) -> None:
        """Make bytes durable that another process of this machine has put here, by the next `settle`."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Put bytes under a key, durably with its name, if nothing is there; True for the one caller who did.

        Bytes must be the caller's own (hold an id of the attempt): finding them there after a lost answer is winning.
        """
        raise NotImplementedError

    def read(self, key: str, limit: int | None = None) -> bytes:
        """The bytes under a key, where possible no more than `limit`; FileNotFoundError when there are none."""
        raise NotImplementedError

    def read_many(self, keys: list[str]) -> list[bytes]:
        """The bytes under keys, fetched together where that is quicker."""
        return [self.read(key) for key in keys]

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[bytes]:
        """Bytes of ranges (key, offset, size), fetched together where that is quicker; less where a key ends before.

        FileNotFoundError when a key is not there.
        """
        raise NotImplementedError

    def ask(self, key: str, offset: int = 0, size: int = 0) -> None:
        """Say that a key will be read soon, or a range of it, for a storage that can fetch it meanwhile."""

    def entry(self, key: str) -> Entry:
        """Size and time of a key; FileNotFoundError when there is none."""
        raise NotImplementedError

    def listing(self, prefix: str = "") -> dict[str, Entry]:
        """All keys below a folder; unfinished writes left out."""
        raise NotImplementedError

    def last_write(self, prefix: str) -> float:
        """When something below a folder was changed last, unfinished writes too; by the store's own clock."""
        return max((entry.changed for entry in self.listing(prefix).values()), default=0.0)

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below a folder, sorted."""
        raise NotImplementedError

    def remove(self, key: str) -> None:
        """Delete a key; nothing happens if it is not there."""
        raise NotImplementedError

    def remove_ours(self, prefix: str, names: Names) -> None:
        """Delete what is ours by its name below a folder, and the folders that are empty then."""
        raise NotImplementedError

    def remove_ours_soon(self, prefix: str, names: Names) -> None:
        """Delete like `remove_ours`, finished by the next `settle`."""
        self.remove_ours(prefix, names)

    def strangers(self, names: Names, prefix: str = "") -> list[str]:
        """What is not ours below a folder: files, links and, where there are such, folders of other names."""
        raise NotImplementedError

    def remove_root(self) -> None:
        """Delete the store's own folder if it is empty."""

    def move(self, prefix: str, target: str) -> None:
        """Rename a key or a folder within the store."""
        raise NotImplementedError

    def make_folder(self, folder: str) -> None:
        """Make a folder where folders have to be made before `put_aside`."""

    def put_aside(self, key: str, *parts: memoryview) -> None:
        """Put bytes one after another under a key in a folder that is there; a power cut may take them."""
        self.write(key, b"".join(parts))

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill a buffer with the bytes of a key from an offset on."""
        data = self.read(key)[offset : offset + target.nbytes]
        if len(data) != target.nbytes:
            raise StoreError(f"{self.url}/{key} ends before byte {offset + target.nbytes}")
        target[:] = data

    def sync(self, prefix: str = "") -> None:
        """Make everything below a folder durable, names and bytes, and the folder's own name."""
        raise NotImplementedError

    def sync_names(self, folder: str) -> None:
        """Make the names directly in a folder durable, and the folder's own name."""

    def remove_partials(self, prefix: str, names: Names, before: float) -> None:
        """Delete what interrupted writers of our files left directly in a folder before a time."""

    def free(self) -> int | None:
        """Bytes free for this store, None where that has no meaning."""
        return None

    def size(self, key: str) -> int:
        return self.entry(key).size

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(self.listing(prefix))

    def is_empty(self) -> bool:
        """Whether nothing at all is here, not even a folder or a bucket."""
        return not self.keys()

    def exists(self, key: str) -> bool:
        try:
            self.entry(key)
        except FileNotFoundError:
            return False
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def is_local(address: str | os.PathLike[str]) -> bool:
    """Whether an address is a path on this machine's file systems: the one place that decides it.

    >>> is_local("plays.zarr"), is_local("file:///data/plays.zarr"), is_local("s3://bucket/plays.zarr")
    (True, True, False)
    """
    return "://" not in local_path(address)


def local_path(address: str | os.PathLike[str]) -> str:
    """An address without the prefix that some write before local paths; other addresses as they are."""
    text = os.fspath(address)
    for prefix in ("file://", "local://"):
        text = text.removeprefix(prefix)
    return text


def open_storage(path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> Storage:
    """The storage behind a local path or a URL such as `s3://bucket/plays.zarr`."""
    from .local import LocalStorage
    from .remote import RemoteStorage

    if isinstance(path, Storage):
        return path
    if not isinstance(path, (str, os.PathLike)):
        raise StoreError(f"a store's path must be text or a path, not {path!r}")
    text = os.fspath(path)
    if not text:
        raise StoreError("a store's path must not be empty")
    if "\0" in text:
        raise StoreError(f"a store's path must not hold null characters: {text!r}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise StoreError(f"a store's path must be text that a file name can hold, not {text!r}") from None
    if is_local(text):
        return LocalStorage(local_path(text))
    return RemoteStorage(text, dict(storage_options or {}))
