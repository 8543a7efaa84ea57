"""Top ten of every user: this model's `recommend_all` against implicit's `recommend` in batches, same shapes.

python workflows/benchmark_recommend.py
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import benchmarking
import numpy as np

import pairsym_dask as ps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="xbox-movies")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=10_000, help="users of one call of implicit")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    from implicit.als import AlternatingLeastSquares

    folder = Path(tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    try:
        counts = ps.simulate(folder / "counts.zarr", preset=arguments.preset, scale=arguments.scale, random_state=0)
        model = ps.PairedSymbols(factors=arguments.factors).fit(counts, folder / "model.zarr", sweeps=5)
        matrix = counts.to_scipy().astype(np.float32)
        als = AlternatingLeastSquares(factors=arguments.factors, iterations=2, num_threads=arguments.threads)
        als.fit(matrix, show_progress=False)

        def ours() -> float:
            shutil.rmtree(folder / "top.parquet", ignore_errors=True)
            return benchmarking.timed(lambda: model.recommend_all(folder / "top.parquet", threads=arguments.threads))

        def theirs() -> None:
            for first in range(0, matrix.shape[0], arguments.batch):
                users = np.arange(first, min(first + arguments.batch, matrix.shape[0]))
                als.recommend(users, matrix[users], N=10, filter_already_liked_items=True)

        contenders = {"pairsym_dask": ours, "implicit": lambda: benchmarking.timed(theirs)}
        results = benchmarking.interleave(contenders, arguments.rounds)
        ratio = results["pairsym_dask"]["median"] / results["implicit"]["median"]
        for name, result in results.items():
            print(f"{name:14s} {result['median']:7.2f} s ({result['least']:.2f} to {result['most']:.2f})")
        print(f"ours / implicit = {ratio:.2f} (ours also writes a Parquet folder; implicit keeps arrays)")
        benchmarking.save(
            "recommend", {"shape": counts.shape, "factors": arguments.factors, "seconds": results, "ratio": ratio},
            arguments.results,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
