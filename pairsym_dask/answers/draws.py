"""Answers from draws: every quantity is found for each draw, then averaged; intervals are quantiles over draws.

Traits of different draws are never averaged: they turn and change places from draw to draw, energies do not.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from ..errors import InputError
from ..run.process import read_once
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from .predict import SCORES, Audience, Newcomers, Predictor, StoredUsers, label_table, predictor_of
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
    """Draws of some users, or new items: traits (draws, users, K) and biases (draws, users).

    `parts` (draws, users, components) are which component of selection a user is selected by: shares that sum to one.
    """

    traits: np.ndarray
    bias: np.ndarray
    parts: np.ndarray

    @staticmethod
    def read(commits: list[Commit], positions: np.ndarray) -> SymbolDraws:
        traits, bias = (
            np.stack([read_rows(commit, f"users/{name}", positions) for commit in commits])
            for name in ("traits", "bias")
        )
        if commits[0].settings.components == 1:
            return SymbolDraws(traits, bias, np.ones((*bias.shape, 1)))
        selection = np.stack([read_rows(commit, "users/selection", positions) for commit in commits])
        return SymbolDraws(traits, bias, selection / selection.sum(2, keepdims=True))

    @staticmethod
    def join(some: list[SymbolDraws]) -> SymbolDraws:
        names = ("traits", "bias", "parts")
        return SymbolDraws(*(np.concatenate([getattr(one, name) for one in some], axis=1) for name in names))

    def take(self, rows: Any) -> SymbolDraws:
        return SymbolDraws(self.traits[:, rows], self.bias[:, rows], self.parts[:, rows])

    def __len__(self) -> int:
        return self.bias.shape[1]


@dataclass(frozen=True)
class ItemDraw:
    """One draw of all items, with psi (components, items) and how much is selected by each component."""

    traits: np.ndarray
    bias: np.ndarray
    psi: np.ndarray
    shares: np.ndarray

    @staticmethod
    def read(commit: Commit) -> ItemDraw:
        traits, bias, selection = (
            commit.sealed.read_array(commit.arrays[f"items/{name}"]) for name in ("traits", "bias", "selection")
        )
        psi = np.array([column / column.sum() for column in np.ascontiguousarray(selection.reshape(len(bias), -1).T)])
        chosen = commit.selected("users")
        return ItemDraw(traits, bias, psi, chosen / chosen.sum())

    def wider(self, more: SymbolDraws, draw: int) -> ItemDraw:
        """The same with new items, each as popular as the geometric mean of the others."""
        middle = np.exp(np.log(self.psi).mean(1, keepdims=True))
        psi = np.hstack([self.psi, np.repeat(middle, len(more), axis=1)]) / (1 + len(more) * middle)
        traits, bias = more.traits[draw], more.bias[draw]
        return ItemDraw(np.concatenate([self.traits, traits]), np.concatenate([self.bias, bias]), psi, self.shares)

    @property
    def popularity(self) -> np.ndarray:
        """How often items are selected, whoever the user is."""
        return self.psi[0] if len(self.psi) == 1 else np.asarray(self.shares @ self.psi)


class DrawPredictor:
    """The draws of a chain; items are read draw by draw and kept if they fit, users when they are asked for."""

    def __init__(self, commits: list[Commit], counts: Counts) -> None:
        self.commits, self.counts = commits, counts
        self.commit = commits[-1]
        self.covariances: dict[str, np.ndarray] = {}  # of the sides by draw, as `draw_neighbours` finds them
        self._kept: dict[int, ItemDraw] = {}
        self._reading = threading.Lock()
        rows, settings = self.commit.record["rows"]["items"], self.commit.settings
        each = rows * ((settings.factors + 1) * np.dtype(settings.dtype).itemsize + 8 * settings.components)
        self._room = KEPT // max(each, 1)
        self._narrow: tuple[DrawPredictor, SymbolDraws] | None = None  # of a wider one: without new items, and those
        self.more: Newcomers | None = None  # items of a wider one than the store
        self.popularity = self._mean_popularity()

    def _mean_popularity(self) -> np.ndarray:
        """E[psi_j]."""
        return np.asarray(np.mean([self.items(d).popularity for d in range(self.size)], axis=0))

    def wider(self, more: Newcomers | None) -> DrawPredictor:
        """The same with more items after the store's; psi is over all of them."""
        if more is None:
            return self
        wide = copy.copy(self)
        wide._narrow, wide._kept, wide.covariances = (self, more.symbols), {}, {}
        wide.more = more
        wide._reading = threading.Lock()
        wide.popularity = wide._mean_popularity()
        return wide

    @property
    def width(self) -> int:
        """Items."""
        return self.counts.shape[1] + (0 if self.more is None else self.more.labels.size)

    @property
    def size(self) -> int:
        """Draws."""
        return len(self.commits)

    def items(self, draw: int) -> ItemDraw:
        with self._reading:
            if draw in self._kept:
                return self._kept[draw]
            items = self._read(draw)
            if len(self._kept) < self._room:
                self._kept[draw] = items
            return items

    def _read(self, draw: int) -> ItemDraw:
        if self._narrow is None:
            return ItemDraw.read(self.commits[draw])
        narrow, more = self._narrow
        return narrow.items(draw).wider(more, draw)

    def users(self, positions: np.ndarray) -> SymbolDraws:
        return SymbolDraws.read(self.commits, positions)

    def stored(self, positions: np.ndarray) -> StoredUsers:
        """Users of the store, to be read a part at a time."""
        return StoredUsers(self, positions)

    def blocks(self, n: int) -> list[slice]:
        """Slices of n users whose scores fit the room for one matrix; an empty one for no users."""
        step = max(1, SCORES // (8 * 4 * max(1, self.width)))
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

    def offered(self, users: SymbolDraws, draw: int) -> np.ndarray:
        """How likely items are selected for users in one draw: psi_j for all of them, or (users, items)."""
        psi = self.items(draw).psi
        return psi[0] if len(psi) == 1 else np.asarray(users.parts[draw] @ psi)

    def averages(self, users: SymbolDraws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """sigma and p(j | i) for all users x items, and what is offered, each averaged over draws, float64."""
        sigma, p = np.zeros((2, len(users), self.width))
        several = self.commit.settings.components > 1
        offered = np.zeros_like(p) if several else self.popularity
        for draw in range(self.size):
            shown = expit(self.energy(users, draw)).astype(np.float64)
            sigma += shown
            psi = self.offered(users, draw)
            shown *= psi
            p += shown / shown.sum(1, keepdims=True)
            if several:
                offered += psi / self.size
        sigma /= self.size
        p /= self.size
        return sigma, p, offered

    def upper(self, users: SymbolDraws, interval: float) -> np.ndarray:
        """Upper ends of the credible intervals of sigma for all users x items."""
        out = np.empty((len(users), self.width))
        step = max(1, SCORES // (8 * self.size * max(1, self.width)))
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
        sigma, _, offered = self.averages(users)
        return np.asarray(sigma * offered**popularity)

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
        users, items = audience.users, self.width
        sigma, p, offered = self.averages(users)
        if query.strategy == "thompson":
            sigma = expit(self.energy(users, draw_number(query.random_state, self.size))).astype(np.float64)
        elif query.strategy == "ucb":
            sigma = self.upper(users, query.interval)
        scores = sigma * offered**query.popularity
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
            parts.append(label_table(self.counts, table, some, self.more))
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
            parts.append(label_table(self.counts, table.assign(**belief), some, self.more))
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
