"""Symbols that have tags and no pairs, from draws: in every draw their traits are drawn from their prior there.

Their numbers come from the chain's seed, the draw's sweep and the symbol, so that answers are the same whenever they
are asked for, and the same symbol's in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.linalg import solve_triangular

from ..sampler.halves import NEWCOMERS, Keys
from ..sampler.hyper import Prior
from ..sampler.tags import normals
from ..store.commit import Commit
from ..store.cuts import Tile
from ..sweep.tag_prior import TagPrior, mixed, tag_group
from .draws import SymbolDraws
from .tags import pull_frame, tag_frame


def prior_of(commit: Commit, side: str) -> Prior:
    """The prior of a side in a draw, beside what tags add to its means."""
    return Prior.decode(commit.record["priors"][side], commit.settings.factors)


def effects_of(commit: Commit, side: str) -> np.ndarray:
    """[h_f, e_f] of every tag in a draw."""
    traits, bias = (
        commit.sealed.read_array(commit.arrays[f"{tag_group(side)}/{name}"]).astype(np.float64)
        for name in ("traits", "bias")
    )
    return np.hstack([traits, bias[:, None]])


def centres_of(commit: Commit, side: str, links: Tile) -> np.ndarray:
    """What the tags of a draw add to prior means of [traits, bias], of symbols by their scaled links."""
    return mixed(links, effects_of(commit, side))


def pulls_over(commits: Sequence[Commit], prior: TagPrior, label: object, its: np.ndarray) -> pd.DataFrame:
    """As `SideTags.pulls`, averaged over draws, in each of which the other symbol has the traits its[draw]."""
    labels = np.array([label], object if isinstance(label, str) else None)
    tile = prior.scaled(prior.tags.find(labels))
    energy = np.zeros(tile.indices.size)
    for commit, one in zip(commits, its, strict=True):
        energy += tile.counts * (effects_of(commit, prior.side)[tile.indices] @ [*one, 1.0]) / len(commits)
    return pull_frame(prior, tile, energy)


def draw_newcomers(commits: Sequence[Commit], side: str, links: Tile, numbers: np.ndarray) -> SymbolDraws:
    """Draws of symbols without pairs by their scaled links; `numbers` tell their random numbers from others'."""
    settings = commits[0].settings
    k, n, components = settings.factors, numbers.size, settings.components
    traits, bias = np.empty((len(commits), n, k), settings.dtype), np.empty((len(commits), n), settings.dtype)
    parts = np.ones((len(commits), n, components))
    for d, commit in enumerate(commits):
        prior, centres = prior_of(commit, side), centres_of(commit, side, links)
        noise = normals(Keys(settings.random_state, commit.sweep).of(NEWCOMERS, side), 0, numbers, np.arange(k + 1))
        factor = np.linalg.cholesky(prior.precision)
        traits[d] = prior.mean + centres[:, :k] + solve_triangular(factor, noise[:, :k].T, trans="T", lower=True).T
        bias[d] = prior.bias_mean + centres[:, k] + noise[:, k] / np.sqrt(prior.bias_precision)
        if components > 1:
            parts[d] = commit.selected("users") / commit.selected("users").sum()
    return SymbolDraws(traits, bias * settings.biases, parts)


def frame_over(commits: Sequence[Commit], prior: TagPrior) -> pd.DataFrame:
    """What draws say of tags, as `SideTags.frame`.

    h_f given all else is normal about a mean with the precision gamma_f I + sum_j x_jf^2 Lambda: its variance, and the
    square of that mean, which is what |h_f|^2 is more, are averaged over draws. Traits turn, these do not.
    """
    k, squares = commits[0].settings.factors, prior.squares()
    size, variance = np.zeros((2, prior.number))
    for commit in commits:
        traits, gamma = (
            commit.sealed.read_array(commit.arrays[f"{tag_group(prior.side)}/{name}"]) for name in ("traits", "gamma")
        )
        size += (traits.astype(np.float64) ** 2).sum(1) / k / len(commits)
        spectrum = np.linalg.eigvalsh(prior_of(commit, prior.side).precision)
        variance += (1 / (gamma[:, None] + squares[:, None] * spectrum)).mean(1) / len(commits)
    square, variance = np.maximum(size - variance, 0.0)[:-1], variance[:-1]
    return tag_frame(prior.tags, square / (square + variance), square, variance)
