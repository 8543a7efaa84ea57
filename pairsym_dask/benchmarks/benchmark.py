"""One protocol for all: settings chosen on the validation part, fitted to train + valid, reported on the test part.

Every trial that is done is in the record, a JSON file, before the next one begins: a benchmark that was stopped goes on
where it was, and more trials or contenders can be added to a record later.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..display import cards as display
from ..errors import InputError
from ..evaluation.evaluate import evaluate_ways
from ..options import seed, whole_number
from ..pairs.ingest import ingest
from ..store.counts import Counts, open_counts
from .contenders import CONTENDERS, Contender
from .parts import Parts

VERSION = 2  # of the record
N = 20  # the length of lists that public tables have
MEASURES = ("recall", "ndcg", "R", "log_likelihood")
METRICS = ("recall", "ndcg", "R")


@dataclass(frozen=True, repr=False)
class Benchmark:
    """The record of a benchmark, and its table: a row a contender, best NDCG first."""

    record: dict[str, Any]

    @property
    def table(self) -> pd.DataFrame:
        """Contender, number of trials, the chosen trial's NDCG on valid, measures on test, seconds of the last fit."""
        rows = [
            {"contender": name, "trials": len(one["trials"]), "valid ndcg": one["chosen"]["ndcg"], **one["test"]}
            for name, one in self.record["contenders"].items()
            if "test" in one
        ]
        if not rows:
            return pd.DataFrame(columns=["contender"])
        return pd.DataFrame(rows).sort_values("ndcg", ascending=False, kind="stable").reset_index(drop=True)

    def _words(self) -> tuple[list[str], list[list[str]]]:
        titles = {"recall": f"recall@{N}", "ndcg": f"NDCG@{N}", "valid ndcg": f"valid NDCG@{N}"}
        titles |= {"log_likelihood": "log p(j|i)"}
        table = self.table
        rows = [
            [f"{x:.4f}" if isinstance(x, float) and x == x else "-" if x is None or x != x else str(x) for x in row]
            for row in table.drop(columns="seconds", errors="ignore").astype(object).to_numpy().tolist()
        ]
        seconds = [f"{x:.1f}" for x in table["seconds"]] if "seconds" in table else []
        head = [titles.get(str(name), str(name)) for name in table if name != "seconds"]
        return [*head, "seconds"], [[*row, s] for row, s in zip(rows, seconds, strict=True)]

    def _caption(self) -> str:
        r = self.record
        return (
            f"{r['set']}: {r['users']:,} users x {r['items']:,} items, {r['pairs']['train']:,} training, "
            f"{r['pairs']['valid']:,} validation and {r['pairs']['test']:,} test pairs; settings chosen by "
            f"{r['metric']} on valid, figures on test after a fit to train + valid"
        )

    def __repr__(self) -> str:
        head, rows = self._words()
        return f"{pd.DataFrame(rows, columns=head).to_string(index=False)}\n{self._caption()}"

    def _repr_html_(self) -> str:
        return f"{display.table(*self._words())}<p>{self._caption()}</p>"


def benchmark(
    name: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    contenders: Sequence[str] | None = None,
    trials: int = 4,
    users: int = 10_000,
    metric: str = "ndcg",
    random_state: int = 0,
    folder: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> Benchmark:
    """Tune contenders on a set's validation part and report them on its test part.

    Every contender gets the same number of trials, or as many as its space has: half of them at random, the others one
    step of one setting away from the best so far. A trial is one fit to the training part, judged on the validation
    part (this package's model by the best of a few exponents of popularity, which take no other fit). What the record
    has already is not run again.

    Parameters
    ----------
    name : str or path
        A public set ("gowalla"), or a file with columns user, item and part (train, valid, test).
    output : path
        The record, a JSON file.
    source : path, optional
        Where a public set's pairs are, checked by a checksum.
    contenders : list of str, optional
        Who takes part; all by default.
    trials : int
        Settings that each is tried with.
    users : int
        Validation users that judge a trial, at most.
    metric : {"ndcg", "recall", "R"}
        What settings are chosen by.
    random_state : int
        Seed.
    folder : path, optional
        For temporary stores.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    progress : bool
        Say what is being done.

    Returns
    -------
    Benchmark
        The record as a table.

    Examples
    --------
    >>> import pandas as pd
    >>> part = ["train", "valid", "test"] * 2
    >>> pd.DataFrame({"user": [0, 0, 0, 1, 1, 1], "item": [0, 1, 2, 1, 2, 0], "part": part}).to_parquet("parts.parquet")
    >>> found = ps.benchmark("parts.parquet", "parts.json", contenders=["popularity"], trials=1)
    >>> len(found.table)
    1
    """
    if metric not in METRICS:
        raise InputError(f"metric must be {', '.join(METRICS)}, not {metric!r}")
    chosen = _choose(contenders)
    trials, users = whole_number("trials", trials, least=1), whole_number("users", users, least=1)
    parts = Parts.read(os.fspath(name), source, seed(random_state))
    head = {
        "version": VERSION,
        "set": parts.name,
        "digest": parts.digest,
        "users": parts.matrices["train"].shape[0],
        "items": parts.matrices["train"].shape[1],
        "pairs": {part: int(matrix.nnz) for part, matrix in parts.matrices.items()},
        "metric": metric,
        "judged_users": users,
        "random_state": int(random_state),
    }
    record = _open_record(Path(output), head)
    with tempfile.TemporaryDirectory(prefix="pairsym-benchmark-", dir=folder) as place:
        runner = _Runner(parts, record, Path(output), place, trials, threads)
        for contender in tqdm(chosen, desc="benchmark", unit="contender", disable=not progress):
            runner.run(contender, chosen[contender], progress)
    return Benchmark(record)


def _choose(contenders: Sequence[str] | None) -> dict[str, Contender]:
    if contenders is None:
        return CONTENDERS
    for one in contenders:
        if one not in CONTENDERS:
            raise InputError(f"there is no contender {one!r}; there are {', '.join(CONTENDERS)}")
    return {one: CONTENDERS[one] for one in contenders}


def _open_record(path: Path, head: dict[str, Any]) -> dict[str, Any]:
    """The record at a path if it is of the same benchmark, else a new one."""
    if not path.exists():
        return {**head, "contenders": {}}
    try:
        record = _renewed(json.loads(path.read_text()))
        there = {name: record[name] for name in head}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is in the way: it is not the record of a benchmark") from None
    for name, value in head.items():
        if there[name] != value:
            raise InputError(f"{path} is the record of another benchmark: its {name} is {there[name]!r}, not {value!r}")
    return dict(record)


def _renewed(record: dict[str, Any]) -> dict[str, Any]:
    """A record as it is written now: the first version had the exponent of popularity among the settings."""
    if record["version"] != 1:
        return record
    for one in record["contenders"].values():
        for trial in [*one["trials"], *filter(None, [one.get("chosen")])]:
            trial["popularity"] = trial["settings"].pop("popularity", None)
    return {**record, "version": VERSION}


@dataclass(frozen=True)
class _Runner:
    """Fits and judges; writes the record after each step."""

    parts: Parts
    record: dict[str, Any]
    output: Path
    place: str
    trials: int
    threads: int | None

    def run(self, name: str, contender: Contender, progress: bool) -> None:
        metric = self.record["metric"]
        mine = self.record["contenders"].setdefault(name, {"trials": []})
        while (settings := self._next(contender, mine["trials"])) is not None:
            judged = (contender.popularities, "train", "valid", self.record["judged_users"])
            found = max(self._judge(contender, settings, *judged), key=lambda one: one[metric])
            mine["trials"].append({"settings": settings, **found})
            self._write()
            if progress:
                tqdm.write(f"{name} {settings}: {metric} {found[metric]:.4f} on valid, {found['seconds']:.0f} s")
        best = max(mine["trials"], key=lambda one: one[metric])
        if mine.get("chosen") != best or "test" not in mine:
            mine["chosen"] = best
            (test,) = self._judge(contender, best["settings"], (best["popularity"],), "both", "test", None)
            mine["test"] = {name: value for name, value in test.items() if name != "popularity"}
            self._write()
        if progress:
            test = mine["test"]
            tqdm.write(f"{name}: recall@{N} {test['recall']:.4f}, NDCG@{N} {test['ndcg']:.4f} on test")

    def _next(self, contender: Contender, trials: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What is tried after some trials: half of all at random, then neighbours of the best, while there are any."""
        done = [one["settings"] for one in trials]
        if len(done) >= self.trials:
            return None
        random_state, metric = self.record["random_state"], self.record["metric"]
        left = [one for one in contender.trials(self.trials, random_state) if one not in done]
        if done and 2 * len(done) >= self.trials:
            best = max(trials, key=lambda one: one[metric])["settings"]
            near = [one for one in contender.neighbours(best) if one not in done]
            if near:
                return near[np.random.default_rng([random_state, len(done)]).integers(len(near))]
        return left[0] if left else None

    def _judge(
        self,
        contender: Contender,
        settings: dict[str, Any],
        popularities: Sequence[float | None],
        fitted: str,
        judged: str,
        users: int | None,
    ) -> list[dict[str, Any]]:
        """Fit to one part, judge by another, once for each exponent of popularity."""
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=self.place) as folder:
            model = contender.fit(settings, self._store(fitted), os.path.join(folder, "model.zarr"), self.threads)
            seconds = round(time.perf_counter() - began, 2)
            held_out = self.parts.held_out(judged, users, self.record["random_state"])
            ways = evaluate_ways(model, held_out, popularities, N, threads=self.threads)
        rows = [{name: float(way.overall[name]) for name in MEASURES} for way in ways]
        # JSON has no NaN: a system without probabilities has no log-likelihood.
        return [
            {"popularity": g, **{k: v if np.isfinite(v) else None for k, v in row.items()}, "seconds": seconds}
            for g, row in zip(popularities, rows, strict=True)
        ]

    def _store(self, fitted: str) -> Counts:
        """The counts store of the training part, or of train + valid; every symbol of the set is in both."""
        path = Path(self.place) / f"{fitted}.zarr"
        if path.exists():
            return open_counts(path)
        matrices = self.parts.matrices
        return ingest(matrices["train"] if fitted == "train" else matrices["train"] + matrices["valid"], path)

    def _write(self) -> None:
        """Whole or not at all."""
        temporary = self.output.with_name(f".{self.output.name}.part")
        temporary.write_text(json.dumps(self.record, indent=1) + "\n")
        os.replace(temporary, self.output)
