"""Digests of fits whose every setting is given: versions of this package that print the same lines compute the same.

python docs/digest_fits.py gowalla.parquet [sweeps]

A line a fit: both numbers of the posterior, both messages of the selection, K = 20. The digest is of the digests of all
chunks and of the scalars of the last commit, as its record has them; so it can be run with any version that can be put
on PYTHONPATH, however its folders are called.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import pandas as pd

import pairsym_dask as ps

GIVEN = {
    "factors": 20, "censored_ratio": 5.0, "tau_u": 0.1, "tau_v": 0.1, "tau_b": 0.1, "alpha": 1.0, "biases": True,
    "random_state": 0,
}  # fmt: skip


def digest(model: Path, sweep: int) -> str:
    """One digest of a committed sweep; metadata, which holds no numbers of the fit, is left out."""
    record = json.loads((model / f"commits/{sweep:05d}.json").read_bytes())
    chunks = {key: entry for key, entry in record["files"].items() if not key.endswith("zarr.json")}
    return hashlib.sha256(json.dumps([chunks, record["scalars"]], sort_keys=True).encode()).hexdigest()[:32]


def main(source: str, sweeps: int = 5) -> None:
    columns = pd.read_parquet(source).columns
    count = "count" if "count" in columns else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = ps.ingest(source, folder / "counts.zarr", count=count)
        for dtype in ("float32", "float64"):
            for selection in ("bayes", "constant"):
                model = folder / f"{dtype}-{selection}.zarr"
                fitted = ps.PairedSymbols(**GIVEN, dtype=dtype, selection=selection)
                fitted.fit(counts, model, sweeps=sweeps, progress=False)
                print(f"{dtype} {selection:8} {digest(model, sweeps)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
