"""Update a fit with new pairs, users and items: sweeps until the bound of a fit from scratch is reached, and ranks.

One item of each user is left out. A tenth of the other pairs comes later: all pairs of some users and items, and others
at random. A model of the earlier pairs is updated with them; a second model is fitted to all pairs from scratch. Both
rank the left-out items.

    python workflows/update.py gowalla.parquet
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import benchmarking
import numpy as np
import pandas as pd

import pairsym_dask as ps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="Parquet file with columns user and item")
    parser.add_argument("--later", type=float, default=0.1, help="share of the pairs that comes later")
    parser.add_argument("--new", type=float, default=0.02, help="share of users and of items that come later")
    parser.add_argument("--sweeps", type=int, default=20, help="of the first fit and of the one from scratch")
    parser.add_argument("--ranked", type=int, default=6000, help="left-out pairs that are ranked, at most")
    parser.add_argument("--after", type=int, default=3, help="sweep of the update that ranks")
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--name", default="update", help="name of the results")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()

    pairs = pd.read_parquet(arguments.pairs, columns=["user", "item"]).drop_duplicates()
    left_out = pairs.groupby("user").sample(1, random_state=arguments.random_state)
    pairs = pairs.drop(left_out.index)
    generator = np.random.default_rng(arguments.random_state)
    late = np.zeros(len(pairs), bool)
    for side in ("user", "item"):
        labels = np.sort(pairs[side].unique())
        late |= pairs[side].isin(generator.choice(labels, int(arguments.new * labels.size), replace=False)).to_numpy()
    rest = np.flatnonzero(~late)
    late[generator.choice(rest, max(0, int(arguments.later * len(pairs)) - int(late.sum())), replace=False)] = True

    folder = Path(tempfile.mkdtemp(prefix="pairsym-update-"))
    try:
        options = {"threads": arguments.threads, "progress": False}
        earlier = ps.ingest(pairs[~late], folder / "earlier.zarr")
        model = ps.PairedSymbols(factors=arguments.factors, selection="constant")
        model.fit(earlier, folder / "earlier-model.zarr", sweeps=arguments.sweeps, **options)
        new = model.update(
            pairs[late],
            folder / "all.zarr",
            folder / "updated.zarr",
            sweeps=arguments.sweeps,
            keep=[arguments.after],
            **options,
        )
        scratch = ps.PairedSymbols(factors=arguments.factors, selection="constant")
        scratch.fit(new.counts, folder / "scratch.zarr", sweeps=arguments.sweeps, **options)
        wanted = scratch.history["elbo"].iloc[-1]
        reached = new.history[new.history["elbo"] >= wanted]
        sweeps = int(reached["sweep"].iloc[0]) if len(reached) else None
        columns = {"from scratch": scratch.history["elbo"], "update": new.history["elbo"]}
        print(pd.DataFrame(columns).to_string(float_format=lambda x: f"{x:,.0f}"))
        print(f"{new.counts}\nbound of {arguments.sweeps} sweeps from scratch: reached by the update after {sweeps}")
        left_out = left_out[left_out["item"].isin(new.counts.item_ids)]
        left_out = left_out.sample(min(arguments.ranked, len(left_out)), random_state=arguments.random_state)
        measures = {}
        for name, one in (("scratch", scratch), ("update", ps.load(new.path, sweep=arguments.after))):
            ranks = ps.evaluate(one, left_out, threads=arguments.threads).per_user
            known = ranks["user"].isin(earlier.user_ids) & ranks["item"].isin(earlier.item_ids)
            measures[name] = {
                "R": ranks["R"].mean(),
                "ndcg": ranks["ndcg"].mean(),
                "R of new users": ranks.loc[~ranks["user"].isin(earlier.user_ids), "R"].mean(),
                "R of new items": ranks.loc[~ranks["item"].isin(earlier.item_ids), "R"].mean(),
                "pairs": [len(ranks), int((~known).sum())],
            }
        print(pd.DataFrame(measures).T.to_string())
        benchmarking.save(
            arguments.name,
            {
                "pairs": {"file": Path(arguments.pairs).name, "earlier": earlier.nnz, "all": new.counts.nnz},
                "users": {"earlier": earlier.shape[0], "all": new.counts.shape[0]},
                "items": {"earlier": earlier.shape[1], "all": new.counts.shape[1]},
                "factors": arguments.factors,
                "sweeps_from_scratch": arguments.sweeps,
                "sweeps_of_the_update": sweeps,
                "ranked_after": {"scratch": arguments.sweeps, "update": arguments.after},
                "measures": measures,
                "bound": {name: [round(x, 1) for x in values] for name, values in columns.items()},
            },
            arguments.results,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
