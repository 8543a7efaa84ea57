"""One fit at a time on a model store, one update at a time on versions: a numbered lock record with a heartbeat.

    model.zarr/lock/00001.json   who holds the store: host, process, since when; put if absent
    model.zarr/lock/00001.beat   rewritten every few seconds while the holder lives

The lock spares people wasted work and clear words; what makes two drivers harmless is the commit record, which
exactly one of them can put, and two updates what `versions.Versions.begin` sees after it has begun.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

import psutil

from ..errors import StoreError
from .records import SMALL_BYTES, holder_record, read_record
from .storage import Storage

_NUMBERED = re.compile(r"lock/(\d{5,20})\.(json|beat)")
_PROBE = re.compile(r"lock/[0-9a-f]{32}\.clock")
BEAT_SECONDS = 10.0
_held: set[str] = set()  # ids of the locks that this process holds
LOOKS = 100  # at locks that are gone when they are read
STALE_SECONDS = 60.0  # a holder on another machine that has not beaten for so long is dead


def _machine() -> str:
    """What must be equal for a process number to mean the same process: the boot and the process namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {psutil.boot_time():.0f}"


@dataclass(frozen=True)
class Holder:
    """Who holds a store."""

    key: str
    host: str
    pid: int
    since: str
    alive: bool
    work: str  # what it does

    def __str__(self) -> str:
        return f"{self.work} on {self.host} (process {self.pid}, since {self.since})"


def holder(storage: Storage, reading: bool = False, work: str = "a fit") -> Holder | None:
    """The newest lock of a store and whether its holder lives; None when nobody holds it.

    With `reading` nothing is written to the store: this machine's clock is taken for the store's.
    """
    record, key = None, ""
    for _ in range(LOOKS):
        records = [key for key in storage.listing("lock") if _number(key) and key.endswith(".json")]
        if not records:
            return None
        key = max(records, key=_number)
        try:
            record = holder_record(read_record(storage, key, SMALL_BYTES))
            break
        except FileNotFoundError:
            pass  # released in between
    else:
        raise StoreError(f"{storage.url}/{key} is listed but cannot be read; remove it if nobody is at work there")
    if record is None:
        return Holder(key, "an unknown machine", 0, "an unknown time", _beats(storage, key, reading), work)
    if record.machine != _machine():
        alive = _beats(storage, key, reading)
    elif record.pid == os.getpid():
        alive = record.id in _held  # one that this process could not remove when its fit ended holds nothing
    else:
        alive = _runs(record.pid, record.started)
    return Holder(key, record.host, record.pid, record.since, alive, work)


def _number(key: str) -> int:
    """The number of a lock by the key of its record or its beat, 0 for other keys."""
    match = _NUMBERED.fullmatch(key)
    return int(match[1]) if match else 0


def _runs(pid: int, started: float) -> bool:
    """Whether this very process runs; its number alone may have been given to another one since."""
    try:
        process = psutil.Process(pid)
        return bool(abs(process.create_time() - started) < 1 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _beats(storage: Storage, key: str, reading: bool) -> bool:
    """Whether a holder elsewhere has beaten lately."""
    beats = [entry.changed for name, entry in storage.listing("lock").items() if name.startswith(key[:-5])]
    return bool(beats) and abs((time.time() if reading else now(storage)) - max(beats)) < STALE_SECONDS


def probe_key() -> str:
    """A key of its own for finding out something about a store; what is left of it goes with the locks of the dead."""
    return f"lock/{uuid.uuid4().hex}.clock"


def now(storage: Storage) -> float:
    """The time by the store's own clock."""
    probe = probe_key()
    storage.write(probe, b"")
    try:
        return storage.entry(probe).changed
    finally:
        storage.remove(probe)


class Lock:
    """Holds a store for some work; a context manager."""

    def __init__(self, storage: Storage, work: str = "a fit") -> None:
        self.storage = storage
        self.work = work
        self.key = ""
        self._id = uuid.uuid4().hex
        self._bytes = b""  # of the record
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Lock:
        _held.add(self._id)  # before the record is there to be judged by other threads
        try:
            while not self._take():
                pass
            self._sweep_out()
        except BaseException:
            _held.discard(self._id)
            raise
        self._thread = threading.Thread(target=self._beat, daemon=True, name="pairsym-heartbeat")
        self._thread.start()
        return self

    def _take(self) -> bool:
        """Try to become the holder; an error when another one is."""
        held = holder(self.storage, work=self.work)
        if held is not None and held.alive:
            raise StoreError(f"{self.storage.url} is in use by {held}; wait until it ends, or stop it")
        number = 1 if held is None else _number(held.key) + 1
        if number >= 10**20:
            raise StoreError(f"{self.storage.url}/lock holds the last number that a lock can have; remove that folder")
        self.key = f"lock/{number:05d}.json"
        self._bytes = self._record()
        if not self.storage.put_if_absent(self.key, self._bytes):
            return False
        # A listing taken while another one took over may have shown neither lock: look again.
        if any(key.endswith(".json") and _number(key) > number for key in self.storage.listing("lock")):
            self.storage.remove(self.key)
            return False
        return True

    def _record(self) -> bytes:
        process = psutil.Process()
        record: dict[str, Any] = {
            "id": self._id,
            "host": socket.gethostname(),
            "machine": _machine(),
            "pid": process.pid,
            "started": process.create_time(),
            "since": datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds"),
        }
        return json.dumps(record).encode()

    def _sweep_out(self) -> None:
        """Remove what dead holders left."""
        found = self.storage.listing("lock")
        since = found[self.key].changed - STALE_SECONDS if self.key in found else 0.0
        for key, entry in found.items():
            if 0 < _number(key) < _number(self.key) or (_PROBE.fullmatch(key) and entry.changed < since):
                self.storage.remove(key)

    def _is_mine(self) -> bool:
        """Whether the record is still this holder's: after a long stop the store, or the number, may be another's."""
        try:
            return self.storage.read(self.key, limit=SMALL_BYTES) == self._bytes
        except FileNotFoundError:
            return False

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            try:
                if not self._is_mine():
                    return
                self.storage.write(f"{self.key[:-5]}.beat", b"")
            except Exception:
                pass  # a store that cannot be written stops the fit by itself; a missed beat need not

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._remove()
        except StoreError:
            if exception[0] is None:
                raise

    def _remove(self) -> None:
        _held.discard(self._id)
        if self._is_mine():
            self.storage.remove(self.key)
            self.storage.remove(f"{self.key[:-5]}.beat")
