"""Held-out log p(j | i), ranks and calibration: draws of the exact posterior against a variational fit.

One item a user is held out. Lists are ranked at each kind's own exponent of popularity, and at 1.

python workflows/draw_held_out.py ml-100k debian
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import benchmarking
import movielens
import numpy as np
import pandas as pd

import pairsym_dask as ps
from pairsym_dask.demo import data_file


def pairs_of(name: str) -> pd.DataFrame:
    """Pairs of a set: user, item."""
    if name == "ml-100k":
        ratings, _ = movielens.load()
        return ratings.loc[ratings["rating"] >= 4, ["user", "item"]]
    return pd.read_parquet(data_file()).rename(columns={"package": "user", "dependency": "item"})


def measure(model: ps.PairedSymbols, held_out: pd.DataFrame) -> dict[str, Any]:
    found = ps.evaluate(model, held_out)
    likelihood = found.per_user["log_likelihood"].to_numpy()
    by_model = ps.evaluate(model, held_out, popularity=1.0)
    calibrated = ps.calibrate(model, held_out).reliability
    assert calibrated is not None
    return {
        "log_likelihood": float(likelihood.mean()),
        "standard_error": float(likelihood.std() / np.sqrt(likelihood.size)),
        "R": float(found.overall["R"]),
        "ndcg": float(found.overall["ndcg"]),
        "R_at_1": float(by_model.overall["R"]),
        "ndcg_at_1": float(by_model.overall["ndcg"]),
        "ece": calibrated.ece,
        "ece_first": calibrated.ece_first,
        "first_predicted": float(calibrated.first["predicted"].sum()),
        "first_observed": float(calibrated.first["observed"].sum()),
        "lists": calibrated.lists.to_dict("records"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", choices=["ml-100k", "debian"])
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=600)
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--page", help="folder for the calibration pages")
    arguments = parser.parse_args()
    for name in arguments.sets:
        folder = Path(tempfile.mkdtemp(prefix="pairsym-held-out-"))
        try:
            whole = ps.ingest(pairs_of(name), folder / "counts.zarr")
            train, held_out = ps.leave_one_out(whole, folder / "train.zarr", random_state=0)
            fit = ps.PairedSymbols(factors=arguments.factors, selection="constant")
            fit.fit(train, folder / "fit.zarr", sweeps=20, progress=False)
            began = time.perf_counter()
            chain = ps.PairedSymbols(factors=arguments.factors, inference="gibbs")
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                chain.fit(train, folder / "chain.zarr", sweeps=arguments.sweeps, start=fit, progress=False)
            results = {
                "factors": arguments.factors,
                "sweeps": arguments.sweeps,
                "seconds": time.perf_counter() - began,
                "warnings": [str(one.message) for one in told if "settled" in str(one.message)],
                "variational": measure(fit, held_out),
                "gibbs": measure(chain, held_out),
            }
            print(name, *(f"{key}: {value}" for key, value in results.items()), sep="\n  ")
            if arguments.page:
                for kind, model in (("variational", fit), ("gibbs", chain)):
                    ps.calibrate(model, held_out).report(Path(arguments.page) / f"{name}-{kind}.html")
            benchmarking.save(f"draw_held_out_{name}", results, arguments.results)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
