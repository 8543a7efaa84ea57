"""The model as people meet it: settings in, `fit`, answers out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from .answers.update import update
from .errors import InputError
from .fitted import Fitted
from .kernels.accelerate import is_compiled
from .pairs.parts import Columns, Reading
from .sampler.chain import sample
from .settings import PRESETS, GivenSettings, Settings, describe_settings
from .store.counts import Counts, open_counts
from .store.model_store import ModelStore
from .store.tags import AnyTags, Tags, open_sides
from .store.versions import find_version
from .sweep.fit import fit
from .sweep.resume import first_commit, interrupted, sampling_options

SWEEPS_OF_DRAWS = 600
COMPILING = "compiling for this type of machine, once: about half a minute (pairsym warm-up does it ahead)"


class PairedSymbols(GivenSettings, Fitted):
    __doc__ = f"""Bayesian model of paired symbols: selected by popularity, then shown or censored by a preference.

    Settings are stored as given and checked by `fit`.

    Parameters
    ----------
{describe_settings()}
    """

    @classmethod
    def paper(cls, **settings: Any) -> PairedSymbols:
        """A model with the paper's own settings; its ranking is `recommend(..., popularity=1)`.

        Parameters
        ----------
        **settings
            Others than the paper's.

        Returns
        -------
        PairedSymbols
            Not fitted yet.

        Examples
        --------
        >>> model = PairedSymbols.paper(factors=20)
        >>> model.censored_ratio, model.tau_u, model.selection
        (1.0, 1.0, 'bayes')
        """
        return cls(**{**PRESETS["paper"], **settings})

    def __sklearn_is_fitted__(self) -> bool:
        """For `sklearn.utils.validation.check_is_fitted`."""
        return self._commit is not None

    def __sklearn_tags__(self) -> Any:
        """For scikit-learn, which asks before anything else."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=InputTags())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name.

        Parameters
        ----------
        deep : bool
            For scikit-learn; there is nothing inside.

        Returns
        -------
        dict
            A value a setting.

        Examples
        --------
        >>> ps.PairedSymbols(factors=8).get_params()["factors"]
        8
        """
        return {field.name: getattr(self, field.name) for field in fields(Settings)}

    def set_params(self, **params: Any) -> PairedSymbols:
        """Change settings by name; a fitted model keeps what it was fitted with until the next fit.

        Parameters
        ----------
        **params
            Values by setting.

        Returns
        -------
        PairedSymbols
            The model itself.

        Examples
        --------
        >>> ps.PairedSymbols().set_params(factors=8).factors
        8
        """
        for name, value in params.items():
            if name not in self.get_params():
                raise InputError(f"there is no setting {name!r}; there are {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def fit(
        self,
        counts: Counts | str | os.PathLike[str],
        path: str | os.PathLike[str],
        sweeps: int | None = None,
        tol: float | None = None,
        memory: int | str | None = None,
        client: Any = None,
        progress: bool = True,
        callback: Callable[[int, float, float], None] | None = None,
        *,
        item_tags: AnyTags = None,
        user_tags: AnyTags = None,
        burn: int | None = None,
        thin: int | None = None,
        start: PairedSymbols | None = None,
        threads: int | None = None,
        keep: int | Iterable[int] | None = None,
        discard_damaged: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> PairedSymbols:
        """Fit to a counts store, a committed generation in the model store at `path` for every sweep.

        An unfinished fit of the same data and settings goes on where it stopped, to the same bits; settings that are
        not given are those it began with.

        Parameters
        ----------
        counts : Counts or path
            The pairs; `ingest` makes a store of them.
        path : path
            The model store.
        sweeps : int, optional
            Sweeps in total: 20 by default, for draws 600.
        tol : float, optional
            Stop when the bound's relative change is within it.
        memory : int or str, optional
            Budget of a process, such as "2GiB"; 70 % of what is free by default, of a cluster's workers half their
            limit.
        client : distributed.Client, optional
            Where tasks run; the current client, or else threads of this process.
        progress : bool
            Show sweeps: a bar on a terminal, a display in a notebook, lines elsewhere.
        callback : callable, optional
            ``callback(sweep, elbo, seconds)`` after each commit; of draws with the log-likelihood of a pair.
        item_tags, user_tags : Tags or path, optional
            What `ingest_tags` made of the tags of items, of users: symbols with the same tags are expected to be alike,
            and symbols without pairs are known by their tags alone.
        burn, thin : int, optional
            With ``inference="gibbs"`` every `thin`-th sweep (5th) after the first `burn` ones (half of them) is a draw
            and kept
            for good; answers average over draws.
        start : PairedSymbols, optional
            A fitted model of the same counts and factors whose posterior a chain starts from: that saves much of the
            burn-in.
        threads : int, optional
            Tasks under way at a time; all cores by default.
        keep : int or list of int, optional
            Sweeps to keep on disk beside the last two: every n-th, or those of a list.
        discard_damaged : bool
            Set what is damaged aside, with a warning, and go on from the last sound sweep; an error by default.
        storage_options : dict, optional
            Options of fsspec for remote stores.

        Returns
        -------
        PairedSymbols
            The model itself, at its last sweep.

        Examples
        --------
        >>> model = ps.PairedSymbols(factors=2).fit("plays.zarr", "new.zarr", sweeps=2, progress=False)
        >>> model.history["sweep"].tolist()
        [0, 1, 2]
        """
        given = self.get_params()
        if start is not None and self.factors is None:
            given["factors"] = start._fitted.settings.factors
        settings = Settings(**given)
        counts = open_counts(counts, storage_options)
        if counts.holds != "pairs":
            raise InputError(f"{counts.path} holds tags, not pairs; give it as item_tags or user_tags")
        tags = open_sides(user_tags, item_tags, storage_options)
        store = ModelStore(path, storage_options)
        if (first := first_commit(store)) is not None:  # it may have begun when other settings were the defaults
            settings = Settings.going_on(given, first.settings)
        common: dict[str, Any] = {
            "memory": memory, "client": client, "threads": threads, "progress": progress, "callback": callback,
            "keep": keep, "discard_damaged": discard_damaged,
        }  # fmt: skip
        if progress and not is_compiled("rows"):
            print(COMPILING, file=sys.stderr)
        try:
            sampling = sampling_options(settings, tol, burn, thin, start)
            if sampling:
                sample(
                    counts, settings, store, sweeps=SWEEPS_OF_DRAWS if sweeps is None else sweeps,
                    start=None if start is None else start._fitted, tags=tags,
                    start_tags=None if start is None else start._tag_stores(), **sampling, **common,
                )  # fmt: skip
            else:
                fit(counts, settings, store, sweeps=20 if sweeps is None else sweeps, tol=tol, tags=tags, **common)
        except KeyboardInterrupt:
            if store.is_model() and store.commits():
                self._open(store, counts, None)
            raise interrupted(store) from None
        self._open(store, counts, None)
        self._given_tags = tags
        return self

    def update(
        self,
        source: Any,
        counts: str | os.PathLike[str],
        path: str | os.PathLike[str],
        sweeps: int | None = None,
        tol: float | None = None,
        memory: int | str | None = None,
        client: Any = None,
        progress: bool = True,
        callback: Callable[[int, float, float], None] | None = None,
        *,
        user: Any = "user",
        item: Any = "item",
        count: Any = None,
        time: Any = None,
        half_life: Any = None,
        invalid: str = "error",
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str = ".",
        item_tags: AnyTags = None,
        user_tags: AnyTags = None,
        burn: int | None = None,
        thin: int | None = None,
        threads: int | None = None,
        keep: int | Iterable[int] | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> PairedSymbols:
        """Fit to more pairs, of known and of new symbols, from where this model stands.

        A few sweeps (3) reach the bound of twenty from scratch; a chain starts from this one's last sweep and takes as
        many as in `fit`. This model and its stores stay as they are.

        Parameters
        ----------
        source : path, frame or list
            New pairs, as `ingest` takes them (no matrix).
        counts : path
            A new counts store: the pairs that this model was fitted to and the new ones.
        path : path
            A new model store, whose sweep 0 is this model with every new symbol as its average one.
        sweeps, tol, memory, client, progress, callback, burn, thin, threads, keep
            As in `fit`: an unfinished update with the same arguments goes on where it stopped, to the same bits.
        user, item, count : column names
            Without `count` each row is one pair. Repeated pairs are added up.
        time, half_life : optional
            Where the counts fade with age (`ingest`): the column of times; the half-life is the store's.
        invalid : {"error", "drop"}
            Rows without a user or an item, or whose count is missing, no number, infinite, negative or zero, cannot be
            counted: an error that says how many there are of each kind and where the first ones stand, or left out, and
            the store's source says how many.
        separator, encoding : str, optional
            Of CSV files; found where they are not given: comma, semicolon, tab, pipe; UTF-8, UTF-16, cp1252.
        decimal : {".", ","}
            What stands before the decimals of counts.
        item_tags, user_tags : Tags or path, optional
            Of the new model; where they are not given, those of this one.
        storage_options : dict, optional
            Options of fsspec for remote stores.

        Returns
        -------
        PairedSymbols
            The new model.

        Examples
        --------
        >>> model = ps.load("model.zarr")
        >>> grown = model.update([("zoe", "go")], "grown-counts.zarr", "grown.zarr", progress=False)
        >>> grown.counts.shape
        (4, 3)
        """
        settings, store = Settings.going_on(self.get_params(), self._fitted.settings), ModelStore(path, storage_options)
        columns = Columns(user, item, count, Reading(invalid, separator, encoding, decimal), time)
        given, earlier_tags = open_sides(user_tags, item_tags, storage_options), self._tag_stores()
        tags = {**earlier_tags, **given}
        sampling = sampling_options(settings, tol, burn, thin, None)
        sweeps = (SWEEPS_OF_DRAWS if sampling else 3) if sweeps is None else sweeps
        try:
            grown = update(
                self._fitted, self.counts, settings, source, columns, counts, store, dict(storage_options or {}),
                sampling=sampling, sweeps=sweeps, tol=tol, memory=memory, client=client, threads=threads,
                progress=progress, callback=callback, keep=keep, half_life=half_life, tags=tags,
                earlier_tags=earlier_tags,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise interrupted(store) from None
        new = PairedSymbols(**self.get_params())
        new._open(store, grown, None)
        return new

    def newest(self) -> PairedSymbols:
        """The newest sweep of this model's store, or the newest version under its name; itself where nothing is newer.

        For readers that live long: this model goes on answering while ``model = model.newest()`` moves to the next one.

        Returns
        -------
        PairedSymbols
            This model, or one that was opened anew.

        Examples
        --------
        >>> model = ps.load("model.zarr")
        >>> model.newest() is model
        True
        """
        options = getattr(self._fitted.storage, "storage_options", None)
        if self._home is not None:
            version = find_version(self._home, options)
            if version is not None and version.model != self.path:
                return load(self._home, storage_options=options)
        if len(ModelStore(self._fitted.storage).commit_keys()) == self._fitted.sweep + 1:
            return self
        model = load(self.path, self._counts, storage_options=options)
        model._home = self._home
        return model


def load(
    path: str | os.PathLike[str],
    counts: Counts | str | os.PathLike[str] | None = None,
    sweep: int | None = None,
    *,
    item_tags: AnyTags = None,
    user_tags: AnyTags = None,
    storage_options: dict[str, Any] | None = None,
) -> PairedSymbols:
    """Open a fitted model.

    Parameters
    ----------
    path : path
        A model store, a pack, or a folder of dated versions, of which the newest is opened.
    counts : Counts or path, optional
        Where the counts store is, if it has moved.
    sweep : int, optional
        An earlier sweep that was kept; the last one by default.
    item_tags, user_tags : Tags or path, optional
        Where the tag stores are, if they have moved.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    PairedSymbols
        The model, with the settings that it was fitted with.

    Examples
    --------
    >>> ps.load("model.zarr").history["sweep"].tolist()
    [0, 1, 2, 3]
    """
    store, home, tags = ModelStore(path, storage_options), None, dict[str, Tags]()
    if not store.is_model() and (version := find_version(path, storage_options)) is not None:
        store, home = ModelStore(version.model, storage_options), os.fspath(path)
        counts, tags = version.counts if counts is None else counts, version.tags(storage_options)
    model = PairedSymbols()
    model._home = home
    model._open(store, None, sweep)
    model.set_params(**model._fitted.settings.to_dict())
    model._given_tags = {**tags, **open_sides(user_tags, item_tags, storage_options)}
    if counts is not None:
        model._counts = open_counts(counts, storage_options)
        model._check_counts(model._counts)
    return model
