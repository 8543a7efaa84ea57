"""Bytes under keys, on a local disk or any fsspec file system: the one place that writes and deletes.

Everything durable goes through `Storage`: `write` returns only when the bytes are on disk, `write_soon` promises it
for the next `settle`, `sync` makes names durable, `put_if_absent` has exactly one winner. `read` checks nothing by
itself (`arrays.Sealed` compares digests). Keys use forward slashes and never leave the store.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ..errors import StoreError

PARTIAL = ".partial"  # ending of files that are being written
WRITE_THREADS = 2  # writers in the background of a process
BACKLOG = 16 * 2**20  # bytes that may wait for them
FSYNC_THREADS = 8  # fsyncs under way in a process: they share the journal's commits, so many cost little more than one
BACKGROUND = True  # False: write_soon waits for its own fsync, so that operations come in a fixed order
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def digest(data: bytes | memoryview) -> str:
    """Fast 128-bit digest that tells damage (not malice) apart."""
    return xxhash.xxh3_128_hexdigest(data)


def _check_key(key: str) -> None:
    parts = key.split("/")
    if "\\" in key or not key.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise StoreError(f"not a key inside a store: {key!r}")


@dataclass(frozen=True)
class Entry:
    """Size in bytes and time of the last change, in seconds by the store's own clock."""

    size: int
    changed: float


class Storage:
    """A store's folder; made by `open_storage`, small enough to travel to workers. `url` holds no credentials."""

    url: str

    def write(self, key: str, data: bytes | memoryview) -> None:
        """Put bytes under a key, durably; a reader sees the old bytes or the new ones, never a mixture."""
        raise NotImplementedError

    def write_soon(self, key: str, data: bytes | memoryview) -> None:
        """Put bytes under a key, seen at once by readers in this process, by all and durable after the next `settle`.

        The bytes must not change until then.
        """
        self.write(key, data)

    def settle(self) -> None:
        """Wait until all that this process began is done and durable, or raise the error that was met."""

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

    def ask(self, key: str) -> None:
        """Say that a key will be read soon, for a storage that can fetch it meanwhile."""

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

    def remove(self, prefix: str) -> None:
        """Delete a key, or a folder with all that is in it; nothing happens if it is not there."""
        raise NotImplementedError

    def remove_soon(self, prefix: str) -> None:
        """Delete like `remove`, finished by the next `settle`."""
        self.remove(prefix)

    def move(self, prefix: str, target: str) -> None:
        """Rename a key or a folder within the store."""
        raise NotImplementedError

    def sync(self, prefix: str = "") -> None:
        """Make everything below a folder durable, names and bytes, and the folder's own name."""
        raise NotImplementedError

    def sync_names(self, folder: str) -> None:
        """Make the names directly in a folder durable, and the folder's own name."""

    def remove_partials(self, prefix: str, before: float) -> None:
        """Delete what interrupted writers left directly in a folder before a time."""

    def free(self) -> int | None:
        """Bytes free for this store, None where that has no meaning."""
        return None

    def size(self, key: str) -> int:
        return self.entry(key).size

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(self.listing(prefix))

    def exists(self, key: str) -> bool:
        try:
            self.entry(key)
        except FileNotFoundError:
            return False
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class Disk:
    """The calls that change a local disk, one method each; fault tests put another one in its place."""

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def create(self, path: Path) -> int:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fsync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)


disk = Disk()


class _Background:
    """Writes, fsyncs and deletions under way in the background of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[str, list[Future[None]]] = {}
        self._writers: ThreadPoolExecutor | None = None
        self._writing: dict[tuple[str, str], Future[None]] = {}
        self._failed: dict[tuple[str, str], BaseException] = {}
        self._room = threading.Condition()
        self._bytes = 0

    def write(self, root: str, key: str, size: int, work: Callable[[], None]) -> None:
        """Do a write in the background; waits while too many bytes are under way."""
        with self._room:
            self._room.wait_for(lambda: self._bytes == 0 or self._bytes + size <= BACKLOG)
            self._bytes += size
        with self._lock:
            if self._writers is None:
                self._writers = ThreadPoolExecutor(WRITE_THREADS, "pairsym-write")
            future = self._writers.submit(work)
            self._writing[root, key] = future
            self._waiting.setdefault(root, []).append(future)
        future.add_done_callback(lambda done: self._written(root, key, size, done))

    def _written(self, root: str, key: str, size: int, done: Future[None]) -> None:
        with self._lock:
            if self._writing.get((root, key)) is done:
                del self._writing[root, key]
                if (error := done.exception()) is not None:
                    self._failed[root, key] = error
        with self._room:
            self._bytes -= size
            self._room.notify_all()

    def seen(self, root: str, key: str | None = None) -> None:
        """Wait until a key (or all keys) that this process writes can be read.

        A key that could not be written is that error for its readers, not a missing file. All errors are also told
        by `wait`.
        """
        with self._lock:
            futures = [future for (r, k), future in self._writing.items() if r == root and key in (None, k)]
            failed = None if key is None else self._failed.get((root, key))
        errors = [error for future in futures if (error := future.exception()) is not None]
        if key is not None and (failed is not None or errors):
            raise failed or errors[0]

    def add(self, root: str, work: Callable[[], None]) -> None:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(FSYNC_THREADS, "pairsym-disk")
            self._waiting.setdefault(root, []).append(self._pool.submit(work))

    def wait(self, root: str) -> None:
        with self._lock:
            waiting = self._waiting.pop(root, [])
            for place in [place for place in self._failed if place[0] == root]:
                del self._failed[place]
        errors = [error for future in waiting if (error := future.exception()) is not None]
        if errors:
            raise errors[0]


_background = _Background()
os.register_at_fork(after_in_child=_background.__init__)  # type: ignore[misc]  # threads do not survive a fork


class LocalStorage(Storage):
    def __init__(self, root: str) -> None:
        self.root = Path(root).absolute()
        self.url = str(self.root)

    def _path(self, key: str) -> Path:
        _check_key(key)
        return self.root / key

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
        except (NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        except OSError as error:
            raise StoreError(f"cannot {verb} {path}: {error.strerror or error}") from error

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            try:
                disk.mkdir(folder)
            except FileExistsError:
                pass

    def _write_partial(self, path: Path, data: bytes | memoryview) -> tuple[Path, int]:
        """A new file beside `path`, with an open descriptor."""
        self._make_folder(path.parent)
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
        descriptor = disk.create(partial)
        try:
            view = memoryview(data).cast("B")
            while view:
                view = view[disk.write(descriptor, view) :]
        except BaseException:
            os.close(descriptor)
            self._drop(partial)
            raise
        return partial, descriptor

    def _drop(self, partial: Path) -> None:
        try:
            disk.unlink(partial)
        except OSError:
            pass  # the clean-up finds it; the first error is the one to tell

    def write(self, key: str, data: bytes | memoryview) -> None:
        path = self._path(key)
        with self._words("write", path):
            partial, descriptor = self._write_partial(path, data)
            try:
                disk.fsync(descriptor)
                disk.replace(partial, path)
            except BaseException:
                self._drop(partial)
                raise
            finally:
                os.close(descriptor)

    def write_soon(self, key: str, data: bytes | memoryview) -> None:
        path = self._path(key)
        if BACKGROUND:
            size = memoryview(data).nbytes
            _background.write(self.url, key, size, lambda: _background.add(self.url, self._put(path, data)))
        else:
            self._put(path, data)()

    def _put(self, path: Path, data: bytes | memoryview) -> Callable[[], None]:
        """Put bytes under a path; they are durable when what is returned has been called."""
        with self._words("write", path):
            partial, descriptor = self._write_partial(path, data)
            try:
                disk.replace(partial, path)
            except BaseException:
                os.close(descriptor)
                self._drop(partial)
                raise

        def flush() -> None:
            with self._words("write", path):
                try:
                    disk.fsync(descriptor)
                finally:
                    os.close(descriptor)

        return flush

    def settle(self) -> None:
        _background.seen(self.url)  # whatever they leave to fsync is known then
        _background.wait(self.url)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._words("write", path):
            partial, descriptor = self._write_partial(path, data)
            try:
                disk.fsync(descriptor)
                try:
                    disk.link(partial, path)
                except FileExistsError:
                    return self.read(key) == data
                except OSError as error:
                    if error.errno in _NO_LINKS:
                        raise StoreError(
                            f"the file system of {self.url} has no hard links, which commits need; use another place"
                        ) from None
                    raise
                self._sync_chain(path.parent)
                return True
            finally:
                os.close(descriptor)
                self._drop(partial)

    def sync_names(self, folder: str) -> None:
        path = self._path(folder) if folder else self.root
        with self._words("write", path):
            self._sync_chain(path)

    def _sync_chain(self, folder: Path) -> None:
        disk.fsync_folder(folder)
        while folder != self.root:
            folder = folder.parent
            disk.fsync_folder(folder)

    def read(self, key: str, limit: int | None = None) -> bytes:
        path = self._path(key)
        _background.seen(self.url, key)
        with self._words("read", path), open(path, "rb") as file:
            return file.read(-1 if limit is None else limit)

    def ask(self, key: str) -> None:
        if hasattr(os, "posix_fadvise"):  # the kernel reads while we compute
            try:
                descriptor = os.open(self._path(key), os.O_RDONLY)
            except OSError:
                return  # whoever reads it will tell
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def entry(self, key: str) -> Entry:
        path = self._path(key)
        _background.seen(self.url, key)
        with self._words("read", path):
            status = path.stat()
            if path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return Entry(status.st_size, status.st_mtime)

    def listing(self, prefix: str = "") -> dict[str, Entry]:
        base = self._path(prefix) if prefix else self.root
        _background.seen(self.url)
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
        for folder, _, names in os.walk(self._path(prefix)):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                try:
                    newest = max(newest, os.lstat(path).st_mtime)
                except FileNotFoundError:
                    pass  # removed since
        return newest

    def folders(self, prefix: str = "") -> list[str]:
        base = self._path(prefix) if prefix else self.root
        return sorted(entry.name for entry in os.scandir(base) if entry.is_dir()) if base.is_dir() else []

    def remove(self, prefix: str) -> None:
        path = self._path(prefix)
        _background.seen(self.url)
        with self._words("remove", path):
            self._remove(path)

    def remove_soon(self, prefix: str) -> None:
        if BACKGROUND:
            _background.add(self.url, lambda: self.remove(prefix))
        else:
            self.remove(prefix)

    def _remove(self, path: Path) -> None:
        try:
            if path.is_dir() and not path.is_symlink():
                for entry in sorted(os.listdir(path)):
                    self._remove(path / entry)
                disk.rmdir(path)
            else:
                disk.unlink(path)
        except FileNotFoundError:
            pass

    def move(self, prefix: str, target: str) -> None:
        path, goal = self._path(prefix), self._path(target)
        _background.seen(self.url)
        with self._words("move", path):
            self._make_folder(goal.parent)
            disk.replace(path, goal)

    def sync(self, prefix: str = "") -> None:
        base = self._path(prefix) if prefix else self.root
        self.settle()
        with self._words("write", base):
            folders = [Path(folder) for folder, _, _ in os.walk(base)]
            while base != self.root:
                base = base.parent
                folders.append(base)
            if BACKGROUND:
                for folder in folders:
                    _background.add(self.url, lambda folder=folder: disk.fsync_folder(folder))  # type: ignore[misc]
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

    def remove_partials(self, prefix: str, before: float) -> None:
        base = self._path(prefix) if prefix else self.root
        if not base.is_dir():
            return
        with self._words("remove", base):
            for name in sorted(os.listdir(base)):
                path = base / name
                try:
                    if name.endswith(PARTIAL) and path.lstat().st_mtime < before:
                        disk.unlink(path)
                except FileNotFoundError:
                    pass

    def free(self) -> int | None:
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free


class RemoteStorage(Storage):
    """Object stores and other file systems through fsspec; a finished put is durable there."""

    def __init__(self, url: str, storage_options: dict[str, Any]) -> None:
        self._address = url.rstrip("/")
        self.url = without_credentials(self._address)
        self.storage_options = storage_options
        self._fs: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}

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
        _check_key(key)
        return f"{self._root}/{key}"

    @property
    def _root(self) -> str:
        return str(self.fs._strip_protocol(self._address)).rstrip("/")

    def _reason(self, error: BaseException) -> str:
        """An error's first line without any credential that was given."""
        text = (str(error).splitlines() or [""])[0] or type(error).__name__
        for secret in _secrets(self.storage_options) + _secrets_of_url(self._address):
            text = text.replace(secret, "***")
        return text

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
            except FileNotFoundError as error:  # of the bucket
                raise StoreError(f"cannot write {self.url}/{key}: {self._reason(error)}") from None

    def put_if_absent(self, key: str, data: bytes) -> bool:
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
        with self._words("read", key):
            return bytes(self.fs.cat_file(self._path(key)))

    def read_many(self, keys: list[str]) -> list[bytes]:
        if not keys:
            return []
        paths = [self._path(key) for key in keys]
        with self._words("read", keys[0]):
            found = self.fs.cat(paths)
        return [bytes(found[path]) for path in paths]

    def entry(self, key: str) -> Entry:
        with self._words("read", key):
            information = self.fs.info(self._path(key))
        if information["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return _remote_entry(information)

    def listing(self, prefix: str = "") -> dict[str, Entry]:
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

    def remove(self, prefix: str) -> None:
        with self._words("remove", prefix):
            try:
                self.fs.rm(self._path(prefix), recursive=True)
            except FileNotFoundError:
                pass

    def move(self, prefix: str, target: str) -> None:
        with self._words("move", prefix):
            names = [prefix] if self.exists(prefix) else self.keys(prefix)
            for name in names:
                self.fs.cp_file(self._path(name), self._path(target + name[len(prefix) :]))
            for name in names:
                self.fs.rm_file(self._path(name))

    def sync(self, prefix: str = "") -> None:
        pass


def _remote_entry(information: dict[str, Any]) -> Entry:
    changed: Any = information.get("LastModified") or information.get("mtime") or information.get("created")
    seconds = changed.timestamp() if hasattr(changed, "timestamp") else float(changed or 0)
    return Entry(int(information["size"]), seconds)


_SECRET = re.compile("key|secret|token|password|passwd|credential|account|sas|connection_string", re.IGNORECASE)


def _secrets(options: Any, wanted: bool = False) -> list[str]:
    """Values of options whose name says that they are credentials, also nested ones."""
    if isinstance(options, dict):
        return [
            s for name, value in options.items() for s in _secrets(value, wanted or bool(_SECRET.search(str(name))))
        ]
    if isinstance(options, (list, tuple)):
        return [s for value in options for s in _secrets(value, wanted)]
    return [str(options)] if wanted and isinstance(options, (str, bytes)) and len(options) > 2 else []


def _secrets_of_url(url: str) -> list[str]:
    rest = url.split("://", 1)[1]
    user = rest.split("/", 1)[0].rpartition("@")[0]
    query = rest.partition("?")[2]
    return [part for part in (*user.split(":"), query) if len(part) > 2]


def without_credentials(url: str) -> str:
    """A URL fit for messages and records.

    >>> without_credentials("ftp://me:secret@host/plays.zarr?token=abc")
    'ftp://host/plays.zarr'
    """
    protocol, rest = url.split("://", 1)
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{protocol}://{host.rpartition('@')[2]}{slash}{path}"


def open_storage(path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> Storage:
    """The storage behind a local path or a URL such as `s3://bucket/plays.zarr`."""
    if isinstance(path, Storage):
        return path
    text = os.fspath(path)
    if not text:
        raise StoreError("a store's path must not be empty")
    if "\0" in text:
        raise StoreError(f"a store's path must not hold null characters: {text!r}")
    for protocol in ("file://", "local://"):
        text = text.removeprefix(protocol)
    if "://" in text:
        return RemoteStorage(text, dict(storage_options or {}))
    return LocalStorage(text)
