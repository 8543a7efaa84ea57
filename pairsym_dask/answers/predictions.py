"""What a fitted model believes about pairs, by label: p(shown), p(j | i), differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError, StoreError
from ..store.commit import Commit
from ..store.counts import Counts
from ..store.labels import all_whole
from ..store.tags import Tags, open_tags
from .draw_tags import draw_newcomers
from .draws import DrawPredictor, is_chain, open_predictor
from .fold_in import Folded
from .predict import Audience, Newcomers, Predictor, StoredUsers, joined
from .query import check_exponent, check_interval
from .tags import SideTags


class Predictions(ABC):
    """Beliefs of a committed sweep: users and items are given and come back by their own labels."""

    @property
    @abstractmethod
    def _fitted(self) -> Commit:
        """The sweep that answers."""

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """The counts store that the model was fitted to."""

    _commits: tuple[Commit, ...] = ()  # all sweeps up to the one that answers
    _given_tags: Mapping[str, Tags] = MappingProxyType({})  # tag stores that are elsewhere than the model remembers

    @cached_property
    def _answering(self) -> Predictor | DrawPredictor:
        counts = self.counts  # or an error that there is none
        return open_predictor(self._commits, counts)

    @cached_property
    def _tags(self) -> dict[str, SideTags]:
        """The tags of the sides that the model was fitted with tags of."""
        stores = self._tag_stores()
        return {side: SideTags.open(self._fitted, self.counts, side, tags) for side, tags in stores.items()}

    def _tag_stores(self) -> dict[str, Tags]:
        """The tag stores that the model was fitted with, by side."""
        commit, found = self._fitted, dict[str, Tags]()
        for side in commit.tags:
            try:
                found[side] = self._given_tags.get(side) or open_tags(commit.tags_address(side))
            except StoreError as error:
                raise StoreError(
                    f"the store of {side[:-1]} tags of {commit.storage.url} is needed but cannot be opened ({error}); "
                    f"give its place with load(..., {side[:-1]}_tags=...)"
                ) from None
            commit.check_tags(side, found[side].digest, found[side].path)
        return found

    def _newcomers(self, side: str, labels: np.ndarray) -> Newcomers:
        """Symbols that have tags and no place in the counts store, by label."""
        tags = self._tags[side]
        rows = tags.find(labels)
        first, answering = self.counts.cuts[side].rows, self._answering
        if isinstance(answering, DrawPredictor):
            drawn = draw_newcomers(answering.commits, side, tags.prior.scaled(rows), rows)
            return Newcomers(labels, drawn, np.empty(0), first + rows)
        selection = np.full(labels.size, tags.selection)
        return Newcomers(labels, tags.newcomers(rows), selection, first + rows)

    def _places(self, side: str, labels: list[Any]) -> tuple[np.ndarray, Newcomers | None]:
        """Positions of symbols; those that only tags know come after the store's, in the order of their labels."""
        counts = self.counts
        if side not in self._fitted.tags:
            return counts.positions(side, labels), None
        wanted = as_labels(labels)
        try:
            found = counts.find(side, wanted)
        except (TypeError, UnicodeEncodeError):
            found = counts.positions(side, labels)  # an error in words
        if (found >= 0).all():
            return found, None
        new, place = np.unique(wanted[found < 0], return_inverse=True)
        found[found < 0] = counts.cuts[side].rows + place
        return found, self._newcomers(side, new)

    @property
    def _predictor(self) -> Predictor:
        """The posterior as a variational fit has it, for answers that draws do not give."""
        predictor = self._answering
        if isinstance(predictor, DrawPredictor):
            raise InputError(
                "this answer needs a variational fit: the model holds draws, whose traits turn from draw to draw, so "
                "a mean of them says nothing; to_xarray has every draw"
            )
        return predictor

    def conditional(self, user: Any) -> pd.Series:
        """p(j | i) over all items: how likely a user's next pair is with each of them.

        Parameters
        ----------
        user : label or folded-in user
            One user, by label or as `fold_in` made it.

        Returns
        -------
        pandas.Series
            Probabilities by item label; they sum to one.

        Examples
        --------
        >>> p = ps.load("model.zarr").conditional("ann")
        >>> round(float(p.sum()), 6), p.index.name
        (1.0, 'item')
        """
        labels, users = self._symbols(user if isinstance(user, Folded) else [user])
        if len(labels) != 1:
            raise InputError(f"conditional answers for one user at a time, not for {len(labels)}")
        p = self._answering.conditional(users)[0]
        return pd.Series(p, index=pd.Index(self.counts.item_ids, name="item"), name="probability")

    def probability(self, users: Any, items: Any, *, interval: float = 0.9) -> pd.DataFrame:
        """p(shown | i, j) of pairs, with what is not known of it.

        Parameters
        ----------
        users, items : label or list of labels
            A pair a place; one label on a side goes with all of the other side. Users may be folded-in ones.
        interval : float
            Share of the posterior between `low` and `high`.

        Returns
        -------
        pandas.DataFrame
            user, item, `sigma` (the probability averaged over the posterior of the energy, by MacKay's approximation),
            `sd` (standard deviation of the energy), `low` and `high`: of draws the ends of a credible interval of
            the probability, of a variational fit those of an interval of the approximation, which is far narrower than
            what is known (docs/uncertainty.md says by how much).

        Examples
        --------
        >>> ps.load("model.zarr").probability("ann", ["go", "poker"])[["user", "item"]].values.tolist()
        [['ann', 'go'], ['ann', 'poker']]
        """
        check_interval(interval)
        (labels, rows), items = self._symbols(users), as_list(items)
        if len(labels) == 1:
            labels, rows = labels * len(items), rows.take(np.zeros(len(items), np.int64))
        if len(items) == 1:
            items = items * len(labels)
        if len(labels) != len(items):
            raise InputError(f"{len(labels)} users and {len(items)} items do not make pairs")
        columns, more = self._places("items", items)
        answer = self._wider(more).probability(rows, columns, interval)
        return pd.DataFrame({"user": labels, "item": items, **answer})

    def _wider(self, more: Newcomers | None) -> Predictor | DrawPredictor:
        """What answers, with some items more."""
        return self._answering.wider(more)

    def contrast(self, user: Any, item: Any, other: Any, *, interval: float = 0.9) -> pd.DataFrame:
        """How much rather one item than another for a user.

        What the data can tell is the difference of two energies, the log odds of being shown; the level of energies
        hangs
        on how many pairs are taken to be censored.

        Parameters
        ----------
        user, item, other : label or list of labels
            One label goes with all others, as in `probability`.
        interval : float
            Probability that the difference is between `low` and `high`.

        Returns
        -------
        pandas.DataFrame
            user, item, other, `difference` of the energies, `sd`, `low`, `high`, and `rather`: the probability that the
            difference is above 0.

        Examples
        --------
        >>> found = ps.load("model.zarr").contrast("ann", "go", "poker")
        >>> bool(0 < found["rather"].iloc[0] < 1)
        True
        """
        check_interval(interval)
        (labels, rows), items, others = self._symbols(user), as_list(item), as_list(other)
        n = max(len(labels), len(items), len(others))
        if len(labels) == 1:
            labels, rows = labels * n, rows.take(np.zeros(n, np.int64))
        items, others = (given * n if len(given) == 1 else given for given in (items, others))
        if not len(labels) == len(items) == len(others):
            raise InputError(f"{len(labels)} users, {len(items)} items and {len(others)} others do not go together")
        both, more = self._places("items", [*items, *others])
        answer = self._wider(more).contrast(rows, both[: len(items)], both[len(items) :], interval)
        return pd.DataFrame({"user": labels, "item": items, "other": others, **answer})

    def _audience(self, users: Any) -> Audience | StoredUsers:
        """Users to answer for: labels of the store, or folded-in users."""
        if not isinstance(users, Folded):
            found, new = self._places("users", as_list(users))
            stored, rows = self._answering.stored(found[found < self.counts.shape[0]]), self.counts.shape[0]
            if new is None:
                return stored
            order = np.where(found < rows, np.cumsum(found < rows) - 1, found - rows + len(stored))
            return joined(stored.part(slice(None)), new, order)
        if users.model != self._fitted.record["digest"]:
            raise InputError("these users were folded in with another model or sweep; fold them in again")
        return users.audience

    def _symbols(self, users: Any) -> tuple[list[Any], Any]:
        """Labels and posterior of users of the store, or of folded-in ones."""
        audience = self._audience(users)
        if isinstance(audience, StoredUsers):
            audience = audience.part(slice(None), with_seen=False)
        return audience.labels.tolist(), audience.users

    def _exponent(self, popularity: float | None) -> float:
        return check_exponent(popularity, is_chain(self._fitted))

    def _positions(self, items: Any) -> np.ndarray | None:
        """Positions of item labels, or None for None."""
        return None if items is None else self.counts.positions("items", as_list(items))

    def scores(self, users: Any, popularity: float | None = None) -> np.ndarray:
        """What `recommend` ranks by, sigma * E[psi]^popularity, for some users and all items.

        Of a fit with a temperature below 1 it is the log of the odds of being shown + popularity * log E[psi].

        Parameters
        ----------
        users : label, list of labels or folded-in users
            A row each.
        popularity : float, optional
            Exponent of popularity, as in `recommend`.

        Returns
        -------
        numpy.ndarray
            Users x items, items in the order of `counts.item_ids`.

        Examples
        --------
        >>> ps.load("model.zarr").scores(["ann", "bob"]).shape
        (2, 3)
        """
        return self._answering.scores(self._symbols(users)[1], self._exponent(popularity))


def as_labels(labels: list[Any]) -> np.ndarray:
    """Labels as an array that a store can look up."""
    return np.asarray(labels, np.int64 if all_whole(labels) else object)


def as_list(labels: Any) -> list[Any]:
    if isinstance(labels, (str, bytes)) or np.isscalar(labels):
        return [labels]
    if isinstance(labels, (pd.Series, pd.Index, np.ndarray)):
        return list(labels.tolist())
    return list(labels)
