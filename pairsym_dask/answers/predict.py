"""Answers from a committed sweep: p(shown | i, j), p(j | i) and ranked lists, a block of users at a time.

sigma(x_ij) with x_ij = mu_ij / sqrt(1 + pi var_ij / 8) is MacKay's average of the logistic function over the
energy's posterior; p(j | i) is sigma(x_ij) E[psi_j], normalised over all items (eq. prediction).
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr

from ..kernels.energies import energies_of
from ..kernels.logistic import moderated
from ..kernels.topn import Ordered, best_items
from ..run.process import read_once
from ..settings import SIDES
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from ..store.some_rows import pairs_of
from ..sweep.job import VALUES
from .query import Query, deviations, sides
from .ranking import Ranking

_NONE = np.empty(0, np.uint32)
SCORES = 64 * 2**20  # bytes of one matrix of scores, users x items


@dataclass(frozen=True)
class Symbols:
    """Posterior of some symbols of a side, a row each."""

    mean: np.ndarray
    variance: np.ndarray
    bias: np.ndarray
    bias_variance: np.ndarray

    @staticmethod
    def read(commit: Commit, side: str, positions: np.ndarray | None = None) -> Symbols:
        """Some symbols of a committed sweep, or all."""
        if positions is None:
            mean, precision, bias, bias_precision = (
                commit.sealed.read_array(commit.arrays[f"{side}/{name}"]) for name in VALUES
            )
        else:
            mean, precision, bias, bias_precision = (read_rows(commit, f"{side}/{name}", positions) for name in VALUES)
        return Symbols(mean, 1 / precision, bias, 1 / bias_precision)

    @staticmethod
    def join(parts: list[Symbols]) -> Symbols:
        names = ("mean", "variance", "bias", "bias_variance")
        return Symbols(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def take(self, rows: Any) -> Symbols:
        return Symbols(self.mean[rows], self.variance[rows], self.bias[rows], self.bias_variance[rows])

    def __len__(self) -> int:
        return self.bias.size


def energy(users: Symbols, items: Symbols) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a_ij under q for all users x items."""
    mean = users.mean @ items.mean.T
    mean += users.bias[:, None]
    mean += items.bias
    # var = sum (m_i^2 + v_i) v_j + v_i m_j^2, as one product
    left = np.hstack([users.mean**2 + users.variance, users.variance])
    variance = left @ np.hstack([items.variance, items.mean**2]).T
    variance += users.bias_variance[:, None]
    variance += items.bias_variance
    return mean, variance


def energy_of_pairs(users: Symbols, items: Symbols) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a_ij for row k of `users` with row k of `items`."""
    mean = np.einsum("ik,ik->i", users.mean, items.mean) + users.bias + items.bias
    variance = (
        np.einsum("ik,ik->i", users.mean**2 + users.variance, items.variance)
        + np.einsum("ik,ik->i", users.variance, items.mean**2)
        + users.bias_variance
        + items.bias_variance
    )
    return mean, variance


def sigma_of(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """p(shown | i, j), the logistic function averaged over the posterior of the energy."""
    return np.asarray(1 / (1 + np.exp(-moderated(mean, variance))))


def beliefs(mean: np.ndarray, variance: np.ndarray, interval: float) -> dict[str, np.ndarray]:
    """sigma, the energy's sd, and the ends of a central credible interval of p(shown), as float64 columns.

    p(shown) = sigma(a) rises with the energy a, whose posterior is taken as normal: the ends are sigma(mu -+ z sd).
    """
    mu, sd = mean.astype(np.float64), np.sqrt(variance.astype(np.float64))
    reach = deviations(interval) * sd
    return {
        "sigma": sigma_of(mean, variance).astype(np.float64),
        "sd": sd,
        "low": expit(mu - reach),
        "high": expit(mu + reach),
    }


@dataclass(frozen=True)
class Newcomers:
    """Symbols that are not in the counts store, a row each; as items they come after the store's."""

    labels: np.ndarray
    symbols: Any  # Symbols of a fit, or draws of them
    selection: np.ndarray  # of a fit: what stands for their Dirichlet parameters
    numbers: np.ndarray  # seed their draws


class Predictor:
    """A committed sweep with its items in memory; users are read when they are asked for."""

    def __init__(self, commit: Commit, counts: Counts) -> None:
        self.commit, self.commits, self.counts = commit, [commit], counts
        self.items, self.ranking = Symbols.read(commit, "items"), Ranking.of(commit.settings)
        self.selection = commit.sealed.read_array(commit.arrays["items/selection"])
        self.popularity = self.selection / self.selection.sum()  # E[psi_j]
        self.more: Newcomers | None = None  # items of a wider one than the store
        self._ordered: tuple[tuple[float, np.dtype], Ordered] | None = None
        self.covariances: dict[str, np.ndarray] = {}  # of the sides, as `neighbours` finds them
        self._making = threading.Lock()

    def wider(self, more: Newcomers | None) -> Predictor:
        """The same with more items after the store's; E[psi] is over all of them."""
        if more is None:
            return self
        wide = copy.copy(self)
        wide.items = Symbols.join([self.items, more.symbols])
        wide.selection = np.concatenate([self.selection, more.selection])
        wide.popularity = wide.selection / wide.selection.sum()
        wide.more = more
        wide._ordered, wide.covariances, wide._making = None, {}, threading.Lock()
        return wide

    def label(self, side: str, position: int) -> Any:
        """The label of one symbol."""
        more = self.more if side == "items" else None
        return labels_of(self.counts, side, np.array([position]), more).tolist()[0]

    def users(self, positions: np.ndarray) -> Symbols:
        return Symbols.read(self.commit, "users", positions)

    def blocks(self, n: int) -> list[slice]:
        """Slices of n users whose scores fit the room for one matrix; an empty one for no users."""
        step = max(1, SCORES // (8 * max(1, len(self.items))))
        return [slice(k, min(k + step, n)) for k in range(0, max(n, 1), step)]

    def conditional(self, users: Symbols) -> np.ndarray:
        """p(j | i) for a few users, rows that sum to one, float64."""
        p = sigma_of(*energy(users, self.items)).astype(np.float64) * self.popularity
        return np.asarray(p / p.sum(1, keepdims=True))

    def scores(self, users: Symbols, popularity: float) -> np.ndarray:
        """What recommendations are ranked by, for some users and all items."""
        return self.ranking.scores(*energy(users, self.items), self.popularity, (popularity,))[0]

    def probability(self, users: Symbols, columns: np.ndarray, interval: float) -> dict[str, np.ndarray]:
        """p(shown | i, j) of row k of `users` with item columns[k], with its interval, see `beliefs`."""
        return beliefs(*energy_of_pairs(users, self.items.take(columns)), interval)

    def contrast(
        self, users: Symbols, columns: np.ndarray, others: np.ndarray, interval: float
    ) -> dict[str, np.ndarray]:
        """Differences of the energies of row k with items columns[k] and others[k], taken as normal."""
        one, two = (self.items.take(some) for some in (columns, others))
        apart = Symbols(
            one.mean - two.mean, one.variance + two.variance, one.bias - two.bias, one.bias_variance + two.bias_variance
        )
        # The user's own bias is in both energies; an item differs from itself by nothing.
        alone = Symbols(users.mean, users.variance, np.zeros_like(users.bias), np.zeros_like(users.bias_variance))
        mean, variance = (values.astype(np.float64) for values in energy_of_pairs(alone, apart))
        sd = np.where(columns == others, 0.0, np.sqrt(variance))
        reach = deviations(interval) * sd
        with np.errstate(invalid="ignore"):
            rather = np.where(sd > 0, ndtr(mean / sd), 0.5)
        return {"difference": mean, "sd": sd, "low": mean - reach, "high": mean + reach, "rather": rather}

    def stored(self, positions: np.ndarray) -> StoredUsers:
        """Users of the store, to be read a part at a time."""
        return StoredUsers(self, positions)

    def ordered(self, popularity: float, dtype: np.dtype) -> Ordered:
        """The items as `best_items` wants them, kept for the last exponent and type asked for."""
        with self._making:
            if self._ordered is None or self._ordered[0] != (popularity, dtype):
                weights = self.ranking.weights(self.popularity, popularity)
                made = Ordered.make(self.items, weights, self.ranking.temperature, dtype)
                self._ordered = (popularity, dtype), made
            return self._ordered[1]

    def table(self, audience: Audience, query: Query) -> pd.DataFrame:
        """The best items of every row of an audience, best first: user, item, rank, mean, variance (row, position).

        A user with fewer than n items left has fewer.
        """
        users, items = audience.users, len(self.items)
        left, variance_side, bend = sides(users, audience.numbers, query)
        indptr, seen = (
            (audience.indptr, audience.seen) if query.exclude_seen else (np.zeros_like(audience.indptr), _NONE)
        )
        best = best_items(
            left, variance_side, self.ordered(query.popularity, left.dtype), min(query.n, items), indptr, seen,
            query.allowed(items), bend,
        )  # fmt: skip
        user, rank = np.nonzero(best >= 0)
        item = best[user, rank]
        mean, variance = energies_of(users, self.items, user, item)
        return pd.DataFrame({"user": user, "item": item, "rank": rank + 1, "mean": mean, "variance": variance})

    def lists(self, audience: Audience, query: Query) -> pd.DataFrame:
        """The best items of every row of an audience, by label: user, item, rank, sigma, sd."""
        table = self.table(audience, query)
        mean, variance = table.pop("mean").to_numpy(), table.pop("variance").to_numpy()
        table["sigma"] = sigma_of(mean, variance).astype(np.float64)
        table["sd"] = np.sqrt(variance.astype(np.float64))
        return label_table(self.counts, table, audience, self.more)

    def recommend(self, audience: Audience | StoredUsers, query: Query) -> pd.DataFrame:
        """Ranked items with their probabilities and intervals, by label; users in the given order."""
        parts = []
        for rows in self.blocks(len(audience)):
            some = audience.part(rows, query.exclude_seen)
            table = self.table(some, query)
            normaliser = sigma_of(*energy(some.users, self.items)).astype(np.float64) @ self.popularity
            selected = self.popularity[table["item"]] / normaliser[table["user"]]
            belief = beliefs(table.pop("mean").to_numpy(), table.pop("variance").to_numpy(), query.interval)
            table["probability"] = belief["sigma"] * selected
            parts.append(label_table(self.counts, table.assign(**belief), some, self.more))
        return pd.concat(parts, ignore_index=True)


def seen_items(counts: Counts, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted items of the users' observed pairs as (indptr, items)."""
    pairs = pairs_of(counts, "users", positions)
    return pairs.indptr, pairs.indices


def labels_of(counts: Counts, side: str, positions: np.ndarray, more: Newcomers | None) -> np.ndarray:
    """Labels by position: those of the store, then those of newcomers."""
    rows = counts.cuts[side].rows
    if more is None or not (positions >= rows).any():
        return counts.label_rows(side, positions)
    out = np.empty(positions.size, np.result_type(counts.columns[side].dtype, more.labels.dtype))
    known = positions < rows
    out[known], out[~known] = counts.label_rows(side, positions[known]), more.labels[positions[~known] - rows]
    return out


def label_table(counts: Counts, table: pd.DataFrame, audience: Audience, more: Newcomers | None = None) -> pd.DataFrame:
    """Rows and positions replaced by labels; items beyond the store's are newcomers."""
    table["user"] = audience.labels[table["user"]]
    table["item"] = labels_of(counts, "items", table["item"].to_numpy(), more)
    return table


@dataclass(frozen=True)
class Audience:
    """Users to answer for, a row each, of the store or from elsewhere.

    `seen[indptr[r]:indptr[r + 1]]` are the sorted item positions that row r has been seen with. `numbers` seed the
    rows' draws: the row in the store, and from `counts.shape[0]` on for users that are not in it.
    """

    users: Any  # Symbols of a fit, or draws of them
    indptr: np.ndarray  # int64, rows + 1
    seen: np.ndarray  # uint32
    labels: np.ndarray
    numbers: np.ndarray  # int64

    def __len__(self) -> int:
        return len(self.users)

    def part(self, rows: slice, with_seen: bool = True) -> Audience:
        first, stop, _ = rows.indices(len(self))
        start, end = self.indptr[[first, stop]]
        indptr = self.indptr[first : stop + 1] - start
        return Audience(self.users.take(rows), indptr, self.seen[start:end], self.labels[rows], self.numbers[rows])


@dataclass(frozen=True)
class StoredUsers:
    """Users of the store by position; a part of them is read when it is wanted."""

    predictor: Any  # of a fit or of draws
    positions: np.ndarray

    def __len__(self) -> int:
        return self.positions.size

    def part(self, rows: slice, with_seen: bool = True) -> Audience:
        positions, predictor = self.positions[rows], self.predictor
        indptr, seen = np.zeros(positions.size + 1, np.int64), _NONE
        if with_seen:
            indptr, seen = seen_items(predictor.counts, positions)
        users, labels = predictor.users(positions), predictor.counts.label_rows("users", positions)
        return Audience(users, indptr, seen, labels, positions)


def audience_of(new: Newcomers) -> Audience:
    """New users, who have seen nothing."""
    return Audience(new.symbols, np.zeros(new.labels.size + 1, np.int64), _NONE, new.labels, new.numbers)


def joined(known: Audience, new: Newcomers, order: np.ndarray) -> Audience:
    """Users of the store, then new ones, who have seen nothing; then all rows in another order."""
    lengths = np.concatenate([np.diff(known.indptr), np.zeros(new.labels.size, np.int64)])
    starts = np.concatenate([known.indptr[:-1], np.full(new.labels.size, known.indptr[-1])])[order]
    indptr = np.concatenate([[0], np.cumsum(lengths[order])])
    pairs = np.repeat(starts - indptr[:-1], lengths[order]) + np.arange(indptr[-1])
    labels, numbers = np.concatenate([known.labels, new.labels]), np.concatenate([known.numbers, new.numbers])
    users = type(new.symbols).join([known.users, new.symbols]).take(order)
    return Audience(users, indptr, known.seen[pairs], labels[order], numbers[order])


def predictor_of(commit: Commit, counts: Counts) -> Predictor:
    """The predictor of a commit, its items read once a process."""
    key = (commit.storage.url, str(commit.record["digest"]))
    return read_once("predictor", key, lambda: Predictor(commit, counts))


def lazy_dataset(commit: Commit, counts: Counts) -> Any:
    """Every q array as a lazy xarray variable, labels as coordinates."""
    import dask
    import dask.array as da
    import xarray as xr

    read = dask.delayed(_read_block, pure=True)
    variables = {}
    for path, spec in commit.arrays.items():
        if path == "users/next":
            continue
        blocks = []
        for b in range(spec.grid[0]):
            index = (b,) + (0,) * (len(spec.shape) - 1)
            name = f"read-{path.replace('/', '-')}-{commit.record['digest'][:8]}-{b}"
            block = read(commit, path, index, dask_key_name=name)
            blocks.append(da.from_delayed(block, spec.extent(index), spec.dtype))
        side, array = path.split("/")
        variables[f"{side[:-1]}_{array}"] = (spec.dimension_names, da.concatenate(blocks))
    return xr.Dataset(
        variables,
        coords={side[:-1]: counts.labels(side) for side in SIDES},
        attrs={
            "sweep": commit.sweep,
            "elbo": commit.scalar("elbo"),
            "xi_star": commit.scalar("xi_star"),
            **commit.record["settings"],
            "biases": int(commit.settings.biases),  # netCDF knows no truth values
        },
    )


def _read_block(commit: Commit, path: str, index: tuple[int, ...]) -> np.ndarray:
    return commit.sealed.read_block(commit.arrays[path], *index)
