"""Held-out log p(j | i), ranks and calibration: draws of the exact posterior against a variational fit.

One item a user is held out. Lists are ranked at each kind's own exponent of popularity, and at 1. With --components
chains whose selection has so many components stand beside.

python workflows/draw_held_out.py ml-100k debian
python workflows/draw_held_out.py ml-100k debian --components 1,4 --sweeps 300
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import benchmarking
import numpy as np
import pandas as pd
import study

import pairsym_dask as ps

SETS = ("ml-100k", "debian", "gowalla", "epinions")


def measure(model: ps.PairedSymbols, held_out: pd.DataFrame, threads: int | None) -> dict[str, Any]:
    by_model = ps.evaluate(model, held_out, popularity=1.0, threads=threads)
    found = by_model if model.inference == "gibbs" else ps.evaluate(model, held_out, threads=threads)
    likelihood = found.per_user["log_likelihood"].to_numpy()
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
    } | {"per_user": likelihood}


def paired(one: dict[str, Any], two: dict[str, Any]) -> dict[str, float]:
    """How much higher the held-out log-likelihood of one is than that of another, over the same users."""
    apart = one["per_user"] - two["per_user"]
    return {"mean": float(apart.mean()), "standard_error": float(apart.std() / np.sqrt(apart.size))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--data", default=os.environ.get("PAIRSYM_DATA"), help="folder of real pairs")
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=600)
    parser.add_argument("--thin", type=int, default=5)
    parser.add_argument("--components", default="1", help="components of selection, a chain for each number")
    parser.add_argument("--users", type=int, default=10_000, help="held-out pairs to rank, at most")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--page", help="folder for the calibration pages")
    arguments = parser.parse_args()
    several = [int(number) for number in arguments.components.split(",")]
    for name in arguments.sets:
        folder = Path(tempfile.mkdtemp(prefix="pairsym-held-out-"))
        try:
            whole = ps.ingest(study.read_pairs(name, arguments.data), folder / "counts.zarr")
            train, held_out = ps.leave_one_out(whole, folder / "train.zarr", random_state=0)
            if len(held_out) > arguments.users:
                held_out = held_out.sample(arguments.users, random_state=0).sort_index().reset_index(drop=True)
            fit = ps.PairedSymbols(factors=arguments.factors, selection="constant")
            fit.fit(train, folder / "fit.zarr", sweeps=20, progress=False, threads=arguments.threads)
            models, found = {"variational": fit}, {"variational": measure(fit, held_out, arguments.threads)}
            results: dict[str, Any] = {
                "factors": arguments.factors, "sweeps": arguments.sweeps, "held_out": len(held_out),
                "pairs": train.nnz, "shape": list(train.shape),
            }  # fmt: skip
            for components in several:
                kind, began = "gibbs" if components == 1 else f"gibbs, {components} components", time.perf_counter()
                chain = ps.PairedSymbols(factors=arguments.factors, inference="gibbs", components=components)
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    chain.fit(
                        train, folder / f"chain-{components}.zarr", sweeps=arguments.sweeps, thin=arguments.thin,
                        start=fit, progress=False, threads=arguments.threads,
                    )  # fmt: skip
                models[kind], found[kind] = chain, measure(chain, held_out, arguments.threads)
                found[kind] |= {
                    "seconds": time.perf_counter() - began,
                    "draws": len(chain.draws),
                    "warnings": [str(one.message) for one in told if "settled" in str(one.message)],
                    "above_variational": paired(found[kind], found["variational"]),
                }
                if "gibbs" in found and kind != "gibbs":
                    found[kind]["above_gibbs"] = paired(found[kind], found["gibbs"])
            for one in found.values():
                del one["per_user"]
            results |= found
            print(name, *(f"{key}: {value}" for key, value in results.items()), sep="\n  ")
            if arguments.page:
                for kind, model in models.items():
                    page = f"{name}-{kind.replace(', ', '-').replace(' ', '-')}.html"
                    ps.calibrate(model, held_out).report(Path(arguments.page) / page)
            which = "" if several == [1] else "_components"
            benchmarking.save(f"draw_held_out_{name}{which}", results, arguments.results)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
