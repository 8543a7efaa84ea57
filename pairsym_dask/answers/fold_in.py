"""Fold-in: the posterior of users who were not in the fit, with the items of a committed sweep held fixed.

An update of a user needs nothing of the other users but the normaliser of s, which the commit keeps; so new users
are rows of an update of their own, by the kernels of a sweep, repeated until they settle.

How often a user is selected and censored, s_i, feeds on itself: through E[log pi_i], and through the bias that fewer
censored pairs leave. Updated again and again beside items that cannot answer, some users end with no censored pairs at
all and others with far too many (on gowalla the rank R of held-out items falls from 0.971 to 0.925). So s_i begins
with the share that the user's counts give, as under constant messages, takes the messages once, and all else settles.
"""

from __future__ import annotations

import uuid
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError, NumericError
from ..kernels import rows as kernels
from ..kernels.keys import sum_rows
from ..kernels.layout import WHOLE, empty_table, padded_width, row_offsets
from ..kernels.rows import OtherSide, Pairs, Terms, Values
from ..pairs.parts import Columns
from ..run.execute import Executor
from ..run.graph import Graph
from ..run.process import read_once
from ..settings import Settings
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.cuts import Tile
from ..sweep.background import Background, lambda_of, messages
from ..sweep.discount import Discount
from ..sweep.elbo import counted_share, dirichlet_parameters, dirichlet_total, expected_log
from ..sweep.job import VALUES, empty_values, prior_growth
from ..sweep.record import decode_background
from ..sweep.tag_prior import scale_links
from .given import blocks_of, cut_rows, read_pairs, some_words
from .predict import Audience, Symbols
from .tags import SideTags

SETTLED = {"float32": 1e-3, "float64": 1e-10}  # a user's means move by no more than this part of their posterior sd
LIMIT = 1000  # updates of a user
NOBODY = np.empty(0, object), Tile(np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.uint8))


@dataclass(frozen=True, repr=False, eq=False)
class Folded:
    """Users from outside the store, a row each, with their posterior and the pairs that it comes from.

    `recommend`, `probability`, `conditional` and `scores` of the model that made it take it in place of user labels.
    """

    model: str  # digest of the commit whose items were held fixed
    audience: Audience
    background: np.ndarray  # s_i, on the scale of the store's users
    counts: np.ndarray  # of the pairs, in the order of `audience.seen`

    @property
    def user_ids(self) -> np.ndarray:
        """Labels, in the order in which the frame names them first."""
        return self.audience.labels

    @property
    def users(self) -> Any:
        """Mean and variance of traits and biases, or draws of them."""
        return self.audience.users

    def __len__(self) -> int:
        return len(self.audience)

    def take(self, labels: Any) -> Folded:
        """Some of the users, by label or list of labels."""
        wanted = np.atleast_1d(np.asarray(labels, object))
        rows = pd.Index(self.user_ids).get_indexer(pd.Index(wanted))
        if (rows < 0).any():
            raise InputError(f"not among the folded-in users: {some_words(wanted[rows < 0])}")
        whole = self.audience
        lengths = np.diff(whole.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        pairs = np.repeat(whole.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        some = Audience(whole.users.take(rows), indptr, whole.seen[pairs], whole.labels[rows], whole.numbers[rows])
        return Folded(self.model, some, self.background[rows], self.counts[pairs])

    def __repr__(self) -> str:
        return f"<{len(self):,} folded-in users with {self.counts.size:,} pairs>"


@dataclass(frozen=True)
class Links:
    """Tags of users from outside the store, as they are given."""

    frame: Any
    columns: Columns


def fold_in(
    commit: Commit,
    counts: Counts,
    frame: Any,
    columns: Columns,
    tags: SideTags | None = None,
    links: Links | None = None,
    *,
    client: Any = None,
    threads: int | None = None,
) -> Folded:
    """Posterior of the users of a frame, blocks of users as dask tasks; where users have `tags`, with priors of those.

    Whoever is in `links` and not in the frame has no pairs: the posterior is the prior.
    """
    labels, pairs = read_pairs(frame, counts, columns) if frame is not None or links is None else NOBODY
    prior = None
    if tags is not None:
        labels, pairs, described = with_tags(labels, pairs, tags, links)
        prior = tags.mixed(described)
    blocks = list(blocks_of(pairs.indptr))
    graph = Graph(uuid.uuid4().hex[:12])
    model = graph.hold("model", FittedItems(commit, counts))
    keys = [
        graph.add("fold-in-users", k, fold_block, model, cut_rows(pairs, *block), _cut_prior(prior, *block))
        for k, block in enumerate(blocks)
    ]
    results = Executor(client, threads).run(graph.nodes, keys)
    values = [np.concatenate([result[0][k] for result in results]) for k in range(len(VALUES))]
    background = np.concatenate([result[1] for result in results])
    _check_finite(labels, values)
    restless = np.concatenate([first + result[2] for (first, _), result in zip(blocks, results, strict=True)])
    if restless.size:
        warnings.warn(
            f"{restless.size} of {labels.size} users have not settled after {LIMIT} updates, "
            f"for instance {some_words(labels[restless])}; their posterior is near, not exact",
            UserWarning,
            stacklevel=3,
        )
    symbols = Symbols(values[0], 1 / values[1], values[2], 1 / values[3])
    if prior is not None:  # a user without pairs has the prior
        alone = np.diff(pairs.indptr) == 0
        order = np.where(alone, len(symbols) + np.arange(len(symbols)), np.arange(len(symbols)))
        symbols = Symbols.join([symbols, prior]).take(order)
    numbers = counts.shape[0] + np.arange(labels.size)
    audience = Audience(symbols, pairs.indptr, pairs.indices, labels, numbers)
    return Folded(str(commit.record["digest"]), audience, background, pairs.counts)


def with_tags(labels: np.ndarray, pairs: Tile, tags: SideTags, links: Links | None) -> tuple[np.ndarray, Tile, Tile]:
    """Users of the pairs, then those of the links alone, with their pairs and scaled links.

    Tags are those of the links, else those that the tag store has of a label.
    """
    mine, given = (
        (labels[:0], NOBODY[1]) if links is None else read_pairs(links.frame, tags.prior.tags.links, links.columns)
    )
    everybody = pd.Index(labels.astype(object)).append(pd.Index(mine.astype(object))).unique()
    more = len(everybody) - labels.size
    pairs = Tile(np.concatenate([pairs.indptr, np.full(more, pairs.indptr[-1])]), pairs.indices, pairs.counts)
    known = tags.prior.tags.find(everybody.to_numpy())
    stored, described = tags.prior.scaled(known), scale_links(given, tags.prior.number - 1)
    place = pd.Index(mine.astype(object)).get_indexer(everybody)
    order = np.where(place >= 0, len(everybody) + place, np.arange(len(everybody)))
    indptr = np.concatenate([stored.indptr, stored.indptr[-1] + described.indptr[1:]])
    lengths = np.diff(indptr)[order]
    chosen = np.concatenate([[0], np.cumsum(lengths)])
    at = np.repeat(indptr[order] - chosen[:-1], lengths) + np.arange(chosen[-1])
    tags_, weights = (
        np.concatenate([getattr(one, name) for one in (stored, described)]) for name in ("indices", "counts")
    )
    return everybody.to_numpy(), pairs, Tile(chosen, tags_[at], weights[at])


def _cut_prior(prior: Symbols | None, first: int, stop: int) -> np.ndarray | None:
    """Prior means of some rows: traits, then the bias."""
    if prior is None:
        return None
    return np.hstack([prior.mean[first:stop], prior.bias[first:stop, None]])


def _check_finite(labels: np.ndarray, values: list[np.ndarray]) -> None:
    sound = np.isfinite(values[0]).all(1) & (values[1] > 0).all(1) & np.isfinite(values[2]) & (values[3] > 0)
    if not sound.all():
        raise NumericError(
            f"the posterior of the folded-in user {labels[int(np.argmin(sound))]!r} is not finite; "
            'a model with dtype="float64" or larger taus may help'
        )


# Updates ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedItems:
    """Where a task finds the items; small enough to travel."""

    commit: Commit
    counts: Counts


def fold_block(place: FittedItems, pairs: Tile, prior: np.ndarray | None) -> tuple[Values, np.ndarray, np.ndarray]:
    """Task: posterior and s of some users, and the rows that have not settled; `prior` means where they have tags."""
    fixed = _fixed_of(place)
    pairs = fixed.discounted(pairs)
    marginal = sum_rows(pairs.indptr, pairs.counts)
    weights = fixed.counted_weights(marginal)
    values = fixed.start(marginal.size)
    fixed.settle(pairs, values, weights, marginal, prior)
    weights = fixed.weigh(pairs, values, weights, marginal)
    return values, weights, fixed.settle(pairs, values, weights, marginal, prior)


@dataclass(frozen=True)
class Fixed:
    """What updates of new users take from a committed sweep."""

    commit: Commit
    total: float  # D
    users: int  # I
    table: np.ndarray  # of all items
    items: Background

    discount: Discount | None
    item_counts: np.ndarray | None  # c_j, where pairs are discounted

    @staticmethod
    def read(place: FittedItems) -> Fixed:
        commit, counts = place.commit, place.counts
        settings = commit.settings
        values = Values(*(commit.sealed.read_array(commit.arrays[f"items/{name}"]) for name in VALUES))
        weights = commit.sealed.read_array(commit.arrays["items/background"])
        table = _table_of(values, weights, settings)
        discount = item_counts = None
        if settings.discount:
            discount = Discount(settings.discount, commit.scalar("discount_scale"), np.empty(0))
            item_counts = counts.marginal("items")
        items = decode_background(commit, "items")
        return Fixed(commit, counts.total, counts.shape[0], table, items, discount, item_counts)

    @property
    def censored(self) -> float:
        """D' = r D."""
        return self.commit.settings.censored_ratio * self.total

    def discounted(self, pairs: Tile) -> Tile:
        """New users' pairs as the fit would count them."""
        if self.discount is None or self.item_counts is None:
            return pairs
        marginal = sum_rows(pairs.indptr, pairs.counts)
        return self.discount.weighed(pairs, marginal, self.item_counts, 0, self.commit.settings.dtype)

    def counted_weights(self, marginal: np.ndarray) -> np.ndarray:
        """s_i as the counts alone would have it."""
        settings = self.commit.settings
        if settings.selection == "counts":
            logits = settings.background_users * np.log(settings.alpha + marginal)
            return np.asarray(np.exp(logits - self.commit.scalar("log_z_next")))
        return counted_share(marginal, self.users, self.total, settings.alpha)

    def start(self, rows: int) -> Values:
        """The store's average user, over and over."""
        values = empty_values(rows, self.commit.settings)
        average = decode_background(self.commit, "users").average(self.commit.settings.temperature)
        for array, value in zip(values, average, strict=True):
            array[:] = value
        return values

    def settle(
        self, pairs: Tile, values: Values, weights: np.ndarray, marginal: np.ndarray, prior: np.ndarray | None = None
    ) -> np.ndarray:
        """Update xi_ij, b_i and u_i, in place, until they stay, s_i held; rows that do not within the limit."""
        settings, xi_star = self.commit.settings, self.commit.scalar("xi_star")
        growth = prior_growth(settings, marginal, self.censored * weights)
        tau = (settings.tau("users") * growth).astype(settings.dtype)
        pull = np.zeros((0 if prior is None else tau.size, padded_width(settings.factors)), settings.dtype)
        if prior is not None:
            pull[:, : settings.factors + 1] = prior
            pull[:, : settings.factors] *= self.pulling(tau)[:, None]
            pull[:, settings.factors] *= settings.tau_b
        terms = Terms(
            settings.factors, row_offsets(padded_width(settings.factors)), self.censored * weights,
            2 * lambda_of(xi_star), self.items.packed.astype(settings.dtype),
            tau, settings.tau_b, settings.biases, settings.temperature == 0, pull,
        )  # fmt: skip
        rows, items = np.arange(weights.size), OtherSide(WHOLE, self.table)
        for _ in range(LIMIT):
            old = Values(*(array[rows] for array in values))
            new = empty_values(rows.size, settings)
            kernels.update_rows(
                Pairs(pairs.indptr[:-1][rows], pairs.indptr[1:][rows], pairs.indices, pairs.counts), items,
                _table_of(old, weights[rows], settings),
                terms._replace(
                    censored=terms.censored[rows], tau=terms.tau[rows], pull=pull if prior is None else pull[rows]
                ),
                new,
            )  # fmt: skip
            for array, part in zip(values, new, strict=True):
                array[rows] = part
            moved = (np.abs(new.mean - old.mean) * np.sqrt(new.precision)).max(1)
            if settings.biases:
                moved = np.maximum(moved, np.abs(new.bias - old.bias) * np.sqrt(new.bias_precision))
            rows = rows[moved > SETTLED[settings.dtype]]
            if not rows.size:
                break
        return rows

    def pulling(self, tau: np.ndarray) -> np.ndarray:
        """Precisions with which tags pull at users of prior precisions tau, as at those of the fit."""
        settings, none = self.commit.settings, np.zeros(1)
        if not self.commit.tags["users"].get("fades", False):
            return tau
        return settings.tau_u * prior_growth(settings, none, self.censored * self.counted_weights(none))

    def weigh(self, pairs: Tile, values: Values, weights: np.ndarray, marginal: np.ndarray) -> np.ndarray:
        """s_i = exp(E[log pi_i] + sum_j t_j Omega_ij - log Z), with the normaliser that the commit keeps."""
        settings = self.commit.settings
        if settings.selection == "counts":
            return weights
        whole = dirichlet_total(self.users, self.total, self.censored, settings.alpha)
        logits = expected_log(dirichlet_parameters(marginal, weights, self.censored, settings.alpha), whole)
        if settings.selection == "bayes":
            own, stats = _table_of(values, weights, settings), np.zeros((weights.size, 4))
            mine = Pairs(pairs.indptr[:-1].copy(), pairs.indptr[1:].copy(), pairs.indices, pairs.counts)
            width = padded_width(settings.factors)
            kernels.select_rows(
                mine, OtherSide(WHOLE, self.table), own, width, settings.factors, settings.temperature == 0, stats
            )
            logits = logits + messages(stats, own, self.items, self.commit.scalar("xi_star"))
        return np.asarray(np.exp(logits - self.commit.scalar("log_z_next")))


def _table_of(values: Values, weights: np.ndarray, settings: Settings) -> np.ndarray:
    width = padded_width(settings.factors)
    table = empty_table(weights.size, width, settings.dtype)
    kernels.fill_table(values, weights, settings.temperature, width, table)
    return table


def _fixed_of(place: FittedItems) -> Fixed:
    """The items of a commit, read once a process."""
    key = (place.commit.storage.url, str(place.commit.record["digest"]))
    return read_once("fold-in", key, lambda: Fixed.read(place))
