"""Who works on a cluster now, and how it is told that nobody answers."""

from __future__ import annotations

import time
from typing import Any

from ..errors import SchedulerError

LOST_SECONDS = 15.0  # a scheduler that is silent, or a cluster without workers, for so long is gone
AGAIN = "what is committed is safe: run the fit again to go on"


def address_of(client: Any) -> str:
    """Where the scheduler of a client is."""
    return str(getattr(client.scheduler, "address", "") or "an unknown address")


class Watch:
    """Looks after a cluster while something waits for it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._heard = self._manned = time.monotonic()

    def workers(self) -> dict[str, Any]:
        """The workers now; an error when there has been no answer, or no worker, for too long."""
        gone = SchedulerError(f"the dask scheduler at {address_of(self.client)} has gone away; {AGAIN}")
        if self.client.status in ("closed", "closing"):
            raise gone
        try:
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=LOST_SECONDS / 3)
            workers: dict[str, Any] = identity["workers"]
            self._heard = time.monotonic()
        except (OSError, TimeoutError, AttributeError, RuntimeError):
            if time.monotonic() - self._heard > LOST_SECONDS:
                raise gone from None
            return {}
        if workers:
            self._manned = time.monotonic()
        elif time.monotonic() - self._manned > LOST_SECONDS:
            raise SchedulerError(
                f"the dask cluster at {address_of(self.client)} has no workers any more; start some; {AGAIN}"
            )
        return workers
