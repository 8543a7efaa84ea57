"""What draws cost: seconds a sweep over a variational one, memory within a budget, Polya-Gamma draws a second.

python workflows/benchmark_sampler.py --scale 0.1
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import benchmarking
import numpy as np

import pairsym_dask as ps
from pairsym_dask.kernels.polya_gamma import draw_polya_gammas
from pairsym_dask.kernels.streams import stream_key

BUDGET = "512MiB"
ALONE = """
import json, sys, psutil, warnings
import distributed
import pairsym_dask as ps, pairsym_dask.cli, pairsym_dask.model
counts, path, ratio, budget = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
if path:
    warnings.simplefilter("ignore")
    model = ps.PairedSymbols(factors=20, censored_ratio=ratio, inference="gibbs")
    model.fit(counts, path, sweeps=2, burn=0, thin=1, memory=budget, progress=False)
(most,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({"peak_mib": int(most) / 1024}))
"""


def sweep_of(counts: ps.Counts, path: Path, settings: dict[str, Any]):
    """One more sweep of a fit or chain, everything committed."""
    model, done, seconds = ps.PairedSymbols(factors=20, **settings), {"sweeps": 1}, []
    chain = {"burn": 0, "thin": 1000} if settings.get("inference") == "gibbs" else {}
    model.fit(counts, path, sweeps=1, progress=False, **chain)

    def run() -> float:
        done["sweeps"] += 2
        seconds.clear()
        model.fit(
            counts, path, sweeps=done["sweeps"], progress=False, callback=lambda *told: seconds.append(told[2]), **chain
        )
        return seconds[-1]  # the first one of a call reads what a long fit has in memory

    return run


def draws_a_second(energy: float, n: int = 2_000_000) -> float:
    """Polya-Gamma draws a second of one core."""
    trials, energies, out = np.ones(n, np.int64), np.full(n, energy), np.empty(n)
    draw_polya_gammas(stream_key(0, 0, 0), trials[:10], energies[:10], out[:10])
    began = time.perf_counter()
    draw_polya_gammas(stream_key(0, 1, 0), trials, energies, out)
    return n / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1, help="of xbox-movies")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--results", default="workflows/results")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "the chain has not settled")
    folder = Path(tempfile.mkdtemp(prefix="pairsym-sampler-"))
    results: dict[str, Any] = {"scale": arguments.scale}
    try:
        results["polya_gamma_a_second"] = {str(energy): draws_a_second(energy) for energy in (0.0, -2.0, -5.0)}
        print("Polya-Gamma draws a second, by energy:", results["polya_gamma_a_second"])
        counts = ps.simulate(folder / "counts.zarr", "xbox-movies", scale=arguments.scale, random_state=0)
        contenders = {"variational": sweep_of(counts, folder / "fit.zarr", {"selection": "constant"})}
        for ratio in (2.0, 5.0):
            settings = {"inference": "gibbs", "censored_ratio": ratio}
            contenders[f"draws, r = {ratio:g}"] = sweep_of(counts, folder / f"chain-{ratio:g}.zarr", settings)
        results["seconds"] = benchmarking.interleave(contenders, arguments.rounds)
        base = results["seconds"]["variational"]["median"]
        for name, found in results["seconds"].items():
            print(f"{name}: {found['median']:.2f} s, {found['median'] / base:.1f} times a variational sweep")
        program = folder / "alone.py"
        program.write_text(ALONE)
        idle, _ = benchmarking.run_alone([str(program), "", "", "2", BUDGET])
        used, _ = benchmarking.run_alone([str(program), counts.path, str(folder / "budget.zarr"), "2", BUDGET])
        results["memory"] = {"budget": BUDGET, "peak_mib": used["peak_mib"] - idle["peak_mib"]}
        print(json.dumps(results["memory"]))
        benchmarking.save("sampler", results, arguments.results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
