"""What a fitted model believes about pairs, by label: p(shown), p(j | i), differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..store.commit import Commit
from ..store.counts import Counts
from .draws import DrawPredictor, is_chain, open_predictor
from .fold_in import Folded
from .predict import Audience, Predictor, StoredUsers
from .query import check_exponent, check_interval


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

    @cached_property
    def _answering(self) -> Predictor | DrawPredictor:
        counts = self.counts  # or an error that there is none
        return open_predictor(self._commits, counts)

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
        columns = self.counts.positions("items", items)
        return pd.DataFrame({"user": labels, "item": items, **self._answering.probability(rows, columns, interval)})

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
        columns, against = (self.counts.positions("items", given) for given in (items, others))
        answer = self._answering.contrast(rows, columns, against, interval)
        return pd.DataFrame({"user": labels, "item": items, "other": others, **answer})

    def _audience(self, users: Any) -> Audience | StoredUsers:
        """Users to answer for: labels of the store, or folded-in users."""
        if not isinstance(users, Folded):
            return self._answering.stored(self.counts.positions("users", as_list(users)))
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


def as_list(labels: Any) -> list[Any]:
    if isinstance(labels, (str, bytes)) or np.isscalar(labels):
        return [labels]
    if isinstance(labels, (pd.Series, pd.Index, np.ndarray)):
        return list(labels.tolist())
    return list(labels)
