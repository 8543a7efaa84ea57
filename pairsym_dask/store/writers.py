"""Writers: threads of this process that write, fsync and delete while it goes on computing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

WRITE_THREADS = 2
BACKLOG = 16 * 2**20  # bytes that may wait for them
FSYNC_THREADS = 8  # fsyncs under way in a process: they share the journal's commits, so many cost little more than one
IN_TURN = False  # True: whoever gives work waits for it, so that operations come in a fixed order


class Writers:
    """Writes, fsyncs and deletions under way in this process."""

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
        """Let a writer do a write; waits while too many bytes are under way."""
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


writers = Writers()
os.register_at_fork(after_in_child=writers.__init__)  # type: ignore[misc]  # threads do not survive a fork
