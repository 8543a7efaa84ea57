"""The model as people meet it: settings in, `fit`, answers out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pandas as pd
from dask.utils import format_bytes

from .answers.answers import Answers
from .answers.draws import draws_of, is_chain
from .answers.update import update
from .display.cards import card, nearby
from .errors import FitInterrupted, InputError, StoreError
from .evaluation.evaluate import Comparison, Evaluation, evaluate
from .kernels.accelerate import is_compiled
from .pairs.parts import Columns
from .run.progress import duration
from .sampler.chain import diagnose, sample
from .settings import PRESETS, SIDES, GivenSettings, Settings, describe_settings
from .store.counts import Counts, open_counts
from .store.model_store import Commit, ModelStore
from .store.storage import is_local
from .sweep.fit import fit

COMPILING = "compiling for this type of machine, once: about half a minute (pairsym warm-up does it ahead)"


class PairedSymbols(GivenSettings, Answers):
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

    @classmethod
    def paper(cls, **settings: Any) -> PairedSymbols:
        """A model with the paper's own settings; its ranking is `recommend(..., popularity=1)`.

        >>> model = PairedSymbols.paper(factors=20)
        >>> model.censored_ratio, model.tau_u, model.selection
        (1.0, 1.0, 'bayes')
        """
        return cls(**{**PRESETS["paper"], **settings})

    @classmethod
    def for_lists(cls, **settings: Any) -> PairedSymbols:
        """A model whose lists are the best, chosen on validation pairs of real sets; more factors make them better.

        Its posterior is a cold one and its background flat, so `probability` is further from the data's shares than
        with the defaults: for probabilities and intervals take the defaults, or draws (`inference="gibbs"`).

        >>> model = PairedSymbols.for_lists(factors=256)
        >>> model.factors, model.temperature, model.discount
        (256, 0.1, 0.3)
        """
        return cls(**{**PRESETS["lists"], **settings})

    def __sklearn_is_fitted__(self) -> bool:
        """For `sklearn.utils.validation.check_is_fitted`."""
        return self._commit is not None

    def __sklearn_tags__(self) -> Any:
        """For scikit-learn, which asks before anything else."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=InputTags())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(Settings)}

    def set_params(self, **params: Any) -> PairedSymbols:
        """Change settings by name; a fitted model keeps what it was fitted with until the next fit."""
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
        burn: int | None = None,
        thin: int | None = None,
        start: PairedSymbols | None = None,
        threads: int | None = None,
        keep: int | Iterable[int] | None = None,
        discard_damaged: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> PairedSymbols:
        """Fit to a counts store, a committed generation in the model store at `path` for every sweep.

        `sweeps` is the total (20, for draws 300): an unfinished fit of the same data and settings goes on where it
        stopped, to the same bits. `tol` stops when the bound's relative change is within it. `memory` is a budget for
        a process, such as "2GiB". Tasks run on `client`, else on the current dask client, else on `threads` threads.
        `callback(sweep, elbo, seconds)` is called after each commit. The last two sweeps stay on disk; `keep` names
        others to keep: a number n for every n-th, or a list. A damaged store is an error; `discard_damaged` sets what
        is damaged aside, with a warning, and goes on from the last sound sweep.

        With inference="gibbs" every `thin`-th sweep (5th) after the first `burn` ones (half of them) is a draw and kept
        for good; answers average over draws. `start` is a fitted model of the same counts and factors, whose posterior
        the chain starts from: that saves much of the burn-in. The callback gets the log-likelihood of a pair.
        """
        settings = Settings(**self.get_params())
        counts = open_counts(counts, storage_options)
        store = ModelStore(path, storage_options)
        common: dict[str, Any] = {
            "memory": memory, "client": client, "threads": threads, "progress": progress, "callback": callback,
            "keep": keep, "discard_damaged": discard_damaged,
        }  # fmt: skip
        if progress and not is_compiled("rows"):
            print(COMPILING, file=sys.stderr)
        try:
            if settings.inference == "gibbs":
                if tol is not None:
                    raise InputError(f"tol stops where a bound settles, and draws have none: leave it out, not {tol!r}")
                sample(
                    counts, settings, store, sweeps=300 if sweeps is None else sweeps, burn=burn,
                    thin=5 if thin is None else thin, start=None if start is None else start._fitted, **common,
                )  # fmt: skip
            else:
                for name, value in (("burn", burn), ("thin", thin), ("start", start)):
                    if value is not None:
                        raise InputError(f'{name} is for draws: it needs inference="gibbs"')
                fit(counts, settings, store, sweeps=20 if sweeps is None else sweeps, tol=tol, **common)
        except KeyboardInterrupt:
            if store.is_model() and store.commits():
                self._open(store, counts, None)
            raise _interrupted(store) from None
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
        try:
            grown = update(
                self._predictor.commit, self.counts, settings, source, Columns(user, item, count), counts, store,
                dict(storage_options or {}), sweeps=sweeps, tol=tol, memory=memory, client=client, threads=threads,
                progress=progress, callback=callback, keep=keep,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise _interrupted(store) from None
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
        self.__dict__.pop("_answering", None)
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

    def _chain(self) -> Sequence[Commit]:
        if not is_chain(self._fitted):
            raise InputError('this model is a variational fit; only inference="gibbs" has draws')
        return self._commits

    def score(self, held_out: pd.DataFrame) -> float:
        """Log-likelihood of a held-out pair, log p(j | i), averaged over a frame with columns user and item."""
        return float(evaluate(self, held_out).overall["log_likelihood"])

    @property
    def generation(self) -> str:
        """Where the opened sweep's arrays are: a zarr group with the groups users and items."""
        return f"{self.path}/{self._fitted.folder}"

    def report(self, path: str | os.PathLike[str], evaluation: Evaluation | Comparison | None = None) -> None:
        """Write one HTML page about the data, the fit and the posterior to a file.

        `evaluation` is what `evaluate` or `compare` gave, for a section of its own. The page needs no network; the
        posterior is read a block at a time, and a few thousand symbols are drawn.
        """
        from .report.report import write_report

        self._predictor  # noqa: B018 (a chain has no such page yet, and says so)
        write_report(self, self._fitted, path, evaluation)

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
            given = Settings(**given).to_dict()  # as they would be fitted
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


def _interrupted(store: ModelStore) -> FitInterrupted:
    """Where an interrupted fit stands."""
    commits = store.commits() if store.is_model() else []
    if not commits:
        return FitInterrupted(f"interrupted before the first commit to {store.url}; run the same again")
    return FitInterrupted(
        f"interrupted: {store.url} stands at sweep {commits[-1].sweep}; run the same again to go on from there"
    )


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items() if value is not None)


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
