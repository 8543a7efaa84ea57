"""How much a chain tells a second: effective draws of energies, differences and p(j | i), split R-hat, seconds a sweep.

Pairs of 40 users with 10 items taken at random; every sweep after burn-in is looked at. Sets: ml-100k (4 and 5 stars),
or a simulated one of draw_coverage.py.

python workflows/benchmark_draws.py ml-100k --factors 20 --sweeps 300
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
import draw_coverage
import movielens
import numpy as np
from scipy.special import expit

import pairsym_dask as ps
from pairsym_dask.sampler.diagnose import effective_draws, split_r_hat


def counts_of(name: str, folder: Path) -> tuple[ps.Counts, dict[str, Any]]:
    """The pairs of a set, and the settings that it is sampled with."""
    if name == "ml-100k":
        ratings, _ = movielens.load()
        liked = ratings.loc[ratings["rating"] >= 4, ["user", "item"]]
        return ps.ingest(liked, folder / "counts.zarr"), {"factors": 20, "censored_ratio": 5.0}
    shape = draw_coverage.SETS[name]
    counts, _, ratio = draw_coverage.simulate(shape, folder / "counts.zarr", np.random.default_rng(0))
    return counts, {"factors": shape.factors, "censored_ratio": ratio}


def traces(chain: ps.PairedSymbols) -> dict[str, np.ndarray]:
    """Quantities (pairs, draws) of the same few users and items."""
    rng = np.random.default_rng(0)
    users, items = (np.sort(rng.choice(n, k, replace=False)) for n, k in zip(chain.counts.shape, (40, 10), strict=True))
    data = chain.to_xarray().isel(chain=0, user=users).load()
    energy = np.einsum("duk,djk->duj", data.user_traits.to_numpy(), data.item_traits.to_numpy(), dtype=float)
    energy += data.user_bias.to_numpy()[:, :, None] + data.item_bias.to_numpy()[:, None]
    p = expit(energy) * data.item_selection.to_numpy()[:, None]
    p /= p.sum(2, keepdims=True)
    energy, p = energy[:, :, items], p[:, :, items]
    return {
        "log-likelihood": data.log_likelihood.to_numpy()[None],
        "energy": energy.reshape(len(energy), -1).T,
        "difference": (energy[:, :, 1:] - energy[:, :, :-1]).reshape(len(energy), -1).T,
        "log p(j | i)": np.log(p).reshape(len(p), -1).T,
        "item bias": data.item_bias.to_numpy()[:, items].T,
        "user bias": data.user_bias.to_numpy().T,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", help="ml-100k, " + ", ".join(draw_coverage.SETS))
    parser.add_argument("--sweeps", type=int, default=300)
    parser.add_argument("--burn", type=int)
    parser.add_argument("--factors", type=int)
    parser.add_argument("--censored-ratio", type=float)
    parser.add_argument("--cold", action="store_true", help="start from random traits instead of a variational fit")
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pairsym-draws-"))
    try:
        counts, settings = counts_of(arguments.set, folder)
        given = {"factors": arguments.factors, "censored_ratio": arguments.censored_ratio}
        settings |= {name: value for name, value in given.items() if value is not None}
        start = None
        if not arguments.cold:
            start = ps.PairedSymbols(**settings, selection="constant").fit(
                counts, folder / "fit.zarr", sweeps=20, progress=False
            )
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the chain has not settled")
            burn = arguments.sweeps // 3 if arguments.burn is None else arguments.burn
            chain = ps.PairedSymbols(**settings, inference="gibbs").fit(
                counts, folder / "chain.zarr", sweeps=arguments.sweeps, burn=burn, thin=1, start=start, progress=False
            )
        seconds = (time.perf_counter() - began) / arguments.sweeps
        found: dict[str, Any] = {"settings": settings, "sweeps": arguments.sweeps, "seconds_a_sweep": seconds}
        print(f"{arguments.set}: {settings}, {arguments.sweeps} sweeps of {seconds:.3f} s")
        for name, values in traces(chain).items():
            worth = np.array([effective_draws(trace) for trace in values]) / values.shape[1]
            r_hat = np.array([split_r_hat(trace) for trace in values])
            found[name] = {
                "effective_a_sweep": float(np.median(worth)),
                "effective_a_second": float(np.median(worth) / seconds),
                "r_hat": float(np.median(r_hat)),
                "r_hat_95": float(np.quantile(r_hat, 0.95)),
            }
            print(
                f"  {name:15s} effective a sweep {np.median(worth):.3f} (least tenth {np.quantile(worth, 0.1):.3f}), "
                f"a second {np.median(worth) / seconds:.2f}; R-hat {np.median(r_hat):.2f}, "
                f"95 % {np.quantile(r_hat, 0.95):.2f}"
            )
        benchmarking.save(f"draws_{arguments.set}", found, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
