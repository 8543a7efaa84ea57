"""Settings chosen by held-out pairs of the training store: successive halving over resumed fits.

All candidates are fitted for a few sweeps and ranked; the better half goes on from where it stopped to more sweeps,
and so on. The exponent of popularity is scored for several values from the same energies, without another fit. Then
each setting of the winner is put back to its default, one at a time: what is lost is what that setting is worth.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from ..display.charts import GREY, Axis, Chart
from ..display.plots import plot_lines
from ..errors import InputError, NumericError
from ..options import whole_number
from ..pairs.splits import leave_one_out
from ..run.progress import Tally
from ..settings import POPULARITY, Settings
from ..store.commit import Commit
from ..store.counts import Counts, open_counts
from ..store.model_store import ModelStore
from ..store.storage import is_local
from ..sweep.fit import fit
from .evaluate import summarise
from .held_out import HeldOutPairs
from .ranks import Committed, rank

SPACE: dict[str, tuple[Any, ...]] = {
    "factors": (64, 128),
    "censored_ratio": (10.0, 20.0),
    "tau": (0.5, 1.0, 2.0),
    "prior_growth": (0.7, 1.0),
    "background_users": (0.2, 0.4, 0.7),
    "background_items": (0.4, 0.7),
    "temperature": (0.0, 0.1, 0.3),
    "discount": (0.0, 0.2, 0.4),
}
WORTH = "what each setting is worth"
MOST = 20  # times the sweeps of one fit to the last rung: a search never takes more
POPULARITIES = (0.0, 0.2, POPULARITY, 0.5, 0.75, 1.0)
TAUS = ("tau_u", "tau_v", "tau_b")
MEASURES = ("R", "hr", "ndcg", "mrr", "log_likelihood")


@dataclass(frozen=True, repr=False)
class Tuning:
    """What `tune` found: `PairedSymbols(**best)`, fitted for `sweeps` sweeps, ranked with `popularity`.

    `frame` is the whole curve, a row a candidate, number of sweeps and popularity: the measures and `score`, the
    chosen metric; a candidate whose numbers ran off has NaN. The first candidate is the defaults. `worth` has a row a
    setting that the winner of the halving has from the space: its value, the default, the score with the default in
    its place, and the difference, what the setting is worth here (below 0 it does harm, and `best` is without it).
    `cost` is in fits, each as long as the last of `sweeps`.
    """

    metric: str
    frame: pd.DataFrame
    candidates: list[dict[str, Any]]
    worth: pd.DataFrame
    cost: float

    @property
    def _row(self) -> pd.Series:
        # Among equals the default exponent: the log-likelihood does not depend on it.
        order = self.frame.assign(far=(self.frame["popularity"] - POPULARITY).abs()).dropna(subset="score")
        return order.sort_values(["score", "far"], ascending=[False, True], kind="stable").iloc[0]

    @property
    def best(self) -> dict[str, Any]:
        """The settings of the best row."""
        return dict(self.candidates[int(self._row["candidate"])])

    @property
    def sweeps(self) -> int:
        return int(self._row["sweeps"])

    @property
    def popularity(self) -> float:
        return float(self._row["popularity"])

    @property
    def score(self) -> float:
        """The metric on the held-out pairs, where the best was chosen: a little too good for that."""
        return float(self._row["score"])

    @property
    def table(self) -> pd.DataFrame:
        """The best row of each candidate, best first."""
        best = self.frame.sort_values("score", ascending=False, kind="stable").drop_duplicates("candidate")
        return best.reset_index(drop=True)

    def _caption(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.best.items())
        found = f"best {self.metric} {self.score:.4f}: {settings}; sweeps={self.sweeps}, popularity={self.popularity:g}"
        return f"{found}; the search cost {self.cost:.1f} fits of {self.frame['sweeps'].max()} sweeps"

    def __repr__(self) -> str:
        return "\n\n".join([*(_words(table) for table in self._tables()), self._caption()])

    def _repr_html_(self) -> str:
        tables = (table.to_html(index=False, float_format="{:.4g}".format, na_rep="-") for table in self._tables())
        return f"{''.join(tables)}<p>{self._caption()}</p>"

    def _tables(self) -> list[pd.DataFrame]:
        """The candidates, and what each setting is worth where the winner has others than the defaults."""
        return [self.table, self.worth.rename(columns={"setting": WORTH})][: 1 + bool(len(self.worth))]

    def plot(self, ax: Any = None) -> Any:
        """The metric by sweeps, a line a candidate, each at its best exponent; the axes."""
        chart = Chart(Axis("sweeps"), Axis(self.metric))
        best = self._row["candidate"]
        for number in sorted(self.frame["candidate"].unique(), key=lambda number: number == best):
            line = self.frame[self.frame["candidate"] == number].groupby("sweeps")["score"].max()
            chart.line(line.index, line, "best" if number == best else "", 0 if number == best else GREY)
        return plot_lines(chart, ax)


def tune(
    counts: Counts | str | os.PathLike[str],
    *,
    metric: str = "ndcg@10",
    space: Mapping[str, Sequence[Any]] | None = None,
    candidates: int = 12,
    sweeps: Sequence[int] = (10, 20, 40),
    users: int = 10_000,
    random_state: int = 0,
    folder: str | os.PathLike[str] | None = None,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    progress: bool = False,
) -> Tuning:
    """Choose settings by one held-out pair of each user of a training store.

    Candidates are fitted for the first of `sweeps`, the better half (and the defaults) goes on to the next, and so on;
    then
    the winner is fitted with each of its settings at the default, as far as twenty times the sweeps of one fit allow,
    which
    a search never exceeds.

    Parameters
    ----------
    counts : Counts or path
        A training store.
    metric : str
        ``"ndcg@10"`` (any n), "rank" (the paper's R) or "log_likelihood".
    space : dict, optional
        Values by setting, "tau" standing for all three precisions.
    candidates : int
        Combinations of the space to try, drawn at random, after the defaults.
    sweeps : sequence of int
        Rungs of the halving.
    users, random_state : int
        Held-out pairs to rank, at most; the seed.
    folder : path, optional
        For temporary stores; beside the counts store by default.
    client, threads, memory : optional
        Where tasks run and within which budget, as in `fit`.
    progress : bool
        Show the best score so far: a bar on a terminal, elsewhere a line a fit.

    Returns
    -------
    Tuning
        `best`, `sweeps`, `popularity`, `worth`, `frame`.

    Examples
    --------
    >>> found = ps.tune("plays.zarr", space={"factors": (1, 2)}, candidates=2, sweeps=(1,))
    >>> sorted(found.best)
    ['factors']
    """
    measure, n = _parse_metric(metric)
    combinations = _combinations(SPACE if space is None else space, candidates, random_state)
    rungs = _check_rungs(sweeps)
    halving = _cost(len(combinations), rungs)
    if halving > MOST:
        raise InputError(
            f"{len(combinations)} candidates over {tuple(rungs)} sweeps cost {halving:.1f} fits of {rungs[-1]} sweeps, "
            f"and a search takes at most {MOST}: give fewer candidates, or fewer sweeps before the last"
        )
    users = whole_number("users", users, least=1)
    counts = open_counts(counts)
    if folder is None:
        if not is_local(counts.path):
            raise InputError("the counts store is not local: give folder=, a place for temporary stores")
        folder = os.path.dirname(counts.path)
    with tempfile.TemporaryDirectory(prefix="pairsym-tune-", dir=folder) as place:
        where: dict[str, Any] = {"client": client, "threads": threads, "memory": memory}
        train, held_out = leave_one_out(counts, os.path.join(place, "train.zarr"), random_state, **where)
        if len(held_out) > users:
            held_out = held_out.sample(users, random_state=random_state).sort_index().reset_index(drop=True)
        trial = _Trial(train, held_out, HeldOutPairs.read(held_out, train), measure, n, random_state, place, where)
        with closing(Tally(progress, "tune", "fit", _fits(len(combinations), len(rungs)))) as tally:
            search = _Search(trial, combinations, tally)
            search.halve(rungs)
            worth = search.take_back(rungs[-1], MOST - halving)
    return Tuning(metric, pd.DataFrame(search.rows), combinations, worth, search.sweeps / rungs[-1])


class _Search:
    """Candidates on their way: what was found of each, and how many sweeps that took."""

    def __init__(self, trial: _Trial, candidates: list[dict[str, Any]], tally: Tally) -> None:
        self.trial, self.candidates, self.tally = trial, candidates, tally
        self.rows: list[dict[str, Any]] = []
        self.done: dict[int, int] = {}  # sweeps of each candidate
        self.sweeps, self.best = 0, -np.inf

    def run(self, number: int, total: int) -> float:
        """Go on with a candidate to so many sweeps; its best score."""
        found = self.trial.run(number, self.candidates[number], total)
        self.sweeps += total - self.done.get(number, 0)
        self.done[number] = total
        self.rows += found
        score = max(row["score"] for row in found)
        self.best = max(self.best, np.nan_to_num(score, nan=-np.inf))
        self.tally.done(f"candidate {number} at {total} sweeps {score:.4f}", f"best {self.best:.4f}")
        return float(score)

    def halve(self, rungs: list[int]) -> None:
        alive = list(range(len(self.candidates)))
        for total in rungs:
            scores = {number: self.run(number, total) for number in alive}
            # The defaults stay to the end: what is chosen is then better than they are, here, or is them.
            ranked = sorted(alive, key=lambda number: (number > 0, -np.nan_to_num(scores[number], nan=-np.inf)))
            alive = [number for number in ranked[: _half(len(alive))] if not np.isnan(scores[number])]
        if np.isinf(self.best):
            raise NumericError("the numbers of every candidate ran off; larger taus may help")

    def take_back(self, most_sweeps: int, fits: float) -> pd.DataFrame:
        """The winner with each setting at its default, one at a time, as many as so many fits allow."""
        winner = max((row for row in self.rows if not np.isnan(row["score"])), key=lambda row: row["score"])
        settings, sweeps = self.candidates[winner["candidate"]], winner["sweeps"]
        rows, left = [], fits * most_sweeps
        for names, value, default in _levers(settings, self.candidates[0]):
            changed = settings | {name: self.candidates[0][name] for name in names}
            score = np.nan
            if left >= sweeps and _is_sound(changed):
                if changed not in self.candidates:
                    self.candidates.append(changed)
                number = self.candidates.index(changed)
                if self.done.get(number, 0) >= sweeps:  # it was judged on its way
                    score = max(r["score"] for r in self.rows if (r["candidate"], r["sweeps"]) == (number, sweeps))
                else:
                    self.tally.more(1)
                    score, left = self.run(number, sweeps), left - sweeps
            name = "tau" if len(names) > 1 else names[0]
            worth = winner["score"] - score
            rows.append({"setting": name, "value": value, "default": default, "score": score, "worth": worth})
        columns = ["setting", "value", "default", "score", "worth"]
        return pd.DataFrame(rows, columns=columns).sort_values(
            "worth", ascending=False, kind="stable", ignore_index=True
        )


def _words(table: pd.DataFrame) -> str:
    return str(table.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))


def _levers(settings: dict[str, Any], defaults: dict[str, Any]) -> list[tuple[list[str], Any, Any]]:
    """Settings that differ from the defaults, with both values; the three taus are one where they are equal."""
    tied = set(TAUS) <= set(settings) and len({(settings[tau], defaults[tau]) for tau in TAUS}) == 1
    groups = [[name] for name in settings if not (tied and name in TAUS)] + ([list(TAUS)] if tied else [])
    return [(one, settings[one[0]], defaults[one[0]]) for one in groups if settings[one[0]] != defaults[one[0]]]


def _is_sound(settings: dict[str, Any]) -> bool:
    """Whether settings go together."""
    try:
        Settings(**settings)
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class _Trial:
    """What every candidate is tried on."""

    train: Counts
    held_out: pd.DataFrame
    pairs: HeldOutPairs
    measure: str
    n: int
    random_state: int
    place: str
    where: dict[str, Any]

    def run(self, number: int, settings: dict[str, Any], sweeps: int) -> list[dict[str, Any]]:
        """Go on with a candidate to so many sweeps; a row for each exponent of popularity."""
        head = {"candidate": number, **settings, "sweeps": sweeps}
        store = ModelStore(os.path.join(self.place, f"candidate-{number}.zarr"))
        try:
            commit = fit(
                self.train, Settings(**settings, random_state=self.random_state), store, sweeps=sweeps, **self.where
            )
        except NumericError:
            return [{**head, "popularity": g, "score": np.nan} for g in POPULARITIES]
        return [{**head, **row} for row in self._judge(commit)]

    def _judge(self, commit: Commit) -> list[dict[str, Any]]:
        ranks = rank(Committed(commit, self.train, POPULARITIES), self.train, self.pairs, **self.where)
        rows = []
        for way, popularity in enumerate(POPULARITIES):
            overall = summarise(ranks, way, self.train, self.pairs, self.held_out, (self.n,)).overall
            measures = {name: overall[name] for name in MEASURES}
            rows.append({"popularity": popularity, "score": overall[self.measure], **measures})
        return rows


def _parse_metric(metric: str) -> tuple[str, int]:
    """The measure's column and n."""
    match = re.fullmatch(r"ndcg@([1-9]\d*)", str(metric))
    if match:
        return "ndcg", int(match[1])
    if metric not in ("rank", "log_likelihood"):
        raise InputError(f'metric must be "ndcg@10" (or another n), "rank" or "log_likelihood", not {metric!r}')
    return ("R" if metric == "rank" else metric), 10


def _combinations(space: Mapping[str, Sequence[Any]], most: int, random_state: int) -> list[dict[str, Any]]:
    """Settings to try: the defaults of what the space names, then others, drawn at random if there are too many."""
    most = whole_number("candidates", most, least=1)
    known = [field.name for field in fields(Settings) if field.name != "random_state"]
    for name, values in space.items():
        if name not in [*known, "tau"]:
            raise InputError(f"space has no setting {name!r}; there are {', '.join(known)}, and tau for all three taus")
        if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)) or len(values) == 0:
            raise InputError(f"space needs a list of values for {name}, not {values!r}")
    if not space:
        raise InputError("space is empty: there is nothing to choose")
    if "tau" in space and any(tau in space for tau in TAUS):
        raise InputError("space has tau, which stands for all three, beside one of tau_u, tau_v, tau_b")
    found = []
    for values in itertools.product(*space.values()):
        named = dict(zip(space, values, strict=True))
        if "tau" in named:
            named |= dict.fromkeys(TAUS, named.pop("tau"))
        checked = Settings(**named)
        found.append({name: getattr(checked, name) for name in named})
    defaults = {name: getattr(Settings(), name) for name in found[0]}
    others = [one for one in found if one != defaults]
    order = np.random.default_rng(random_state).permutation(len(others))[: most - 1]
    return [defaults, *(others[k] for k in sorted(order))]


def _check_rungs(sweeps: Sequence[int]) -> list[int]:
    try:
        rungs = [int(total) for total in sweeps]
        sound = rungs == list(sweeps) and rungs == sorted(set(rungs)) and rungs[0] >= 1
    except (TypeError, ValueError, IndexError):
        sound = False
    if not sound:
        raise InputError(f"sweeps must be whole numbers that grow, such as (5, 10, 20), not {sweeps!r}")
    return rungs


def _half(candidates: int) -> int:
    """How many go on: half, but always someone beside the defaults."""
    return min(candidates, max(2, -(-candidates // 2)))


def _cost(candidates: int, rungs: list[int]) -> float:
    """Sweeps of a whole halving over those of one fit to the last rung.

    >>> _cost(12, [10, 20, 40])
    6.0
    """
    total, before = 0, 0
    for rung in rungs:
        total += candidates * (rung - before)
        candidates, before = _half(candidates), rung
    return total / rungs[-1]


def _fits(candidates: int, rungs: int) -> int:
    """Fits of a whole halving.

    >>> _fits(12, 3)
    21
    """
    total = 0
    for _ in range(rungs):
        total += candidates
        candidates = _half(candidates)
    return total
