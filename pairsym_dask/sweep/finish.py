"""Tasks of the last pass of a sweep: the pairs' part of the bound, and the users' next weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.rows import SHOWN, SQUARE
from ..store.arrays import Sealed
from .background import Background
from .job import Job
from .tasks import alone, each, logits_of, on_worker, select_rows


@dataclass(frozen=True)
class Finished:
    """What the end of a sweep sends back of some blocks of users, a row a block: a driver takes in few objects."""

    entries: list[Any]
    shown: np.ndarray  # sum c_ij (log sigma(xi) - xi/2 + a/2)
    message: np.ndarray  # sum_i s_i sum_j t_j Omega_ij
    normaliser: np.ndarray  # parts of a sum of exponentials, see `Normaliser`
    observed: np.ndarray  # sums of s_i times the columns WEIGHT to SQUARE of the selection statistics

    @staticmethod
    def join(parts: list[Finished]) -> Finished:
        """Several blocks together, in their order."""
        entries = [entry for part in parts for entry in part.entries]
        names = ("shown", "message", "normaliser", "observed")
        return Finished(entries, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@on_worker
def finish_each(job: Any, task: Callable[..., Any], own: tuple[int, ...], *arguments: Any) -> Finished:
    """`each` of the task that ends a sweep, as one."""
    return Finished.join(alone(each)(job, task, own, *arguments))


@on_worker
def finish_block(
    job: Job, own: Sealed, its: Sealed, stats: np.ndarray | None, base: Background, xi_star: float, block: int
) -> Finished:
    """End of a sweep for a block of users: next log weights written; the pairs' and messages' part of the bound.

    Without selection statistics, users are the long side, and the task finds them by itself: one look at its table.
    """
    weights = job.read(own, "users/background", block)
    table = job.table("users", own, block)
    if stats is None:
        stats = select_rows(job, "users", table, its, block, 0)
    message, logits, part = logits_of(job, "users", table, stats, base, xi_star, weights, block)
    entries = job.write("users/next", block, logits)
    sums = (float(np.sum(stats[:, SHOWN])),), (float(weights @ message),), (part,), (weights @ stats[:, : SQUARE + 1],)
    return Finished(entries, *map(np.array, sums))
