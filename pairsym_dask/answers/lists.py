"""Ranked lists, explanations and users from outside, by label."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..errors import InputError
from ..pairs.parts import Columns
from . import draw_explain, draw_fold_in
from .batch import recommend_all
from .draws import DrawPredictor
from .explain import Explanation, explain, explain_newcomer
from .fold_in import Folded, Links, fold_in
from .predict import Newcomers
from .predictions import Predictions, as_list
from .query import Query, check_n
from .titles import items_where, with_titles


class Lists(Predictions):
    """Lists of a committed sweep: users and items are given and come back by their own labels."""

    def recommend(
        self,
        users: Any,
        n: int = 10,
        exclude_seen: bool = True,
        items: Any = None,
        popularity: float | None = None,
        *,
        exclude: Any = None,
        strategy: str = "mean",
        random_state: int = 0,
        interval: float = 0.9,
        titles: Any = None,
        where: Any = None,
    ) -> pd.DataFrame:
        """The n best items for each user, ranked by p(shown) * E[psi]^popularity.

        A fit with a temperature below 1 ranks by the odds of being shown in the place of p(shown), which is next to 1
        for a whole list there.

        Parameters
        ----------
        users : label, list of labels or folded-in users
            Whom to recommend for.
        n : int
            Items a user; fewer only when fewer are left.
        exclude_seen : bool
            Leave out what the user has in the counts store.
        items : list of labels, optional
            Candidates; all by default.
        popularity : float, optional
            Exponent of popularity: 0 is taste alone, 1 the paper's ranking; 0.35 of a variational fit and 1 of draws
            where
            it is not given.
        exclude : list of labels, optional
            Items to leave out.
        strategy : {"mean", "ucb", "thompson"}
            Rank by `sigma`, by `high`, or by a draw from the posterior, all items of a user at once.
        random_state : int
            Seed of "thompson". A draw depends on it and the user alone (of a chain it is one of its draws, the same for
            all users): give another one for another list.
        interval : float
            p(shown) is within `low` and `high` with this probability.
        titles : dict, Series or DataFrame, optional
            Your own table of items, by label (a frame's column `item`, or its index); its columns are joined.
        where : dict, optional
            Candidates by column of `titles`: a value or a list of values each, such as ``{"genre": ["jazz", "soul"]}``.
            Items that the model does not know are no matter.

        Returns
        -------
        pandas.DataFrame
            user, item, rank, `probability` (p(j | i) over all items), `sigma` (p(shown), averaged over the posterior),
            `sd` of the energy, `low`, `high`; titles after item.

        Examples
        --------
        >>> model = ps.load("model.zarr")
        >>> top = model.recommend("ann", n=1, titles={"poker": "Poker, the game of lies"})
        >>> top[["user", "item", "title", "rank"]].values.tolist()
        [['ann', 'poker', 'Poker, the game of lies', 1]]
        """
        candidates, more = self._candidates(items, titles, where)
        query = Query(
            n, exclude_seen, candidates, self._positions(exclude), self._exponent(popularity), strategy, random_state,
            interval,
        )  # fmt: skip
        answer = self._wider(more).recommend(self._audience(users), query)
        return answer if titles is None else with_titles(answer, titles)

    def _candidates(self, items: Any, titles: Any, where: Any) -> tuple[np.ndarray | None, Newcomers | None]:
        """Positions of the candidates: items by label, items of a category, or both; None for all of the store.

        And those of them that have tags only.
        """
        chosen, more = (None, None) if items is None else self._places("items", as_list(items))
        if where is None:
            return chosen, more
        found = items_where(self.counts, titles, where)
        return found if chosen is None else np.intersect1d(chosen, found), more

    def recommend_all(
        self,
        path: str | os.PathLike[str],
        n: int = 10,
        exclude_seen: bool = True,
        popularity: float | None = None,
        *,
        items: Any = None,
        exclude: Any = None,
        strategy: str = "mean",
        random_state: int = 0,
        interval: float = 0.9,
        titles: Any = None,
        where: Any = None,
        client: Any = None,
        threads: int | None = None,
        progress: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> int:
        """The n best items of every user, block by block and in parallel, to disk.

        Parameters
        ----------
        path : path
            A folder of Parquet files, or one file when it ends in .csv.
        n : int
            Items a user; fewer only when fewer are left.
        exclude_seen : bool
            Leave out what the user has in the counts store.
        items : list of labels, optional
            Candidates; all by default.
        popularity : float, optional
            Exponent of popularity: 0 is taste alone, 1 the paper's ranking; 0.35 of a variational fit and 1 of draws
            where
            it is not given.
        exclude : list of labels, optional
            Items to leave out.
        strategy : {"mean", "ucb", "thompson"}
            Rank by `sigma`, by `high`, or by a draw from the posterior, all items of a user at once.
        random_state : int
            Seed of "thompson". A draw depends on it and the user alone (of a chain it is one of its draws, the same for
            all users): give another one for another list.
        interval : float
            p(shown) is within `low` and `high` with this probability.
        titles : dict, Series or DataFrame, optional
            Your own table of items, by label (a frame's column `item`, or its index): its columns are joined.
        where : dict, optional
            Candidates by column of `titles`: a value or a list of values each, such as ``{"genre": ["jazz", "soul"]}``.
            Items that the model does not know are no matter.
        client : distributed.Client, optional
            Where tasks run; the current client, or else threads of this process.
        threads : int, optional
            Tasks under way at a time; all cores by default.
        progress : bool
            Show a bar on a terminal.
        storage_options : dict, optional
            Options of fsspec for remote stores.

        Returns
        -------
        int
            Rows written: user, item, rank, sigma, sd, and columns of `titles`. p(j | i), which needs all items of every
            user, is left out.

        Examples
        --------
        >>> ps.load("model.zarr").recommend_all("top.csv", n=1)
        3
        """
        candidates, more = self._candidates(items, titles, where)
        query = Query(
            n, exclude_seen, candidates, self._positions(exclude), self._exponent(popularity), strategy, random_state,
            interval,
        )  # fmt: skip
        blocks, users = self.counts.cuts["users"].blocks, self._new_users()
        with tqdm(total=blocks, desc="recommend", unit="block", disable=None if progress else True) as bar:
            return recommend_all(
                self._answering.commits, self.counts, path, query, client=client, threads=threads,
                on_done=lambda finished: bar.update(), storage_options=storage_options, items=more, users=users,
                titles=titles,
            )  # fmt: skip

    def _new_users(self) -> Newcomers | None:
        """All users that have tags only."""
        tags = self._tags.get("users") if self._fitted.tags else None
        return None if tags is None or not tags.new.size else self._newcomers("users", tags.new)

    def fold_in(
        self,
        frame: Any = None,
        user: Any = "user",
        item: Any = "item",
        count: Any = None,
        *,
        tags: Any = None,
        tag: Any = "tag",
        weight: Any = None,
        client: Any = None,
        threads: int | None = None,
    ) -> Folded:
        """Posterior of users never seen, from their pairs, the items held fixed.

        Parameters
        ----------
        frame : list of items, or pairs
            A list of items is one user; a frame of pandas, arrow or polars, a dict of columns or a list of tuples holds
            the
            pairs of many. Repeated pairs are added up; items that the store does not know are left out with a warning.
        user, item, count : column names
            Without `count` each row is one pair.
        tags : list of tags, or links, optional
            Of a model with user tags: a list of tags is of the one user, a frame holds the links of many, who need not
            have pairs. Users whose tags are in the model's tag store need not be named here.
        tag, weight : column names
            Of the links; without `weight` each row weighs 1.
        client : distributed.Client, optional
            Where tasks run; the current client, or else threads of this process.
        threads : int, optional
            Tasks under way at a time; all cores by default.

        Returns
        -------
        Folded
            What `recommend`, `probability`, `conditional` and `scores` take in place of user labels. A label that the
            store
            knows is no matter: that user, too, is folded in from the given pairs alone.

        Examples
        --------
        >>> model = ps.load("model.zarr")
        >>> newcomer = model.fold_in(["go", "chess"])
        >>> model.recommend(newcomer, n=1)["item"].tolist()
        ['poker']
        """
        predictor, columns = self._answering, Columns(user, item, count)
        if tags is not None and "users" not in self._fitted.tags:
            raise InputError("this model was fitted without user tags; fit(..., user_tags=...) takes them")
        known = self._tags.get("users") if self._fitted.tags else None
        links = None if tags is None else Links(tags, Columns(user, tag, weight, holds="tags"))
        if isinstance(predictor, DrawPredictor):
            return draw_fold_in.fold_in(predictor, frame, columns, known, links, client=client, threads=threads)
        return fold_in(predictor.commit, self.counts, frame, columns, known, links, client=client, threads=threads)

    def explain(self, user: Any, item: Any, n: int = 10) -> Explanation:
        """Why an item suits a user or does not.

        Parameters
        ----------
        user, item : label
            The pair to explain.
        n : int
            Seen items to name, those that pull most.

        Returns
        -------
        Explanation
            Its `frame` has a row a part: biases, seen items, the rest, censored pairs; they add up to its `energy`.

        Examples
        --------
        >>> why = ps.load("model.zarr").explain("ann", "poker")
        >>> bool(abs(why.frame["energy"].sum() - why.energy) < 1e-5)
        True
        """
        ((row,), new), ((column,), more) = self._places("users", [user]), self._places("items", [item])
        tags = self._tags if self._fitted.tags else {}
        if isinstance(self._answering, DrawPredictor):
            if new is not None:
                return draw_explain.explain_newcomer(self._answering, new, int(column), tags, more)
            return draw_explain.explain(self._answering, int(row), int(column), check_n(n), tags, more)
        predictor = self._answering.wider(more)
        if new is not None:
            return explain_newcomer(predictor, new, int(column), tags)
        return explain(predictor, int(row), int(column), check_n(n), tags)
