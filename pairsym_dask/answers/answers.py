"""What is asked of a fitted model, by label: predictions, lists, explanations, neighbours, users from outside."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..errors import InputError
from ..pairs.parts import Columns
from ..store.commit import Commit
from ..store.counts import Counts
from .batch import recommend_all
from .draws import DrawPredictor, draws_dataset, draws_of, is_chain, open_predictor
from .explain import Explanation, explain
from .fold_in import Folded, fold_in
from .neighbours import export_factors, similar, users_for
from .predict import Audience, Predictor, StoredUsers, lazy_dataset
from .query import Query, check_exponent, check_interval, check_n


class Answers(ABC):
    """Answers of a committed sweep: users and items are given and come back by their own labels."""

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
                "this answer needs a variational fit: the model holds draws, which answer recommend, recommend_all, "
                "probability, conditional, contrast, scores, score, evaluate and to_xarray"
            )
        return predictor

    def conditional(self, user: Any) -> pd.Series:
        """p(j | i) over all items, indexed by item label; sums to one."""
        labels, users = self._symbols(user if isinstance(user, Folded) else [user])
        if len(labels) != 1:
            raise InputError(f"conditional answers for one user at a time, not for {len(labels)}")
        p = self._answering.conditional(users)[0]
        return pd.Series(p, index=pd.Index(self.counts.item_ids, name="item"), name="probability")

    def probability(self, users: Any, items: Any, *, interval: float = 0.9) -> pd.DataFrame:
        """p(shown | i, j) of pairs: user, item, sigma, sd, low, high. One label on a side goes with all others.

        `sigma` is the probability averaged over the posterior, `sd` the standard deviation of the energy, `low` and
        `high` the ends of the central credible interval of the probability that holds a share `interval` of the
        posterior. A variational one is too narrow about the truth: docs/uncertainty.md says by how much.
        """
        check_interval(interval)
        (labels, rows), items = self._symbols(users), _as_list(items)
        if len(labels) == 1:
            labels, rows = labels * len(items), rows.take(np.zeros(len(items), np.int64))
        if len(items) == 1:
            items = items * len(labels)
        if len(labels) != len(items):
            raise InputError(f"{len(labels)} users and {len(items)} items do not make pairs")
        columns = self.counts.positions("items", items)
        return pd.DataFrame({"user": labels, "item": items, **self._answering.probability(rows, columns, interval)})

    def contrast(self, user: Any, item: Any, other: Any, *, interval: float = 0.9) -> pd.DataFrame:
        """How much rather one item than another for a user: user, item, other, difference, sd, low, high, rather.

        `difference` is that of the two energies, the log odds of being shown: what the data can tell, while the level
        of energies hangs on how many pairs are taken to be censored. It is within `low` and `high` with probability
        `interval`; `rather` is the probability that it is above 0. One label goes with all others, as in `probability`.
        """
        check_interval(interval)
        (labels, rows), items, others = self._symbols(user), _as_list(item), _as_list(other)
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
            return self._answering.stored(self.counts.positions("users", _as_list(users)))
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
        return None if items is None else self.counts.positions("items", _as_list(items))

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
    ) -> pd.DataFrame:
        """The n best items for each user: user, item, rank, probability, sigma, sd, low, high.

        Ranked by p(shown) * E[psi]^popularity: 0 is taste alone, 1 the paper's ranking; 0.35 of a variational fit and
        1 of draws where it is not given. A fit with a temperature below 1 ranks by the odds of being shown in the place
        of p(shown), which is next to 1 for a whole list there. With strategy "mean" p(shown)
        is `sigma`, averaged over the posterior; with "ucb" it is `high`, the upper end of its credible interval; with
        "thompson" it is drawn from the posterior, all items of a user at once. The draw depends on `random_state`
        and the user alone (of a chain it is one of its draws, the same for all users): give another one for another
        list. `probability` is p(j | i) over all items, `sd` the
        posterior standard deviation of the energy, and p(shown) is within `low` and `high` with probability `interval`.
        `items` are the candidates (all by default), `exclude` are items to leave out. A user gets fewer than n only
        when fewer are left.
        """
        query = Query(
            n, exclude_seen, self._positions(items), self._positions(exclude), self._exponent(popularity), strategy,
            random_state, interval,
        )  # fmt: skip
        return self._answering.recommend(self._audience(users), query)

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
        client: Any = None,
        threads: int | None = None,
        progress: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> int:
        """The n best items of every user as a folder of Parquet files: user, item, rank, sigma, sd; its rows.

        A path that ends in .csv becomes one CSV file instead.
        The ranking is that of `recommend`; p(j | i), which needs all items of every user, is left out.
        """
        query = Query(
            n, exclude_seen, self._positions(items), self._positions(exclude), self._exponent(popularity), strategy,
            random_state, interval,
        )  # fmt: skip
        blocks = self.counts.cuts["users"].blocks
        with tqdm(total=blocks, desc="recommend", unit="block", disable=None if progress else True) as bar:
            return recommend_all(
                self._answering.commits, self.counts, path, query, client=client, threads=threads,
                on_done=lambda finished: bar.update(), storage_options=storage_options,
            )  # fmt: skip

    def scores(self, users: Any, popularity: float | None = None) -> np.ndarray:
        """What `recommend` ranks by, for some users and all items in store order: sigma * E[psi]^popularity.

        Of a fit with a temperature below 1 it is the log of the odds of being shown + popularity * log E[psi].
        """
        return self._answering.scores(self._symbols(users)[1], self._exponent(popularity))

    def fold_in(
        self,
        frame: Any,
        user: Any = "user",
        item: Any = "item",
        count: Any = None,
        *,
        client: Any = None,
        threads: int | None = None,
    ) -> Folded:
        """Posterior of users never seen, from their pairs, the items held fixed; `recommend` takes it for users.

        `frame` is a list of items, those of one user; or pairs of many: a frame of pandas, arrow or polars, a dict of
        columns or a list of tuples. `user`, `item` and `count` name its columns, without `count` each row is one pair,
        repeated pairs are added up. Pairs with items that the store does not know are left out with a warning.
        A label that the store knows is no matter: that user, too, is folded in from the given pairs alone.
        """
        commit = self._predictor.commit
        return fold_in(commit, self.counts, frame, Columns(user, item, count), client=client, threads=threads)

    def explain(self, user: Any, item: Any, n: int = 10) -> Explanation:
        """Why an item suits a user or does not: biases and the n seen items that pull most, adding up to the energy."""
        (row,), (column,) = self.counts.positions("users", [user]), self.counts.positions("items", [item])
        return explain(self._predictor, int(row), int(column), check_n(n))

    def similar_items(
        self, item: Any, n: int = 10, measure: str = "cosine", *, client: Any = None, threads: int | None = None
    ) -> pd.DataFrame:
        """The n items most like one: item, rank, similarity.

        `measure` is "cosine", of the posterior mean traits, or "model", the correlation over all users of the two
        items' energies, which counts biases and is smaller for items that little is known of. `client` and `threads`
        say where tasks run, as in `fit`.
        """
        (position,) = self.counts.positions("items", [item])
        return similar(self._predictor, "items", int(position), check_n(n), measure, client=client, threads=threads)

    def similar_users(
        self, user: Any, n: int = 10, measure: str = "cosine", *, client: Any = None, threads: int | None = None
    ) -> pd.DataFrame:
        """The n users most like one, read block by block: user, rank, similarity. Measures as in `similar_items`."""
        (position,) = self.counts.positions("users", [user])
        return similar(self._predictor, "users", int(position), check_n(n), measure, client=client, threads=threads)

    def recommend_users(
        self,
        item: Any,
        n: int = 10,
        exclude_seen: bool = True,
        popularity: float | None = None,
        *,
        interval: float = 0.9,
        client: Any = None,
        threads: int | None = None,
    ) -> pd.DataFrame:
        """The n users whom an item suits best, read block by block: user, rank, probability, sigma, sd, low, high.

        Ranked as in `recommend`, with E[pi]^popularity, where pi is how active a user is: 0 is taste alone.
        `probability` is p(i | j) over all users, the rest as in `recommend`. `exclude_seen` leaves out users who have
        the item.
        """
        (position,) = self.counts.positions("items", [item])
        return users_for(
            self._predictor, int(position), check_n(n), exclude_seen, self._exponent(popularity),
            check_interval(interval), client=client, threads=threads,
        )  # fmt: skip

    def export_factors(self, side: str, path: str | os.PathLike[str] | None = None) -> np.ndarray:
        """Posterior means of "users" as rows [u_i, b_i, 1] or of "items" as rows [v_j, 1, b_j], in store order.

        Inner products of the two are energies, so that programs for inner products can take them as they are. With a
        `path` they are written block by block to that .npy file and come back memory-mapped.
        """
        return export_factors(self._predictor, side, path)

    def to_xarray(self) -> Any:
        """Every q array as a lazy, labelled xarray Dataset: user_mean(user, factor), ... item_background(item).

        Of draws: user_traits(chain, draw, user, factor), user_bias, user_selection (pi), the items' with psi, and
        log_likelihood(chain, draw); chain is the random_state, so that models of several seeds can be concatenated.
        """
        if is_chain(self._fitted):
            return draws_dataset(draws_of(self._commits), self.counts)
        return lazy_dataset(self._fitted, self.counts)


def _as_list(labels: Any) -> list[Any]:
    if isinstance(labels, (str, bytes)) or np.isscalar(labels):
        return [labels]
    if isinstance(labels, (pd.Series, pd.Index, np.ndarray)):
        return list(labels.tolist())
    return list(labels)
