"""Tasks that dask's scheduler is to spread over all workers, whatever has become of its guesses."""

from __future__ import annotations

from collections.abc import Iterable

from .execute import Graph


def spread_out(graph: Graph, keys: Iterable[str]) -> None:
    """Have each of some tasks go to the worker with the least to do, or wait for one.

    Else dask looks among those that have what the tasks need, which are few where a graph begins: tasks pile up there,
    and others come to them by stealing, seconds later. It takes tasks for roots of a graph by itself only where there
    are twice as many as threads.
    """
    try:
        from dask._task_spec import Task, convert_legacy_task
    except ImportError:  # other versions of dask
        return
    for key in keys:
        task = convert_legacy_task(key, graph.nodes[key], graph.nodes)
        if isinstance(task, Task):
            task._data_producer = True
            graph.nodes[key] = task
