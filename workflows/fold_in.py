"""Fold held-back users into a fit of the others, and compare with a refit that includes them: rank R and speed.

Some users are held back whole, and one item of each is left out. A model is fitted to the other users; the held-back
users' remaining pairs are folded in. A second model is fitted to all those pairs. Both rank the left-out items.

    python workflows/fold_in.py gowalla.parquet
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import benchmarking
import numpy as np
import pandas as pd

import pairsym_dask as ps


class FoldedIn:
    """Folded-in users as a model to evaluate: the full store's pairs and items, the smaller fit's scores."""

    def __init__(self, model: ps.PairedSymbols, folded: object, counts: ps.Counts) -> None:
        self.model, self.folded, self.counts = model, folded, counts
        self.columns = counts.positions("items", model.counts.item_ids)

    def scores(self, users: object, popularity: float = 0.5) -> np.ndarray:
        found = self.model.scores(self.folded.take(users), popularity)
        scores = np.full((len(found), self.counts.shape[1]), -1.0)  # an item that the smaller fit does not know
        scores[:, self.columns] = found
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="Parquet file with columns user and item")
    parser.add_argument("--users", type=int, default=10_000, help="users that are held back")
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()

    pairs = pd.read_parquet(arguments.pairs, columns=["user", "item"]).drop_duplicates()
    generator = np.random.default_rng(arguments.random_state)
    active = pairs["user"].value_counts()
    away = generator.choice(np.sort(active.index[active >= 2]), arguments.users, replace=False)
    back = pairs["user"].isin(away)
    left_out = pairs[back].groupby("user").sample(1, random_state=arguments.random_state)
    given = pairs[back].drop(left_out.index)

    folder = Path(tempfile.mkdtemp(prefix="pairsym-fold-in-"))
    try:
        options = {"sweeps": arguments.sweeps, "threads": arguments.threads, "progress": False}
        others = ps.ingest(pairs[~back], folder / "others.zarr")
        model = ps.PairedSymbols(factors=arguments.factors, selection="constant").fit(
            others, folder / "others-model.zarr", **options
        )
        everyone = ps.ingest(pairs.drop(left_out.index), folder / "everyone.zarr")
        refit = ps.PairedSymbols(factors=arguments.factors, selection="constant").fit(
            everyone, folder / "everyone-model.zarr", **options
        )
        unknown = ~given["item"].isin(others.item_ids)
        strangers = given.groupby("user")["item"].transform(lambda items: ~items.isin(others.item_ids).any())
        given = given[~strangers]
        left_out = left_out[left_out["user"].isin(given["user"])]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # items that the other users never had are left out
            folded = model.fold_in(given, threads=arguments.threads)  # also compiles
            seconds, processor = [], []
            for _ in range(arguments.rounds):
                used, began = time.process_time(), time.perf_counter()
                model.fold_in(given, threads=arguments.threads)
                seconds.append(time.perf_counter() - began)
                processor.append(time.process_time() - used)
        comparison = ps.compare(
            {"refit": refit, "folded in": FoldedIn(model, folded, everyone)}, left_out, threads=arguments.threads
        )
        print(comparison)
        table = comparison.table[["R", "hr", "ndcg"]]
        rate = len(folded) / np.array(seconds)
        print(f"{np.median(rate):,.0f} users a second ({rate.min():,.0f} to {rate.max():,.0f}), "
              f"{np.median(processor) / len(folded) * 1e6:.0f} us of processor a user")  # fmt: skip
        difference = float(table.loc["folded in", "R"] - table.loc["refit", "R"])
        benchmarking.save(
            "fold-in",
            {
                "pairs": Path(arguments.pairs).name,
                "users": {"fitted": others.shape[0], "folded_in": len(folded), "pairs_each": len(given) / len(folded)},
                "pairs_with_unknown_items": int(unknown.sum()),
                "sweeps": arguments.sweeps,
                "factors": arguments.factors,
                "threads": arguments.threads,
                "measures": table.round(5).to_dict("index"),
                "R_difference": round(difference, 5),
                "seconds": {"median": float(np.median(seconds)), "all": [round(x, 4) for x in seconds]},
                "processor_seconds": {"median": float(np.median(processor)), "all": [round(x, 4) for x in processor]},
                "users_a_second": {"median": float(np.median(rate)), "least": float(rate.min())},
            },
            arguments.results,
        )
        print(f"R differs by {difference:+.4f}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
