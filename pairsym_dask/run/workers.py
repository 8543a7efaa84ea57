"""What must hold on a worker for a fit: the same package versions, the same stores in sight, enough memory."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
from dataclasses import dataclass
from typing import Any

from dask.utils import format_bytes

from .. import __version__
from ..errors import SchedulerError
from ..store.storage import Storage

_PACKAGES = ("dask", "distributed", "numba", "numpy", "zarr")


def versions() -> dict[str, str]:
    """Versions that decide bits or the meaning of bytes."""
    found = {"pairsym_dask": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    return found | {name: importlib.metadata.version(name) for name in _PACKAGES}


@dataclass(frozen=True)
class Requirements:
    """What a driver expects of its workers; `tokens` are keys that each storage holds, `beside` where it sees them."""

    versions: dict[str, str]
    tokens: tuple[tuple[Storage, str], ...]
    beside: frozenset[Any] = frozenset()

    def problem(self) -> str | None:
        """Why this process cannot take part, None when it can."""
        here = versions()
        other = [
            f"{name} {here.get(name)} (the driver has {v})" for name, v in self.versions.items() if here.get(name) != v
        ]
        if other:
            found = ", ".join(other)
            return f"the dask worker on {socket.gethostname()} has {found}; install the same versions everywhere"
        for storage, token in self.tokens:
            if not storage.exists(token):
                return (
                    f"the dask worker on {socket.gethostname()} does not see {storage.url}; "
                    "put the stores where all workers find them under the same path"
                )
        return None


ADVICE = "give workers more memory or fewer threads each, or a smaller memory= to the fit"


def paused_workers(workers: dict[str, Any]) -> str | None:
    """Which workers are paused, and what would help; None when none is. `workers` is as a scheduler describes them."""
    paused = [address for address, worker in workers.items() if worker.get("status") == "paused"]
    return f"{_some(paused)} paused for want of memory: no task runs there; {ADVICE}" if paused else None


def memory_trouble(workers: dict[str, Any]) -> str | None:
    """Which workers lack memory, in a sentence; None when none does."""
    spilled = {
        address: size
        for address, worker in workers.items()
        if (size := worker.get("metrics", {}).get("spilled_bytes", {}).get("disk", 0))
    }
    paused = [address for address, worker in workers.items() if worker.get("status") == "paused"]
    troubles = []
    if paused:
        troubles.append(f"{_some(paused)} paused for want of memory: no task runs there")
    if spilled:
        troubles.append(
            f"{_some(list(spilled))} spilled to disk ({format_bytes(sum(spilled.values()))}), which is slow"
        )
    return f"{'; '.join(troubles)}; {ADVICE}" if troubles else None


def _some(addresses: list[str]) -> str:
    if len(addresses) == 1:
        return f"the dask worker at {addresses[0]} has"
    return f"{len(addresses)} dask workers, one at {addresses[0]}, have"


_admitted: set[int] = set()


def admit(wanted: Requirements) -> None:
    """Check this process once for a fit; workers that join late are met here."""
    seen = hash((tuple(sorted(wanted.versions.items())), tuple((s.url, token) for s, token in wanted.tokens)))
    if seen in _admitted:
        return
    problem = wanted.problem()
    if problem is not None:
        raise SchedulerError(problem)
    _admitted.add(seen)
