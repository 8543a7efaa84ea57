"""What a task reads when it comes to it, and on a cluster ahead, by a thread of its own while the task computes."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Lazily:
    """Things by number, each made when it is first asked for."""

    def __init__(self, make: Callable[[int], Any], many: int) -> None:
        self._make, self._many = make, many
        self._made: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._many

    def __getitem__(self, number: int) -> Any:
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def __setitem__(self, number: int, value: Any) -> None:
        self._made[number] = value


class Ahead:
    """Reads one thing after the other, in the order in which they are asked for; a task has one as long as it runs."""

    def __init__(self, blocks: Container[int], groups: Container[int], rows: int) -> None:
        self.blocks, self.groups = blocks, groups  # of the long side, and of its columns, that the task will come to
        self.rows = rows  # bytes of the long side's rows that may stay for the task that comes to them again
        self._reader = ThreadPoolExecutor(1, "pairsym-ahead")
        self._coming: dict[Hashable, Future[Any]] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *error: Any) -> None:
        self._coming.clear()
        self._reader.shutdown(cancel_futures=True)

    def ask(self, key: Hashable, read: Callable[[], Any]) -> None:
        """Have something read, unless it is on its way."""
        if key not in self._coming:
            self._coming[key] = self._reader.submit(read)

    def take(self, key: Hashable, read: Callable[[], Any]) -> Any:
        """What was asked for, once it is there, or its error; read at once where nobody has asked."""
        coming = self._coming.pop(key, None)
        return read() if coming is None else coming.result()
