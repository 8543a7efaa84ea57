"""A clock that jumps over sleep, for dask's scheduler, client and workers on one event loop of this process.

Import it before distributed, which takes `time.time` for its measurements.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any


class Clock:
    """Seconds that count."""

    def __init__(self) -> None:
        self.skipped, self.task, self.busy, self._began = 0.0, 0.0, False, time.time()
        self.idle = 0.0  # between graphs, which does not count
        self.network = 1e9  # bytes a second

    def now(self) -> float:
        return self.skipped

    def counted(self) -> float:
        return self.skipped - self.idle

    def time(self) -> float:
        return self._began + self.now()


CLOCK = Clock()
time.time = CLOCK.time

import distributed.utils  # noqa: E402
from distributed import Scheduler  # noqa: E402

QUIET = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "1h",  # else of every worker, fifty times a second
    "distributed.admin.tick.cycle": "1h",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.idle-timeout": None,
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "120s",
}


class Aside:
    """Counts what the event loop waits for that dask does in threads beside it: graphs and data being unpickled."""

    def __init__(self) -> None:
        self.waiting = 0

    def watch(self, executor: ThreadPoolExecutor) -> ThreadPoolExecutor:
        start = executor.submit

        def submit(*work: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            self.waiting += 1
            future = start(*work, **options)
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.call_soon, self.done))
            return future

        executor.submit = submit  # type: ignore[method-assign]
        return executor

    def done(self) -> None:
        time.sleep(0.002)  # the thread has still to tell dask
        self.waiting -= 1


ASIDE = Aside()
ASIDE.watch(distributed.utils._offload_executor)


class Jumping(selectors.DefaultSelector):
    """Where nothing is to be done while a graph is under way, the next one to wake is woken at once."""

    def select(self, timeout: float | None = None) -> Any:
        if not timeout:
            return super().select(timeout)
        if not CLOCK.busy:
            began = time.perf_counter()
            events = super().select(min(timeout, 0.02))
            passed = time.perf_counter() - began
            CLOCK.skipped, CLOCK.idle = CLOCK.skipped + passed, CLOCK.idle + passed
            return events
        if ASIDE.waiting:  # a thread unpickles a graph, say: that is no sleep
            return super().select(0.005)
        events = super().select(0)
        if not events:
            CLOCK.skipped += timeout
        return events


class Loop(asyncio.SelectorEventLoop):
    """An event loop by the clock that counts."""

    def time(self) -> float:
        return CLOCK.now()


class Timing(Scheduler):
    """A scheduler that takes its time over every task, one after the other, and knows how quick the network is: dask
    would measure it."""

    until = 0.0  # when it will be done with all that it has been told of

    @property
    def bandwidth(self) -> float:
        return CLOCK.network

    @bandwidth.setter
    def bandwidth(self, found: float) -> None:
        pass

    def handle_task_finished(self, *arguments: Any, **message: Any) -> None:
        self.until = max(CLOCK.now(), self.until) + CLOCK.task
        asyncio.get_running_loop().call_at(self.until, partial(super().handle_task_finished, *arguments, **message))
