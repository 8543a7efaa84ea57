"""How a job reaches the tasks of a cluster, and how they write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import StoreError
from ..run.process import read_once
from ..store.counts import Counts, counts_as_recorded
from ..store.sharded import Output
from .shelf import COUNTS

LEFT = "unsynced"  # marks manifest entries of files that the driver has to sync


class Travelling:
    """A job that travels to a cluster's workers without the record of its counts, which every process reads once.

    Its tasks write whole blocks of the arrays `specs` to `folder` of `storage`.
    """

    def __getstate__(self) -> dict[str, Any]:
        counts: Counts = self.__dict__["counts"]
        return self.__dict__ | {"counts": (counts.storage, counts.digest)}

    def write(self, path: str, block: int, values: np.ndarray) -> list[Any]:
        """Write a block of an array; manifest entries of what is done with it, which of a shard is its last block."""
        job: Any = self
        entries: list[Any] = job.output.put(job.storage, job.folder, job.shards, job.specs[path], block, values)
        return [(*entry, LEFT) for entry in entries] if job.storage.unsynced else entries

    def for_task(self) -> Any:
        """The same job for one task, whose shards and writes are its own.

        On the driver's own machine a task of a cluster leaves fsyncs to the driver, which goes on meanwhile; anywhere
        else the driver cannot wait for them, and each task does.
        """
        job: Any = self
        own: dict[str, Any] = {} if job.shards is None else {"output": Output()}
        if job.needed is not None:
            own["storage"] = job.storage.for_caller(unsynced=job.storage.whereabouts() in job.needed.beside)
        return replace(job, **own) if own else job

    def __setstate__(self, state: dict[str, Any]) -> None:
        storage, digest = state["counts"]
        counts = read_once(COUNTS, (storage.url, digest), lambda: counts_as_recorded(storage))
        if counts.digest != digest:
            raise StoreError(f"{storage.url} holds other counts than those of the fit; ingest into a new store")
        self.__dict__.update(state, counts=counts)
