"""Decoded tiles and tables that a process keeps between tasks, within a number of bytes.

Tasks of one process share what they have decoded, so the two shelves are process-wide; nothing else here is.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..run.allocator import give_memory_back
from ..run.machine import forget_notes
from ..run.process import let_go
from .lent import POOL


def _references() -> int:
    value = np.empty(0)
    return sys.getrefcount(value)


_ALONE = _references()  # to a value that one variable has, and nobody else


class Key(NamedTuple):
    """What is kept: a kind of thing, of a block of a side, in a state of a store; `part` where it has parts."""

    kind: str
    store: str
    state: str
    side: str
    block: int
    part: int = 0

    def outdated_by(self, new: Key) -> bool:
        """Whether this is the same thing of another state."""
        return self != new and self._replace(store=new.store, state=new.state) == new


class Shelf:
    """Keeps what is asked for again; with `single` one thing at a time, which goes before the next one is made."""

    def __init__(self, single: bool = False) -> None:
        self.single = single
        self._lock = threading.Lock()
        self._locks: dict[Key, threading.Lock] = {}
        self._kept: OrderedDict[Key, Any] = OrderedDict()
        self.nbytes = 0

    def get(self, key: Key, make: Callable[[], Any], limit: int | None = None, source: Key | None = None) -> Any:
        """The kept value, else a new one, kept if it fits within a limit without pushing out others of this round.

        A `source` that `make` may take stays until then.
        """
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
            if self.single:
                self.drop(lambda kept: kept not in (key, source))
            value = make()
            with self._lock:
                # A scan that is larger than the shelf would only turn it over: keep the first ones.
                if limit is None or self.nbytes + value.nbytes <= limit:
                    self._kept[key] = value
                    self.nbytes += value.nbytes
                self._locks.pop(key, None)
            return value

    def peek(self, key: Key) -> Any:
        """The kept value, None when there is none."""
        with self._lock:
            return self._kept.get(key)

    def take(self, key: Key) -> Any:
        """The kept value, to be changed: off the shelf, and None where anybody else still has it."""
        with self._lock:
            value = self._kept.pop(key, None)
            self.nbytes -= 0 if value is None else value.nbytes
        return None if value is None or sys.getrefcount(value) > _ALONE else value

    def put(self, key: Key, value: Any, limit: int) -> None:
        """Keep a value that somebody made anyway, if it fits; it pushes out the same thing of other states."""
        self.drop(lambda kept: kept.outdated_by(key))
        self.get(key, lambda: value, limit)

    def drop(self, unwanted: Callable[[Key], bool]) -> None:
        with self._lock:
            for key in [key for key in self._kept if unwanted(key)]:
                self.nbytes -= self._kept.pop(key).nbytes

    def __len__(self) -> int:
        return len(self._kept)


COUNTS = "counts of a fit"  # what workers of a cluster have read of them once
SHELF = Shelf()
TABLES = Shelf(single=True)  # whole tables of the short side, always kept
ROWS = Shelf()  # rows of the long side from the sums to the steps, in the place of such a table


def forget() -> None:
    """Empty this process's shelves; a fit under way in another thread reads again what it misses."""
    let_go(COUNTS)
    SHELF.drop(lambda key: True)
    TABLES.drop(lambda key: True)
    ROWS.drop(lambda key: True)
    POOL.clear()
    give_memory_back()
    forget_notes()
