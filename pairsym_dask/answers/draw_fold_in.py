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
from ..run.execute import Executor
from ..run.graph import Graph
from ..sampler.halves import NO_CENTRES, Drawn, Keys, ProposedSide, draw_own, draw_selection
from ..settings import Settings
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.cuts import Tile
from .draw_tags import centres_of, draw_newcomers, prior_of
from .draws import DrawPredictor, SymbolDraws
from .fold_in import NOBODY, Folded, Links, with_tags
from .given import blocks_of, cut_rows, read_pairs
from .predict import Audience
from .tags import SideTags

BURN, EACH = 20, 3  # sweeps before the first draw, and of each draw
FOLDED = 2**32  # added to the sweep of a draw's streams: another chain than the fit's


def fold_in(
    predictor: DrawPredictor, frame: Any, columns: Columns, tags: SideTags | None = None, links: Links | None = None, *,
    client: Any = None, threads: int | None = None,
) -> Folded:  # fmt: skip
    """Draws of the users of a frame, blocks of users as dask tasks; where users have `tags`, with priors of those.

    Whoever is in `links` and not in the frame has no pairs, and draws of the prior.
    """
    counts, described = predictor.counts, None
    labels, pairs = read_pairs(frame, counts, columns) if frame is not None or links is None else NOBODY
    if tags is not None:
        labels, pairs, described = with_tags(labels, pairs, tags, links)
    if pairs.counts.dtype.kind != "u":
        raise InputError("counts of folded-in users must be whole numbers, because a chain draws whole pairs")
    blocks, graph = list(blocks_of(pairs.indptr)), Graph(uuid.uuid4().hex[:12])
    model = graph.hold("model", (predictor.commits, counts))
    keys = [
        graph.add(
            "fold-in-users",
            k,
            fold_block,
            model,
            first,
            cut_rows(pairs, first, stop),
            None if described is None else cut_rows(described, first, stop),
        )
        for k, (first, stop) in enumerate(blocks)
    ]
    parts = Executor(client, threads).run(graph.nodes, keys)
    users = SymbolDraws(*(np.concatenate([part[k] for part in parts], axis=1) for k in (0, 1, 2)))
    if tags is not None and described is not None and (alone := np.diff(pairs.indptr) == 0).any():
        rows = np.arange(labels.size)
        prior = draw_newcomers(predictor.commits, "users", described, tags.prior.tags.shape[0] + rows)
        users = SymbolDraws.join([users, prior]).take(np.where(alone, labels.size + rows, rows))
    sound = np.isfinite(users.bias).all(0) & np.isfinite(users.traits).all((0, 2))
    if not sound.all():
        raise NumericError(f"the draws of the folded-in user {labels[int(np.argmin(sound))]!r} are not finite")
    numbers = counts.shape[0] + np.arange(labels.size)
    audience = Audience(users, pairs.indptr, pairs.indices, labels, numbers)
    background = np.concatenate([part[3] for part in parts])
    return Folded(str(predictor.commit.record["digest"]), audience, background, pairs.counts)


def fold_block(
    model: tuple[list[Commit], Counts], first: int, pairs: Tile, links: Tile | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Task: traits, biases and parts of some users as `SymbolDraws` has them, and mean selection, from `first` on.

    `links` are their tags with scaled weights.
    """
    commits, counts = model
    settings = commits[0].settings
    marginal = sum_rows(pairs.indptr, pairs.counts)
    n = marginal.size
    prior = prior_of(commits[0], "users")
    now = Drawn(
        np.tile(prior.mean, (n, 1)).astype(settings.dtype),
        np.full(n, prior.bias_mean * settings.biases, settings.dtype),
        _started(settings, commits[0], marginal),
    )
    traits, bias = np.empty((len(commits), n, settings.factors), settings.dtype), np.empty((len(commits), n))
    parts, selection = np.ones((len(commits), n, settings.components)), np.zeros(n)
    for d, commit in enumerate(commits):
        prior = prior_of(commit, "users")
        centres = NO_CENTRES if links is None else centres_of(commit, "users", links)
        arrays = (commit.sealed.read_array(commit.arrays[f"items/{name}"]) for name in ("traits", "bias", "selection"))
        columns = ProposedSide.make(Drawn(*arrays), settings.factors)
        total = float(commit.selected("users").sum())
        scale = (1 + settings.censored_ratio) * counts.total / total
        for k in range(EACH if d else BURN + EACH):
            keys = Keys(settings.random_state, FOLDED + commit.sweep * (BURN + EACH) + k)
            drawn = draw_own(
                keys, settings, "users", first, now, scale * now.chosen, pairs, columns, prior, lambda row: None,
                centres,
            )  # fmt: skip
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
