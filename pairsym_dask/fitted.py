"""A fitted model: the sweep that is open, its history and draws, and how it shows itself."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import suppress
from typing import Any

import pandas as pd
from dask.utils import format_bytes

from .answers.answers import Answers
from .answers.draws import draws_of, is_chain
from .display.cards import card, nearby
from .errors import InputError, StoreError
from .evaluation.evaluate import Comparison, Evaluation, evaluate
from .run.progress import duration
from .sampler.chain import diagnose
from .settings import SIDES, Settings
from .store.counts import Counts, open_counts
from .store.model_store import Commit, ModelStore
from .store.packing import pack
from .store.storage import is_local


class Fitted(Answers):
    """What a model has once it is fitted or opened."""

    # Its sweeps up to the opened one, that one, the counts store once it is wanted, and the name it was opened by.
    _commits: tuple[Commit, ...] = ()
    _commit: Commit | None = None
    _counts: Counts | None = None
    _home: str | None = None

    @abstractmethod
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name."""

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
        for kept in ("_answering", "_tags"):
            self.__dict__.pop(kept, None)
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
            where = self._fitted.counts_address
            options = getattr(self._fitted.storage, "storage_options", None) if not is_local(where) else None
            try:
                counts = open_counts(where, options)
            except StoreError as error:
                raise StoreError(
                    f"the counts store of {self.path} is needed but cannot be opened ({error}); "
                    "give its place with load(..., counts=...), for a report also with --counts"
                ) from None
            self._check_counts(counts)
            self._counts = counts
        return self._counts

    def _check_counts(self, counts: Counts) -> None:
        self._fitted.check_counts(counts.digest, counts.shape, counts.path)

    @property
    def history(self) -> pd.DataFrame:
        """A row a sweep: sweep, elbo, xi_star, seconds; of draws log_likelihood, shown, draw. Sweep 0 is the start."""
        chain, commits = is_chain(self._fitted), self._commits
        columns: dict[str, Any] = {"sweep": [commit.sweep for commit in commits]}
        for name in ("log_likelihood", "shown") if chain else ("elbo", "xi_star"):
            columns[name] = [commit.scalar(name) for commit in commits]
        if chain:
            columns["draw"] = [commit.record["draw"] for commit in commits]
        columns["seconds"] = [commit.record["seconds"] for commit in commits]
        return pd.DataFrame(columns)

    @property
    def draws(self) -> pd.DataFrame:
        """The draws that answers average over, a row each: sweep, log_likelihood, generation (a zarr group)."""
        found = draws_of(self._chain())
        return pd.DataFrame(
            {
                "sweep": [commit.sweep for commit in found],
                "log_likelihood": [commit.scalar("log_likelihood") for commit in found],
                "generation": [f"{self.path}/{commit.folder}" for commit in found],
            }
        )

    @property
    def diagnostics(self) -> pd.DataFrame:
        """Whether the chain has settled: quantity, mean, sd, r_hat (1 is settled), effective draws, those a_second."""
        return diagnose(self._chain())

    def score(self, held_out: pd.DataFrame) -> float:
        """Log-likelihood of a held-out pair, log p(j | i), averaged.

        Parameters
        ----------
        held_out : DataFrame
            Held-out pairs: user, item.

        Returns
        -------
        float
            In nats a pair; 0 is the best there is.

        Examples
        --------
        >>> train, held_out = ps.leave_one_out("plays.zarr", "train.zarr")
        >>> model = ps.PairedSymbols(factors=2).fit(train, "held.zarr", sweeps=2, progress=False)
        >>> model.score(held_out) < 0
        True
        """
        return float(evaluate(self, held_out).overall["log_likelihood"])

    @property
    def generation(self) -> str:
        """Where the opened sweep's arrays are: a zarr group with the groups users and items."""
        return f"{self.path}/{self._fitted.folder}"

    def pack(self, path: str | os.PathLike[str], seen: bool = True, *, storage_options: Any = None) -> None:
        """Copy the opened sweep, and what it needs to answer, to a folder that `load` opens wherever it is carried.

        Parameters
        ----------
        path : path
            A new folder.
        seen : bool
            Pack the pairs by user, so that seen items can be left out; without them ask with ``exclude_seen=False``.
        storage_options : dict, optional
            Options of fsspec for remote stores.

        Returns
        -------
        None
            The folder holds posteriors, labels and tags. It cannot be fitted further.

        Examples
        --------
        >>> ps.load("model.zarr").pack("served", seen=False)
        >>> len(ps.load("served").recommend("ann", n=2, exclude_seen=False))
        2
        """
        answering = draws_of(self._commits) if is_chain(self._fitted) else [self._fitted]
        pack(self._commits, answering, self.counts, path, seen, self._tag_stores(), storage_options)

    def report(
        self,
        path: str | os.PathLike[str],
        evaluation: Evaluation | Comparison | None = None,
        titles: Any = None,
        calibration: Any = None,
    ) -> None:
        """Write one HTML page about the data, the fit and the posterior.

        The page needs no network; the posterior is read a block at a time, and a few thousand symbols are drawn.

        Parameters
        ----------
        path : path
            The file to write.
        evaluation : Evaluation or Comparison, optional
            What `evaluate` or `compare` gave, for a section of its own.
        titles : dict, Series or DataFrame, optional
            Your own table of items, as in `recommend`: titles stand beside the labels.
        calibration : Calibration, optional
            What `calibrate` gave, for sections of its own.

        Returns
        -------
        None
            The page is in the file.

        Examples
        --------
        >>> ps.load("model.zarr").report("report.html", titles={"go": "Go, the game"})
        """
        from .report.report import write_report

        write_report(self, self._fitted, path, evaluation, titles, calibration)

    def __repr__(self) -> str:
        if self._commit is None:
            return f"PairedSymbols({_words(self.get_params())})"
        shape = " x ".join(f"{self._commit.record['rows'][side]:,} {side}" for side in SIDES)
        word, values = self._measured()
        state = f"at sweep {self._commit.sweep}, {word} {values[-1]:.10g}"
        return f"<PairedSymbols({_words(self._commit.settings.to_dict())}) of {shape}, {state}{self._changed()}>"

    def _changed(self) -> str:
        """Settings that were changed after the fit, in words: they are for the next one."""
        fitted, given = self._fitted.settings.to_dict(), self.get_params()
        with suppress(InputError):
            given = Settings.going_on(given, self._fitted.settings).to_dict()  # as they would be fitted
        changed = {name: value for name, value in given.items() if value != fitted[name]}
        return f"; for the next fit: {_words(changed)}" if changed else ""

    def _measured(self) -> tuple[str, list[float]]:
        """What sweeps are measured by, and its values from sweep 0 on."""
        word, name = ("log p(i, j)", "log_likelihood") if is_chain(self._fitted) else ("bound", "elbo")
        return word, [commit.scalar(name) for commit in self._commits]

    def _repr_html_(self) -> str:
        if self._commit is None:
            return card("PairedSymbols, not fitted", {"settings": _words(self.get_params())})
        rows, blocks = self._commit.record["rows"], self._commit.record["blocks"]
        word, values = self._measured()
        return card(
            "PairedSymbols",
            {
                "store": nearby(self.path),
                "shape": f"{rows['users']:,} users x {rows['items']:,} items x {self._commit.settings.factors} factors",
                "blocks": ", ".join(f"{-(-rows[s] // blocks[s]):,} of {blocks[s]:,} {s}" for s in SIDES),
                "on disk": f"{format_bytes(self._commit.nbytes)} a sweep",
                "sweep": f"{self._commit.sweep}, in {duration(self._commit.record['seconds'])}",
                word: f"{values[-1]:.10g}",
                "settings": _words(self._commit.settings.to_dict()) + self._changed(),
            },
            values[1:] if word == "bound" else (),
        )


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items() if value is not None)
