"""`evaluate` over all users of a large generated set: seconds, and peak memory beside that of an idle interpreter.

python workflows/study_scale.py --scale 0.1 --sweeps 3 --memory 700MiB
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarking import run_alone

IDLE = "import json, pairsym_dask as ps; ps.evaluate, ps.PairedSymbols; print(json.dumps({}))"


def evaluate_alone(folder: str, memory: str) -> None:
    """In a process of its own: evaluate the model of a folder on its held-out pairs."""
    import pandas as pd

    import pairsym_dask as ps

    model = ps.load(f"{folder}/model.zarr")
    held_out = pd.read_parquet(f"{folder}/held_out.parquet")
    began = time.perf_counter()
    found = ps.evaluate(model, held_out, memory=memory).overall
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "users": found["users"], "R": found["R"], "ndcg": found["ndcg"]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="xbox-movies")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--memory", default="700MiB", help="budget of evaluate, beside the interpreter")
    parser.add_argument("--results", default=str(Path(__file__).resolve().parent / "results"))
    parser.add_argument("--alone", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        evaluate_alone(options.alone, options.memory)
        return
    import pairsym_dask as ps

    with tempfile.TemporaryDirectory(prefix="pairsym-study-") as folder:
        counts = ps.simulate(f"{folder}/counts.zarr", preset=options.preset, scale=options.scale, random_state=0)
        train, held_out = ps.leave_one_out(counts, f"{folder}/train.zarr", random_state=0)
        held_out.to_parquet(f"{folder}/held_out.parquet")
        ps.PairedSymbols().fit(train, f"{folder}/model.zarr", sweeps=options.sweeps, progress=False)
        size = {"users": counts.shape[0], "items": counts.shape[1], "pairs": counts.nnz}
        found, peak = run_alone([__file__, "--alone", folder, "--memory", options.memory])
    _, idle = run_alone(["-c", IDLE])
    numbers = {
        "command": " ".join(["python", "workflows/study_scale.py", *sys.argv[1:]]),
        "set": {"preset": options.preset, "scale": options.scale, **size},
        "evaluate": {**found, "peak_mib": round(peak), "idle_interpreter_mib": round(idle), "budget": options.memory},
    }
    path = Path(options.results) / "study-scale.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(numbers, indent=1) + "\n")
    print(json.dumps(numbers["evaluate"]))


if __name__ == "__main__":
    main()
