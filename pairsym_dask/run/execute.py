"""Where tasks run: dask's threads, or a cluster, chosen the way dask users expect, with progress by completions."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from itertools import cycle
from typing import Any, Generic, Protocol, TypeVar

import dask
import dask.base
from dask.callbacks import Callback

from ..errors import PairsymError, SchedulerError
from ..store.arrays import Manifest, Sealed
from ..store.sharded import seal
from ..store.shards import Shards
from ..store.storage import Storage, join_keys
from .bundles import Hands
from .graph import Graph, Nodes
from .placement import as_sent, spread_out
from .progress import Progress
from .watch import AGAIN, LOST_SECONDS, Watch, address_of
from .workers import Requirements, memory_trouble, paused_workers, versions

CONNECT_SECONDS = 20
POLL_SECONDS = 1.0
RETRIES = 2  # of a task that failed, perhaps for a passing reason, perhaps on a worker that lacks something
STALLED_SECONDS = 25.0  # without a finished task while workers are paused: time to say so
PAUSED_SECONDS = 300.0  # and time to end


@cache
def _blas() -> Any:
    """Looking up the BLAS libraries takes milliseconds: once a process."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def connect(address: str) -> Any:
    """A client of the scheduler at an address; an error within half a minute when nobody answers."""
    from distributed import Client
    from distributed.comm import resolve_address

    answer: dict[str, Any] = {}
    try:
        resolve_address(address)
    except (ValueError, OSError) as error:
        raise SchedulerError(f"{address!r} is not the address of a dask scheduler: {error}") from None

    def call() -> None:
        try:
            answer["client"] = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:
            answer["error"] = error

    # A port that accepts and then says nothing keeps distributed waiting beyond its timeout.
    caller = threading.Thread(target=call, daemon=True, name="pairsym-connect")
    caller.start()
    caller.join(CONNECT_SECONDS + 5)
    if "client" in answer:
        return answer["client"]
    failure = answer.get("error", TimeoutError(f"nothing came back within {CONNECT_SECONDS + 5} s"))
    reason = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
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
        self.client, self._alone = active_client(client), False
        if client is None and self.client is not None and self.client.status != "running":
            if threads is None:
                raise SchedulerError(
                    f"the current dask client has lost its scheduler at {address_of(self.client)}; close it, make "
                    "another one, or give threads= to run without a cluster"
                )
            self.client, self._alone = None, True  # dask itself would still turn to it
        self._progressed = 0.0
        self._done: list[Any] = []  # futures of the last graph
        self.processes = 1  # that share the work, as far as is known
        self.threads = threads or default_threads()
        self._warned = False

    def resources(self, memory: int | str | None) -> tuple[int | str | None, int]:
        """Memory budget and number of tasks of one process: of the smallest worker when there is a cluster."""
        if self.client is None:
            return memory, self.threads
        watch, knock = Watch(self.client), None
        while not (found := watch.workers()):
            knock = knock or self.client.submit(int, pure=False)  # an adaptive cluster has workers where it has tasks
            time.sleep(POLL_SECONDS)
        self._warn_of_memory(found)
        workers = list(found.values())
        limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
        if memory is None and limits:
            memory = int(0.5 * min(limits))
        self.processes = len(workers)
        return memory, max(worker["nthreads"] for worker in workers)

    def hands(self) -> Hands:
        """Who works now: workers may come and go, and are asked for before every sweep."""
        if self.client is None:
            return Hands()
        workers = Watch(self.client).workers()
        self._warn_of_memory(workers)  # also where every graph is over before anybody would look
        hosts = [worker["host"] for address, worker in workers.items() if not address.startswith("inproc://")]
        slots = tuple(address for address in sorted(workers) for _ in range(workers[address]["nthreads"]))
        return Hands(max(1, len(slots)), len(set(hosts)) < len(hosts), slots)

    def run(
        self, nodes: Nodes, keys: list[str], on_done: Callable[[str], None] | None = None,
        workers: dict[str, str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """Values of `keys`, in order; `on_done(key)` after every finished task (every wanted one on a cluster).

        On a cluster some tasks may have `workers` that they run on.
        """
        if not keys:
            return []
        if self.client is not None:
            return self._run_on_cluster(as_sent(nodes, workers or {}), keys, on_done)
        get = None if self._alone else dask.base.get_scheduler()
        get = get or dask.base.get_scheduler(scheduler="threads")
        # BLAS must not start threads of its own in each of ours.
        with _blas().limit(limits=1, user_api="blas"), Callback(posttask=lambda key, *_: on_done and on_done(key)):
            return list(get(nodes, keys, num_workers=self.threads))

    def seen(self, graph: Graph, keys: list[str]) -> int:
        """How many finished tasks `run` will tell of: on a cluster only the wanted ones are seen."""
        return graph.tasks if self.client is None else len(keys)

    def check_workers(self, tokens: list[tuple[Storage, str]]) -> Requirements | None:
        """See that all workers have this process's versions and find these keys; None without a cluster."""
        if self.client is None:
            return None
        beside = {where for storage, _ in tokens if (where := storage.whereabouts()) is not None}
        wanted = Requirements(versions(), tuple(tokens), frozenset(beside))
        answers = self._watched(lambda: self.client.run(wanted.problem, on_error="return"))
        for address, answer in answers.items():
            if isinstance(answer, ImportError):
                raise SchedulerError(f"the dask worker at {address} cannot import pairsym_dask: {answer}")
            if isinstance(answer, str):
                raise SchedulerError(answer)
            if isinstance(answer, PairsymError):
                raise SchedulerError(f"the dask worker at {address} cannot take part: {answer}")
        return wanted

    def tell_workers(self, function: Callable[[], None]) -> None:
        """Call something in every worker's process, as far as they can be reached in a few seconds."""
        if self.client is None or self.client.status != "running":
            return
        self._release()

        def call() -> None:
            with suppress(Exception):  # workers that are gone have nothing to give back
                self.client.run(function, on_error="ignore")

        caller = threading.Thread(target=call, daemon=True, name="pairsym-cluster")
        caller.start()
        caller.join(LOST_SECONDS / 3)

    def _run_on_cluster(self, graph: Any, keys: list[str], on_done: Callable[[str], None] | None) -> list[Any]:
        from distributed import as_completed

        def work() -> list[Any]:
            futures = self.client.get(graph, keys, sync=False, retries=RETRIES)
            self._release()
            try:
                for future in as_completed(futures, loop=self.client.loop):
                    self._progressed = time.monotonic()
                    if on_done is not None:
                        on_done(future.key)
                values = list(self.client.gather(futures))
            except BaseException:
                for future in futures:  # nothing goes on after an error
                    future.release()
                raise
            self._done = futures
            return values

        return self._watched(work)  # type: ignore[no-any-return]

    def _release(self) -> None:
        """Let go of the last graph's futures.

        A client sends at most every 10 ms: were they released before the next graph is sent, it would wait for that.
        """
        for future in self._done:
            future.release()
        self._done = []

    def _warn_of_memory(self, workers: dict[str, Any]) -> None:
        """Say it once when workers spill or are paused."""
        if not self._warned and (trouble := memory_trouble(workers)) is not None:
            self._warned = True
            warnings.warn(trouble, UserWarning, stacklevel=2)

    def _watched(self, work: Callable[[], Any]) -> Any:
        """Call something that waits for the cluster; a clear error when scheduler or workers are gone.

        distributed waits for ever on a cluster without workers, and its calls may hang when a scheduler dies.
        """
        from distributed import KilledWorker
        from distributed.client import ClosedClientError, FutureCancelledError
        from distributed.comm.core import CommClosedError

        answer: dict[str, Any] = {}
        done = threading.Event()

        def run() -> None:
            try:
                answer["value"] = work()
            except BaseException as error:
                answer["error"] = error
            finally:
                done.set()

        self._progressed = time.monotonic()
        threading.Thread(target=run, daemon=True, name="pairsym-cluster").start()
        watch, told = Watch(self.client), False
        while not done.wait(POLL_SECONDS):
            workers = watch.workers()
            self._warn_of_memory(workers)
            idle = time.monotonic() - self._progressed
            if (trouble := paused_workers(workers)) is None:
                told = False
            elif idle > PAUSED_SECONDS:
                raise SchedulerError(f"{trouble}; nothing was finished for {PAUSED_SECONDS:.0f} s; {AGAIN}")
            elif idle > STALLED_SECONDS and not told:
                told = True
                left = PAUSED_SECONDS - STALLED_SECONDS
                warnings.warn(
                    f"{trouble}; nothing was finished for {idle:.0f} s, and the fit ends in {left:.0f} s unless that "
                    "changes",
                    UserWarning,
                    stacklevel=2,
                )
        if "error" not in answer:
            return answer["value"]
        error = answer["error"]
        if isinstance(error, KilledWorker):
            raise SchedulerError(
                f"{error.allowed_failures + 1} dask workers died one after another on the same task, most likely for "
                f"want of memory: give them more, or fewer threads each; {AGAIN}"
            ) from None
        if isinstance(error, (FutureCancelledError, ClosedClientError, CommClosedError)):
            raise SchedulerError(f"the dask scheduler at {address_of(self.client)} has gone away; {AGAIN}") from None
        raise error


class Work(Protocol):
    """What the tasks of an attempt share: at least where it is written, and whether they keep what they read."""

    @property
    def storage(self) -> Storage: ...

    @property
    def folder(self) -> str: ...

    @property
    def shards(self) -> Shards | None: ...

    @property
    def scattered(self) -> bool: ...  # whether workers cannot keep what they read


J = TypeVar("J", bound=Work)


class Attempt(Generic[J]):
    """One attempt at a sweep: runs its graphs, and remembers the files they write."""

    def __init__(self, job: J, files: Manifest, executor: Executor, display: Progress) -> None:
        self.job, self.files, self.executor, self.display = job, files, executor, display
        self.hands = executor.hands()
        self._graphs = 0

    def written(self) -> Sealed:
        """All that has been written so far."""
        return seal(self.job.storage, self.job.folder, dict(self.files), self.job.shards)

    def add_files(self, entries: Iterable[Any]) -> None:
        """Remember files that tasks have written; what they left to this process is made durable meanwhile."""
        for key, size, check, *left in entries:
            self.files[key] = (size, check)
            if left:
                self.job.storage.sync_soon(join_keys(self.job.folder, key))

    def new_graph(self) -> Graph:
        """An empty graph of this attempt, the job in it."""
        self._graphs += 1
        return Graph(f"{self.job.folder.removeprefix('generation-')}-{self._graphs}", self.job)

    def run(self, name: str, graph: Graph, keys: list[str]) -> list[Any]:
        """Values of `keys`; the display calls the graph by its name."""
        self.display.start_graph(name, self.executor.seen(graph, keys))
        if self.hands.threads:
            self._begin_everywhere(graph)
        return self.executor.run(graph.nodes, keys, self.display.done, graph.workers)

    def _begin_everywhere(self, graph: Graph) -> None:
        """Have tasks that wait for no others begin on all workers.

        Where workers keep what they read, each gets the same ones in every sweep; else, and where there are fewer
        than threads, they wait in the scheduler for whoever is idle.
        """
        roots = graph.roots()
        if self.job.scattered or len(roots) < self.hands.threads:
            spread_out(graph.nodes, roots)
        else:
            slots = self.executor.hands().slots  # workers may have come since the sweep began
            graph.workers.update(zip(roots, cycle(slots), strict=False))


def run_tasks(
    tasks: Iterable[tuple[str, Callable[..., Any], tuple[Any, ...]]],
    *,
    client: Any = None,
    threads: int | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[Any]:
    """Run independent tasks (key, function, arguments); results in order, `on_done(finished)` as they come."""
    nodes = {key: (function, *arguments) for key, function, arguments in tasks}
    finished = 0

    def count(key: str) -> None:
        nonlocal finished
        finished += 1
        if on_done is not None:
            on_done(finished)

    return Executor(client, threads).run(nodes, list(nodes), count)
