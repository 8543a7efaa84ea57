"""What every writer of a counts store goes by: stages of tasks within a memory budget, and a folder left clean."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psutil

from ..errors import InputError, MemoryBudgetError
from ..run.execute import Executor
from ..run.memory import parse_memory
from ..run.process import at_most
from ..run.progress import duration
from ..store.counts import MARK
from ..store.counts_writer import begin, give_back
from ..store.scratch import Scratch
from ..store.storage import Storage, is_local, open_storage

ROWS = 2**20  # pairs a task, at most about
LEAST_ROWS = 2**14
ROW_BYTES = 384  # memory a task takes for each of its pairs, labels, copies and what allocators keep included


class Stages:
    """Runs the stages of one writing, each a batch of independent tasks, and shows them."""

    def __init__(self, client: Any, threads: int | None, memory: Any, progress: bool) -> None:
        self.executor = Executor(client, threads)
        self.attempt = uuid.uuid4().hex[:8]  # in names of keys and folders: a cluster may still run an older attempt's
        self.progress = progress
        self.done = 0  # stages
        self.began = time.perf_counter()
        budget, self.tasks = self.executor.resources(memory)
        self.rows = rows_a_task(budget, self.tasks)

    def scratch(self, storage: Storage) -> Scratch:
        """Scratch beside a store that was begun; workers that do not see it are an error."""
        self.executor.check_workers([(storage, MARK)])
        return Scratch(storage, f"scratch-{self.attempt}")

    def run(self, stage: str, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Results of `function(*arguments)` for every task, in order."""
        graph: dict[Any, Any] = {}
        for k, task in enumerate(tasks):
            graph[self.key(stage, k)] = (self.task(function, *task),)
        return self.run_graph(stage, graph, list(graph))

    def key(self, stage: str, k: int) -> str:
        """A task's name; no two stages share one, because a cluster would take the second task for the first."""
        return f"{stage}-{self.attempt}-{self.done}-{k}"

    def task(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """A call whose arguments dask does not look into, and that waits for its turn within the memory budget."""
        return functools.partial(_limited, self.tasks, function, *arguments)

    def run_graph(self, stage: str, graph: dict[Any, Any], keys: list[str]) -> list[Any]:
        wanted, done = set(keys), 0
        terminal = self.progress and sys.stderr.isatty()

        def count(key: Any) -> None:
            nonlocal done
            done += key in wanted
            if terminal:
                print(f"\r{stage} {done}/{len(keys)}", end="", file=sys.stderr, flush=True)

        results = self.executor.run(graph, keys, count)
        self.done += 1
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # the line is for the next stage
        return results

    def tell(self, words: str) -> None:
        """The summary at the end, with the time since the beginning."""
        if self.progress:
            print(f"{words}; {duration(time.perf_counter() - self.began)}", file=sys.stderr)


def _limited(tasks: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function while at most `tasks` such calls are under way in this process."""
    with at_most(tasks):
        return function(*arguments)


def rows_a_task(memory: Any, tasks: int) -> int:
    """Pairs that each of `tasks` tasks under way may hold within a memory budget.

    >>> rows_a_task("1GiB", 2), rows_a_task("64MiB", 2)
    (1048576, 87381)
    """
    budget = parse_memory(memory)
    if budget is None:  # half of what is free now
        budget = max(psutil.virtual_memory().available // 2, tasks * LEAST_ROWS * ROW_BYTES)
    rows = budget // (tasks * ROW_BYTES)
    if rows < LEAST_ROWS:
        raise MemoryBudgetError(
            f"a memory budget of {budget} bytes is too small: {tasks} tasks x {LEAST_ROWS} pairs x {ROW_BYTES} bytes "
            f"= {tasks * LEAST_ROWS * ROW_BYTES} bytes"
        )
    return min(ROWS, rows)


@contextlib.contextmanager
def writing(path: Any, options: dict[str, Any]) -> Iterator[Storage]:
    """A new store's folder; bad input leaves nothing of it behind."""
    storage = open_storage(path, options)
    new = is_local(storage.url) and not os.path.exists(storage.url)
    begin(storage)
    try:
        yield storage
    except (InputError, MemoryBudgetError):
        give_back(storage)
        if new:
            storage.remove_root()
        raise
