"""The sampler in memory: one block, no store, the same half-sweeps; and draws from the prior."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit
from scipy.stats import wishart

from pairsym_dask.kernels.draws import TOTALS, draw_statistics_size
from pairsym_dask.kernels.row_draws import add_moments
from pairsym_dask.sampler.halves import (
    BIAS_PRIOR,
    NO_CENTRES,
    PRIOR,
    Drawn,
    Keys,
    ProposedSide,
    draw_gathered,
    draw_own,
    draw_selection,
    gather,
)
from pairsym_dask.sampler.hyper import RATE, SHAPE, STRENGTH, Prior, draw_prior
from pairsym_dask.sampler.shifts import Shifting, Slope, accept, has_shifts, shift_rows, weigh_columns
from pairsym_dask.sampler.tags import DrawnTags, draw_effects
from pairsym_dask.settings import Settings
from pairsym_dask.store.cuts import Tile
from pairsym_dask.sweep.tag_prior import gamma_prior


@dataclass(frozen=True)
class State:
    """Both sides of a draw and their priors; `tags` are those of the sides that have some, of `weights` x_jf."""

    users: Drawn
    items: Drawn
    user_prior: Prior
    item_prior: Prior
    tags: dict[str, DrawnTags] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)  # (symbols, tags), the level last

    def centres(self, side: str) -> np.ndarray:
        if side not in self.tags:
            return NO_CENTRES
        return self.weights[side] @ np.column_stack([self.tags[side].traits, self.tags[side].bias]).astype(float)

    def middle(self, side: str, prior: Prior) -> Prior:
        if side not in self.tags:
            return prior
        return replace(prior, mean=prior.mean + self.tags[side].traits[-1])

    def energy(self) -> np.ndarray:
        return (
            self.users.traits.astype(float) @ self.items.traits.T.astype(float)
            + self.users.bias[:, None].astype(float)
            + self.items.bias.astype(float)
        )

    def rate(self, proposals: float) -> np.ndarray:
        """M pi_i psi_j, or M sum_n rho_n pi_in psi_jn."""
        pi, psi = self.users.chosen / self.users.chosen.sum(), self.items.chosen / self.items.chosen.sum(0)
        return proposals * (pi @ psi.T)


def tile_of(counts: np.ndarray) -> Tile:
    """A dense matrix of counts as a tile."""
    indptr = np.r_[0, np.cumsum((counts > 0).sum(1))]
    return Tile(indptr, np.nonzero(counts)[1].astype(np.uint32), counts[counts > 0].astype(np.uint32))


def tiles_of(weights: np.ndarray) -> list[tuple[slice, Tile]]:
    """Dense weights (symbols with tags, tags) as each tag's symbols, the level, which is the last one, first."""
    found, last = [], weights.shape[1] - 1
    for tags in (slice(last, last + 1), slice(0, last)):
        some = weights[:, tags].T
        indptr = np.r_[0, np.cumsum((some > 0).sum(1))]
        found.append((tags, Tile(indptr, np.nonzero(some)[1].astype(np.uint32), some[some > 0])))
    return found


def scaled_links(links: np.ndarray) -> np.ndarray:
    """Weights as a fit has them: rows of length one, and the level."""
    size = np.sqrt((links**2).sum(1, keepdims=True))
    return np.hstack([links / np.where(size > 0, size, 1.0), size > 0])


def draw_tags(state: State, side: str, drawn: Drawn, prior: Prior, keys: Keys, settings: Settings) -> DrawnTags:
    known = state.weights[side][:, -1] > 0
    traits, bias = drawn.traits[known].astype(float), drawn.bias[known].astype(float)
    return draw_effects(
        keys, settings, side, tiles_of(state.weights[side][known]), state.tags[side], prior,
        lambda axes: traits @ axes, bias, [slice(0, settings.factors)],
    )  # fmt: skip


def _moments(drawn: Drawn, factors: int, centres: np.ndarray) -> np.ndarray:
    out = np.zeros((factors + 2, factors + 2))
    if centres.size:
        add_moments(drawn.traits - centres[:, :-1], drawn.bias - centres[:, -1], out)
    else:
        add_moments(drawn.traits, drawn.bias, out)
    return out


def _fail(row: int) -> None:
    raise AssertionError(f"row {row} could not be drawn")


def sweep(
    state: State, counts: np.ndarray, proposals: float, settings: Settings, number: int, block: int | None = None
) -> State:
    """One sweep given the counts (users x items, users the long side, which shift within blocks)."""
    keys, tile = Keys(settings.random_state, number), tile_of(counts)
    columns = ProposedSide.make(state.items, settings.factors)

    def rates(drawn: Drawn) -> np.ndarray:
        return proposals / drawn.selection.sum() * drawn.chosen

    def shift_users(users: Drawn) -> Drawn:
        slope = Slope.make(state.user_prior, state.middle("items", state.item_prior))
        centres = state.centres("users")
        parts, step = [], block or counts.shape[0]
        for first in range(0, counts.shape[0], step):
            rows = slice(first, first + step)
            some = Drawn(users.traits[rows], users.bias[rows], users.selection[rows])
            scale = proposals / users.selection.sum()
            parts.append(
                shift_rows(
                    keys, settings, "users", first, some, counts[rows].sum(1), scale, tile_of(counts[rows]), columns,
                    slope, centres[rows],
                )
            )  # fmt: skip
        return slope.shifted(users, np.concatenate(parts))

    def shift_items(items: Drawn, users: Drawn, user_prior: Prior) -> Drawn:
        slope = Slope.make(state.item_prior, state.middle("users", user_prior))
        shifting = Shifting.make(keys, settings, "items", items, counts.sum(0))
        ratios = np.zeros(counts.shape[1])
        scale = proposals / users.selection.sum()
        weigh_columns(keys, settings, "items", 0, users, scale, tile, shifting, slope, ratios)
        table, centres = shifting.columns.table, state.centres("items")
        return slope.shifted(items, accept(keys, settings, "items", 0, table, shifting.steps, ratios, slope, centres))

    def hyper(side: str, drawn: Drawn) -> Prior:
        if not settings.hyperpriors:
            return Prior.fixed(settings, side)
        moments = _moments(drawn, settings.factors, state.centres(side))
        return draw_prior((keys.of(PRIOR, side), keys.of(BIAS_PRIOR, side)), moments, settings)

    old = shift_users(state.users) if has_shifts(settings) else state.users
    traits, bias, pairs, _ = draw_own(
        keys, settings, "users", 0, old, rates(old), tile, columns, state.user_prior, _fail, state.centres("users")
    )
    users = Drawn(traits, bias, draw_selection(keys, settings, "users", 0, pairs))
    user_prior = hyper("users", users)
    if "users" in state.tags:
        state = replace(
            state, tags=state.tags | {"users": draw_tags(state, "users", users, user_prior, keys, settings)}
        )
    if has_shifts(settings):
        columns = ProposedSide.make(shift_items(state.items, users, user_prior), settings.factors)
    stats = np.zeros((counts.shape[1], draw_statistics_size(settings.factors)), settings.dtype)
    pairs, totals = np.zeros((counts.shape[1], settings.components), np.int64), np.zeros(TOTALS)
    gather(keys, settings, "items", 0, users, rates(users), tile, columns, 0, 2**16, stats, pairs, totals)
    traits, bias = draw_gathered(keys, settings, "items", 0, stats, state.item_prior, _fail, state.centres("items"))
    items = Drawn(traits, bias, draw_selection(keys, settings, "items", 0, pairs))
    item_prior = hyper("items", items)
    if "items" in state.tags:
        state = replace(
            state, tags=state.tags | {"items": draw_tags(state, "items", items, item_prior, keys, settings)}
        )
    return replace(state, users=users, items=items, user_prior=user_prior, item_prior=item_prior)


def draw_counts(state: State, proposals: float, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(state.rate(proposals) * expit(state.energy()))


def draw_state(
    users: int, items: int, settings: Settings, rng: np.random.Generator, weights: dict[str, np.ndarray] | None = None
) -> State:
    """A draw from the prior, by other code than the sampler's; `weights` are those of tags, by side."""
    weights = weights or {}

    def prior(side: str) -> Prior:
        if not settings.hyperpriors:
            return Prior.fixed(settings, side)
        k = settings.factors
        precision = np.atleast_2d(wishart.rvs(k, np.eye(k), random_state=rng))
        mean = rng.multivariate_normal(np.zeros(k), np.linalg.inv(STRENGTH * precision))
        if not settings.biases:
            return Prior(mean, precision, 0.0, settings.tau_b)
        bias_precision = rng.gamma(SHAPE, 1 / RATE)
        return Prior(mean, precision, rng.normal(0, (STRENGTH * bias_precision) ** -0.5), bias_precision)

    def effects(number: int) -> DrawnTags:
        shape, k = gamma_prior(settings.factors), settings.factors
        gamma = rng.gamma(shape, 1 / shape, number)
        bias = rng.normal(0, settings.tau_b**-0.5, number) * settings.biases
        return DrawnTags(rng.standard_normal((number, k)) / np.sqrt(gamma)[:, None], bias, gamma)

    def side(name: str, n: int, prior: Prior) -> Drawn:
        covariance = np.linalg.inv(prior.precision)
        traits = rng.multivariate_normal(prior.mean, covariance, n)
        bias = rng.normal(prior.bias_mean, prior.bias_precision**-0.5, n) * settings.biases
        if name in weights:
            traits += weights[name] @ tags[name].traits
            bias += weights[name] @ tags[name].bias
        size = n if settings.components == 1 else (n, settings.components)
        return Drawn(traits.astype(settings.dtype), bias.astype(settings.dtype), rng.gamma(settings.alpha, size=size))

    user_prior, item_prior = prior("users"), prior("items")
    tags = {name: effects(one.shape[1]) for name, one in weights.items()}
    sides = side("users", users, user_prior), side("items", items, item_prior)
    return State(*sides, user_prior, item_prior, tags, weights)
