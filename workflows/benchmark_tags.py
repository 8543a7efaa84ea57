"""What tags cost: seconds of a sweep with and without them, and peak memory with many of them.

    python workflows/benchmark_tags.py [--parts sweep memory]

`sweep`: xbox-movies x 0.1 with ten random tags an item out of a thousand, sweeps of both fits in turn. `memory`: a
million items, 100,000 tags, ten million links, within a budget of 2 GiB, in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

import benchmarking
import numpy as np
import scipy.sparse

import pairsym_dask as ps

ITEMS, TAGS, EACH, USERS, PAIRS = 1_000_000, 100_000, 10, 200_000, 4_000_000


def random_tags(items: np.ndarray, tags: int, each: int, path: Path) -> ps.Tags:
    """A store of `each` random tags an item, popular ones more often."""
    rng = np.random.default_rng(0)
    drawn = (tags * rng.random(items.size * each) ** 2).astype(np.int64)
    place = np.repeat(np.arange(items.size), each), drawn
    links = scipy.sparse.csr_array((np.ones(drawn.size, np.uint8), place), (items.size, tags))
    links.sum_duplicates()
    return ps.ingest_tags(links, path, symbol=items)


def measure_sweep(arguments: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        counts = ps.simulate(folder / "counts.zarr", preset="xbox-movies", scale=arguments.scale, random_state=0)
        tags = random_tags(counts.item_ids, 1000, EACH, folder / "tags.zarr")
        seconds: dict[str, list[float]] = {"without": [], "with": []}
        given = {"without": {}, "with": {"item_tags": tags}}
        model = ps.PairedSymbols(factors=arguments.factors)
        for sweep in range(1, arguments.sweeps + 1):  # in turn, so that a noisy minute hurts both
            for name, more in given.items():
                note = seconds[name]
                model.fit(
                    counts, folder / f"{name}.zarr", sweeps=sweep, progress=False, threads=arguments.threads,
                    callback=lambda _, bound, took, note=note: note.append(took), **more,
                )  # fmt: skip
        medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
        return {
            "factors": arguments.factors, "links": tags.nnz, **{f"seconds {k}": v for k, v in medians.items()},
            "ratio": medians["with"] / medians["without"], "all": seconds,
        }  # fmt: skip


def make_many(folder: Path) -> None:
    """Stores of many items, tags and links."""
    rng = np.random.default_rng(1)
    place = rng.integers(0, USERS, PAIRS), (ITEMS * rng.random(PAIRS) ** 2).astype(np.int64)
    pairs = scipy.sparse.csr_array((np.ones(PAIRS, np.uint8), place), (USERS, ITEMS))
    pairs.sum_duplicates()
    ps.ingest(pairs, folder / "counts.zarr")
    random_tags(np.arange(ITEMS), TAGS, EACH, folder / "tags.zarr")


def fit_many(folder: Path, threads: int) -> None:
    model = ps.PairedSymbols(factors=20).fit(
        folder / "counts.zarr", folder / "model.zarr", sweeps=2, item_tags=folder / "tags.zarr", memory="2GiB",
        threads=threads, progress=False,
    )  # fmt: skip
    print(json.dumps({"seconds": model.history["seconds"].tolist(), "links": ps.open_tags(folder / "tags.zarr").nnz}))


def measure_memory(arguments: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        make_many(Path(folder))
        found, mib = benchmarking.run_alone([__file__, "--fit", folder, "--threads", str(arguments.threads)])
        return {"items": ITEMS, "tags": TAGS, **found, "peak_mib": round(mib)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=["sweep", "memory"], default=["sweep", "memory"])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--factors", type=int, default=128)
    parser.add_argument("--sweeps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit is not None:
        return fit_many(arguments.fit, arguments.threads)
    measures = {"sweep": measure_sweep, "memory": measure_memory}
    found = {part: measures[part](arguments) for part in arguments.parts}
    print(json.dumps(found, indent=1))
    return benchmarking.save("tags", {"load": benchmarking.look_at_load(), **found}, arguments.results)


if __name__ == "__main__":
    main()
