"""What a process holds for all tasks that run in it: limits of tasks under way, and things read once.

Tasks of one process meet only here: a task knows what it was given, not who runs beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_limits: dict[int, threading.BoundedSemaphore] = {}
_reading: dict[str, threading.Lock] = {}
_kept: dict[str, tuple[Hashable, Any]] = {}


def at_most(tasks: int) -> threading.BoundedSemaphore:
    """`with at_most(tasks):` waits while `tasks` such blocks are under way in this process."""
    with _lock:
        return _limits.setdefault(tasks, threading.BoundedSemaphore(tasks))


def read_once(kind: str, key: Hashable, read: Callable[[], T]) -> T:
    """What `read` gives, read by the first task that wants it; of each kind the last one is kept."""
    with _lock:
        reading = _reading.setdefault(kind, threading.Lock())
    with reading:  # others wait for it rather than read it too
        if kind not in _kept or _kept[kind][0] != key:
            _kept.pop(kind, None)  # before the next one is read: never two at a time
            _kept[kind] = (key, read())
        value: T = _kept[kind][1]
        return value


def let_go(kind: str) -> None:
    """Keep nothing of a kind any more; who has it at hand goes on with it."""
    with _lock:
        _kept.pop(kind, None)
