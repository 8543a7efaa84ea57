"""Seconds, memory and bytes of a sweep as the pairs double, and as users x items grows at the same pairs.

python workflows/benchmark_scale.py --most 5.6e7          # from 1e6 pairs, doubling
python workflows/benchmark_scale.py --only phone-apps     # 2.5e8 pairs, 1e7 x 1e5
python workflows/benchmark_scale.py --plot                # draws the line from the results
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import benchmarking
import numpy as np
import psutil

import pairsym_dask as ps

USERS_A_PAIR, ITEMS = 6.2e6 / 5.6e7, 12_000  # the shape of xbox-movies


def one(store: str, factors: int, sweeps: int, memory: str | None, folder: str) -> None:
    """A fit in this process: seconds and bytes of its last sweeps as JSON on the last line."""
    moved = psutil.Process().io_counters
    marks: list[tuple[float, int, int]] = []

    def note(sweep: int, elbo: float, seconds: float) -> None:
        now = moved()
        marks.append((seconds, now.read_chars, now.write_chars))

    import distributed  # noqa: F401  (part of an idle interpreter)

    model = ps.PairedSymbols(factors=factors)
    idle = psutil.Process().memory_info().rss / 2**20
    model.fit(store, f"{folder}/model.zarr", sweeps=sweeps, memory=memory, progress=False, callback=note)
    later = marks[1:] or marks
    read, written = (np.diff([mark[k] for mark in marks]) for k in (1, 2))
    print(
        json.dumps(
            {
                "seconds": float(np.median([mark[0] for mark in later])),
                "first": marks[0][0],
                "read": float(np.median(read)) if read.size else None,
                "written": float(np.median(written)) if written.size else None,
                "idle": idle,
            }
        )
    )


def measure(counts: ps.Counts, factors: int, sweeps: int, memory: str | None, folder: Path) -> dict[str, object]:
    place = tempfile.mkdtemp(dir=folder)
    command = [__file__, "--one", counts.path, "--factors", str(factors), "--sweeps", str(sweeps), "--folder", place]
    result, peak = benchmarking.run_alone(command + (["--memory", memory] if memory else []))
    shutil.rmtree(place)
    line = {"pairs": counts.nnz, "shape": counts.shape, "factors": factors, "memory": memory, "peak": peak, **result}
    print(
        f"{counts.nnz:12,} pairs {counts.shape[0]:>10,} x {counts.shape[1]:<8,} memory {memory or 'free':8} "
        f"{result['seconds']:8.2f} s a sweep, peak {peak:6.0f} MiB (idle {result['idle']:.0f}), "
        f"read {(result['read'] or 0) / 1e6:6.0f} MB, written {(result['written'] or 0) / 1e6:6.0f} MB",
        flush=True,
    )
    return line


def plot(results: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = json.loads((results / "scale.json").read_text())
    free = [line for line in data["lines"] if line["memory"] is None and line["shape"][1] == ITEMS]
    pairs, seconds = (np.array([line[name] for line in free]) for name in ("pairs", "seconds"))
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.loglog(pairs, seconds, "o-", color="black", label=f"measured, slope {data['slope']:.2f}")
    axes.loglog(pairs, seconds[-1] * pairs / pairs[-1], ":", color="0.5", label="proportional to the pairs")
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if 0.4 * seconds[0] < tick < 2 * seconds[-1]]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_xlabel("distinct pairs")
    axes.set_ylabel("seconds a sweep")
    axes.set_title(f"One sweep at K = {free[0]['factors']} on {data['machine']['cores']} cores")
    axes.grid(True, which="major", color="0.85")
    axes.legend(frameon=False)
    figure.savefig(results / "scale.png", dpi=130)
    figure.savefig(results / "scale.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--least", type=float, default=1e6)
    parser.add_argument("--most", type=float, default=5.6e7)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=4)
    parser.add_argument("--memory", help="budget of a fit")
    parser.add_argument("--only", help="measure one preset in full instead")
    parser.add_argument("--folder", help="where stores go [default: a temporary folder]")
    parser.add_argument("--results", default="workflows/results")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one, arguments.factors, arguments.sweeps, arguments.memory, arguments.folder)
        return
    if arguments.plot:
        plot(Path(arguments.results))
        return
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="pairsym-benchmark-"))
    factors, sweeps, memory = arguments.factors, arguments.sweeps, arguments.memory
    lines = []
    try:
        if arguments.only:
            place = folder / f"{arguments.only}.zarr"  # made once where the folder stays
            counts = (
                ps.open_counts(place) if place.exists() else ps.simulate(place, preset=arguments.only, random_state=0)
            )
            lines.append(measure(counts, factors, sweeps, memory, folder))
            benchmarking.save(f"scale-{arguments.only}-{memory or 'free'}", {"lines": lines}, arguments.results)
            return
        pairs = arguments.least
        while pairs <= arguments.most * 1.001:
            counts = ps.simulate(
                folder / f"{pairs:.0f}.zarr", users=round(pairs * USERS_A_PAIR), items=ITEMS, pairs=round(pairs)
            )
            lines.append(measure(counts, factors, sweeps, memory, folder))
            shutil.rmtree(counts.path)
            pairs = min(2 * pairs, arguments.most) if pairs < arguments.most else 2 * pairs
        slope = float(np.polyfit(*(np.log([line[name] for line in lines]) for name in ("pairs", "seconds")), 1)[0])
        print(f"slope of log seconds by log pairs: {slope:.3f}")
        grown = []
        for users, items in ((620_000, 12_000), (316_000, 316_000)):
            counts = ps.simulate(folder / f"{users}.zarr", users=users, items=items, pairs=5_600_000)
            grown.append(measure(counts, factors, sweeps, memory, folder))
            shutil.rmtree(counts.path)
        ratio = grown[1]["seconds"] / grown[0]["seconds"]
        print(f"the same pairs with users x items grown 13-fold: {ratio:.2f} times the seconds")
        benchmarking.save("scale", {"lines": lines, "slope": slope, "grown": grown, "ratio": ratio}, arguments.results)
    finally:
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)
        print("", file=sys.stderr)


if __name__ == "__main__":
    main()
