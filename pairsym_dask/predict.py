"""Answers from a committed sweep: p(shown | i, j), p(j | i) and ranked lists, a block of users at a time.

sigma(x_ij) with x_ij = mu_ij / sqrt(1 + pi var_ij / 8) is MacKay's average of the logistic function over the
energy's posterior; p(j | i) is sigma(x_ij) E[psi_j], normalised over all items (eq. prediction).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .counts import Counts
from .posterior import Commit, read_rows
from .ranking import Ordered, best_items
from .spec import SIDES, InputError
from .tasks import VALUES

_NOTHING = np.empty(0, np.uint32)
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
    x = mean / np.sqrt(1 + np.pi / 8 * variance)
    return np.asarray(1 / (1 + np.exp(-x)))


class Predictor:
    """A committed sweep with its items in memory; users are read when they are asked for."""

    def __init__(self, commit: Commit, counts: Counts) -> None:
        self.commit, self.counts = commit, counts
        self.items = Symbols.read(commit, "items")
        selection = commit.sealed.read_array(commit.arrays["items/selection"])
        self.popularity = selection / selection.sum()  # E[psi_j]
        self._ordered: tuple[float, Ordered] | None = None
        self._making = threading.Lock()

    def users(self, positions: np.ndarray) -> Symbols:
        return Symbols.read(self.commit, "users", positions)

    def blocks(self, n: int) -> list[slice]:
        """Slices of n users whose scores fit the room for one matrix."""
        step = max(1, SCORES // (8 * max(1, len(self.items))))
        return [slice(k, min(k + step, n)) for k in range(0, n, step)]

    def conditional(self, users: Symbols) -> np.ndarray:
        """p(j | i) for a few users, rows that sum to one, float64."""
        p = sigma_of(*energy(users, self.items)).astype(np.float64) * self.popularity
        return np.asarray(p / p.sum(1, keepdims=True))

    def scores(self, users: Symbols, popularity: float) -> np.ndarray:
        """sigma * E[psi]^popularity for some users and all items: what recommendations are ranked by."""
        scores = sigma_of(*energy(users, self.items))
        if popularity:
            scores *= (self.popularity**popularity).astype(scores.dtype)
        return np.asarray(scores)

    def seen(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sorted items of the users' observed pairs as (indptr, items)."""
        cut = self.counts.cuts["users"]
        block = positions // cut.block
        lengths, parts = np.zeros(positions.size, np.int64), []
        for b in np.unique(block):
            tile, here = self.counts.rows("users", int(b)), np.flatnonzero(block == b)
            start = tile.indptr[positions[here] - b * cut.block]
            lengths[here] = tile.indptr[positions[here] - b * cut.block + 1] - start
            parts.append((here, start, tile.indices))
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        items = np.empty(indptr[-1], np.uint32)
        for here, start, indices in parts:
            # Row by row, so that rows of several blocks may come in any order.
            within = np.arange(lengths[here].sum()) - np.repeat(np.cumsum(lengths[here]) - lengths[here], lengths[here])
            items[np.repeat(indptr[here], lengths[here]) + within] = indices[np.repeat(start, lengths[here]) + within]
        return indptr, items

    def ordered(self, popularity: float) -> Ordered:
        """The items as `best_items` wants them, kept for the last exponent asked for."""
        with self._making:
            if self._ordered is None or self._ordered[0] != popularity:
                self._ordered = popularity, Ordered.make(self.items, self.popularity, popularity)
            return self._ordered[1]

    def best(
        self, users: Symbols, n: int, popularity: float, indptr: np.ndarray, seen: np.ndarray, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n best items of each user, best first: (user index, item), users with few left have fewer."""
        best = best_items(users, self.ordered(popularity), min(n, len(self.items)), indptr, seen, allowed)
        user, rank = np.nonzero(best >= 0)
        return user, best[user, rank]

    def table(
        self, positions: np.ndarray, n: int, exclude_seen: bool, candidates: np.ndarray | None, popularity: float
    ) -> tuple[Symbols, pd.DataFrame]:
        """Users in the given order with their best items: index, item, rank, sigma, sd (positions, not labels)."""
        users = self.users(positions)
        allowed = np.zeros(len(self.items) + 1, bool)
        allowed[np.arange(len(self.items)) if candidates is None else candidates] = True
        indptr, seen = self.seen(positions) if exclude_seen else (np.zeros(positions.size + 1, np.int64), _NOTHING)
        user, item = self.best(users, n, popularity, indptr, seen, allowed)
        mean, variance = energy_of_pairs(users.take(user), self.items.take(item))
        starts = np.searchsorted(user, user)  # where each user's list begins
        return users, pd.DataFrame(
            {
                "user": user,
                "item": item,
                "rank": np.arange(user.size) - starts + 1,
                "sigma": sigma_of(mean, variance).astype(np.float64),
                "sd": np.sqrt(variance.astype(np.float64)),
            }
        )

    def recommend(
        self, positions: np.ndarray, n: int, exclude_seen: bool, candidates: np.ndarray | None, popularity: float
    ) -> pd.DataFrame:
        """Ranked items with their probabilities; users in the given order."""
        parts = []
        for part in self.blocks(positions.size):
            users, table = self.table(positions[part], n, exclude_seen, candidates, popularity)
            normaliser = sigma_of(*energy(users, self.items)).astype(np.float64) @ self.popularity
            share = self.popularity[table["item"]] / normaliser[table["user"]]
            table.insert(3, "probability", table["sigma"] * share)
            parts.append(self.labelled(table, positions[part]))
        return pd.concat(parts, ignore_index=True)

    def labelled(self, table: pd.DataFrame, positions: np.ndarray) -> pd.DataFrame:
        """Positions replaced by the store's labels."""
        table["user"] = self.counts.user_ids[positions[table["user"]]]
        table["item"] = self.counts.item_ids[table["item"]]
        return table


_lock = threading.Lock()
_predictors: dict[tuple[str, str], Predictor] = {}


def predictor_of(commit: Commit, counts: Counts) -> Predictor:
    """The predictor of a commit, its items read once a process."""
    key = (commit.storage.url, str(commit.record["digest"]))
    with _lock:
        if key not in _predictors:
            _predictors.clear()
            _predictors[key] = Predictor(commit, counts)
        return _predictors[key]


def check_popularity(popularity: float) -> float:
    if isinstance(popularity, bool) or not isinstance(popularity, (int, float)) or not 0 <= popularity <= 1:
        raise InputError(
            f"popularity must be a number from 0 (taste alone) to 1 (the paper's ranking), not {popularity!r}"
        )
    return float(popularity)


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
