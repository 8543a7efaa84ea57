"""A store on an object store or another file system of fsspec; credentials stay out of words and records."""

from __future__ import annotations

import copy
import errno
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import StoreError
from . import writers as writing
from .lock import probe_key
from .ours import Names, is_ours
from .secrets import first_line, hide, without_credentials
from .storage import BUCKETS, Entry, Storage, check_key
from .writers import Begun, writers

GAP = 2**20  # bytes that are fetched in vain rather than asked around


class RemoteStorage(Storage):
    """Object stores and other file systems through fsspec; a finished put is durable there."""

    far = True

    def __init__(self, url: str, storage_options: dict[str, Any]) -> None:
        self._address = url.rstrip("/")
        self.url = without_credentials(self._address)
        self.storage_options = storage_options
        self._fs: Any = None
        self._begun = Begun()
        self._conditional = False  # whether puts are known to heed what is there

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteStorage, (self._address, self.storage_options), {"_conditional": self._conditional}

    def for_caller(self, unsynced: bool = False) -> RemoteStorage:
        return copy.copy(self)

    @property
    def fs(self) -> Any:
        if self._fs is None:
            import fsspec

            try:
                # A cached listing would hide what other workers wrote.
                self._fs, _ = fsspec.core.url_to_fs(self._address, use_listings_cache=False, **self.storage_options)
            except Exception as error:
                raise StoreError(f"cannot open {self.url}: {self._reason(error)}") from None
        return self._fs

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._root}/{key}"

    @property
    def _root(self) -> str:
        return str(self.fs._strip_protocol(self._address)).rstrip("/")

    def _reason(self, error: BaseException) -> str:
        """An error's first line without any credential that was given."""
        return hide(first_line(error), [self._address], self.storage_options)

    @contextmanager
    def _words(self, verb: str, key: str) -> Iterator[None]:
        """Turn a client library's errors into a sentence; those that callers ask about pass."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, StoreError):
            raise
        except Exception as error:
            raise StoreError(f"cannot {verb} {self.url}/{key}: {self._reason(error)}") from None

    def write(self, key: str, data: bytes | memoryview) -> None:
        with self._words("write", key):
            try:
                self.fs.pipe_file(self._path(key), bytes(data))
            except FileNotFoundError as error:
                raise self._without_bucket(key, error) from None

    def _without_bucket(self, key: str, error: BaseException) -> StoreError:
        return StoreError(f"cannot write {self.url}/{key}: there is no such bucket: {self._reason(error)}")

    def _check_condition(self) -> None:
        """Refuse a service that puts on a condition and heeds it not: two drivers would both commit a sweep.

        gcsfs does so in zonal buckets, and so do older services that speak S3: only trying tells.
        """
        if self._conditional:
            return
        kind, key = self._address.partition("://")[0], probe_key()
        with self._words("write", key):
            try:
                for data in (b"1", b"2"):
                    self.fs.pipe_file(self._path(key), data, mode="create")
            except FileExistsError:
                self._conditional = True
            except FileNotFoundError as error:
                raise self._without_bucket(key, error) from None
            finally:
                with suppress(StoreError):
                    self.remove(key)
        if not self._conditional:
            raise StoreError(
                f"{self.url} cannot hold what one of two writers must win: its service puts an object that is there "
                "already as if it were not (conditional puts are ignored); take another service or kind of bucket"
            )
        if kind not in BUCKETS:
            warnings.warn(
                f"{kind}:// looks first and then writes: two fits of {self.url} that begin at one moment could both "
                "commit a sweep; see to it that only one runs",
                UserWarning,
                stacklevel=2,
            )

    def write_soon(self, key: str, data: bytes | memoryview) -> None:
        if writing.IN_TURN:
            self.write(key, data)
        else:
            self._begun.put((self.url, key), memoryview(data).nbytes, lambda: self.write(key, data))

    def settle(self) -> None:
        self._begun.wait()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._check_condition()
        path = self._path(key)
        with self._words("write", key):
            try:
                self.fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                # An answer may have been lost and the request sent again by the client library.
                return self.read(key) == data
            except Exception as error:
                # No answer: only the store knows who won.
                try:
                    return self.read(key) == data
                except FileNotFoundError:
                    raise StoreError(f"cannot write {self.url}/{key}: {self._reason(error)}") from None
        return True

    def read(self, key: str, limit: int | None = None) -> bytes:
        writers.seen(self.url, key)
        with self._words("read", key):
            return bytes(self.fs.cat_file(self._path(key)))

    def read_many(self, keys: list[str]) -> list[bytes]:
        if not keys:
            return []
        paths = [self._path(key) for key in keys]
        with self._words("read", keys[0]):
            found = self.fs.cat(paths)
        return [bytes(found[path]) for path in paths]

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[bytes]:
        if not ranges:
            return []
        for key in dict.fromkeys(key for key, _, _ in ranges):
            writers.seen(self.url, key)
        # Neighbours of one key are one request.
        spans: list[tuple[str, int, int]] = []
        places = []
        for key, offset, size in ranges:
            if spans and spans[-1][0] == key and offset - spans[-1][1] >= 0 and offset - spans[-1][2] <= GAP:
                spans[-1] = key, spans[-1][1], max(spans[-1][2], offset + size)
            else:
                spans.append((key, offset, offset + size))
            places.append((len(spans) - 1, offset, size))
        with self._words("read", ranges[0][0]):
            if len(spans) == 1:
                ((key, first, stop),) = spans
                found = [self.fs.cat_file(self._path(key), start=first, end=stop)]
            else:
                keys, firsts, stops = zip(*spans, strict=True)
                paths = [self._path(key) for key in keys]
                found = self.fs.cat_ranges(paths, list(firsts), list(stops), on_error="raise")
        if len(spans) == len(ranges):
            return [bytes(data) for data in found]
        return [bytes(found[k][offset - spans[k][1] : offset - spans[k][1] + size]) for k, offset, size in places]

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        with self._words("read", key):
            data = self.fs.cat_file(self._path(key), start=offset, end=offset + target.nbytes)
        if len(data) != target.nbytes:
            raise StoreError(f"{self.url}/{key} ends before byte {offset + target.nbytes}")
        target[:] = data

    def entry(self, key: str) -> Entry:
        writers.seen(self.url, key)
        with self._words("read", key):
            information = self.fs.info(self._path(key))
        if information["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return _remote_entry(information)

    def listing(self, prefix: str = "") -> dict[str, Entry]:
        writers.seen(self.url)
        base = self._path(prefix) if prefix else self._root
        with self._words("list", prefix):
            try:
                found = self.fs.find(base, detail=True)
            except FileNotFoundError:
                return {}
        start = len(self._root) + 1
        return {name[start:]: _remote_entry(information) for name, information in found.items()}

    def folders(self, prefix: str = "") -> list[str]:
        base = self._path(prefix) if prefix else self._root
        with self._words("list", prefix):
            try:
                entries = self.fs.ls(base, detail=True)
            except FileNotFoundError:
                return []
        return sorted(entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in entries if entry["type"] == "directory")

    def remove(self, key: str) -> None:
        writers.seen(self.url)
        with self._words("remove", key):
            try:
                self.fs.rm_file(self._path(key))
            except FileNotFoundError:
                pass

    def remove_ours(self, prefix: str, names: Names) -> None:
        start = len(prefix) + 1 if prefix else 0
        keys = [key for key in self.keys(prefix) if is_ours(names, key[start:])]
        with self._words("remove", prefix):
            try:
                if keys:
                    self.fs.rm([self._path(key) for key in keys])
            except FileNotFoundError:
                pass

    def strangers(self, names: Names, prefix: str = "") -> list[str]:
        start = len(prefix) + 1 if prefix else 0
        return [key[start:] for key in self.keys(prefix) if not is_ours(names, key[start:])]

    def move(self, prefix: str, target: str) -> None:
        writers.seen(self.url)
        with self._words("move", prefix):
            names = [prefix] if self.exists(prefix) else self.keys(prefix)
            for name in names:
                self.fs.cp_file(self._path(name), self._path(target + name[len(prefix) :]))
            for name in names:
                self.fs.rm_file(self._path(name))

    def sync(self, prefix: str = "") -> None:
        self.settle()


def _remote_entry(information: dict[str, Any]) -> Entry:
    names = ("LastModified", "last_modified", "mtime", "created")  # of S3, Azure, Google and others
    changed: Any = next((information[name] for name in names if information.get(name)), 0)
    seconds = changed.timestamp() if hasattr(changed, "timestamp") else float(changed or 0)
    return Entry(int(information["size"]), seconds)
