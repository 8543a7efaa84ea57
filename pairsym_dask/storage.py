"""Bytes under keys, on a local disk or any fsspec file system: the one place that writes and deletes.

Everything durable goes through `Storage`: `write` returns only when the bytes are on disk, `put_if_absent`
has exactly one winner, `read` checks nothing by itself (`arrays.Sealed` compares digests). Keys use forward
slashes and never leave the store.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from .spec import StoreError

PARTIAL = ".partial"  # ending of files that are being written


def digest(data: bytes | memoryview) -> str:
    """Fast 128-bit digest that tells damage (not malice) apart."""
    return xxhash.xxh3_128_hexdigest(data)


def _check_key(key: str) -> None:
    if not key or key.startswith("/") or "\\" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise StoreError(f"not a key inside a store: {key!r}")


class Storage:
    """A store's folder; made by `open_storage`, small enough to travel to workers."""

    url: str

    def write(self, key: str, data: bytes | memoryview) -> None:
        """Put bytes under a key, durably; a reader sees the old bytes or the new ones, never a mixture."""
        raise NotImplementedError

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Put bytes under a key if nothing is there; True for the one caller who did."""
        raise NotImplementedError

    def read(self, key: str) -> bytes:
        """The bytes under a key; FileNotFoundError when there are none."""
        raise NotImplementedError

    def size(self, key: str) -> int:
        """Bytes under a key; FileNotFoundError when there are none."""
        raise NotImplementedError

    def keys(self, prefix: str = "") -> list[str]:
        """All keys below a folder, sorted; unfinished writes left out."""
        raise NotImplementedError

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below a folder, sorted."""
        raise NotImplementedError

    def remove(self, prefix: str) -> None:
        """Delete a key, or a folder with all that is in it; nothing happens if it is not there."""
        raise NotImplementedError

    def sync(self, prefix: str = "") -> None:
        """Make the names below a folder durable, not only the bytes."""
        raise NotImplementedError

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except FileNotFoundError:
            return False
        return True


class LocalStorage(Storage):
    def __init__(self, root: str) -> None:
        self.root = Path(root).absolute()
        self.url = str(self.root)

    def _path(self, key: str) -> Path:
        _check_key(key)
        return self.root / key

    def _write_partial(self, path: Path, data: bytes | memoryview) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
        try:
            descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            try:
                view = memoryview(data).cast("B")
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return partial

    def write(self, key: str, data: bytes | memoryview) -> None:
        path = self._path(key)
        os.replace(self._write_partial(path, data), path)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        partial = self._write_partial(path, data)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        _fsync_folder(path.parent)
        return True

    def read(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    def size(self, key: str) -> int:
        path = self._path(key)
        status = path.stat()
        if path.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return status.st_size

    def keys(self, prefix: str = "") -> list[str]:
        base = self._path(prefix) if prefix else self.root
        return sorted(
            (Path(folder) / name).relative_to(self.root).as_posix()
            for folder, _, names in os.walk(base)
            for name in names
            if not name.endswith(PARTIAL)
        )

    def folders(self, prefix: str = "") -> list[str]:
        base = self._path(prefix) if prefix else self.root
        return sorted(entry.name for entry in os.scandir(base) if entry.is_dir()) if base.is_dir() else []

    def remove(self, prefix: str) -> None:
        path = self._path(prefix)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def sync(self, prefix: str = "") -> None:
        base = self._path(prefix) if prefix else self.root
        for folder, _, _ in os.walk(base):
            _fsync_folder(Path(folder))
        while base != self.root:
            base = base.parent
            _fsync_folder(base)
        _fsync_folder(self.root.parent)


class RemoteStorage(Storage):
    """Object stores and other file systems through fsspec; a finished put is durable there."""

    def __init__(self, url: str, storage_options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self.storage_options = storage_options
        self._fs: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}

    @property
    def fs(self) -> Any:
        if self._fs is None:
            import fsspec

            protocol = self.url.split("://", 1)[0]
            # A cached listing would hide what other workers wrote.
            self._fs = fsspec.filesystem(protocol, use_listings_cache=False, **self.storage_options)
        return self._fs

    def _path(self, key: str) -> str:
        _check_key(key)
        return f"{self.url}/{key}"

    def write(self, key: str, data: bytes | memoryview) -> None:
        self.fs.pipe_file(self._path(key), bytes(data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        try:
            self.fs.pipe_file(self._path(key), data, mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, key: str) -> bytes:
        return bytes(self.fs.cat_file(self._path(key)))

    def size(self, key: str) -> int:
        information = self.fs.info(self._path(key))
        if information["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return int(information["size"])

    def _relative(self, names: list[str]) -> Iterator[str]:
        root = self.fs._strip_protocol(self.url).rstrip("/") + "/"
        for name in names:
            if name.startswith(root):
                yield name[len(root) :]

    def keys(self, prefix: str = "") -> list[str]:
        base = self._path(prefix) if prefix else self.url
        return sorted(self._relative(self.fs.find(base)))

    def folders(self, prefix: str = "") -> list[str]:
        base = self._path(prefix) if prefix else self.url
        try:
            entries = self.fs.ls(base, detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in entries if entry["type"] == "directory")

    def remove(self, prefix: str) -> None:
        try:
            self.fs.rm(self._path(prefix), recursive=True)
        except FileNotFoundError:
            pass

    def sync(self, prefix: str = "") -> None:
        pass


def _fsync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_storage(path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> Storage:
    """The storage behind a local path or a URL such as `s3://bucket/plays.zarr`."""
    if isinstance(path, Storage):
        return path
    text = os.fspath(path)
    if not text:
        raise StoreError("a store's path must not be empty")
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" in text:
        return RemoteStorage(text, dict(storage_options or {}))
    return LocalStorage(text)
