"""How often do 90 % intervals of items that nobody has paired yet hold the truth: draws, with tags as prior means.

Items have tags, their traits and biases are those that the tags have in common and a part of their own, and pairs are
drawn from the model. Some items stay out of the training pairs: what draws say of them comes from their tags alone.
Priors are learned (hyperpriors), the censored ratio is the true one.

python workflows/draw_coverage_tags.py --threads 1
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import benchmarking
import numpy as np
import pandas as pd
from scipy.special import expit

import pairsym_dask as ps


@dataclass(frozen=True)
class Shape:
    users: int = 1_500
    items: int = 300
    cold: int = 60  # items without a training pair
    tags: int = 40
    tags_an_item: int = 5
    pairs: int = 60_000
    factors: int = 4
    share: float = 0.6  # of the variance of items' traits and biases that comes from tags


def simulate(shape: Shape, folder: Path, rng: np.random.Generator) -> tuple[ps.Counts, ps.Tags, np.ndarray, float]:
    """Stores of counts and tags drawn from the model, all energies, and the true censored ratio."""
    k, scale = shape.factors, np.sqrt(1.5) / shape.factors**0.25
    links = np.zeros((shape.items, shape.tags))
    for row in links:
        row[rng.choice(shape.tags, shape.tags_an_item, replace=False)] = shape.tags_an_item**-0.5
    # Squares of a row of links sum to one: the two parts' variances add up to that of an item without tags.
    own, common = np.sqrt([1 - shape.share, shape.share])
    v = scale * (common * links @ rng.standard_normal((shape.tags, k)) + own * rng.standard_normal((shape.items, k)))
    e = common * links @ rng.standard_normal(shape.tags) + own * rng.standard_normal(shape.items)
    e = 0.7 * e - 0.5
    u, b = scale * rng.standard_normal((shape.users, k)), 0.5 * rng.standard_normal(shape.users) - 0.5
    pi, psi = rng.gamma(1.0, size=shape.users) + 0.05, rng.gamma(0.7, size=shape.items) + 0.05
    a = u @ v.T + b[:, None] + e
    psi[: shape.cold] = 0.0  # never offered
    part = (pi / pi.sum())[:, None] * (psi / psi.sum()) * expit(a)
    user, item = np.nonzero(counts := rng.poisson(shape.pairs / part.sum() * part))
    frame = pd.DataFrame({"user": user, "item": item, "count": counts[user, item]})
    symbol, tag = np.nonzero(links)
    store = ps.ingest(frame, folder / "counts.zarr", count="count")
    tags = ps.ingest_tags(pd.DataFrame({"item": symbol, "tag": tag}), folder / "tags.zarr")
    return store, tags, a, 1 / float(part.sum()) - 1


def look(
    model: ps.PairedSymbols, energy: np.ndarray, users: np.ndarray, items: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Coverage and errors over some users, items and other items of the same kind taken at random."""
    user, item, other = (rng.choice(some, 4_000) for some in (users, items, items))
    user, item, other = (some[item != other] for some in (user, item, other))
    a, apart = energy[user, item], energy[user, item] - energy[user, other]
    shown, rather = model.probability(user, item), model.contrast(user, item, other)
    return {
        "energy": float(shown["low"].le(expit(a)).mul(shown["high"].ge(expit(a))).mean()),
        "difference": float(rather["low"].le(apart).mul(rather["high"].ge(apart)).mean()),
        "sd_of_energy": float(np.sqrt((shown["sd"] ** 2).mean())),
        "difference_error": float(np.sqrt(((rather["difference"] - apart) ** 2).mean())),
        "difference_sd": float(np.sqrt((rather["sd"] ** 2).mean())),
        "difference_correlation": float(np.corrcoef(rather["difference"], apart)[0, 1]),
        "spread_of_truth": float(apart.std()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=Shape.pairs)
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    folder, rng = Path(tempfile.mkdtemp(prefix="pairsym-coverage-")), np.random.default_rng(arguments.random_state)
    try:
        shape = Shape(pairs=arguments.pairs)
        counts, tags, energy, ratio = simulate(shape, folder, rng)
        settings = {"factors": shape.factors, "censored_ratio": ratio}
        start = ps.PairedSymbols(**settings, selection="constant").fit(
            counts, folder / "fit.zarr", sweeps=20, progress=False, item_tags=tags, threads=arguments.threads
        )
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the chain has not settled")
            chain = ps.PairedSymbols(**settings, inference="gibbs").fit(
                counts, folder / "chain.zarr", sweeps=arguments.sweeps, burn=arguments.sweeps // 3, thin=2,
                item_tags=tags, start=start, progress=False, threads=arguments.threads,
            )  # fmt: skip
        seconds, diagnostics = time.perf_counter() - began, chain.diagnostics
        found = {
            f"{kind}_{name}": look(model, energy, counts.user_ids, items, np.random.default_rng(1))
            for name, items in (("cold", chain.new_symbols()), ("warm", counts.item_ids))
            for kind, model in (("variational", start), ("gibbs", chain))
        }
        for name, one in found.items():
            print(name, {key: round(value, 3) for key, value in one.items()})
        told = {
            "r_hat": float(diagnostics["r_hat"].max()),
            "effective": float(diagnostics["effective"].min()),
            "seconds": round(seconds, 1),
        }
        print(f"r {ratio:.2f}", told)
        results = {
            "shape": asdict(shape),
            "sweeps": arguments.sweeps,
            "seed": arguments.random_state,
            "true_ratio": ratio,
            **found,
            **told,
        }
        which = f"_seed_{arguments.random_state}" if arguments.random_state else ""
        benchmarking.save(f"draw_coverage_tags{which}", results, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
