"""Where tasks run: dask's threads, or a cluster, chosen the way dask users expect, with progress by completions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import dask
import dask.base
from dask.callbacks import Callback

from .spec import SchedulerError

Graph = dict[str, Any]
CONNECT_SECONDS = 20


def connect(address: str) -> Any:
    """A client of the scheduler at an address; an error within half a minute when nobody answers."""
    from distributed import Client

    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SchedulerError(f"the dask scheduler at {address} does not answer: {reason}") from None


def active_client(client: Any = None) -> Any:
    """The client to use: the given one, else the current one of this process unless dask is told otherwise."""
    if client is not None:
        return client
    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Executor:
    """Runs graphs on one scheduler; `threads` is how many tasks are under way at a time without a cluster."""

    def __init__(self, client: Any = None, threads: int | None = None) -> None:
        self.client = active_client(client)
        self.threads = threads or default_threads()

    def resources(self, memory: int | str | None) -> tuple[int | str | None, int]:
        """Memory budget and number of tasks of one process: of the smallest worker when there is a cluster."""
        if self.client is None:
            return memory, self.threads
        workers = list(self.client.scheduler_info(n_workers=-1)["workers"].values())
        if not workers:
            self.client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            workers = list(self.client.scheduler_info(n_workers=-1)["workers"].values())
        limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
        if memory is None and limits:
            memory = int(0.5 * min(limits))
        return memory, max(worker["nthreads"] for worker in workers)

    def run(self, graph: Graph, keys: list[str], on_done: Callable[[str], None] | None = None) -> list[Any]:
        """Values of `keys`, in order; `on_done(key)` after every finished task (every wanted one on a cluster)."""
        if not keys:
            return []
        if self.client is not None:
            return self._run_on_cluster(graph, keys, on_done)
        get = dask.base.get_scheduler() or dask.base.get_scheduler(scheduler="threads")
        if on_done is None:
            return list(get(graph, keys, num_workers=self.threads))
        with Callback(posttask=lambda key, *_: on_done(key)):
            return list(get(graph, keys, num_workers=self.threads))

    def _run_on_cluster(self, graph: Graph, keys: list[str], on_done: Callable[[str], None] | None) -> list[Any]:
        from distributed import as_completed

        futures = self.client.get(graph, keys, sync=False)
        try:
            if on_done is not None:
                for future in as_completed(futures):
                    on_done(future.key)
            return list(self.client.gather(futures))
        finally:
            for future in futures:
                future.release()


def run_tasks(
    tasks: Iterable[tuple[str, Callable[..., Any], tuple[Any, ...]]],
    *,
    client: Any = None,
    threads: int | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[Any]:
    """Run independent tasks (key, function, arguments); results in order, `on_done(finished)` as they come."""
    graph = {key: (function, *arguments) for key, function, arguments in tasks}
    finished = 0

    def count(key: str) -> None:
        nonlocal finished
        finished += 1
        if on_done is not None:
            on_done(finished)

    return Executor(client, threads).run(graph, list(graph), count)
