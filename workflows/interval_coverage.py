"""How often do credible intervals hold the truth? Pairs simulated from the model, energies known, intervals counted.

Energies are compared, not traits, which are determined up to a rotation only. Two kinds:

- the energy a_ij itself, where the level of a user or an item is hard to tell from how often it is selected (a rare
  symbol that is liked and a popular one that is not give much the same pairs);
- the difference a_ij - a_ik of two items for one user, what a ranking by taste depends on.

python workflows/interval_coverage.py
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import benchmarking
import numpy as np
from scipy.special import expit, ndtri

import pairsym_dask as ps
from pairsym_dask.pairs.simulate import ITEM_BIAS, TASTE, USER_BIAS, read_truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=3_000)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=300_000)
    parser.add_argument("--factors", type=int, default=5)
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--interval", type=float, default=0.9)
    parser.add_argument("--sample", type=int, default=400_000, help="user-item pairs looked at")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--figure", default="docs/figures/coverage.png")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pairsym-coverage-"))
    try:
        counts = ps.simulate(
            folder / "counts.zarr", users=arguments.users, items=arguments.items, pairs=arguments.pairs,
            factors=arguments.factors, random_state=arguments.random_state, truth=True,
        )  # fmt: skip
        truth = read_truth(counts)
        results = {}
        for name, settings in settings_of(counts, truth, arguments.factors).items():
            model = ps.PairedSymbols(**{"selection": "constant", **settings}).fit(
                counts, folder / f"{name}.zarr", sweeps=arguments.sweeps
            )
            results[name] = {"settings": settings, **look(model, truth, arguments)}
            for kind in ("energy", "difference"):
                one = results[name][kind]["all"]
                print(
                    f"{name:8s} {kind:10s} {one['coverage']:.3f} of {arguments.interval:g} intervals hold the truth; "
                    f"rms error {one['error']:.3f}, sd {one['sd']:.3f}, "
                    f"truth = {one['slope']:.2f} * mean, correlation {one['correlation']:.2f}"
                )
        shape = {
            name: getattr(arguments, name) for name in ("users", "items", "pairs", "factors", "sweeps", "interval")
        }
        benchmarking.save("coverage", {**shape, "models": results}, arguments.results)
        draw(results["matched"], arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings_of(counts: ps.Counts, truth: dict[str, np.ndarray], factors: int) -> dict[str, dict[str, float]]:
    """Settings that match how the pairs were made, and the defaults for real data with the same K."""
    shown = expit(truth["user_traits"] @ truth["item_traits"].T + truth["user_bias"][:, None] + truth["item_bias"])
    shown = shown @ truth["psi"]  # of what is selected for a user
    ratio = float((counts.marginal("users") * (1 / shown - 1)).sum() / counts.total)
    tau = float(np.sqrt(factors) / TASTE)
    tau_b = 2 / (USER_BIAS**2 + ITEM_BIAS**2)
    matched = {"factors": factors, "censored_ratio": ratio, "tau_u": tau, "tau_v": tau, "tau_b": tau_b}
    return {"matched": matched, "defaults": {"factors": factors}}


def look(model: ps.PairedSymbols, truth: dict[str, np.ndarray], arguments: argparse.Namespace) -> dict[str, object]:
    """Coverage of energies and of differences, over all sampled pairs and by count of the user and the item."""
    rng = np.random.default_rng(arguments.random_state)
    data = model.to_xarray().load()
    i = rng.integers(0, arguments.users, arguments.sample)
    j, k = rng.integers(0, arguments.items, (2, arguments.sample))
    k = np.where(k == j, (k + 1) % arguments.items, k)
    m, v = data["user_mean"].to_numpy()[i].astype(float), 1 / data["user_precision"].to_numpy()[i].astype(float)
    b, w = data["user_bias"].to_numpy()[i].astype(float), 1 / data["user_bias_precision"].to_numpy()[i].astype(float)
    n, z = data["item_mean"].to_numpy().astype(float), 1 / data["item_precision"].to_numpy().astype(float)
    c, y = data["item_bias"].to_numpy().astype(float), 1 / data["item_bias_precision"].to_numpy().astype(float)

    def parts(n: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of u_i.x for x with means n and variances z."""
        return (m * n).sum(1), (m**2 * z + v * (n**2 + z)).sum(1)

    u, t = truth["user_traits"][i].astype(float), truth["item_traits"].astype(float)
    mean, variance = parts(n[j], z[j])
    difference, spread = parts(n[j] - n[k], z[j] + z[k])
    found = {
        "energy": (
            mean + b + c[j],
            variance + w + y[j],
            (u * t[j]).sum(1) + truth["user_bias"][i] + truth["item_bias"][j],
        ),
        "difference": (
            difference + c[j] - c[k],
            spread + y[j] + y[k],
            (u * (t[j] - t[k])).sum(1) + truth["item_bias"][j] - truth["item_bias"][k],
        ),
    }
    by = {"user": model.counts.marginal("users")[i], "item": model.counts.marginal("items")[j]}
    return {kind: summary(*values, by, arguments.interval) for kind, values in found.items()}


def summary(
    mean: np.ndarray, variance: np.ndarray, true: np.ndarray, by: dict[str, np.ndarray], interval: float
) -> dict[str, object]:
    error, sd = true - mean, np.sqrt(variance)
    inside = np.abs(error) <= ndtri((1 + interval) / 2) * sd

    def measures(here: np.ndarray) -> dict[str, float]:
        return {
            "pairs": int(here.sum()),
            "coverage": round(float(inside[here].mean()), 4),
            "error": round(float(np.sqrt((error[here] ** 2).mean())), 4),
            "bias": round(float(error[here].mean()), 4),
            "sd": round(float(np.sqrt((sd[here] ** 2).mean())), 4),
        }

    slope, correlation = np.polyfit(mean, true, 1)[0], np.corrcoef(mean, true)[0, 1]
    whole = measures(np.ones(error.size, bool))
    whole |= {"slope": round(float(slope), 3), "correlation": round(float(correlation), 3)}  # of the truth on the mean
    out: dict[str, object] = {"all": whole}
    for side, count in by.items():
        exponent = np.floor(np.log2(count)).astype(int)
        rows = [{"low": int(2.0**e), **measures(exponent == e)} for e in np.unique(exponent)]
        out[side] = [row for row in rows if row["pairs"] >= 500]
    return out


def draw(results: dict[str, dict[str, object]], arguments: argparse.Namespace) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    names = {"energy": "energy $a_{ij}$", "difference": "difference $a_{ij} - a_{ik}$"}
    for ax, side in zip(axes, ("user", "item"), strict=True):
        for kind, name in names.items():
            rows = results[kind][side]
            ax.plot([row["low"] for row in rows], [row["coverage"] for row in rows], "o-", label=name)
        ax.axhline(arguments.interval, color="0.4", linestyle="--", label=f"asked for: {arguments.interval:.0%}")
        ax.set_xscale("log", base=2)
        ax.set_xlabel(f"pairs of the {side} (from this number to its double)")
        ax.set_ylim(0, 1)
    axes[0].set_ylabel("intervals that hold the truth")
    axes[0].legend(loc="lower left")
    figure.suptitle(f"{arguments.interval:.0%} credible intervals against known truth, simulated pairs")
    Path(arguments.figure).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.figure, dpi=120)
    print(f"drawn to {arguments.figure}")


if __name__ == "__main__":
    main()
