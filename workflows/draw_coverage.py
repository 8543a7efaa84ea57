"""How often do 90 % intervals hold the truth: draws of the exact posterior against the variational fit.

Pairs are drawn from the model itself, c_ij ~ Poisson(M pi_i psi_j sigma(a_ij)), so that energies, their differences
and p(j | i) are known. The censored ratio is the true one, or wrong by a factor; priors are learned (hyperpriors).

python workflows/draw_coverage.py --sets sparse,square
python workflows/draw_coverage.py --sets sparse --wrong 3
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import benchmarking
import numpy as np
import scipy.sparse
from scipy.special import expit

import pairsym_dask as ps


@dataclass(frozen=True)
class Shape:
    users: int
    items: int
    pairs: int
    factors: int
    taste: float  # standard deviation of u.v
    sweeps: int


SETS = {
    "dense": Shape(3_000, 300, 300_000, 5, 2.0, 300),
    "sparse": Shape(2_000, 400, 30_000, 3, 1.5, 400),
    "square": Shape(600, 500, 60_000, 4, 1.5, 400),
    "wide": Shape(800, 200, 150_000, 10, 2.0, 300),
    "large": Shape(20_000, 500, 600_000, 6, 2.0, 250),
}


def simulate(shape: Shape, path: Path, rng: np.random.Generator) -> tuple[ps.Counts, dict[str, np.ndarray], float]:
    """A counts store drawn from the model, the truth behind it, and the true censored ratio."""
    scale = np.sqrt(shape.taste) / shape.factors**0.25
    u, v = (scale * rng.standard_normal((n, shape.factors)) for n in (shape.users, shape.items))
    b, e = 0.5 * rng.standard_normal(shape.users) - 0.5, 0.7 * rng.standard_normal(shape.items) - 0.5
    pi, psi = rng.gamma(1.0, size=shape.users) + 0.05, rng.gamma(0.7, size=shape.items) + 0.02
    pi, psi = pi / pi.sum(), psi / psi.sum()
    a = u @ v.T + b[:, None] + e
    share = pi[:, None] * psi * expit(a)
    counts = rng.poisson(shape.pairs / share.sum() * share)
    store = ps.ingest(scipy.sparse.csr_array(counts), path)
    return store, {"energy": a, "psi": psi}, 1 / float(share.sum()) - 1


def look(model: ps.PairedSymbols, truth: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, float]:
    """Coverage of energies, differences and p(j | i) over users and items taken at random."""
    users = rng.choice(truth["energy"].shape[0], 200, replace=False)
    items = rng.integers(0, truth["energy"].shape[1], (2, 20))
    found: dict[str, list[np.ndarray]] = {"energy": [], "difference": [], "conditional": []}
    errors, means, true = [], [], []
    draws = None
    if model.inference == "gibbs":
        data = model.to_xarray().isel(chain=0, user=np.sort(users)).load()
        draws = np.einsum("duk,djk->duj", data.user_traits.to_numpy(), data.item_traits.to_numpy(), dtype=float)
        draws += data.user_bias.to_numpy()[:, :, None] + data.item_bias.to_numpy()[:, None]
        p = expit(draws) * data.item_selection.to_numpy()[:, None]
        p /= p.sum(2, keepdims=True)
        users = np.sort(users)
    exact = expit(truth["energy"][users]) * truth["psi"]
    exact /= exact.sum(1, keepdims=True)
    for row, user in enumerate(users):
        j, k = items
        a = truth["energy"][user]
        table = model.contrast([user] * j.size, j, k)
        found["difference"].append((table["low"] <= a[j] - a[k]) & (a[j] - a[k] <= table["high"]))
        if draws is None:
            shown = model.probability([user] * j.size, j)
            found["energy"].append((shown["low"] <= expit(a[j])) & (expit(a[j]) <= shown["high"]))
        else:
            low, high = np.quantile(draws[:, row, j], [0.05, 0.95], axis=0)
            found["energy"].append((low <= a[j]) & (a[j] <= high))
            low, high = np.quantile(p[:, row, j], [0.05, 0.95], axis=0)
            found["conditional"].append((low <= exact[row, j]) & (exact[row, j] <= high))
        errors.append(table["difference"] - (a[j] - a[k]))
        means.append(table["difference"])
        true.append(a[j] - a[k])
    rms = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    correlation = float(np.corrcoef(np.concatenate(means), np.concatenate(true))[0, 1])
    covered = {name: float(np.mean(np.concatenate(parts))) for name, parts in found.items() if parts}
    return covered | {"difference_error": rms, "difference_correlation": correlation}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS), help="which of the sets, by name")
    parser.add_argument("--wrong", type=float, default=1.0, help="factor by which the censored ratio is wrong")
    parser.add_argument("--longer", type=int, default=1, help="so many times the sweeps, for the same number of draws")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    results = {}
    for name in arguments.sets.split(","):
        folder, rng = Path(tempfile.mkdtemp(prefix="pairsym-coverage-")), np.random.default_rng(arguments.random_state)
        try:
            shape = SETS[name]
            counts, truth, ratio = simulate(shape, folder / "counts.zarr", rng)
            settings = {"factors": shape.factors, "censored_ratio": arguments.wrong * ratio}
            start = ps.PairedSymbols(**settings, selection="constant").fit(
                counts, folder / "fit.zarr", sweeps=20, progress=False, threads=arguments.threads
            )
            began, sweeps = time.perf_counter(), arguments.longer * shape.sweeps
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the chain has not settled")
                chain = ps.PairedSymbols(**settings, inference="gibbs").fit(
                    counts, folder / "chain.zarr", sweeps=sweeps, burn=sweeps // 3, thin=2 * arguments.longer,
                    start=start, progress=False, threads=arguments.threads,
                )  # fmt: skip
            seconds = time.perf_counter() - began
            diagnostics = chain.diagnostics
            results[name] = {
                "true_ratio": ratio,
                "variational": look(start, truth, np.random.default_rng(1)),
                "gibbs": look(chain, truth, np.random.default_rng(1)),
                "seconds": round(seconds, 1),
                "r_hat": float(diagnostics["r_hat"].max()),
                "effective": float(diagnostics["effective"].min()),
            }
            print(
                name,
                f"r {ratio:.2f}",
                *(f"{kind} {results[name][kind]}" for kind in ("variational", "gibbs")),
                sep="\n  ",
            )
            print(f"  {seconds:.0f} s, r_hat {results[name]['r_hat']:.2f}, effective {results[name]['effective']:.0f}")
            told = {"wrong": arguments.wrong, "longer": arguments.longer, "sweeps": sweeps, **results[name]}
            which = name if arguments.wrong == 1 else f"{name}_wrong_{arguments.wrong:g}"
            benchmarking.save(f"draw_coverage_{which}", told, arguments.results)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
