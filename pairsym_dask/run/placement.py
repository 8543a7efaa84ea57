"""Where tasks of a cluster run: spread over all workers, or on workers of our choice, whatever dask would guess.

Bits hang on none of it: a task whose worker has gone runs anywhere else, and so may one that dask takes from a worker
with several that wait.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any


def evenly(workers: Sequence[str], tasks: int) -> Iterator[str]:
    """A worker for each of so many tasks, as far from each other as there are workers; then from the first one on.

    >>> found = evenly(["a", "b", "c", "d"], 2)
    >>> [next(found) for _ in range(3)]
    ['a', 'c', 'a']
    """
    return (workers[k * len(workers) // tasks % len(workers)] for k in count())


def spread_out(nodes: dict[str, Any], keys: Iterable[str]) -> None:
    """Have each of some tasks go to the worker with the least to do, or wait for one.

    Else dask looks among those that have what the tasks need, which are few where a graph begins: tasks pile up there,
    and others come to them by stealing, a second later. It takes tasks for roots of a graph by itself only where they
    are more than twice as many as threads, and what they share is little.
    """
    try:
        from dask._task_spec import Task, convert_legacy_task
    except ImportError:  # other versions of dask
        return
    for key in keys:
        task = convert_legacy_task(key, nodes[key], nodes)
        if isinstance(task, Task):
            task._data_producer = True
            nodes[key] = task


def as_sent(nodes: dict[str, Any], workers: dict[str, str]) -> Any:
    """A graph for `Client.get`: with a name of its own, which dask would find by hashing all that is in it, in minutes,
    and with the workers that some of its tasks are to run on.

    A worker that has gone, or is paused, is replaced by any other.
    """
    try:
        if workers:
            from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

            annotations = {"workers": workers.get, "allow_other_workers": dict.fromkeys(workers, True).get}
            return HighLevelGraph({"tasks": MaterializedLayer(nodes, annotations)}, {"tasks": set()})
        from dask._expr import LLGExpr

        return LLGExpr(nodes, _determ_token=uuid.uuid4().hex)
    except (ImportError, TypeError):  # other versions of dask
        return nodes
