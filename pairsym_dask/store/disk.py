"""The calls that change a local disk, one method each, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ..errors import StoreError
from .ours import PARTIAL


class Disk:
    """What the system does; fault tests put another one in its place."""

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

    def fsync_file(self, path: Path) -> None:
        descriptor = open_file(str(path), os.O_RDONLY)
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

    # Made of these calls

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            try:
                self.mkdir(folder)
            except FileExistsError:
                pass

    def put_file(self, path: Path, data: bytes | memoryview) -> None:
        """Put a file in place with its bytes on disk."""
        partial, descriptor = self._write_partial(path, data)
        try:
            self.fsync(descriptor)
            self.replace(partial, path)
        except BaseException:
            self._drop(partial)
            raise
        finally:
            os.close(descriptor)

    def put_file_soon(self, path: Path, data: bytes | memoryview) -> Callable[[], None]:
        """Put a file in place; its bytes are on disk when what is returned has been called."""
        partial, descriptor = self._write_partial(path, data)
        try:
            self.replace(partial, path)
        except BaseException:
            os.close(descriptor)
            self._drop(partial)
            raise

        def flush() -> None:
            try:
                self.fsync(descriptor)
            finally:
                os.close(descriptor)

        return flush

    def put_unsynced(self, path: Path, data: bytes | memoryview) -> None:
        """Put a file in place that all processes can read; a power cut may take its bytes until somebody syncs it.

        One that is there already stays, and holds the same bytes: it may have been synced by now, which its successor
        would not be.
        """
        partial, descriptor = self._write_partial(path, data)
        try:
            os.close(descriptor)
            self.link(partial, path)
        except FileExistsError:
            pass
        finally:
            self._drop(partial)

    def put_new_file(self, path: Path, data: bytes) -> bool:
        """Put a file in place with its bytes on disk, False when there is one."""
        partial, descriptor = self._write_partial(path, data)
        try:
            self.fsync(descriptor)
            self.link(partial, path)
        except FileExistsError:
            return False
        finally:
            os.close(descriptor)
            self._drop(partial)
        return True

    def _write_partial(self, path: Path, data: bytes | memoryview) -> tuple[Path, int]:
        """A new file beside `path`, with an open descriptor."""
        self.make_folder(path.parent)
        partial = partial_name(path)
        descriptor = self.create(partial)
        try:
            view = memoryview(data).cast("B")
            while view:
                view = view[self.write(descriptor, view) :]
        except BaseException:
            os.close(descriptor)
            self._drop(partial)
            raise
        return partial, descriptor

    def _drop(self, partial: Path) -> None:
        try:
            self.unlink(partial)
        except OSError:
            pass  # the clean-up finds it; the first error is the one to tell


@cache
def running_system() -> str | None:
    """A name of this machine from its start to its end, the same in all its containers; None where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None


def partial_name(path: Path) -> Path:
    """Where a file is written before it is put in place."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")


def open_file(path: str, flags: int) -> int:
    """A descriptor of a plain file, which is no link to one elsewhere.

    A pipe or a device that lies in a store would be waited for, or never end.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise StoreError(f"{path} is not a plain file")
