"""Top ten by a nearest-neighbour index (hnswlib) and a re-ranking, against the exact lists of `recommend`.

The index is asked for items near a user; these are re-ranked by sigma * E[psi]^popularity, seen items left out. Three
kinds of vectors are tried:

- energy: [v_j, 1, b_j] as exported; their inner products with the users' vectors are energies, popularity is not in;
- ranking: b_j + 2 popularity log E[psi_j] in the last place. About a = 0, log sigma(a) rises by a / 2, so these inner
  products go nearly in the order of the lists;
- distance: the same, with one entry more that makes all item vectors equally long. The nearest by distance are then
  those of largest inner product, and a graph of neighbours finds them, as it does not where lengths differ much.

pip install hnswlib; python workflows/nearest_neighbours.py PAIRS.parquet
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import benchmarking
import hnswlib
import numpy as np
import pandas as pd
import scipy.sparse

import pairsym_dask as ps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="Parquet file of pairs with columns user and item")
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1_000, help="users asked for")
    parser.add_argument("--candidates", type=int, nargs="+", default=[50, 200], help="items taken from the index")
    parser.add_argument("--popularity", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pairsym-neighbours-"))
    try:
        frame = pd.read_parquet(arguments.pairs, columns=["user", "item"])
        counts = ps.ingest(frame, folder / "counts.zarr")
        model = ps.PairedSymbols().fit(counts, folder / "model.zarr", sweeps=arguments.sweeps)
        results = compare(model, arguments)
        shape = {"pairs": Path(arguments.pairs).name, "shape": counts.shape, "popularity": arguments.popularity}
        benchmarking.save("nearest-neighbours", {**shape, "found": results}, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(model: ps.PairedSymbols, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Recall of the exact top ten, by kind of vector and number of candidates."""
    counts, data = model.counts, model.to_xarray()
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(counts.shape[0], min(arguments.queries, counts.shape[0]), replace=False))
    labels, seen = counts.user_ids[rows], counts.to_scipy()[rows]
    began = time.perf_counter()
    exact = model.recommend(labels, n=10, popularity=arguments.popularity)
    seconds = time.perf_counter() - began
    print(f"recommend, exact, with probabilities: {rows.size / seconds:,.0f} users/s")
    position = {item: j for j, item in enumerate(counts.item_ids)}
    wanted = [{position[item] for item in mine} for _, mine in exact.groupby("user", sort=False)["item"]]

    selection = data["item_selection"].to_numpy()
    popularity = selection / selection.sum()
    users, items = model.export_factors("users")[rows], model.export_factors("items")
    ranking = items.copy()
    ranking[:, -1] += 2 * arguments.popularity * np.log(popularity)
    squares = (ranking**2).sum(1)
    distance = np.column_stack([ranking, np.sqrt(squares.max() - squares)])
    longer = np.column_stack([users, np.zeros_like(users[:, 0])])
    out = []
    for name, space, vectors, asked in (
        ("energy", "ip", items, users),
        ("ranking", "ip", ranking, users),
        ("distance", "l2", distance, longer),
    ):
        index = hnswlib.Index(space, vectors.shape[1])
        index.init_index(vectors.shape[0], ef_construction=200, M=32, random_seed=1)
        index.add_items(vectors, num_threads=1)  # one thread: the same index every time
        for k in arguments.candidates:
            index.set_ef(2 * k)
            began = time.perf_counter()
            found, _ = index.knn_query(asked, k, num_threads=arguments.threads)
            seconds = time.perf_counter() - began
            lists = rerank(model, labels, found.astype(np.int64), popularity**arguments.popularity, seen)
            hits = sum(len(good & set(some.tolist())) for good, some in zip(wanted, lists, strict=True))
            recall = hits / sum(map(len, wanted))
            speed = round(rows.size / seconds)
            out.append({"vectors": name, "candidates": k, "recall@10": round(recall, 4), "users/s": speed})
            print(f"{name:8s} {k:5d} candidates: recall@10 {recall:.4f}, {speed:,} users/s in the index")
    return out


def rerank(
    model: ps.PairedSymbols, labels: np.ndarray, found: np.ndarray, weight: np.ndarray, seen: scipy.sparse.csr_matrix
) -> np.ndarray:
    """The ten best of each user's candidates (users, k) by sigma * weight, seen ones last."""
    users, k = found.shape
    best = np.empty((users, 10), np.int64)
    for first in range(0, users, 500):
        part = slice(first, min(first + 500, users))
        some = found[part]
        pairs = model.probability(np.repeat(labels[part], k), model.counts.item_ids[some.ravel()])
        score = pairs["sigma"].to_numpy().reshape(some.shape) * weight[some]
        row = np.repeat(np.arange(part.start, part.stop), k)
        score[np.asarray(seen[row, some.ravel()]).reshape(some.shape) > 0] = -1
        best[part] = np.take_along_axis(some, np.argsort(-score, axis=1, kind="stable")[:, :10], axis=1)
    return best


if __name__ == "__main__":
    main()
