"""Tasks of sweep 0: the start from small random means, or from the rows of an earlier fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ..kernels.rows import Values
from ..store.commit import Commit, read_rows
from .discount import column_sums
from .elbo import counted_share
from .job import VALUES, Job
from .tasks import Updated, close_block, on_worker

START_SCALE = 0.1  # of the starting means at K = 20 and below; zero is a fixed point, one ruins sparse data


def start_scale(factors: int) -> float:
    """Standard deviation of the starting means: it shrinks with K, so that starting energies do not grow with it."""
    return START_SCALE * min(1.0, (20 / factors) ** 0.5)


def starting_normals(seed: int, side: str, first: int, stop: int, factors: int) -> np.ndarray:
    """Standard normals (rows, factors) that depend on seed, side and row number only."""
    stride = -(-factors // 4)  # the generator's counter moves by one for four numbers
    key = np.array([seed, 0 if side == "users" else 1], np.uint64)
    bits = np.random.Philox(key=key, counter=np.array([first * stride, 0, 0, 0], np.uint64))
    uniform = np.random.Generator(bits).random((stop - first, 4 * stride))[:, :factors]
    return np.asarray(ndtri(uniform + 2.0**-54))


@on_worker
def sum_columns(job: Job, block: int) -> np.ndarray:
    """A long block's part of the short side's discounted sums, for `Discount.measure`."""
    side = job.plan.long
    return column_sums(job.counts, job.counts.read_tile(side, block, 0), side, block, job.settings.discount)


@on_worker
def sum_powers(job: Job, side: str, block: int) -> float:
    """sum (alpha + c_i)^beta of a block: what background weights by counts are divided by."""
    return float(np.sum(_powers(job, side, block)))


def _powers(job: Job, side: str, block: int) -> np.ndarray:
    return np.asarray((job.settings.alpha + job.marginal(side, block)) ** job.settings.background_exponent(side))


@on_worker
def start_block(job: Job, side: str, whole: float | None, block: int) -> Updated:
    """Write the start of a block: small random means drawn by (seed, side, row), everything else flat.

    Background weights that follow the counts do so from the start; `whole` is their normaliser.
    """
    settings = job.settings
    factors, dtype = settings.factors, settings.dtype
    first, stop, *_ = job.plan.places[side][block]
    mean = start_scale(factors) * starting_normals(settings.random_state, side, first, stop, factors)
    n, rows = stop - first, job.plan.cuts[side].rows
    weights = np.full(n, 1.0 / rows) if whole is None else _powers(job, side, block) / whole
    bias_precision = np.ones(n, dtype) if settings.biases else np.full(n, np.inf, dtype)
    values = Values(mean.astype(dtype), np.ones((n, factors), dtype), np.zeros(n, dtype), bias_precision)
    return close_block(job, side, block, values, weights, weights)


@dataclass(frozen=True)
class Earlier:
    """A committed sweep of fewer symbols to start from: its average symbol, and what all weights then sum to."""

    commit: Commit
    average: tuple[np.ndarray, np.ndarray, float, float]
    total: float


@on_worker
def take_over_block(
    job: Job, side: str, earlier: Earlier, whole: float | None, rows: np.ndarray, block: int
) -> Updated:
    """Write a warm start: rows of the earlier sweep, and where that is -1 its average symbol with the counts' share.

    Beside settled symbols the start from flat, wide posteriors would often lose the new ones all their censored pairs.
    Background weights that follow the counts follow those of now; `whole` is their normaliser.
    """
    known, values = rows >= 0, job.empty_values(rows.size)
    for array, name, value in zip(values, VALUES, earlier.average, strict=True):
        array[:] = value
        array[known] = read_rows(earlier.commit, f"{side}/{name}", rows[known])
    if whole is not None:
        weights = _powers(job, side, block) / whole
    else:
        marginal = job.marginal(side, block)
        weights = counted_share(marginal, job.plan.cuts[side].rows, job.counts.total, job.settings.alpha)
        weights[known] = read_rows(earlier.commit, f"{side}/background", rows[known])
        weights /= earlier.total
    return close_block(job, side, block, values, weights, weights)
