"""The update of tags at the end of a sweep: their effects, gamma, and what they bring to the bound.

q(h_f) is normal with one precision for all traits, q(e_f) normal, q(gamma_f) a Gamma. Tags are correlated, so each is
updated beside what the others leave of the symbols' means, the level first, then one tag after another.
Whatever the temperature of the symbols' posterior, that of tags is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, psi

from ..kernels.tags import sum_squares, take_off_tags, update_tags
from ..settings import Settings
from ..store.arrays import Sealed
from ..store.commit import Commit
from .job import Job
from .tag_prior import TagPrior, gamma_prior, tag_group
from .tasks import on_worker

PASSES = 2  # over the tags, each sweep


@dataclass(frozen=True)
class Effects:
    """q of the tags of a side, a row a tag."""

    mean: np.ndarray  # of h_f
    precision: np.ndarray
    bias: np.ndarray  # mean of e_f
    bias_precision: np.ndarray
    gamma: np.ndarray  # E[gamma_f]

    @staticmethod
    def start(number: int, settings: Settings) -> Effects:
        """Before anything is known: the prior."""
        gamma = np.ones(number)
        bias_precision = np.full(number, settings.tau_b if settings.biases else np.inf)
        return Effects(
            np.zeros((number, settings.factors), settings.dtype), gamma, np.zeros(number), bias_precision, gamma
        )

    def taken_over(self, earlier: Commit, side: str, rows: np.ndarray) -> Effects:
        """The same with rows of an earlier fit's tags, where they are not -1."""
        known, out = rows >= 0, {}
        for name, values in self.arrays().items():
            out[name] = values.copy()
            path = f"{tag_group(side)}/{name}"
            out[name][known] = earlier.sealed.read_array(earlier.arrays[path])[rows[known]]
        return Effects(**out)

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Tagged:
    """What an update of tags sends back: manifest entries, and its part of the bound."""

    entries: list[Any]
    bound: float


@dataclass(frozen=True)
class _Sums:
    """Of a side's symbols with tags, for the bound."""

    reach: np.ndarray  # sum_j tau x_jf^2 of every tag, tau what tags pull with
    bias_reach: np.ndarray  # tau_b sum_j x_jf^2
    traits: float  # sum_j tau (|m_j - mu_j|^2 - |m_j|^2)
    biases: float


@on_worker
def fit_tags(job: Job, side: str, before: Sealed | Effects, state: Sealed) -> Tagged:
    """Task: update the tags of a side to the means of a state; the start is not updated, only taken account of."""
    prior = job.tags[side]
    if isinstance(before, Effects):
        effects, sums = _measure(job, prior, before, state, 0)
    else:
        effects, sums = _measure(job, prior, _read(job, side, before), state, PASSES)
        size = (effects.mean.astype(np.float64) ** 2).sum(1) + job.settings.factors / effects.precision
        known = gamma_prior(job.settings.factors)
        gamma = (known + job.settings.factors / 2) / (known + size / 2)
        effects = Effects(effects.mean, effects.precision, effects.bias, effects.bias_precision, gamma)
    return Tagged(write_effects(job, side, effects.arrays()), _bound(effects, sums, job.settings))


def write_effects(job: Any, side: str, arrays: dict[str, np.ndarray]) -> list[Any]:
    """Write the arrays of a side's tags, those of a fit or of a chain; their manifest entries."""
    entries = []
    for name, values in arrays.items():
        spec = job.specs[f"{tag_group(side)}/{name}"]
        for k in range(spec.grid[0]):
            part = values[k * spec.chunks[0] : (k + 1) * spec.chunks[0]].astype(spec.dtype, copy=False)
            entries += job.write(spec.path, k, part)
    return entries


def _read(job: Job, side: str, before: Sealed) -> Effects:
    """The tags of the generation before, on this sweep's axes."""
    table = job.tag_table(side, before)
    values = {
        name: before.read_array(job.specs[f"{tag_group(side)}/{name}"])
        for name in ("precision", "bias", "bias_precision", "gamma")
    }
    return Effects(mean=table[:, : job.settings.factors], **values)


def _measure(job: Job, prior: TagPrior, old: Effects, state: Sealed, passes: int) -> tuple[Effects, _Sums]:
    """Effects after some passes over the tags, and sums for the bound; groups of traits one after another."""
    settings, side = job.settings, prior.side
    tau, bias = np.empty(prior.known.size), np.zeros(prior.known.size)
    for block, here, mine in _known(job, prior):
        weights = job.read(state, f"{side}/background", block)
        tau[here] = job.pulling(side, block, weights)[mine]
        bias[here] = job.read(state, f"{side}/bias", block)[mine]
    tiles = list(prior.by_tag())
    reach, bias_reach = np.empty(prior.number), np.empty(prior.number)
    flat = np.full(prior.known.size, settings.tau_b)
    for tags, tile in tiles:
        sum_squares(tile.indptr, tile.indices, tile.counts, tau, reach[tags])
        sum_squares(tile.indptr, tile.indices, tile.counts, flat, bias_reach[tags])

    def descend(
        values: np.ndarray, tau: np.ndarray, gamma: np.ndarray, precision: np.ndarray, effects: np.ndarray
    ) -> float:
        """Update effects in place, `values` become residuals; sum tau (residual^2 - value^2)."""
        before = float(tau @ np.einsum("ij,ij->i", values, values))
        for tags, tile in tiles:
            take_off_tags(tile.indptr, tile.indices, tile.counts, effects[tags], values)
        for _ in range(passes):
            for tags, tile in tiles:
                update_tags(
                    tile.indptr, tile.indices, tile.counts, tau, gamma[tags], precision[tags], effects[tags], values
                )
        return float(tau @ np.einsum("ij,ij->i", values, values)) - before

    precision = old.gamma + reach if passes else old.precision
    mean, traits = np.empty_like(old.mean), 0.0
    for columns in prior.columns(settings.factors):
        values = np.empty((prior.known.size, columns.stop - columns.start))
        for block, here, mine in _known(job, prior):
            values[here] = job.read(state, f"{side}/mean", block)[mine, columns]
        effects = old.mean[:, columns].astype(np.float64)
        traits += descend(values, tau, old.gamma, precision, effects)
        mean[:, columns] = effects
    e, bias_precision, biases = old.bias.astype(np.float64), old.bias_precision, 0.0
    if settings.biases:
        bias_precision = settings.tau_b + bias_reach if passes else old.bias_precision
        own = np.full(prior.number, settings.tau_b)
        biases = descend(bias[:, None], flat, own, bias_precision, e[:, None])
    return Effects(mean, precision, e, bias_precision, old.gamma), _Sums(reach, bias_reach, traits, biases)


def _known(job: Job, prior: TagPrior) -> Any:
    """Blocks of a side that have symbols with tags: number, places among `known`, rows of the block."""
    for block, place in enumerate(job.plan.places[prior.side]):
        first, stop = np.searchsorted(prior.known, [place.first, place.stop])
        if first < stop:
            yield block, slice(first, stop), prior.known[first:stop] - place.first


def _bound(effects: Effects, sums: _Sums, settings: Settings) -> float:
    """All terms of the bound that come with tags, beside those of a side whose prior means are 0.

    E[log p(h | gamma)] - E[log q(h)] + E[log p(gamma)] - E[log q(gamma)], the same of e, and what the prior means
    change: -tau/2 (|m_j - mu_j|^2 - |m_j|^2 + K sum_f x_jf^2 / precision_f).
    """
    k, gamma, precision = settings.factors, effects.gamma, effects.precision
    known = gamma_prior(k)
    shape = known + k / 2
    rate = shape / gamma
    log_gamma = psi(shape) - np.log(rate)
    size = (effects.mean.astype(np.float64) ** 2).sum(1) + k / precision
    bound = -0.5 * (sums.traits + k * float(np.sum(sums.reach / precision)))
    bound += float(np.sum(0.5 * k * (log_gamma - np.log(precision) + 1.0) - 0.5 * gamma * size))
    prior = known * np.log(known) - gammaln(known) + (known - 1) * log_gamma - known * gamma
    mine = shape * np.log(rate) - gammaln(shape) + (shape - 1) * log_gamma - rate * gamma
    bound += float(np.sum(prior - mine))
    if settings.biases:
        tau_b, p = settings.tau_b, effects.bias_precision
        bound += -0.5 * (sums.biases + float(np.sum(sums.bias_reach / p)))
        bound += float(np.sum(0.5 * (np.log(tau_b / p) + 1.0 - tau_b * (effects.bias**2 + 1 / p))))
    return bound
