"""How well held-out items are ranked and predicted: the paper's R by activity of the user, and what others report.

Every measure ranks a held-out item j* among all items that its user i has not seen in training (other held-out items
of the same user are among them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..answers.draws import DrawPredictor
from ..answers.predict import Predictor
from ..answers.query import check_exponent
from ..errors import InputError
from ..store.counts import Counts, open_counts
from .held_out import HeldOutPairs, read_held_out
from .measures import check_cutoffs, differences, list_measures, names, pair_measures
from .ranks import Committed, Ranks, Scorer, ScoreSource, rank
from .result import Comparison, Evaluation
from .sampled import Sampled


def evaluate(
    model: Any,
    held_out: pd.DataFrame,
    popularity: float | None = None,
    *,
    n: int | Sequence[int] = 10,
    user: Any = "user",
    item: Any = "item",
    unknown: str = "error",
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
) -> Evaluation:
    """Rank held-out pairs, one or several a user, among all items unseen in training.

    Parameters
    ----------
    model : PairedSymbols or another
        Anything with `counts`, its training store, and `scores(users)` or `scores(users, popularity=...)`, a row of
        scores in
        the store's item order a user; log p(j* | i) comes from `conditional(user)` where there is one.
    held_out : DataFrame
        Held-out pairs, one or several a user.
    popularity : float, optional
        Exponent of the ranking, as in `recommend`.
    n : int or list of int
        Length of the lists, or several lengths.
    user, item : column names
        Of `held_out`.
    unknown : {"error", "skip"}
        What to do with pairs whose user or item the training store does not know.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    threads : int, optional
        Tasks under way at a time; all cores by default. Other models than PairedSymbols stay on threads.
    memory : int or str, optional
        Bounds how many blocks of users are under way.

    Returns
    -------
    Evaluation
        `overall`, `frame` by activity of the user, `per_user`, `lists`; docs/concepts.md says what each measure is.

    Examples
    --------
    >>> train, held_out = ps.leave_one_out("plays.zarr", "train.zarr")
    >>> model = ps.PairedSymbols(factors=2).fit(train, "held.zarr", sweeps=2, progress=False)
    >>> float(ps.evaluate(model, held_out).overall["pairs"])
    3.0
    """
    counts = _counts_of(model)
    frame = read_held_out(held_out, counts, user, item, unknown)
    where = {"client": client, "threads": threads, "memory": memory}
    return evaluate_ways(model, frame, (popularity,), n, skipped=len(held_out) - len(frame), **where)[0]


def evaluate_ways(
    model: Any,
    held_out: pd.DataFrame,
    exponents: Sequence[float | None],
    n: int | Sequence[int],
    *,
    skipped: int = 0,
    **where: Any,
) -> list[Evaluation]:
    """An evaluation for each exponent of the popularity, from the same energies where the model is one of ours."""
    cutoffs, counts = check_cutoffs(n), _counts_of(model)
    pairs, source = HeldOutPairs.read(held_out, counts), _source(model, exponents)
    ranks = rank(source, counts, pairs, cutoffs, **where)
    return [summarise(ranks, way, counts, pairs, held_out, cutoffs, skipped) for way in range(source.ways)]


def compare(
    models: Mapping[str, Any],
    held_out: pd.DataFrame,
    popularity: float | None = None,
    *,
    n: int | Sequence[int] = 10,
    user: Any = "user",
    item: Any = "item",
    unknown: str = "error",
    random_state: int = 0,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
) -> Comparison:
    """Evaluate several models by name on the same held-out pairs; differences are to the first.

    Parameters
    ----------
    models : dict
        Models by name, each as `evaluate` takes it.
    held_out : DataFrame
        Held-out pairs, one or several a user.
    popularity : float, optional
        Exponent of the ranking, as in `recommend`.
    n : int or list of int
        Length of the lists, or several lengths.
    user, item : column names
        Of `held_out`.
    unknown : {"error", "skip"}
        What to do with pairs whose user or item the training store does not know.
    random_state : int
        Seed of the intervals.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    memory : int or str, optional
        Bounds how many blocks of users are under way.

    Returns
    -------
    Comparison
        `evaluations` by name, `table`, and intervals of the differences.

    Examples
    --------
    >>> from pairsym_dask.baselines import Popularity
    >>> train, held_out = ps.leave_one_out("plays.zarr", "train.zarr")
    >>> model = ps.PairedSymbols(factors=2).fit(train, "held.zarr", sweeps=2, progress=False)
    >>> list(ps.compare({"this model": model, "popularity": Popularity().fit(train)}, held_out).evaluations)
    ['this model', 'popularity']
    """
    if not isinstance(models, Mapping) or not models:
        raise InputError("models must be a dict of at least one model by name")
    stores = {name: _counts_of(model) for name, model in models.items()}
    first = next(iter(stores))
    for name, counts in stores.items():
        if counts.digest != stores[first].digest:
            raise InputError(
                f"{name!r} was fitted to another store ({counts.path}) than {first!r} ({stores[first].path}): "
                "only models of the same training pairs can be compared"
            )
    how: dict[str, Any] = {"n": n, "user": user, "item": item, "unknown": unknown}
    where: dict[str, Any] = {"client": client, "threads": threads, "memory": memory}
    evaluations = {name: evaluate(model, held_out, popularity, **how, **where) for name, model in models.items()}
    return Comparison(evaluations, differences(evaluations, random_state))


def summarise(
    ranks: Ranks,
    way: int,
    counts: Counts,
    pairs: HeldOutPairs,
    held_out: pd.DataFrame,
    cutoffs: tuple[int, ...],
    skipped: int = 0,
) -> Evaluation:
    """Measures of one way of scoring; novelty and coverage where the ranks have looked at lists."""
    measured = pair_measures(ranks.above[way], ranks.ties[way], ranks.unseen, pairs.user, cutoffs)
    measured["log_likelihood"] = ranks.log_likelihood
    columns = {"user": held_out["user"].to_numpy(), "item": held_out["item"].to_numpy()}
    columns["c"] = pairs.given(counts.marginal("users")[pairs.user])
    frame = pd.DataFrame(columns | {name: pairs.given(values) for name, values in measured.items()})
    lists = list_measures(frame, counts.shape[1], cutoffs)
    novelty, covered = ranks.novelty[way], np.unpackbits(ranks.covered[way], axis=-1)
    # Lists are in order of first appearance, novelty in the store's order of users.
    place = pd.Index(np.unique(pairs.user)).get_indexer(counts.positions("users", lists["user"].to_numpy()))
    for k, name in enumerate(names("novelty", cutoffs)):
        lists[name] = novelty[k, place] if novelty.size else np.nan
    coverage = covered.sum(-1) / counts.shape[1] if covered.size else np.full(len(cutoffs), np.nan)
    whole = np.issubdtype(np.dtype(counts.layout.count_dtype), np.integer)
    return Evaluation(frame, lists, cutoffs, counts.shape[0], bool(whole), tuple(coverage.tolist()), skipped)


def _counts_of(model: Any) -> Counts:
    if not hasattr(model, "counts") or not hasattr(model, "scores"):
        raise InputError(f"a model must have counts and scores(users); {type(model).__name__} has not")
    return open_counts(model.counts)


def _source(model: Any, given: Sequence[float | None]) -> ScoreSource:
    predictor = getattr(model, "_answering", None)
    exponents = tuple(check_exponent(one, isinstance(predictor, DrawPredictor)) for one in given)
    if isinstance(predictor, Predictor):  # a PairedSymbols: its store travels, not the object
        return Committed(predictor.commit, predictor.counts, exponents)
    if isinstance(predictor, DrawPredictor):
        return Sampled(tuple(predictor.commits), predictor.counts, exponents)
    return Scorer(model, exponents[0])
