"""`pairsym warm-up`: afterwards nothing that people use is compiled again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Kernels that are kept on disk, by the types that they were asked for in this process, compiled or read from there.
SCRIPT = """
import gc, json, sys
import numpy as np
import pandas as pd
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
import pairsym_dask as ps
from pairsym_dask import demo

def asked():
    kernels = (one for one in gc.get_objects() if isinstance(one, CPUDispatcher))
    kept = (one for one in kernels if isinstance(one._cache, FunctionCache))
    return {f"{one.py_func.__module__}.{one.__name__}{types}" for one in kept for types in one.signatures}

demo.warm_up()
before, rng = asked(), np.random.default_rng(0)
frame = pd.DataFrame({"user": rng.integers(0, 300, 4000), "item": (rng.zipf(1.5, 4000) - 1) % 60})
frame.assign(user="u" + frame["user"].astype(str)).to_csv("words.csv", index=False)
words, held_out = ps.leave_one_out(ps.ingest("words.csv", "words.zarr"), "train.zarr")
kept = {"progress": False, "sweeps": 2}
model = ps.PairedSymbols().fit(words, "lists.zarr", **kept)
model.recommend(["u1", "u2"]), model.conditional("u1"), model.similar_items(1), model.explain("u1", 2)
model.recommend(model.fold_in([1, 2])), ps.evaluate(model, held_out), model.recommend_all("top.csv", n=3)
model.update(pd.DataFrame({"user": ["u1", "new"], "item": [1, 2]}), "more.zarr", "updated.zarr", **kept)
for count in (1, 700, 0.25):
    counts = ps.ingest(frame.assign(n=count), f"{count}.zarr", count="n")
    for settings in ({}, {"selection": "constant"}, {"selection": "constant", "factors": 64}, {"factors": 8}):
        ps.PairedSymbols(**settings).fit(counts, f"{count}-{len(str(settings))}.zarr", **kept).recommend(1)
counts = ps.open_counts("1.zarr")
ps.PairedSymbols(selection="bayes").fit(counts, "bayes.zarr", **kept).recommend(1)
ps.PairedSymbols(dtype="float64").fit(counts, "float64.zarr", **kept).recommend(1)
ps.PairedSymbols(inference="gibbs").fit(counts, "draws.zarr", burn=1, thin=1, **kept).recommend(1)
json.dump(sorted(asked() - before), sys.stdout)
"""


@pytest.mark.slow
def test_after_a_warm_up_nothing_is_compiled(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == []
