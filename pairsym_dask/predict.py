"""Answers from a committed sweep: p(shown | i, j), p(j | i) and ranked lists, a block of users at a time.

sigma(x_ij) with x_ij = mu_ij / sqrt(1 + pi var_ij / 8) is MacKay's average of the logistic function over the
energy's posterior; p(j | i) is sigma(x_ij) E[psi_j], normalised over all items (eq. prediction).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .counts import Counts
from .posterior import Commit, read_rows
from .spec import SIDES, InputError
from .tasks import VALUES

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
            mean, precision, bias, bias_precision = (
                read_rows(commit, f"{side}/{name}", positions) for name in VALUES
            )
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
        """Pairs (index into `positions`, item) of the users' observed pairs."""
        cut = self.counts.cuts["users"]
        rows, columns = [], []
        block = positions // cut.block
        for b in np.unique(block):
            tile = self.counts.rows("users", int(b))
            for k in np.flatnonzero(block == b):
                row = positions[k] - b * cut.block
                items = tile.indices[tile.indptr[row] : tile.indptr[row + 1]]
                rows.append(np.full(items.size, k))
                columns.append(items)
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(rows), np.concatenate(columns).astype(np.int64)

    def top(
        self,
        users: Symbols,
        n: int,
        popularity: float,
        seen: tuple[np.ndarray, np.ndarray] | None,
        candidates: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n best items of each user, best first, equal scores by position: (user index, item)."""
        scores = self.scores(users, popularity)
        if seen is not None:
            scores[seen] = -1.0
        if candidates is not None:
            allowed = np.zeros(len(self.items), bool)
            allowed[candidates] = True
            scores[:, ~allowed] = -1.0
        n = min(n, scores.shape[1])
        if n < scores.shape[1]:
            best = np.argpartition(scores, -n, axis=1)[:, -n:]
            # Of scores equal to the last one taken, those of the smallest positions count.
            edge = np.take_along_axis(scores, best, 1).min(1)
            for row in np.flatnonzero((scores == edge[:, None]).sum(1) > (np.take_along_axis(scores, best, 1) == edge[:, None]).sum(1)):
                best[row] = np.argsort(-scores[row], kind="stable")[:n]
            best.sort(1)
        else:
            best = np.tile(np.arange(n), (scores.shape[0], 1))
        value = np.take_along_axis(scores, best, 1)
        order = np.argsort(-value, axis=1, kind="stable")
        best, value = np.take_along_axis(best, order, 1), np.take_along_axis(value, order, 1)
        user, rank = np.nonzero(value >= 0)
        return user, best[user, rank]

    def recommend(
        self, positions: np.ndarray, n: int, exclude_seen: bool, candidates: np.ndarray | None, popularity: float
    ) -> pd.DataFrame:
        """Ranked items with their probabilities; users in the given order."""
        parts = []
        for part in self.blocks(positions.size):
            users = self.users(positions[part])
            seen = self.seen(positions[part]) if exclude_seen else None
            user, item = self.top(users, n, popularity, seen, candidates)
            mean, variance = energy_of_pairs(users.take(user), self.items.take(item))
            sigma = sigma_of(mean, variance).astype(np.float64)
            normaliser = (sigma_of(*energy(users, self.items)).astype(np.float64) @ self.popularity)[user]
            starts = np.r_[0, np.flatnonzero(np.diff(user)) + 1]
            rank = np.arange(user.size) - np.repeat(starts, np.diff(np.r_[starts, user.size])) if user.size else user
            parts.append(
                pd.DataFrame(
                    {
                        "user": self.counts.user_ids[positions[part][user]],
                        "item": self.counts.item_ids[item],
                        "rank": rank + 1,
                        "probability": sigma * self.popularity[item] / normaliser,
                        "sigma": sigma,
                        "sd": np.sqrt(variance.astype(np.float64)),
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)


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
            **{name: value if not isinstance(value, bool) else int(value) for name, value in commit.record["settings"].items()},
        },
    )


def _read_block(commit: Commit, path: str, index: tuple[int, ...]) -> np.ndarray:
    return commit.sealed.read_block(commit.arrays[path], *index)
