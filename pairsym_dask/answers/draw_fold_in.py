"""Fold-in from draws: new users are drawn given the items of every draw, a few sweeps of their own each.

Whoever is new says nothing of the items that the fit has not said, so that items, their selection and the users' prior
stay those of the draw. A user's chain goes on from draw to draw: it begins anew with the first one only.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

from ..errors import InputError, NumericError
from ..kernels.keys import sum_rows
from ..pairs.parts import Columns
from ..run.execute import Executor, Graph
from ..sampler.halves import Drawn, Keys, ProposedSide, draw_own, draw_selection
from ..sampler.hyper import Prior
from ..settings import Settings
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.cuts import Tile
from .draws import DrawPredictor, SymbolDraws
from .fold_in import Folded
from .given import blocks_of, cut_rows, read_pairs
from .predict import Audience

BURN, EACH = 20, 3  # sweeps before the first draw, and of each draw
FOLDED = 2**32  # added to the sweep of a draw's streams: another chain than the fit's


def fold_in(
    predictor: DrawPredictor, frame: Any, columns: Columns, *, client: Any = None, threads: int | None = None
) -> Folded:
    """Draws of the users of a frame, blocks of users as dask tasks."""
    counts = predictor.counts
    labels, pairs = read_pairs(frame, counts, columns)
    if pairs.counts.dtype.kind != "u":
        raise InputError("counts of folded-in users must be whole numbers, because a chain draws whole pairs")
    blocks, graph = list(blocks_of(pairs.indptr)), Graph(uuid.uuid4().hex[:12])
    model = graph.hold("model", (predictor.commits, counts))
    keys = [
        graph.add("fold-in-users", k, fold_block, model, first, cut_rows(pairs, first, stop))
        for k, (first, stop) in enumerate(blocks)
    ]
    parts = Executor(client, threads).run(graph.nodes, keys)
    users = SymbolDraws(*(np.concatenate([part[k] for part in parts], axis=1) for k in (0, 1, 2)))
    sound = np.isfinite(users.bias).all(0) & np.isfinite(users.traits).all((0, 2))
    if not sound.all():
        raise NumericError(f"the draws of the folded-in user {labels[int(np.argmin(sound))]!r} are not finite")
    numbers = counts.shape[0] + np.arange(labels.size)
    audience = Audience(users, pairs.indptr, pairs.indices, labels, numbers)
    background = np.concatenate([part[3] for part in parts])
    return Folded(str(predictor.commit.record["digest"]), audience, background, pairs.counts)


def fold_block(
    model: tuple[list[Commit], Counts], first: int, pairs: Tile
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Task: traits, biases and parts of some users as `SymbolDraws` has them, and mean selection, from `first` on."""
    commits, counts = model
    settings = commits[0].settings
    marginal = sum_rows(pairs.indptr, pairs.counts)
    n = marginal.size
    prior = _prior(commits[0])
    now = Drawn(
        np.tile(prior.mean, (n, 1)).astype(settings.dtype),
        np.full(n, prior.bias_mean * settings.biases, settings.dtype),
        _started(settings, commits[0], marginal),
    )
    traits, bias = np.empty((len(commits), n, settings.factors), settings.dtype), np.empty((len(commits), n))
    parts, selection = np.ones((len(commits), n, settings.components)), np.zeros(n)
    for d, commit in enumerate(commits):
        prior = _prior(commit)
        arrays = (commit.sealed.read_array(commit.arrays[f"items/{name}"]) for name in ("traits", "bias", "selection"))
        columns = ProposedSide.make(Drawn(*arrays), settings.factors)
        total = float(commit.selected("users").sum())
        scale = (1 + settings.censored_ratio) * counts.total / total
        for k in range(EACH if d else BURN + EACH):
            keys = Keys(settings.random_state, FOLDED + commit.sweep * (BURN + EACH) + k)
            drawn = draw_own(
                keys, settings, "users", first, now, scale * now.chosen, pairs, columns, prior, lambda row: None
            )
            now = Drawn(*drawn[:2], draw_selection(keys, settings, "users", first, drawn[2]))
        traits[d], bias[d] = now.traits, now.bias
        parts[d] = now.chosen / now.chosen.sum(1, keepdims=True)
        selection += now.chosen.sum(1) / total
    return traits, bias, parts, selection / len(commits)


def _started(settings: Settings, commit: Commit, marginal: np.ndarray) -> np.ndarray:
    """Selection that new users begin with, of each component what the fit has of it on the whole."""
    selection = settings.alpha + (1 + settings.censored_ratio) * marginal
    chosen = commit.selected("users")
    return selection if chosen.size == 1 else np.asarray(selection[:, None] * chosen / chosen.sum())


def _prior(commit: Commit) -> Prior:
    return Prior.decode(commit.record["priors"]["users"], commit.settings.factors)
