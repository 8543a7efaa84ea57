"""A dask graph under construction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

Nodes = dict[str, Any]  # of a graph, by key


class Graph:
    """A graph under construction, with what all its tasks share as `job`.

    A cluster keeps keys for a while: all keys of a graph have a tag of its own. Then come numbers that sort, since dask
    orders tasks that are alike by their keys, the last one first.
    """

    def __init__(self, tag: str, job: Any = None) -> None:
        self.tag = tag
        self.nodes: Nodes = {}
        self.held: set[str] = set()  # keys of values
        self.workers: dict[str, str] = {}  # that some tasks are to run on
        self.tasks = 0
        self.job = self.hold("job", job)

    def hold(self, name: str, value: Any) -> str:
        """A value that several tasks need; its key."""
        key = f"{name}-{self.tag}"
        self.nodes[key] = value
        self.held.add(key)
        return key

    def add(
        self, name: str, number: int | tuple[int, ...], function: Callable[..., Any], *arguments: Any,
        at: str | None = None, near: str | None = None,
    ) -> str:  # fmt: skip
        """A task; its key, which reads as a step of the algorithm on the dashboard.

        It runs on the worker `at` an address, or `near` another task that has one.
        """
        numbers = number if isinstance(number, tuple) else (number,)
        key = "-".join([name, self.tag, *(f"{part:07d}" for part in numbers)])
        self.nodes[key] = (function, *arguments)
        self.tasks += 1
        worker = at or self.workers.get(near or "")
        if worker:
            self.workers[key] = worker
        return key

    def roots(self) -> list[str]:
        """Tasks that wait for no others, and are not told their workers."""
        made = self.nodes.keys() - self.held
        return [
            key
            for key, node in self.nodes.items()
            if key in made and key not in self.workers and isinstance(node, tuple) and not _names(node, made)
        ]

    def tree(
        self, name: str, block: int, add_up: Callable[..., Any], keys: list[str], arity: int = 2,
        workers: Iterator[str] | None = None,
    ) -> str:  # fmt: skip
        """Tasks that add up `keys` in a fixed binary tree, `arity` (a power of two) of them each; the root.

        The first sums are made on these `workers`, the others, and all where none are given, near their first parts.
        """
        level = 0
        while len(keys) > 1:
            runs = [keys[k : k + arity] for k in range(0, len(keys), arity)]
            keys = [
                run[0]
                if len(run) == 1
                else self.add(
                    f"add-{name}", (block, level, k), add_up, self.job, *run,
                    at=next(workers) if workers and not level else None, near=run[0],
                )
                for k, run in enumerate(runs)
            ]  # fmt: skip
            level += 1
        return keys[0]


def _names(argument: Any, keys: Collection[str]) -> bool:
    """Whether an argument of a task is one of some keys, or has any among its parts."""
    if isinstance(argument, tuple | list):
        return any(_names(part, keys) for part in argument)
    return isinstance(argument, str) and argument in keys
