"""Seconds a sweep of this model against an iteration of what people use instead, on the same simulated pairs.

    python workflows/benchmark_sweep.py --factors 20 --rounds 5

Every contender does the same work between two clock readings: one more pass of its training loop from where it stood
(implicit, this model) or, where a library cannot go on, a fit of three passes minus a fit of one (cmfrec, Spark).
This model reads its pairs from a store on disk and commits every sweep; the others hold theirs in memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import benchmarking
import numpy as np

import pairsym_dask as ps


def ours(counts: ps.Counts, folder: Path, factors: int, threads: int):
    """One more sweep of a fit that stays open, everything committed."""
    model = ps.PairedSymbols(factors=factors)
    sweeps = {"done": 1}
    model.fit(counts, folder / "model.zarr", sweeps=1, progress=False, threads=threads)
    seconds: list[float] = []

    def run() -> float:
        sweeps["done"] += 2
        seconds.clear()
        model.fit(
            counts, folder / "model.zarr", sweeps=sweeps["done"], progress=False, threads=threads,
            callback=lambda sweep, elbo, took: seconds.append(took),
        )  # fmt: skip
        return seconds[-1]  # the first one of a call reads tiles and tables that a long fit has in memory

    return run


def implicit_als(matrix, factors: int, threads: int, use_cg: bool):
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=factors, iterations=1, use_cg=use_cg, num_threads=threads, random_state=0, calculate_training_loss=False
    )
    model.fit(matrix, show_progress=False)
    times: list[float] = []

    def run() -> float:
        times.clear()
        model.fit(matrix, show_progress=False, callback=lambda iteration, took, *loss: times.append(took))
        return times[-1]

    return run


def implicit_bpr(matrix, factors: int, threads: int):
    from implicit.bpr import BayesianPersonalizedRanking

    def fit(iterations: int) -> float:
        model = BayesianPersonalizedRanking(factors=factors, iterations=iterations, num_threads=threads, random_state=0)
        return benchmarking.timed(lambda: model.fit(matrix, show_progress=False))

    return lambda: (fit(3) - fit(1)) / 2


def cmfrec_implicit(matrix, factors: int, threads: int):
    from cmfrec import CMF_implicit

    def fit(iterations: int) -> float:
        model = CMF_implicit(k=factors, niter=iterations, nthreads=threads, use_float=True, verbose=False)
        return benchmarking.timed(lambda: model.fit(matrix.tocoo()))

    return lambda: (fit(3) - fit(1)) / 2


def spark_als(matrix, factors: int, threads: int):
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.driver.memory", "10g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(4 * threads))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    coo = matrix.tocoo()
    folder = tempfile.mkdtemp()
    import pandas as pd

    frame = pd.DataFrame({"user": coo.row, "item": coo.col, "rating": coo.data.astype(np.float32)})
    frame.to_parquet(f"{folder}/pairs.parquet")
    data = spark.read.parquet(f"{folder}/pairs.parquet").cache()
    data.count()

    def fit(iterations: int) -> float:
        als = ALS(
            rank=factors, maxIter=iterations, implicitPrefs=True, userCol="user", itemCol="item", ratingCol="rating",
            numUserBlocks=2 * threads, numItemBlocks=2 * threads, seed=0,
        )  # fmt: skip
        return benchmarking.timed(lambda: als.fit(data))

    return lambda: (fit(3) - fit(1)) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="xbox-movies")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peers", nargs="*", default=["als-cg", "als-cholesky", "bpr", "cmfrec", "spark"],
        choices=["als-cg", "als-cholesky", "bpr", "cmfrec", "spark"],
    )  # fmt: skip
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    load = benchmarking.look_at_load()

    folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    try:
        counts = ps.simulate(folder / "counts.zarr", preset=arguments.preset, scale=arguments.scale, random_state=0)
        print(counts, file=sys.stderr)
        factors, threads = arguments.factors, arguments.threads
        matrix = counts.to_scipy().astype(np.float32)
        makers = {
            "als-cg": lambda: implicit_als(matrix, factors, threads, True),
            "als-cholesky": lambda: implicit_als(matrix, factors, threads, False),
            "bpr": lambda: implicit_bpr(matrix, factors, threads),
            "cmfrec": lambda: cmfrec_implicit(matrix, factors, threads),
            "spark": lambda: spark_als(matrix, factors, threads),
        }
        contenders = {"pairsym_dask": ours(counts, folder, factors, threads)}
        contenders |= {name: makers[name]() for name in arguments.peers}
        results = benchmarking.interleave(contenders, arguments.rounds)
        mine = results["pairsym_dask"]["median"]
        ratios = {name: mine / result["median"] for name, result in results.items() if name != "pairsym_dask"}
        for name, result in results.items():
            ratio = f"  ours / this = {ratios[name]:.2f}" if name in ratios else ""
            print(f"{name:14s} {result['median']:7.3f} s ({result['least']:.3f} to {result['most']:.3f}){ratio}")
        benchmarking.save(
            f"sweep-k{factors}",
            {
                "preset": arguments.preset, "scale": arguments.scale, "factors": factors, "threads": threads,
                "pairs": counts.nnz, "shape": counts.shape, "load": load, "seconds": results, "ratios": ratios,
            },
            arguments.results,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
