"""Writers: threads of this process that write, fsync and delete while it goes on computing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

WRITE_THREADS = 2
BACKLOG = 16 * 2**20  # bytes that may wait for them
PUT_THREADS = 8  # requests of an object store under way in a process: most of their time is waiting
FSYNC_THREADS = 8  # fsyncs under way in a process: they share the journal's commits, so many cost little more than one
IN_TURN = False  # True: whoever gives work waits for it, so that operations come in a fixed order
Place = tuple[str, str]  # the folder of a store, a key in it


class Writers:
    """Writes, fsyncs and deletions under way in this process, for all callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._writing: dict[Place, Future[None]] = {}
        self._failed: dict[Place, BaseException] = {}
        self._room = threading.Condition()
        self._bytes = 0

    def write(self, place: Place, size: int, work: Callable[[], None], far: bool = False) -> Future[None]:
        """Let a writer do a write, or a `far` one; waits while too many bytes are under way."""
        with self._room:
            self._room.wait_for(lambda: self._bytes == 0 or self._bytes + size <= BACKLOG)
            self._bytes += size
        with self._lock:
            pool = ("pairsym-put", PUT_THREADS) if far else ("pairsym-write", WRITE_THREADS)
            future = self._pool(*pool).submit(work)
            self._writing[place] = future
        future.add_done_callback(lambda done: self._written(place, size, done))
        return future

    def do(self, work: Callable[[], None]) -> Future[None]:
        """Let a thread do an fsync or a deletion."""
        with self._lock:
            return self._pool("pairsym-disk", FSYNC_THREADS).submit(work)

    def _pool(self, name: str, threads: int) -> ThreadPoolExecutor:
        if name not in self._pools:
            self._pools[name] = ThreadPoolExecutor(threads, name)
        return self._pools[name]

    def _written(self, place: Place, size: int, done: Future[None]) -> None:
        with self._lock:
            if self._writing.get(place) is done:
                del self._writing[place]
                if (error := done.exception()) is not None:
                    self._failed[place] = error
        with self._room:
            self._bytes -= size
            self._room.notify_all()

    def seen(self, root: str, key: str | None = None) -> None:
        """Wait until a key (or all keys) that this process writes can be read.

        A key that could not be written is that error for its readers, not a missing file; its writer is told, too.
        """
        with self._lock:
            futures = [future for (r, k), future in self._writing.items() if r == root and key in (None, k)]
            failed = None if key is None else self._failed.get((root, key))
        errors = [error for future in futures if (error := future.exception()) is not None]
        if key is not None and (failed is not None or errors):
            raise failed or errors[0]

    def forget(self, places: set[Place]) -> None:
        """Forget failures whose writer was told, also where `_written` has still to hear of them."""
        with self._lock:
            for place in places:
                self._failed.pop(place, None)
                future = self._writing.get(place)
                if future is not None and future.done():
                    del self._writing[place]


writers = Writers()
os.register_at_fork(after_in_child=writers.__init__)  # type: ignore[misc]  # threads do not survive a fork


class Begun:
    """What one caller has begun; nobody else waits for it, and nobody else is told what became of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: list[Future[None]] = []
        self._places: set[Place] = set()

    def write(self, place: Place, size: int, work: Callable[[], Callable[[], None]]) -> None:
        """Do a write, and then what it returns, which makes it durable."""
        with self._lock:
            self._places.add(place)
        self._add(writers.write(place, size, lambda: self.do(work())))

    def put(self, place: Place, size: int, work: Callable[[], None]) -> None:
        """Do a write to a far place, durable when it is done."""
        with self._lock:
            self._places.add(place)
        self._add(writers.write(place, size, work, far=True))

    def do(self, work: Callable[[], None]) -> None:
        self._add(writers.do(work))

    def _add(self, future: Future[None]) -> None:
        with self._lock:
            self._futures.append(future)

    def wait(self) -> None:
        """Wait until all of it is done, or raise the first error that was met."""
        errors: list[BaseException] = []
        while True:  # a write that ends adds its fsync before
            with self._lock:
                futures, self._futures = self._futures, []
                places, self._places = self._places, set()
            if not futures:
                break
            errors += [error for future in futures if (error := future.exception()) is not None]
            writers.forget(places)
        if errors:
            raise errors[0]
