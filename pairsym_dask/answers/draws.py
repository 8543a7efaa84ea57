"""Answers from draws: every quantity is found for each draw, then averaged; intervals are quantiles over draws.

Traits of different draws are never averaged: they turn and change places from draw to draw, energies do not.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from ..errors import InputError
from ..run.process import read_once
from ..settings import SIDES
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from .predict import SCORES, Audience, Predictor, StoredUsers, label_table, predictor_of
from .query import Query, draw_number

KEPT = 256 * 2**20  # bytes of items' draws that a process keeps


def draws_of(commits: Sequence[Commit]) -> list[Commit]:
    """The commits of a chain that are draws; an error when there is none yet."""
    found = [commit for commit in commits if commit.record.get("draw")]
    if not found:
        last = commits[-1]
        raise InputError(
            f"{last.storage.url} has no draw yet: it is at sweep {last.sweep} of a chain whose first "
            f"{last.record.get('burn')} sweeps are burn-in; fit it with more sweeps"
        )
    return found


@dataclass(frozen=True)
class SymbolDraws:
    """Draws of some symbols of a side: traits (draws, symbols, K) and biases (draws, symbols)."""

    traits: np.ndarray
    bias: np.ndarray

    @staticmethod
    def read(commits: list[Commit], side: str, positions: np.ndarray) -> SymbolDraws:
        parts = [[read_rows(commit, f"{side}/{name}", positions) for commit in commits] for name in ("traits", "bias")]
        return SymbolDraws(*(np.stack(part) for part in parts))

    def take(self, rows: Any) -> SymbolDraws:
        return SymbolDraws(self.traits[:, rows], self.bias[:, rows])

    def __len__(self) -> int:
        return self.bias.shape[1]


@dataclass(frozen=True)
class ItemDraw:
    """One draw of all items, with psi."""

    traits: np.ndarray
    bias: np.ndarray
    psi: np.ndarray

    @staticmethod
    def read(commit: Commit) -> ItemDraw:
        traits, bias, selection = (
            commit.sealed.read_array(commit.arrays[f"items/{name}"]) for name in ("traits", "bias", "selection")
        )
        return ItemDraw(traits, bias, selection / selection.sum())


class DrawPredictor:
    """The draws of a chain; items are read draw by draw and kept if they fit, users when they are asked for."""

    def __init__(self, commits: list[Commit], counts: Counts) -> None:
        self.commits, self.counts = commits, counts
        self.commit = commits[-1]
        self.covariances: dict[str, np.ndarray] = {}  # of the sides by draw, as `draw_neighbours` finds them
        self._kept: dict[int, ItemDraw] = {}
        self._reading = threading.Lock()
        rows, settings = self.commit.record["rows"]["items"], self.commit.settings
        each = rows * ((settings.factors + 1) * np.dtype(settings.dtype).itemsize + 8)
        self._room = KEPT // max(each, 1)
        # E[psi_j]
        self.popularity = np.mean([self.items(d).psi for d in range(self.size)], axis=0)

    @property
    def size(self) -> int:
        """Draws."""
        return len(self.commits)

    def items(self, draw: int) -> ItemDraw:
        with self._reading:
            if draw in self._kept:
                return self._kept[draw]
            items = ItemDraw.read(self.commits[draw])
            if len(self._kept) < self._room:
                self._kept[draw] = items
            return items

    def users(self, positions: np.ndarray) -> SymbolDraws:
        return SymbolDraws.read(self.commits, "users", positions)

    def stored(self, positions: np.ndarray) -> StoredUsers:
        """Users of the store, to be read a part at a time."""
        return StoredUsers(self, positions)

    def blocks(self, n: int) -> list[slice]:
        """Slices of n users whose scores fit the room for one matrix; an empty one for no users."""
        step = max(1, SCORES // (8 * 4 * max(1, self.counts.shape[1])))
        return [slice(k, min(k + step, n)) for k in range(0, max(n, 1), step)]

    # Quantities

    def energy(self, users: SymbolDraws, draw: int) -> np.ndarray:
        """a_ij of one draw for all users x items."""
        items = self.items(draw)
        a = users.traits[draw] @ items.traits.T
        a += users.bias[draw][:, None]
        a += items.bias
        return np.asarray(a)

    def energy_of_pairs(self, users: SymbolDraws, columns: np.ndarray) -> np.ndarray:
        """a_ij (draws, pairs) of row k of `users` with item columns[k], float64."""
        out = np.empty((self.size, columns.size))
        for draw in range(self.size):
            items = self.items(draw)
            traits = items.traits[columns].astype(np.float64)
            out[draw] = np.einsum("ik,ik->i", users.traits[draw].astype(np.float64), traits)
            out[draw] += users.bias[draw] + items.bias[columns]
        return out

    def averages(self, users: SymbolDraws) -> tuple[np.ndarray, np.ndarray]:
        """sigma and p(j | i) for all users x items, each averaged over draws, float64."""
        sigma, p = np.zeros((2, len(users), self.counts.shape[1]))
        for draw in range(self.size):
            shown = expit(self.energy(users, draw)).astype(np.float64)
            sigma += shown
            shown *= self.items(draw).psi
            p += shown / shown.sum(1, keepdims=True)
        sigma /= self.size
        p /= self.size
        return sigma, p

    def upper(self, users: SymbolDraws, interval: float) -> np.ndarray:
        """Upper ends of the credible intervals of sigma for all users x items."""
        out = np.empty((len(users), self.counts.shape[1]))
        step = max(1, SCORES // (8 * self.size * max(1, self.counts.shape[1])))
        for first in range(0, len(users), step):
            some = users.take(slice(first, first + step))
            shown = np.stack([self.energy(some, draw) for draw in range(self.size)])
            out[first : first + step] = expit(np.quantile(shown, (1 + interval) / 2, axis=0))
        return out

    # Answers

    def conditional(self, users: SymbolDraws) -> np.ndarray:
        """p(j | i) for a few users, rows that sum to one, float64."""
        return self.averages(users)[1]

    def scores(self, users: SymbolDraws, popularity: float) -> np.ndarray:
        """sigma * E[psi]^popularity for some users and all items: what recommendations are ranked by."""
        return np.asarray(self.averages(users)[0] * self.popularity**popularity)

    def probability(self, users: SymbolDraws, columns: np.ndarray, interval: float) -> dict[str, np.ndarray]:
        """p(shown | i, j) of pairs with its interval, see `beliefs_over`."""
        return beliefs_over(self.energy_of_pairs(users, columns), interval)

    def contrast(
        self, users: SymbolDraws, columns: np.ndarray, others: np.ndarray, interval: float
    ) -> dict[str, np.ndarray]:
        """Differences of energies of row k with items columns[k] and others[k]."""
        differences = self.energy_of_pairs(users, columns) - self.energy_of_pairs(users, others)
        low, high = np.quantile(differences, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
        return {
            "difference": differences.mean(0),
            "sd": differences.std(0),
            "low": low,
            "high": high,
            "rather": (differences > 0).mean(0),
        }

    def table(self, audience: Audience, query: Query) -> tuple[pd.DataFrame, np.ndarray]:
        """The best items of every row of an audience, best first: user, item, rank (row, position); and p(j | i)."""
        users, items = audience.users, self.counts.shape[1]
        sigma, p = self.averages(users)
        if query.strategy == "thompson":
            sigma = expit(self.energy(users, draw_number(query.random_state, self.size))).astype(np.float64)
        elif query.strategy == "ucb":
            sigma = self.upper(users, query.interval)
        scores = sigma * self.popularity**query.popularity
        scores[:, ~query.allowed(items)[:-1]] = -1.0
        if query.exclude_seen:
            scores[np.repeat(np.arange(len(users)), np.diff(audience.indptr)), audience.seen] = -1.0
        best = np.argsort(-scores, axis=1, kind="stable")[:, : query.n]
        user, rank = np.nonzero(np.take_along_axis(scores, best, 1) >= 0)
        return pd.DataFrame({"user": user, "item": best[user, rank], "rank": rank + 1}), p

    def lists(self, audience: Audience, query: Query) -> pd.DataFrame:
        """The best items of every row of an audience, by label: user, item, rank, sigma, sd."""
        parts = []
        for rows in self.blocks(len(audience)):
            some = audience.part(rows)
            table, _ = self.table(some, query)
            belief = self.probability(
                some.users.take(table["user"].to_numpy()), table["item"].to_numpy(), query.interval
            )
            table = table.assign(sigma=belief["sigma"], sd=belief["sd"])
            parts.append(label_table(self.counts, table, some))
        return pd.concat(parts, ignore_index=True)

    def recommend(self, audience: Audience | StoredUsers, query: Query) -> pd.DataFrame:
        """Ranked items with their probabilities and intervals, by label; users in the given order."""
        parts = []
        for rows in self.blocks(len(audience)):
            some = audience.part(rows, query.exclude_seen)
            table, p = self.table(some, query)
            belief = self.probability(
                some.users.take(table["user"].to_numpy()), table["item"].to_numpy(), query.interval
            )
            table["probability"] = p[table["user"], table["item"]]
            parts.append(label_table(self.counts, table.assign(**belief), some))
        return pd.concat(parts, ignore_index=True)


def beliefs_over(energies: np.ndarray, interval: float) -> dict[str, np.ndarray]:
    """sigma averaged over draws, the energy's sd, and quantiles of p(shown), of energies (draws, pairs)."""
    low, high = np.quantile(energies, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    return {"sigma": expit(energies).mean(0), "sd": energies.std(0), "low": expit(low), "high": expit(high)}


def open_predictor(commits: Sequence[Commit], counts: Counts) -> Predictor | DrawPredictor:
    """What answers for a model: its last sweep, or the draws among its sweeps."""
    last = commits[-1]
    return DrawPredictor(draws_of(commits), counts) if is_chain(last) else Predictor(last, counts)


def is_chain(commit: Commit) -> bool:
    return commit.settings.inference == "gibbs"


def predictor_once(commits: Sequence[Commit], counts: Counts) -> Predictor | DrawPredictor:
    """The same, its items read once a process."""
    last = commits[-1]
    if not is_chain(last):
        return predictor_of(last, counts)
    key = (last.storage.url, str(last.record["digest"]), len(commits))
    return read_once("draws", key, lambda: DrawPredictor(draws_of(commits), counts))


def draws_dataset(commits: list[Commit], counts: Counts) -> Any:
    """Every draw as lazy xarray variables over chain and draw, labels as coordinates; pi and psi sum to one."""
    import dask
    import dask.array as da
    import xarray as xr

    read = dask.delayed(_read_block, pure=True)
    variables: dict[str, Any] = {}
    for path, spec in commits[0].arrays.items():
        side, array = path.split("/")
        draws = []
        for commit in commits:
            total = commit.scalar(f"selected_{side}") if array == "selection" else 1.0
            blocks = []
            for b in range(spec.grid[0]):
                index = (b,) + (0,) * (len(spec.shape) - 1)
                name = f"read-{path.replace('/', '-')}-{commit.record['digest'][:8]}-{b}"
                block = read(commit, path, index, total, dask_key_name=name)
                blocks.append(da.from_delayed(block, spec.extent(index), spec.dtype))
            draws.append(da.concatenate(blocks))
        variables[f"{side[:-1]}_{array}"] = (("chain", "draw", *spec.dimension_names), da.stack(draws)[None])
    likelihood = np.array([[commit.scalar("log_likelihood") for commit in commits]])
    variables["log_likelihood"] = (("chain", "draw"), likelihood)
    settings = commits[-1].settings
    return xr.Dataset(
        variables,
        coords={
            "chain": [settings.random_state],
            "draw": [commit.sweep for commit in commits],
            **{side[:-1]: counts.labels(side) for side in SIDES},
        },
        attrs={  # netCDF knows no truth values
            name: int(value) if isinstance(value, bool) else value for name, value in settings.to_dict().items()
        },
    )


def _read_block(commit: Commit, path: str, index: tuple[int, ...], total: float) -> np.ndarray:
    block = commit.sealed.read_block(commit.arrays[path], *index)
    return block if total == 1.0 else np.asarray(block / total)
