"""Seconds of fitting until lists are as good as they get: this model against implicit's ALS and BPR on gowalla.

    python workflows/benchmark_time_to_quality.py gowalla-public.parquet --factors 64

Each contender fits the training pairs of the public split, pass after pass; after each pass NDCG@10 of some users'
validation items is taken, whose time does not count. A contender is there when NDCG@10 is within 1 % of the best it
reaches at all. ALS has the alpha of the given ones that gets furthest, which flatters it: its search does not count.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import benchmarking
import numpy as np
import pandas as pd
import scipy.sparse as sp

import pairsym_dask as ps

Judge = Callable[[np.ndarray], float]
Line = list[tuple[float, float]]  # seconds so far, NDCG@10


def make_judge(held_out: sp.csr_matrix, users: np.ndarray) -> Judge:
    """NDCG@10 of lists (users, 10), with the ideal gain of min(10, held-out items)."""
    gains = 1 / np.log2(np.arange(2, 12))
    ideal = np.cumsum(gains)

    def judge(lists: np.ndarray) -> float:
        total = 0.0
        for user, found in zip(users, lists, strict=True):
            items = held_out.indices[held_out.indptr[user] : held_out.indptr[user + 1]]
            total += gains[np.isin(found, items)].sum() / ideal[min(10, items.size) - 1]
        return total / users.size

    return judge


def ours(frame: pd.DataFrame, users: np.ndarray, judge: Judge, factors: int, sweeps: int, threads: int) -> Line:
    folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    line: Line = []
    try:
        counts = ps.ingest(frame, folder / "counts.zarr")

        def note(sweep: int, elbo: float, seconds: float) -> None:
            table = ps.load(folder / "model.zarr").recommend(users, n=10)
            lists = table["item"].to_numpy().reshape(users.size, 10)
            line.append((seconds + (line[-1][0] if line else 0.0), judge(lists)))

        model = ps.PairedSymbols(factors=factors)
        model.fit(counts, folder / "warm-up.zarr", sweeps=1, threads=threads, progress=False)  # compiles
        model = ps.PairedSymbols(factors=factors)
        model.fit(counts, folder / "model.zarr", sweeps=sweeps, threads=threads, progress=False, callback=note)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return line


def theirs(model: object, matrix: sp.csr_matrix, users: np.ndarray, judge: Judge) -> Line:
    """A model of implicit, looked at after each of its passes."""
    line: Line = []

    def note(iteration: int, seconds: float, *rest: object) -> None:
        lists, _ = model.recommend(users, matrix[users], N=10, filter_already_liked_items=True)
        line.append((seconds + (line[-1][0] if line else 0.0), judge(lists)))

    model.fit(matrix, show_progress=False, callback=note)
    return line


def contenders(arguments: argparse.Namespace, matrix: sp.csr_matrix) -> Iterator[tuple[str, object]]:
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    shared = {"factors": arguments.factors, "num_threads": arguments.threads, "random_state": 0}
    for alpha in arguments.alphas:
        yield (
            f"implicit ALS, alpha {alpha:g}",
            AlternatingLeastSquares(alpha=alpha, iterations=arguments.iterations, **shared),
        )
    for rate in arguments.rates:
        yield (
            f"implicit BPR, rate {rate:g}",
            BayesianPersonalizedRanking(learning_rate=rate, iterations=arguments.epochs, **shared),
        )


def summary(line: Line) -> dict[str, float]:
    best = max(quality for _, quality in line)
    seconds, passes = next((s, k + 1) for k, (s, quality) in enumerate(line) if quality >= 0.99 * best)
    return {"best": best, "seconds": seconds, "passes": passes, "seconds a pass": line[-1][0] / len(line)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="the public split, with columns user, item and part")
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--sweeps", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=20, help="of ALS")
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.0, 10.0, 40.0])
    parser.add_argument("--epochs", type=int, default=100, help="of BPR")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05])
    parser.add_argument("--users", type=int, default=3000, help="whose validation items are looked for")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    load = benchmarking.look_at_load()

    pairs = pd.read_parquet(arguments.source)
    shape = int(pairs["user"].max()) + 1, int(pairs["item"].max()) + 1
    parts = {}
    for part in ("train", "valid"):
        frame = pairs.loc[pairs["part"] == part, ["user", "item"]]
        ones = np.ones(len(frame), np.float32)
        parts[part] = frame, sp.csr_matrix((ones, (frame["user"], frame["item"])), shape)
    (frame, matrix), (_, held_out) = parts["train"], parts["valid"]
    known = np.flatnonzero((np.diff(held_out.indptr) > 0) & (np.diff(matrix.indptr) > 0))
    users = np.sort(np.random.default_rng(0).choice(known, min(arguments.users, known.size), replace=False))
    judge = make_judge(held_out, users)

    lines = {"pairsym_dask": ours(frame, users, judge, arguments.factors, arguments.sweeps, arguments.threads)}
    for name, model in contenders(arguments, matrix):
        lines[name] = theirs(model, matrix, users, judge)
    results = {name: summary(line) for name, line in lines.items()}
    for name, result in results.items():
        print(
            f"{name:26s} best NDCG@10 {result['best']:.4f}, within 1 % of it after {result['seconds']:6.2f} s "
            f"({result['passes']:.0f} passes)"
        )
    benchmarking.save(
        f"time-to-quality-k{arguments.factors}",
        {"load": load, "factors": arguments.factors, "users": int(users.size), "results": results, "lines": lines},
        arguments.results,
    )


if __name__ == "__main__":
    main()
