"""A store on a local disk: temporary files, renames, hard links and fsyncs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from ..errors import StoreError
from . import writers as writing
from .disk import Disk, open_file, partial_name, running_system
from .ours import PARTIAL, Names, below, is_file
from .storage import Entry, Storage, check_key
from .writers import Begun, writers

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


disk = Disk()  # fault tests put another one in its place


class LocalStorage(Storage):
    def __init__(self, root: str) -> None:
        self.root = Path(root).absolute()
        self.url = str(self.root)
        self._begun = Begun()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStorage, (self.url,)

    def for_caller(self, unsynced: bool = False) -> LocalStorage:
        mine = LocalStorage(self.url)
        mine.unsynced = unsynced
        return mine

    def whereabouts(self) -> Any:
        try:
            status = os.stat(self.url)
        except OSError:
            return None
        system = running_system()
        return system and (system, status.st_dev, status.st_ino)

    def _path(self, key: str) -> Path:
        check_key(key)
        folder = self.url
        for name in key.split("/")[:-1]:
            folder = f"{folder}/{name}"
            self._refuse_link(folder)
        return self.root / key

    def _folder(self, prefix: str) -> Path:
        """The store's folder, or one below it."""
        path = self._path(prefix) if prefix else self.root
        if prefix:
            self._refuse_link(str(path))
        return path

    def _refuse_link(self, folder: str) -> None:
        """A folder below the store's own that is a link would lead reads, writes and removals out of the store."""
        if os.path.islink(folder):
            raise StoreError(f"{folder} is a link, which no folder inside a store may be; put the folder itself there")

    @contextmanager
    def _words(self, verb: str, path: Path) -> Iterator[None]:
        """Turn the system's errors into a sentence; those that callers ask about pass."""
        try:
            yield
        except FileNotFoundError:
            if verb == "write":
                raise StoreError(f"cannot write {path}: its folder was removed meanwhile") from None
            raise
        except FileExistsError:
            raise
        except (NotADirectoryError, IsADirectoryError) as error:
            if verb == "write":
                inside = isinstance(error, NotADirectoryError)
                what = "a file stands where one of its folders should" if inside else "a folder stands in its place"
                raise StoreError(f"cannot write {path}: {what}; move that away") from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        except OSError as error:
            raise StoreError(f"cannot {verb} {path}: {error.strerror or error}") from error

    def write(self, key: str, data: bytes | memoryview) -> None:
        path = self._path(key)
        with self._words("write", path):
            disk.put_file(path, data)

    def write_soon(self, key: str, data: bytes | memoryview) -> None:
        path = self._path(key)
        if not writing.IN_TURN:
            self._begun.write((self.url, key), memoryview(data).nbytes, lambda: self._put(path, data))
        else:
            self._put(path, data)()

    def _put(self, path: Path, data: bytes | memoryview) -> Callable[[], None]:
        """Put bytes under a path; they are durable when what is returned has been called."""
        with self._words("write", path):
            if self.unsynced:
                disk.put_unsynced(path, data)
                return _nothing
            made_durable = disk.put_file_soon(path, data)

        def flush() -> None:
            with self._words("write", path):
                made_durable()

        return flush

    def sync_soon(self, key: str) -> None:
        path = self._path(key)

        def sync() -> None:
            with self._words("write", path):
                disk.fsync_file(path)

        if not writing.IN_TURN:
            self._begun.do(sync)
        else:
            sync()

    def settle(self) -> None:
        self._begun.wait()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._words("write", path):
            try:
                if not disk.put_new_file(path, data):
                    if path.is_dir():
                        raise IsADirectoryError
                    return self.read(key) == data
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreError(
                        f"the file system of {self.url} has no hard links, which commits need; use another place"
                    ) from None
                raise
            self._sync_chain(path.parent)
            return True

    def sync_names(self, folder: str) -> None:
        path = self._folder(folder)
        with self._words("write", path):
            self._sync_chain(path)

    def _sync_chain(self, folder: Path) -> None:
        disk.fsync_folder(folder)
        while folder != self.root:
            folder = folder.parent
            disk.fsync_folder(folder)

    def read(self, key: str, limit: int | None = None) -> bytes:
        path = self._path(key)
        writers.seen(self.url, key)
        with self._words("read", path), open(path, "rb", opener=open_file) as file:
            size = os.fstat(file.fileno()).st_size  # memory for no more than is there, however much is allowed
            return file.read(-1 if limit is None else min(limit, size))

    def make_folder(self, folder: str) -> None:
        path = self._path(folder)
        with self._words("write", path):
            os.makedirs(path, exist_ok=True)

    def put_aside(self, key: str, *parts: memoryview) -> None:
        path = self._path(key)
        partial = partial_name(path)
        with self._words("write", path):
            with open(partial, "wb") as file:
                for part in parts:
                    file.write(part)
            os.replace(partial, path)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        path = self._path(key)
        with self._words("read", path), open(path, "rb", buffering=0) as file:
            file.seek(offset)
            done = 0
            while done < target.nbytes:  # a single read may bring less
                got = file.readinto(target[done:])
                if not got:
                    raise StoreError(f"{path} ends before byte {offset + target.nbytes}")
                done += got

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[bytes]:
        found = []
        for key, some in groupby(ranges, key=lambda one: one[0]):
            path = self._path(key)
            writers.seen(self.url, key)
            with self._words("read", path), open(path, "rb", buffering=0, opener=open_file) as file:
                for _, offset, size in some:
                    file.seek(offset)
                    found.append(_read_whole(file, size))
        return found

    def ask(self, key: str, offset: int = 0, size: int = 0) -> None:
        if hasattr(os, "posix_fadvise"):  # the kernel reads while we compute
            try:
                descriptor = open_file(str(self._path(key)), os.O_RDONLY)
            except (OSError, StoreError):
                return  # whoever reads it will tell
            try:
                os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def entry(self, key: str) -> Entry:
        path = self._path(key)
        writers.seen(self.url, key)
        with self._words("read", path):
            status = path.stat()
            if path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return Entry(status.st_size, status.st_mtime)

    def listing(self, prefix: str = "") -> dict[str, Entry]:
        base = self._folder(prefix)
        writers.seen(self.url)
        found = {}
        for folder, _, names in os.walk(base):
            for name in names:
                if not name.endswith(PARTIAL):
                    key = (Path(folder) / name).relative_to(self.root).as_posix()
                    try:
                        status = os.lstat(self.root / key)
                    except FileNotFoundError:
                        continue  # removed since
                    found[key] = Entry(status.st_size, status.st_mtime)
        return found

    def last_write(self, prefix: str) -> float:
        newest = 0.0
        for folder, _, names in os.walk(self._folder(prefix)):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                try:
                    newest = max(newest, os.lstat(path).st_mtime)
                except FileNotFoundError:
                    pass  # removed since
        return newest

    def folders(self, prefix: str = "") -> list[str]:
        base = self._folder(prefix)
        return sorted(entry.name for entry in os.scandir(base) if entry.is_dir()) if base.is_dir() else []

    def remove(self, key: str) -> None:
        path = self._path(key)
        writers.seen(self.url)
        with self._words("remove", path):
            try:
                disk.unlink(path)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                pass

    def remove_ours(self, prefix: str, names: Names) -> None:
        path = self._folder(prefix)
        writers.seen(self.url)
        with self._words("remove", path):
            self._remove_ours(path, names)
            if prefix:
                self._remove_empty(path)

    def remove_ours_soon(self, prefix: str, names: Names) -> None:
        if not writing.IN_TURN:
            self._begun.do(lambda: self.remove_ours(prefix, names))
        else:
            self.remove_ours(prefix, names)

    def _remove_ours(self, folder: Path, names: Names) -> None:
        for name in _listed(folder):
            path = folder / name
            try:
                if path.is_dir() and not path.is_symlink():
                    inner = below(names, name)
                    if inner is not None:
                        self._remove_ours(path, inner)
                        self._remove_empty(path)
                elif is_file(names, name) and not path.is_symlink():
                    disk.unlink(path)
            except FileNotFoundError:
                pass

    def _remove_empty(self, folder: Path) -> None:
        if folder.is_dir() and not folder.is_symlink() and not _listed(folder):
            try:
                disk.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # something came meanwhile
                    raise

    def remove_root(self) -> None:
        with self._words("remove", self.root):
            self._remove_empty(self.root)

    def strangers(self, names: Names, prefix: str = "") -> list[str]:
        path = self._folder(prefix)
        writers.seen(self.url)
        if path.exists() and not path.is_dir():
            return [path.name]
        return [found.relative_to(path).as_posix() for found in self._strangers(path, names)]

    def _strangers(self, folder: Path, names: Names) -> Iterator[Path]:
        for name in _listed(folder):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                inner = below(names, name)
                yield from [path] if inner is None else self._strangers(path, inner)
            elif path.is_symlink() or not is_file(names, name):
                yield path

    def move(self, prefix: str, target: str) -> None:
        path, goal = self._path(prefix), self._path(target)
        writers.seen(self.url)
        with self._words("move", path):
            disk.make_folder(goal.parent)
            disk.replace(path, goal)

    def sync(self, prefix: str = "") -> None:
        base = self._folder(prefix)
        self.settle()
        with self._words("write", base):
            folders = [Path(folder) for folder, _, _ in os.walk(base)]
            while base != self.root:
                base = base.parent
                folders.append(base)
            if not writing.IN_TURN:
                for folder in folders:
                    self._begun.do(lambda folder=folder: disk.fsync_folder(folder))  # type: ignore[misc]
                self.settle()
            else:
                for folder in folders:
                    disk.fsync_folder(folder)
            for above in self.root.parents:
                # Folders above the store may have been made for it; those we may not open were there before.
                try:
                    disk.fsync_folder(above)
                except PermissionError:
                    break

    def remove_partials(self, prefix: str, names: Names, before: float) -> None:
        base = self._folder(prefix)
        with self._words("remove", base):
            for name in _listed(base):
                path = base / name
                try:
                    if name.endswith(PARTIAL) and is_file(names, name) and path.lstat().st_mtime < before:
                        disk.unlink(path)
                except FileNotFoundError:
                    pass

    def free(self) -> int | None:
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free


def _nothing() -> None:
    """What makes bytes durable that somebody else sees to."""


def _listed(folder: Path) -> list[str]:
    """Names in a folder, in order; none when it is not there."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read_whole(file: Any, size: int) -> bytes:
    """So many bytes from where a file stands, fewer only at its end: a single read may bring less."""
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return bytes(data)
