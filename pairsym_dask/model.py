"""The model as people meet it: settings in, `fit`, answers out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from dask.utils import format_bytes
from tqdm import tqdm

from .answers.batch import recommend_all
from .answers.explain import Explanation, explain
from .answers.fold_in import Folded, fold_in
from .answers.neighbours import export_factors, similar, users_for
from .answers.predict import Audience, Predictor, StoredUsers, Symbols, beliefs, energy_of_pairs, lazy_dataset
from .answers.query import Query, check_interval, check_n, check_popularity
from .answers.update import update
from .display.cards import card, nearby
from .errors import InputError, StoreError
from .evaluation.evaluate import Comparison, Evaluation, evaluate
from .pairs.parts import Columns
from .run.progress import duration
from .settings import POPULARITY, SIDES, GivenSettings, Settings, describe_settings
from .store.counts import Counts, open_counts
from .store.model_store import Commit, ModelStore
from .store.storage import is_local
from .sweep.fit import fit
from .sweep.record import absolute_path


class PairedSymbols(GivenSettings):
    __doc__ = f"""Bayesian model of paired symbols: selected by popularity, then shown or censored by a preference.

    Settings are stored as given and checked by `fit`.

    Parameters
    ----------
{describe_settings()}
    """

    # Of a fitted model: its sweeps up to the opened one, that one, and the counts store once it is wanted.
    _commits: tuple[Commit, ...] = ()
    _commit: Commit | None = None
    _counts: Counts | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(Settings)}

    def set_params(self, **params: Any) -> PairedSymbols:
        """Change settings by name."""
        for name, value in params.items():
            if name not in self.get_params():
                raise InputError(f"there is no setting {name!r}; there are {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def fit(
        self,
        counts: Counts | str | os.PathLike[str],
        path: str | os.PathLike[str],
        sweeps: int = 20,
        tol: float | None = None,
        memory: int | str | None = None,
        client: Any = None,
        progress: bool = True,
        callback: Callable[[int, float, float], None] | None = None,
        *,
        threads: int | None = None,
        keep: int | Iterable[int] | None = None,
        discard_damaged: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> PairedSymbols:
        """Fit to a counts store, a committed generation in the model store at `path` for every sweep.

        `sweeps` is the total: an unfinished fit of the same data and settings goes on where it stopped, to the same
        bits. `tol` stops when the bound's relative change is within it. `memory` is a budget for a process, such as
        "2GiB". Tasks run on `client`, else on the current dask client, else on `threads` threads.
        `callback(sweep, elbo, seconds)` is called after each commit. The last two sweeps stay on disk; `keep` names
        others to keep: a number n for every n-th, or a list. A damaged store is an error; `discard_damaged` sets what
        is damaged aside, with a warning, and goes on from the last sound sweep.
        """
        settings = Settings(**self.get_params())
        counts = open_counts(counts, storage_options)
        store = ModelStore(path, storage_options)
        fit(
            counts,
            settings,
            store,
            sweeps=sweeps,
            tol=tol,
            memory=memory,
            client=client,
            threads=threads,
            progress=progress,
            callback=callback,
            keep=keep,
            discard_damaged=discard_damaged,
        )
        self._open(store, counts, None)
        return self

    def update(
        self,
        source: Any,
        counts: str | os.PathLike[str],
        path: str | os.PathLike[str],
        sweeps: int = 3,
        tol: float | None = None,
        memory: int | str | None = None,
        client: Any = None,
        progress: bool = True,
        callback: Callable[[int, float, float], None] | None = None,
        *,
        user: Any = "user",
        item: Any = "item",
        count: Any = None,
        threads: int | None = None,
        keep: int | Iterable[int] | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> PairedSymbols:
        """Fit to more pairs, of known and of new symbols, from where this model stands; the new model.

        `source` is what `ingest` takes (no matrix), `user`, `item` and `count` its columns. Its pairs and those that
        this model was fitted to become a new counts store at `counts`; the fit is a model store at `path`, whose
        sweep 0 is this model with every new symbol as its average one. This model and its stores stay as they are. A
        few sweeps reach the bound of twenty from scratch. All else is as in `fit`: an unfinished update with the same
        arguments goes on where it stopped, to the same bits.
        """
        settings, store = Settings(**self.get_params()), ModelStore(path, storage_options)
        grown = update(
            self._fitted, self.counts, settings, source, Columns(user, item, count), counts, store,
            dict(storage_options or {}), sweeps=sweeps, tol=tol, memory=memory, client=client, threads=threads,
            progress=progress, callback=callback, keep=keep,
        )  # fmt: skip
        new = PairedSymbols(**self.get_params())
        new._open(store, grown, None)
        return new

    def _open(self, store: ModelStore, counts: Counts | None, sweep: int | None) -> None:
        # An earlier sweep can be opened although a later one is damaged.
        commits = store.commits(last=sweep)
        if not commits:
            raise StoreError(f"{store.url} holds no committed sweep yet; run the fit again")
        if sweep is None:
            commit = commits[-1]
        else:
            if not 0 <= sweep < len(commits):
                raise StoreError(f"{store.url} has sweeps 0 to {len(commits) - 1}, not {sweep}")
            commit = commits[sweep]
            if not store.is_there(commit):
                raise StoreError(f"sweep {sweep} of {store.url} has been removed; fit with keep= to keep sweeps")
        commit.sealed.check_sizes()
        self.__dict__.pop("_predictor", None)
        self._commits, self._commit, self._counts = tuple(commits[: commit.sweep + 1]), commit, counts

    @property
    def _fitted(self) -> Commit:
        if self._commit is None:
            raise InputError("this model is not fitted yet; call fit, or open a fitted one with load")
        return self._commit

    @property
    def path(self) -> str:
        """Where the model store is."""
        return self._fitted.storage.url

    @property
    def counts(self) -> Counts:
        """The counts store that the model was fitted to."""
        if self._counts is None:
            remembered = self._fitted.record["counts"]
            where = absolute_path(remembered["path"], self.path)
            options = getattr(self._fitted.storage, "storage_options", None) if not is_local(where) else None
            try:
                self._counts = open_counts(where, options)
            except StoreError as error:
                raise StoreError(
                    f"the counts store of {self.path} is needed but cannot be opened ({error}); "
                    "give its place with load(..., counts=...), for a report also with --counts"
                ) from None
            self._check_counts(self._counts)
        return self._counts

    def _check_counts(self, counts: Counts) -> None:
        if counts.digest != self._fitted.record["counts"]["digest"]:
            raise StoreError(f"{counts.path} is not the counts store that {self.path} was fitted to")

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self._fitted, self.counts)

    @property
    def history(self) -> pd.DataFrame:
        """A row a sweep: sweep, elbo, xi_star, seconds. Sweep 0 is the start."""
        commits = self._commits if self._fitted else ()
        return pd.DataFrame(
            {
                "sweep": [commit.sweep for commit in commits],
                "elbo": [commit.scalar("elbo") for commit in commits],
                "xi_star": [commit.scalar("xi_star") for commit in commits],
                "seconds": [commit.record["seconds"] for commit in commits],
            }
        )

    def conditional(self, user: Any) -> pd.Series:
        """p(j | i) over all items, indexed by item label; sums to one."""
        labels, users = self._symbols(user if isinstance(user, Folded) else [user])
        if len(labels) != 1:
            raise InputError(f"conditional answers for one user at a time, not for {len(labels)}")
        p = self._predictor.conditional(users)[0]
        return pd.Series(p, index=pd.Index(self.counts.item_ids, name="item"), name="probability")

    def probability(self, users: Any, items: Any, *, interval: float = 0.9) -> pd.DataFrame:
        """p(shown | i, j) of pairs: user, item, sigma, sd, low, high. One label on a side goes with all others.

        `sigma` is the probability averaged over the posterior, `sd` the standard deviation of the energy, `low` and
        `high` the ends of the central credible interval of the probability that holds a share `interval` of the
        fitted posterior. That posterior is too narrow about the truth: docs/uncertainty.md says by how much.
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
        mean, variance = energy_of_pairs(rows, self._predictor.items.take(columns))
        return pd.DataFrame({"user": labels, "item": items, **beliefs(mean, variance, interval)})

    def _audience(self, users: Any) -> Audience | StoredUsers:
        """Users to answer for: labels of the store, or folded-in users."""
        if not isinstance(users, Folded):
            return self._predictor.stored(self.counts.positions("users", _as_list(users)))
        if users.model != self._fitted.record["digest"]:
            raise InputError("these users were folded in with another model or sweep; fold them in again")
        return users.audience

    def _symbols(self, users: Any) -> tuple[list[Any], Symbols]:
        """Labels and posterior of users of the store, or of folded-in ones."""
        audience = self._audience(users)
        if isinstance(audience, StoredUsers):
            audience = audience.part(slice(None), with_seen=False)
        return audience.labels.tolist(), audience.users

    def _positions(self, items: Any) -> np.ndarray | None:
        """Positions of item labels, or None for None."""
        return None if items is None else self.counts.positions("items", _as_list(items))

    def recommend(
        self,
        users: Any,
        n: int = 10,
        exclude_seen: bool = True,
        items: Any = None,
        popularity: float = POPULARITY,
        *,
        exclude: Any = None,
        strategy: str = "mean",
        random_state: int = 0,
        interval: float = 0.9,
    ) -> pd.DataFrame:
        """The n best items for each user: user, item, rank, probability, sigma, sd, low, high.

        Ranked by p(shown) * E[psi]^popularity: 0 is taste alone, 1 the paper's ranking. With strategy "mean" p(shown)
        is `sigma`, averaged over the posterior; with "ucb" it is `high`, the upper end of its credible interval; with
        "thompson" it is drawn from the posterior, all items of a user at once. The draw depends on `random_state`
        and the user alone: give another one for another list. `probability` is p(j | i) over all items, `sd` the
        posterior standard deviation of the energy, and p(shown) is within `low` and `high` with probability `interval`.
        `items` are the candidates (all by default), `exclude` are items to leave out. A user gets fewer than n only
        when fewer are left.
        """
        query = Query(
            n, exclude_seen, self._positions(items), self._positions(exclude), popularity, strategy, random_state,
            interval,
        )  # fmt: skip
        return self._predictor.recommend(self._audience(users), query)

    def recommend_all(
        self,
        path: str | os.PathLike[str],
        n: int = 10,
        exclude_seen: bool = True,
        popularity: float = POPULARITY,
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

        The ranking is that of `recommend`; p(j | i), which needs all items of every user, is left out.
        """
        query = Query(
            n, exclude_seen, self._positions(items), self._positions(exclude), popularity, strategy, random_state,
            interval,
        )  # fmt: skip
        blocks = self.counts.cuts["users"].blocks
        with tqdm(total=blocks, desc="recommend", unit="block", disable=None if progress else True) as bar:
            return recommend_all(
                self._fitted, self.counts, path, query, client=client, threads=threads,
                on_done=lambda finished: bar.update(), storage_options=storage_options,
            )  # fmt: skip

    def scores(self, users: Any, popularity: float = POPULARITY) -> np.ndarray:
        """What `recommend` ranks by, sigma * E[psi]^popularity, for some users and all items in store order."""
        return self._predictor.scores(self._symbols(users)[1], check_popularity(popularity))

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

        `frame` is a pandas or arrow frame; `user`, `item` and `count` name its columns, without `count` each row is one
        pair, repeated pairs are added up. Pairs with items that the store does not know are left out with a warning.
        A label that the store knows is no matter: that user, too, is folded in from the given pairs alone.
        """
        return fold_in(self._fitted, self.counts, frame, Columns(user, item, count), client=client, threads=threads)

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
        popularity: float = POPULARITY,
        *,
        interval: float = 0.9,
        client: Any = None,
        threads: int | None = None,
    ) -> pd.DataFrame:
        """The n users whom an item suits best, read block by block: user, rank, probability, sigma, sd, low, high.

        Ranked by sigma * E[pi]^popularity, where pi is how active a user is: 0 is taste alone. `probability` is
        p(i | j) over all users, the rest as in `recommend`. `exclude_seen` leaves out users who have the item.
        """
        (position,) = self.counts.positions("items", [item])
        return users_for(
            self._predictor, int(position), check_n(n), exclude_seen, check_popularity(popularity),
            check_interval(interval), client=client, threads=threads,
        )  # fmt: skip

    def export_factors(self, side: str, path: str | os.PathLike[str] | None = None) -> np.ndarray:
        """Posterior means of "users" as rows [u_i, b_i, 1] or of "items" as rows [v_j, 1, b_j], in store order.

        Inner products of the two are energies, so that programs for inner products can take them as they are. With a
        `path` they are written block by block to that .npy file and come back memory-mapped.
        """
        return export_factors(self._predictor, side, path)

    def score(self, held_out: pd.DataFrame) -> float:
        """Log-likelihood of a held-out pair, log p(j | i), averaged over a frame with columns user and item."""
        return float(evaluate(self, held_out).overall["log_likelihood"])

    @property
    def generation(self) -> str:
        """Where the opened sweep's arrays are: a zarr group with the groups users and items."""
        return f"{self.path}/{self._fitted.folder}"

    def to_xarray(self) -> Any:
        """Every q array as a lazy, labelled xarray Dataset: user_mean(user, factor), ... item_background(item)."""
        return lazy_dataset(self._fitted, self.counts)

    def report(self, path: str | os.PathLike[str], evaluation: Evaluation | Comparison | None = None) -> None:
        """Write one HTML page about the data, the fit and the posterior to a file.

        `evaluation` is what `evaluate` or `compare` gave, for a section of its own. The page needs no network; the
        posterior is read a block at a time, and a few thousand symbols are drawn.
        """
        from .report.report import write_report

        write_report(self, path, evaluation)

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        if self._commit is None:
            return f"PairedSymbols({params})"
        shape = " x ".join(f"{self._commit.record['rows'][side]:,} {side}" for side in SIDES)
        state = f"at sweep {self._commit.sweep}, bound {self._commit.scalar('elbo'):.10g}"
        return f"<PairedSymbols({params}) of {shape}, {state}>"

    def _repr_html_(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        if self._commit is None:
            return card("PairedSymbols, not fitted", {"settings": settings})
        rows, blocks = self._commit.record["rows"], self._commit.record["blocks"]
        return card(
            "PairedSymbols",
            {
                "store": nearby(self.path),
                "shape": f"{rows['users']:,} users x {rows['items']:,} items x {self.factors} factors",
                "blocks": ", ".join(f"{-(-rows[s] // blocks[s]):,} of {blocks[s]:,} {s}" for s in SIDES),
                "on disk": f"{format_bytes(self._commit.nbytes)} a sweep",
                "sweep": f"{self._commit.sweep}, in {duration(self._commit.record['seconds'])}",
                "bound": f"{self._commit.scalar('elbo'):.10g}",
                "settings": settings,
            },
            [commit.scalar("elbo") for commit in self._commits[1:]],
        )


def load(
    path: str | os.PathLike[str],
    counts: Counts | str | os.PathLike[str] | None = None,
    sweep: int | None = None,
    *,
    storage_options: dict[str, Any] | None = None,
) -> PairedSymbols:
    """Open a fitted model; `sweep` opens an earlier kept one, `counts` says where the counts store has moved."""
    store = ModelStore(path, storage_options)
    model = PairedSymbols()
    model._open(store, None, sweep)
    model.set_params(**model._fitted.settings.to_dict())
    if counts is not None:
        model._counts = open_counts(counts, storage_options)
        model._check_counts(model._counts)
    return model


def _as_list(labels: Any) -> list[Any]:
    if isinstance(labels, (str, bytes)) or np.isscalar(labels):
        return [labels]
    if isinstance(labels, (pd.Series, pd.Index, np.ndarray)):
        return list(labels.tolist())
    return list(labels)
