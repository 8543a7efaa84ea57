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
import pyarrow as pa

from ..errors import InputError, NumericError
from ..kernels import rows as kernels
from ..kernels.keys import LOW, SHIFT, add_repeats, row_lengths, sum_rows
from ..kernels.layout import WHOLE, empty_table, padded_width, row_offsets
from ..kernels.rows import OtherSide, Pairs, Terms, Values
from ..pairs.checks import TEXT
from ..pairs.faults import Faults
from ..pairs.frames import as_frame, items_of_one_user
from ..pairs.parts import Columns, frame_parts, store_kinds
from ..run.execute import Executor, Steps
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
from .predict import Audience, Symbols

BLOCK_USERS, BLOCK_PAIRS = 1024, 2**16  # of a task, about
SETTLED = {"float32": 1e-3, "float64": 1e-10}  # a user's means move by no more than this part of their posterior sd
LIMIT = 1000  # updates of a user


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
            raise InputError(f"not among the folded-in users: {_some(wanted[rows < 0])}")
        whole = self.audience
        lengths = np.diff(whole.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        pairs = np.repeat(whole.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        some = Audience(whole.users.take(rows), indptr, whole.seen[pairs], whole.labels[rows], whole.numbers[rows])
        return Folded(self.model, some, self.background[rows], self.counts[pairs])

    def __repr__(self) -> str:
        return f"<{len(self):,} folded-in users with {self.counts.size:,} pairs>"


def fold_in(
    commit: Commit,
    counts: Counts,
    frame: Any,
    columns: Columns,
    *,
    client: Any = None,
    threads: int | None = None,
) -> Folded:
    """Posterior of the users of a frame, blocks of users as dask tasks."""
    labels, pairs = read_pairs(frame, counts, columns)
    blocks = list(blocks_of(pairs.indptr))
    steps = Steps(uuid.uuid4().hex[:12])
    model = steps.hold("model", FittedItems(commit, counts))
    keys = [steps.add("fold-in-users", k, fold_block, model, cut_rows(pairs, *block)) for k, block in enumerate(blocks)]
    results = Executor(client, threads).run(steps.graph, keys)
    values = [np.concatenate([result[0][k] for result in results]) for k in range(len(VALUES))]
    background = np.concatenate([result[1] for result in results])
    _check_finite(labels, values)
    restless = np.concatenate([first + result[2] for (first, _), result in zip(blocks, results, strict=True)])
    if restless.size:
        warnings.warn(
            f"{restless.size} of {labels.size} users have not settled after {LIMIT} updates, "
            f"for instance {_some(labels[restless])}; their posterior is near, not exact",
            UserWarning,
            stacklevel=3,
        )
    symbols = Symbols(values[0], 1 / values[1], values[2], 1 / values[3])
    numbers = counts.shape[0] + np.arange(labels.size)
    audience = Audience(symbols, pairs.indptr, pairs.indices, labels, numbers)
    return Folded(str(commit.record["digest"]), audience, background, pairs.counts)


def _check_finite(labels: np.ndarray, values: list[np.ndarray]) -> None:
    sound = np.isfinite(values[0]).all(1) & (values[1] > 0).all(1) & np.isfinite(values[2]) & (values[3] > 0)
    if not sound.all():
        raise NumericError(
            f"the posterior of the folded-in user {labels[int(np.argmin(sound))]!r} is not finite; "
            'a model with dtype="float64" or larger taus may help'
        )


# Pairs --------------------------------------------------------------------------------------------------------------


def read_pairs(frame: Any, counts: Counts, columns: Columns) -> tuple[np.ndarray, Tile]:
    """Labels of the users of a frame, and their pairs with items that the store knows, added up."""
    given, frame = frame, as_frame(items_of_one_user(frame, columns), columns)
    if frame is None:
        raise InputError(
            f"fold_in takes a list of items, or a frame with columns {' and '.join(map(repr, columns.names))}, "
            f"not a {type(given).__name__}"
        )
    parts, there = frame_parts(frame, "the frame", columns, max(1, len(frame)))
    if columns.count is None and "count" in there and "count" not in columns.names:
        warnings.warn(
            'the column "count" of the frame is not used: each row is one pair; give count="count" to use it',
            UserWarning,
            stacklevel=4,
        )
    faults = Faults()
    batches = [batch for part in parts for batch in part.batches(part.rows, (TEXT, TEXT), faults)]
    faults.check()
    if not batches:
        raise InputError("no pairs in the frame: there is nobody to fold in")
    (batch,) = batches
    _, kind = store_kinds(counts)
    if batch.kinds[1] != kind:
        raise InputError(
            f"labels of another type: column {columns.item!r} of the frame holds {batch.kinds[1]}, "
            f"the items of {counts.path} are {kind}"
        )
    users, items = batch.users.dictionary_encode(), batch.items.dictionary_encode()
    labels, named = (_numpy(side.dictionary) for side in (users, items))
    user, item = (side.indices.to_numpy().astype(np.int64) for side in (users, items))
    position = counts.find("items", named)
    known = position[item] >= 0
    strangers = np.setdiff1d(np.arange(labels.size), user[known])
    if strangers.size:
        raise InputError(
            f"{_some(labels[strangers], 'user')} cannot be folded in without a single known item; "
            f"the store knows {counts.shape[1]} items, for instance {counts.item_ids[0]!r}"
        )
    if not known.all():
        warnings.warn(
            f"{int((~known).sum())} of {known.size} pairs are left out, because the store does not know "
            f"{_some(named[position < 0], 'item')}",
            UserWarning,
            stacklevel=4,
        )
    keys = user[known].astype(np.uint64) << SHIFT
    keys |= position[item[known]].astype(np.uint64)
    numbers = None if batch.counts is None else batch.counts[known]
    if numbers is not None:
        numbers = numbers.astype(np.int64 if numbers.dtype.kind == "u" else np.float64)
    keys, sums = add_repeats(keys, numbers)
    if sums.dtype.kind == "i":
        sums = sums.astype(np.min_scalar_type(int(sums.max())))
    indptr = np.concatenate([[0], np.cumsum(row_lengths(keys, labels.size), dtype=np.int64)])
    return labels, Tile(indptr, (keys & LOW).astype(np.uint32), sums)


def _numpy(labels: pa.Array) -> np.ndarray:
    return np.asarray(labels.to_numpy(zero_copy_only=False))


def _some(labels: np.ndarray, name: str = "") -> str:
    """A few labels by name, and how many more there are."""
    text = ", ".join(repr(label) for label in labels[:5].tolist())
    more = f" and {labels.size - 5} more" if labels.size > 5 else ""
    return f"{name}{'s' if labels.size > 1 else ''} {text}{more}" if name else f"{text}{more}"


def blocks_of(indptr: np.ndarray) -> Any:
    """Ranges of rows, each of not too many users or pairs."""
    first, n = 0, indptr.size - 1
    while first < n:
        stop = int(np.searchsorted(indptr, indptr[first] + BLOCK_PAIRS, side="right")) - 1
        stop = min(max(stop, first + 1), first + BLOCK_USERS, n)
        yield first, stop
        first = stop


def cut_rows(pairs: Tile, first: int, stop: int) -> Tile:
    start, end = pairs.indptr[first], pairs.indptr[stop]
    return Tile(pairs.indptr[first : stop + 1] - start, pairs.indices[start:end], pairs.counts[start:end])


# Updates ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedItems:
    """Where a task finds the items; small enough to travel."""

    commit: Commit
    counts: Counts


def fold_block(place: FittedItems, pairs: Tile) -> tuple[Values, np.ndarray, np.ndarray]:
    """Task: posterior and s of some users, and the rows that have not settled."""
    fixed = _fixed_of(place)
    pairs = fixed.discounted(pairs)
    marginal = sum_rows(pairs.indptr, pairs.counts)
    weights = fixed.counted_weights(marginal)
    values = fixed.start(marginal.size)
    fixed.settle(pairs, values, weights, marginal)
    weights = fixed.weigh(pairs, values, weights, marginal)
    return values, weights, fixed.settle(pairs, values, weights, marginal)


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

    def settle(self, pairs: Tile, values: Values, weights: np.ndarray, marginal: np.ndarray) -> np.ndarray:
        """Update xi_ij, b_i and u_i, in place, until they stay, s_i held; rows that do not within the limit."""
        settings, xi_star = self.commit.settings, self.commit.scalar("xi_star")
        growth = prior_growth(settings, marginal, self.censored * weights)
        terms = Terms(
            settings.factors, row_offsets(padded_width(settings.factors)), self.censored * weights,
            2 * lambda_of(xi_star), self.items.packed.astype(settings.dtype),
            (settings.tau("users") * growth).astype(settings.dtype), settings.tau_b, settings.biases,
            settings.temperature == 0,
        )  # fmt: skip
        rows, items = np.arange(weights.size), OtherSide(WHOLE, self.table)
        for _ in range(LIMIT):
            old = Values(*(array[rows] for array in values))
            new = empty_values(rows.size, settings)
            kernels.update_rows(
                Pairs(pairs.indptr[:-1][rows], pairs.indptr[1:][rows], pairs.indices, pairs.counts), items,
                _table_of(old, weights[rows], settings),
                terms._replace(censored=terms.censored[rows], tau=terms.tau[rows]), new,
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
