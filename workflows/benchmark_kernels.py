"""Nanoseconds a pair of the kernels, and their share of the sgemm rate measured in the same run, on one core.

    python workflows/benchmark_kernels.py

Products counted are the (K + 1)(K + 2) / 2 of a triangular update; what a kernel computes beyond them does not count.
"""

from __future__ import annotations

import argparse
import time

import benchmarking
import numpy as np
from threadpoolctl import threadpool_limits

from pairsym_dask.kernels import moments
from pairsym_dask.kernels import rows as kernels
from pairsym_dask.kernels.layout import WHOLE, empty_table, padded_width, row_offsets, statistics_size


def make_table(rng: np.random.Generator, n: int, factors: int, dtype: str) -> np.ndarray:
    width = padded_width(factors)
    table = empty_table(n, width, dtype)
    mean = (0.1 * rng.standard_normal((n, factors))).astype(dtype)
    ones, zeros = np.ones((n, factors), dtype), np.zeros(n, dtype)
    values = kernels.Values(mean, ones, zeros, ones[:, 0].copy())
    kernels.fill_table(values, np.full(n, 1 / n), 1.0, width, table)
    return table


def best(function, repeats: int = 7) -> float:
    """Least processor time of several calls: other processes only ever add to it."""
    function()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


def sgemm_rate(dtype: str, n: int = 1024) -> float:
    """Products a second of one core."""
    a = np.random.default_rng(0).random((n, n)).astype(dtype)
    with threadpool_limits(1, "blas"):
        return n**3 / best(lambda: a @ a)


def measure(factors: int, dtype: str, rows: int, per_row: float, columns: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    width, size = padded_width(factors), statistics_size(factors)
    indptr = np.concatenate([[0], np.cumsum(rng.poisson(per_row, rows))])
    pairs = int(indptr[-1])
    indices = (rng.random(pairs) ** 2 * columns).astype(np.uint32)
    counts, censored = np.ones(pairs, np.uint8), np.full(rows, per_row)
    own, table = make_table(rng, rows, factors, dtype), make_table(rng, columns, factors, dtype)
    packed = np.zeros(size)
    flat = np.full(columns, 1 / columns), np.ones(columns)
    moments.add_background(table, columns, *flat, factors, False, packed, np.zeros(6))
    base, offsets = packed.astype(dtype), row_offsets(width)
    out = kernels.Values(*(np.empty(shape, dtype) for shape in ((rows, factors), (rows, factors), rows, rows)))
    stats, selection = np.zeros((rows, size), dtype), np.zeros((rows, 4))
    common = (kernels.Pairs(indptr[:-1], indptr[1:], indices, counts), kernels.OtherSide(WHOLE, table), own)
    terms = kernels.Terms(factors, offsets, censored, 0.24, base, np.full(rows, 0.1, dtype), 0.1, True, False)
    seconds = {
        "select": best(lambda: kernels.select_rows(*common, width, factors, False, selection)),
        "accumulate": best(lambda: kernels.add_statistics(*common, width, factors, censored, 0.24, False, stats)),
        "accumulate and solve": best(lambda: kernels.update_rows(*common, terms, out)),
    }
    return {name: value / pairs for name, value in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    table, rates = [], {dtype: sgemm_rate(dtype) for dtype in ("float32", "float64")}
    for dtype, rate in rates.items():
        print(f"{dtype}: {rate / 1e9:.0f} G products a second in a matrix product of one core")
    print(f"{'K':>4} {'type':8} {'pairs a row':>11} {'select':>8} {'accumulate':>11} {'and solve':>10}  ns; share")
    for dtype in rates:
        for factors in (1, 5, 10, 20, 32, 50, 64, 100, 128):
            for rows, per_row in ((int(400_000 / factors), 8.8), (2_000, 450.0)):
                times = measure(factors, dtype, max(rows, 2_000), per_row, 12_000)
                share = (factors + 1) * (factors + 2) / 2 / times["accumulate"] / rates[dtype]
                table.append({"factors": factors, "dtype": dtype, "pairs a row": per_row, "share": share, **times})
                select, accumulate, solve = (1e9 * value for value in times.values())
                numbers = f"{select:8.1f} {accumulate:11.1f} {solve:10.1f}  {share:.0%}"
                print(f"{factors:4d} {dtype:8} {per_row:11.1f} {numbers}", flush=True)
    benchmarking.save("kernels", {"sgemm": rates, "kernels": table}, arguments.results)


if __name__ == "__main__":
    main()
