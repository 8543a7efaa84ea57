"""An array that one process of a machine makes, and the others map instead of making it too.

It lies in memory without a name (`memfd_create`), so that it is gone with the last process that has it, however that
ends: there is no file that a full disk would cut short or a kill leave behind. Neighbours find it by a note of a few
bytes in a folder that the user alone may enter: process and descriptor, under which the system shows it to processes of
the same user. Wherever any of this is not to be had, there is no shared array, and each process makes its own.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import stat
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np

WAIT_SECONDS = 60.0  # for a neighbour that makes it, but is stopped; then one makes its own
_POLL_SECONDS = 0.005
_LOOKS = 20  # times _POLL_SECONDS that something short is waited for
_POPULATE_READ = 22  # MADV_POPULATE_READ: pages are looked up at once, not fault by fault
_NOTE_BYTES = 64
_NOTE = re.compile(rb"\d+ \d+ *")


def on_this_machine(name: str, size: int, dtype: str, fill: Callable[[np.ndarray], None]) -> np.ndarray | None:
    """An array of so many numbers that processes of this user share by its name, filled by the first of them.

    Whoever gives the same name must mean the same bytes. What a process writes to the array, it alone sees. None where
    nothing can be shared.
    """
    nbytes = size * np.dtype(dtype).itemsize
    if not nbytes or not hasattr(os, "memfd_create"):
        return None
    try:
        note = _held_note(name)
        try:
            found = _neighbours(name, nbytes, os.pread(note, _NOTE_BYTES, 0))
            made = found is None
            if found is None:
                found = _filled(name, nbytes, dtype, fill)
                with suppress(OSError):  # without a note neighbours make their own
                    os.pwrite(note, f"{os.getpid()} {found}".ljust(_NOTE_BYTES).encode(), 0)
        finally:
            os.close(note)
        if made:
            forget_notes()  # not before: it would wait for the note that was held here, and neighbours with it
        return np.frombuffer(_mapped(found, nbytes), dtype)
    except (
        OSError,
        ValueError,
        BufferError,
    ):  # no room, no right, a folder of somebody else, a neighbour that does not end
        return None


def _mapped(descriptor: int, nbytes: int) -> mmap.mmap:
    """Memory behind a descriptor, which is closed with it; pages are shared as long as nobody writes to them."""
    try:
        mapped = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_COPY)
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(mapped, os.close, descriptor)
    with suppress(OSError):  # before Linux 5.14
        mapped.madvise(_POPULATE_READ)
    return mapped


def _filled(name: str, nbytes: int, dtype: str, fill: Callable[[np.ndarray], None]) -> int:
    """A descriptor of new memory, filled and then sealed against any change."""
    descriptor = os.memfd_create(_title(name), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, nbytes)  # want of room is an error here, and a signal when pages are touched
        memory = mmap.mmap(descriptor, nbytes)
        fill(np.frombuffer(memory, dtype))
        _unmap(memory)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unmap(memory: mmap.mmap) -> None:
    """Close what an array was filled through; dask's profiler may be looking at the frames that hold it."""
    for _ in range(_LOOKS):
        try:
            memory.close()
            return
        except BufferError:
            time.sleep(_POLL_SECONDS)
    memory.close()


# Notes


def _title(name: str) -> str:
    return f"pairsym-{name}"


def notes() -> str:
    """Where the folder of notes is."""
    return os.path.join(tempfile.gettempdir(), f"pairsym-tables-{os.getuid()}")


def _folder() -> str:
    """The folder of notes, which nobody else can have made or can write to."""
    path = notes()
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a folder of this user alone")
    return path


def _held_note(name: str) -> int:
    """The note of a name, held until it is closed: the system lets it go when the process dies that holds it."""
    path, until = os.path.join(_folder(), name), time.monotonic() + WAIT_SECONDS
    while True:
        note = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(note).st_nlink:  # else it was removed in between, as one of the dead
                return note
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(note)
                raise
        os.close(note)
        time.sleep(_POLL_SECONDS)


def _place(name: str, note: bytes) -> str | None:
    """Where the system shows the array that a note tells of; None where there is none any more."""
    try:
        process, descriptor = map(int, note.split())
        path = f"/proc/{process}/fd/{descriptor}"
        return path if os.readlink(path) == f"/memfd:{_title(name)} (deleted)" else None
    except (ValueError, OSError):
        return None


def _neighbours(name: str, nbytes: int, note: bytes) -> int | None:
    """A descriptor of the array that a neighbour has made; None when there is none."""
    place = _place(name, note)
    if place is None:
        return None
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # of something else that has taken its place in between
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE and os.fstat(descriptor).st_size == nbytes:
            return descriptor
    os.close(descriptor)
    return None


def forget_notes() -> None:
    """Remove notes of arrays that nobody has any more, but for those that somebody is about to write."""
    folder = notes()
    with suppress(OSError):
        for name in os.listdir(folder):
            _forget_note(folder, name)


def _lock_soon(descriptor: int) -> None:
    """Hold a note that a neighbour may be looking at, but not one that it is about to write: that takes longer."""
    for left in reversed(range(_LOOKS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(_POLL_SECONDS)


def _forget_note(folder: str, name: str) -> None:
    path = os.path.join(folder, name)
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _lock_soon(descriptor)
            note = os.pread(descriptor, _NOTE_BYTES + 1, 0)
            ours = not note or _NOTE.fullmatch(note)  # nobody else's file is ever removed
            if ours and _place(name, note) is None:
                os.unlink(path)
        finally:
            os.close(descriptor)
