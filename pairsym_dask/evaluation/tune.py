"""Settings chosen by held-out pairs of the training store: successive halving over resumed fits.

All candidates are fitted for a few sweeps and ranked; the better half goes on from where it stopped to more sweeps,
and so on. The exponent of popularity is scored for several values from the same energies, without another fit.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..display.charts import GREY, Axis, Chart
from ..display.plots import plot_lines
from ..errors import InputError, NumericError
from ..options import whole_number
from ..pairs.splits import leave_one_out
from ..settings import POPULARITY, Settings
from ..store.commit import Commit
from ..store.counts import Counts, open_counts
from ..store.model_store import ModelStore
from ..store.storage import is_local
from ..sweep.fit import fit
from .evaluate import summarise
from .held_out import Pairs
from .ranks import Committed, rank

SPACE = {"factors": (10, 20, 40), "censored_ratio": (2.0, 5.0, 10.0), "tau": (0.03, 0.1, 0.3)}
POPULARITIES = (0.0, 0.2, POPULARITY, 0.5, 0.75, 1.0)
TAUS = ("tau_u", "tau_v", "tau_b")
MEASURES = ("R", "hr", "ndcg", "mrr", "log_likelihood")


@dataclass(frozen=True, repr=False)
class Tuning:
    """What `tune` found: `PairedSymbols(**best)`, fitted for `sweeps` sweeps, ranked with `popularity`.

    `frame` is the whole curve, a row a candidate, number of sweeps and popularity: the measures and `score`, the
    chosen metric; a candidate whose numbers ran off has NaN. The first candidate is the defaults.
    """

    metric: str
    frame: pd.DataFrame
    candidates: list[dict[str, Any]]

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
        return f"best {self.metric} {self.score:.4f}: {settings}; sweeps={self.sweeps}, popularity={self.popularity:g}"

    def __repr__(self) -> str:
        return f"{self.table.to_string(index=False, float_format='{:.4g}'.format, na_rep='-')}\n{self._caption()}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, float_format="{:.4g}".format, na_rep="-")
        return f"{table}<p>{self._caption()}</p>"

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

    `metric` is "ndcg@10" (any n), "rank" (the paper's R) or "log_likelihood". `space` has values by setting, "tau"
    standing for all three precisions; at most `candidates` of its combinations are tried, drawn at random, after the
    defaults. They are fitted for the first of `sweeps`, the better half (and the defaults) goes on to the next, and so
    on. At most `users` held-out pairs are ranked. Temporary stores go into `folder`, else beside the counts store.
    """
    measure, n = _parse_metric(metric)
    combinations = _combinations(SPACE if space is None else space, candidates, random_state)
    rungs = _check_rungs(sweeps)
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
        trial = _Trial(train, held_out, Pairs.read(held_out, train), measure, n, random_state, place, where)
        rows: list[dict[str, Any]] = []
        alive = list(range(len(combinations)))
        with tqdm(total=_fits(len(alive), len(rungs)), desc="tune", unit="fit", disable=not progress) as bar:
            for total in rungs:
                scores = {}
                for number in alive:
                    found = trial.run(number, combinations[number], total)
                    rows += found
                    scores[number] = max(row["score"] for row in found)
                    bar.update()
                # The defaults stay to the end: what is chosen is then better than they are, here, or is them.
                ranked = sorted(alive, key=lambda number: (number > 0, -np.nan_to_num(scores[number], nan=-np.inf)))
                alive = [number for number in ranked[: _half(len(alive))] if not np.isnan(scores[number])]
    frame = pd.DataFrame(rows)
    if frame["score"].isna().all():
        raise NumericError("the numbers of every candidate ran off; larger taus may help")
    return Tuning(metric, frame, combinations)


@dataclass(frozen=True)
class _Trial:
    """What every candidate is tried on."""

    train: Counts
    held_out: pd.DataFrame
    pairs: Pairs
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
