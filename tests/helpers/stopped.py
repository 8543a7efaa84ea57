"""A driver in a process of its own that stops at its n-th operation until it is woken."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from typing import Any

from helpers.faults import CALLS, using
from pairsym_dask.errors import StoreError
from pairsym_dask.store import lock, model_store
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.local import LocalStorage

READS = ("read", "read_ranges", "entry", "listing", "last_write", "folders")
Report = Callable[[int, float, float], None]


class Gate:
    """Counts the steps of a process, and stops it before the n-th."""

    def __init__(self, at: int, stop: Callable[[], None]) -> None:
        self.at, self.stop, self.count = at, stop, 0
        self.names: list[str] = []

    def step(self, name: str) -> None:
        self.count += 1
        self.names.append(name)
        if self.count == self.at:
            self.stop()


class GatedDisk(Disk):
    """A disk whose every change is a step."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate


def _stepping(name: str) -> Callable[..., Any]:
    def method(self: GatedDisk, *arguments: Any) -> Any:
        self.gate.step(name)
        return getattr(Disk, name)(self, *arguments)

    return method


for _name in CALLS:
    setattr(GatedDisk, _name, _stepping(_name))


def _step_reads(gate: Gate) -> None:
    """Make reads and listings of local stores steps, too; in a child only, which ends anyway."""
    for name in READS:
        plain = getattr(LocalStorage, name)

        @functools.wraps(plain)
        def method(self: LocalStorage, *arguments: Any, _name: str = name, _plain: Any = plain, **named: Any) -> Any:
            gate.step(_name)
            return _plain(self, *arguments, **named)

        setattr(LocalStorage, name, method)


class Driver:
    """A fit in a forked process, on a machine of its own as far as locks go."""

    def __init__(self, work: Callable[[Report], Any], at: int = 0) -> None:
        told, stopped, go = os.pipe(), os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            status = 1
            try:
                os.close(go[1])
                status = self._run(work, at, told[1], stopped[1], go[0])
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        for end in (told[1], stopped[1], go[0]):
            os.close(end)
        self._told, self._stopped, self._go = told[0], stopped[0], go[1]

    @staticmethod
    def _run(work: Callable[[Report], Any], at: int, told: int, stopped: int, go: int) -> int:
        def stop() -> None:
            os.write(stopped, b"s")
            os.read(go, 1)

        gate = Gate(at, stop)
        lock._machine = lambda: "elsewhere"
        _step_reads(gate)
        try:
            with using(GatedDisk(gate)):
                work(lambda sweep, *_: os.write(told, bytes([sweep])))
        except StoreError as error:
            os.write(told, b"\xff" + str(error).encode())
        if not at:
            os.write(stopped, ",".join(gate.names).encode())
        return 0

    def stopped(self) -> bool:
        """Wait until the driver has stopped or ended; whether it has stopped."""
        return os.read(self._stopped, 1) == b"s"

    def names(self) -> list[str]:
        """Names of all steps of a driver that never stops."""
        with open(self._stopped, closefd=False) as file:
            return file.read().split(",")

    def end(self) -> tuple[list[int], str]:
        """Wake the driver and wait for its end; the sweeps that it has reported and the error that it has met."""
        os.close(self._go)  # the end of the pipe is what it waits for
        with open(self._told, "rb", closefd=False) as file:
            sweeps, _, error = file.read().partition(b"\xff")
        _, status = os.waitpid(self.child, 0)
        for end in (self._told, self._stopped):
            os.close(end)
        assert os.waitstatus_to_exitcode(status) == 0, "the driver met something else than a StoreError"
        return list(sweeps), error.decode()


def impatient(monkeypatch: Any) -> None:
    """A driver elsewhere is taken for dead, and its attempts for abandoned, at once."""
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.0)
    monkeypatch.setattr(model_store, "GRACE_SECONDS", 0.0)
