"""What is asked of a fitted model, by label: beliefs, lists, neighbours, exports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
import pandas as pd

from ..errors import InputError
from ..settings import SIDES
from ..store.commit import Commit
from . import draw_neighbours
from .draw_export import arviz_data, chains_dataset
from .draw_tags import frame_over
from .draws import DrawPredictor, is_chain
from .lists import Lists
from .neighbours import export_factors, export_table, similar, users_for
from .predict import lazy_dataset
from .query import check_interval, check_n
from .titles import with_titles


class Answers(Lists):
    """Answers of a committed sweep: users and items are given and come back by their own labels."""

    def similar_items(
        self,
        item: Any,
        n: int = 10,
        measure: str = "cosine",
        *,
        titles: Any = None,
        client: Any = None,
        threads: int | None = None,
    ) -> pd.DataFrame:
        """The n items most like one.

        Parameters
        ----------
        item : label
            The item.
        n : int
            How many.
        measure : {"cosine", "model"}
            Cosine of the posterior mean traits, or the correlation over all users of the two items' energies, which
            counts
            biases and is smaller for items that little is known of.
        titles : dict, Series or DataFrame, optional
            Your own table of items, joined as in `recommend`.
        client : distributed.Client, optional
            Where tasks run; the current client, or else threads of this process.
        threads : int, optional
            Tasks under way at a time; all cores by default.

        Returns
        -------
        pandas.DataFrame
            item, rank, similarity.

        Examples
        --------
        >>> sorted(ps.load("model.zarr").similar_items("go")["item"])
        ['chess', 'poker']
        """
        found = self._similar("items", item, n, measure, client=client, threads=threads)
        return found if titles is None else with_titles(found, titles)

    def similar_users(
        self, user: Any, n: int = 10, measure: str = "cosine", *, client: Any = None, threads: int | None = None
    ) -> pd.DataFrame:
        """The n users most like one, read block by block.

        Parameters
        ----------
        user : label
            The user.
        n : int
            How many.
        measure : {"cosine", "model"}
            As in `similar_items`.
        client : distributed.Client, optional
            Where tasks run; the current client, or else threads of this process.
        threads : int, optional
            Tasks under way at a time; all cores by default.

        Returns
        -------
        pandas.DataFrame
            user, rank, similarity.

        Examples
        --------
        >>> sorted(ps.load("model.zarr").similar_users("ann")["user"])
        ['bob', 'eve']
        """
        return self._similar("users", user, n, measure, client=client, threads=threads)

    def _similar(self, side: str, label: Any, n: int, measure: str, **where: Any) -> pd.DataFrame:
        (position,), new = self._places(side, [label])
        predictor = self._answering
        if isinstance(predictor, DrawPredictor):
            drawn = None if new is None else new.symbols
            return draw_neighbours.similar(predictor, side, int(position), check_n(n), measure, drawn, **where)
        if new is not None:
            return similar(predictor, side, -1, check_n(n), measure, new.symbols, **where)
        return similar(predictor, side, int(position), check_n(n), measure, **where)

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
        """The n users whom an item suits best, read block by block.

        Parameters
        ----------
        item : label
            The item.
        n : int
            How many.
        exclude_seen : bool
            Leave out users who have the item.
        popularity : float, optional
            Exponent of how active a user is, E[pi], in a ranking as of `recommend`: 0 is taste alone.
        interval : float
            Share of the posterior between `low` and `high`.
        client : distributed.Client, optional
            Where tasks run; the current client, or else threads of this process.
        threads : int, optional
            Tasks under way at a time; all cores by default.

        Returns
        -------
        pandas.DataFrame
            user, rank, `probability` (p(i | j) over all users), sigma, sd, low, high.

        Examples
        --------
        >>> ps.load("model.zarr").recommend_users("poker", n=5)["user"].nunique()
        2
        """
        (position,), new = self._places("items", [item])
        predictor, where = self._answering, {"client": client, "threads": threads}
        ranking = (check_n(n), exclude_seen, self._exponent(popularity), check_interval(interval))
        if isinstance(predictor, DrawPredictor):
            return draw_neighbours.users_for(predictor.wider(new), int(position), *ranking, self._new_users(), **where)
        place = int(position) if new is None else -1
        return users_for(predictor, place, *ranking, None if new is None else new.symbols, self._new_users(), **where)

    def tags(self, side: str = "items") -> pd.DataFrame:
        """What the fit has made of the tags of a side, the most telling first.

        Parameters
        ----------
        side : {"items", "users"}
            Whose.

        Returns
        -------
        pandas.DataFrame
            tag, `relevance` (0 to 1, small of a tag that says nothing, or of which little is known: of a fit for lists
            how far its effects are more than chance would make, else the square of their mean over their mean
            square), `effect` (the root of the mean square of its effects), `sd` of an effect under the posterior, and
            `symbols`, how many have the tag.

        Examples
        --------
        >>> ps.load("tagged.zarr").tags().columns.tolist()
        ['tag', 'relevance', 'effect', 'sd', 'symbols']
        """
        if side not in SIDES:
            raise InputError(f"side must be items or users, not {side!r}")
        if side not in self._fitted.tags:
            raise InputError(
                f"this model was fitted without {side[:-1]} tags; fit(..., {side[:-1]}_tags=...) takes them"
            )
        answering = self._answering
        if isinstance(answering, DrawPredictor):
            return frame_over(answering.commits, self._tags[side].prior)
        return self._tags[side].frame()

    def new_symbols(self, side: str = "items") -> np.ndarray:
        """Labels of the symbols of a side that have tags and no place in the counts store.

        Parameters
        ----------
        side : {"items", "users"}
            Whose.

        Returns
        -------
        numpy.ndarray
            Labels, in order; of a fit without tags none.

        Examples
        --------
        >>> model = ps.load("tagged.zarr")
        >>> model.new_symbols().tolist()
        ['bridge']
        >>> model.recommend("ann", items=model.new_symbols())["item"].tolist()
        ['bridge']
        """
        if side not in SIDES:
            raise InputError(f"side must be items or users, not {side!r}")
        return self._tags[side].new if side in self._fitted.tags else np.empty(0, self.counts.columns[side].dtype)

    @overload
    def export_factors(
        self, side: str, path: str | os.PathLike[str] | None = None, *, labelled: Literal[False] = False
    ) -> np.ndarray: ...

    @overload
    def export_factors(
        self, side: str, path: str | os.PathLike[str] | None = None, *, labelled: Literal[True]
    ) -> pd.DataFrame: ...

    def export_factors(
        self, side: str, path: str | os.PathLike[str] | None = None, *, labelled: bool = False
    ) -> np.ndarray | pd.DataFrame:
        """Posterior means for other programs: rows [u_i, b_i, 1] of users, [v_j, 1, b_j] of items.

        Inner products of the two are energies, so that programs for inner products can take them as they are.

        Parameters
        ----------
        side : {"users", "items"}
            Whose.
        path : path, optional
            A .npy file, written block by block, which comes back memory-mapped; with `labelled` a .parquet file with a
            row a symbol, its label and its `vector`, for databases.
        labelled : bool
            A DataFrame by label instead of an array in store order.

        Returns
        -------
        numpy.ndarray or pandas.DataFrame
            The rows; of a .parquet file its first ones.

        Examples
        --------
        >>> model = ps.load("model.zarr")
        >>> model.export_factors("items").shape, model.export_factors("items", labelled=True).index.tolist()
        ((3, 4), ['chess', 'go', 'poker'])
        >>> model.export_factors("users", "users.parquet", labelled=True).columns.tolist()
        ['user', 'vector']
        """
        table = path is not None and os.fspath(path).endswith(".parquet")
        if path is not None and table != labelled:
            raise InputError(f"rows with labels go to a .parquet file, bare ones to a .npy file, not to {path}")
        if path is not None and table:
            return export_table(self._predictor, side, path)
        factors = export_factors(self._predictor, side, path)
        return pd.DataFrame(factors, pd.Index(self.counts.labels(side), name=side[:-1])) if labelled else factors

    def to_xarray(self, *others: Answers) -> Any:
        """Every array of the opened sweep, lazy and labelled.

        Parameters
        ----------
        *others : PairedSymbols
            Of draws: chains of the same counts and settings with other seeds, joined along chain.

        Returns
        -------
        xarray.Dataset
            user_mean(user, factor), user_precision, user_bias, ... item_background(item). Of draws: user_traits(chain,
            draw, user, factor), user_bias, user_selection (pi), the items' with psi, and log_likelihood(chain, draw);
            chain is the random_state.

        Examples
        --------
        >>> ps.load("model.zarr").to_xarray()["item_mean"].dims
        ('item', 'factor')
        """
        if is_chain(self._fitted) or others:
            return chains_dataset([model._chain() for model in (self, *others)], self.counts)
        return lazy_dataset(self._fitted, self.counts)

    def to_arviz(self, *others: Answers) -> Any:
        """Draws as arviz takes them, lazy and labelled; arviz must be installed.

        Parameters
        ----------
        *others : PairedSymbols
            Chains of the same counts and settings with other seeds, joined along chain.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            Whichever the installed arviz works with: the group posterior, as `to_xarray` has it, and sample_stats with
            log_likelihood.

        Examples
        --------
        >>> ps.load("model.zarr").to_arviz()
        Traceback (most recent call last):
        ...
        pairsym_dask.errors.InputError: this model is a variational fit; only inference="gibbs" has draws
        """
        return arviz_data([model._chain() for model in (self, *others)], self.counts)

    def _chain(self) -> Sequence[Commit]:
        """The sweeps of a chain; an error for a variational fit."""
        if not is_chain(self._fitted):
            raise InputError('this model is a variational fit; only inference="gibbs" has draws')
        return self._commits
