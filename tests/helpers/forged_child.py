"""A process that makes forged stores and uses them as people would, within limits of memory and time.

`python -m helpers.forged_child FOLDER FIRST STOP` prints a line of JSON for every forgery, before and after it.
"""

from __future__ import annotations

import gc
import json
import logging
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pandas as pd

import pairsym_dask as ps
from helpers.faults import new_stores_in
from helpers.forger import Forger, link_copy
from helpers.forgeries import forge
from pairsym_dask.errors import PairsymError
from pairsym_dask.report.info import describe
from pairsym_dask.store.verify import verify

ROOM = 768 * 2**20  # bytes that a process may take beside what it has when it is warm
CPU_SECONDS, SECONDS = 30.0, 300.0  # of one forgery, at most
MODELS = {  # what forgeries are made of, and how it was fitted
    "model.zarr": "variational", "chain.zarr": "gibbs", "shards.zarr": "variational", "shards-of-chain.zarr": "gibbs",
}  # fmt: skip
NEW = pd.DataFrame({"user": ["u000", "new"], "item": [3, 77]})


def make(folder: Path) -> None:
    """The sound stores that forgeries start from: text and integer labels, several blocks, kept small."""
    users, items = 150, 11
    pairs = [(f"u{i:03}", j, 1 + (i * j) % 3) for i in range(users) for j in range(items) if (i * 7 + j * 5) % 4 == 0]
    frame = pd.DataFrame(pairs, columns=["user", "item", "count"])
    counts = ps.ingest(frame, folder / "counts.zarr", count="count")
    for name, inference in MODELS.items():
        draws = {"burn": 0, "thin": 1} if inference == "gibbs" else {}
        with new_stores_in("shards" if name.startswith("shards") else "files"):
            model = ps.PairedSymbols(factors=2, inference=inference)
            model.fit(counts, folder / name, sweeps=2, progress=False, threads=1, **draws)


def actions(folder: Path, name: str) -> dict[str, Callable[[], Any]]:
    """What people do with stores; the fit comes last, because it changes its store."""
    counts, model = folder / "counts.zarr", folder / name
    inference = MODELS[name]
    draws = {"burn": 0, "thin": 1} if inference == "gibbs" else {}

    def recommend() -> None:
        loaded = ps.load(model)
        loaded.recommend(loaded.counts.user_ids[:3].tolist(), n=3)
        loaded.recommend(loaded.counts.user_ids[-1:].tolist(), n=20, exclude_seen=False, strategy="ucb")

    def load() -> None:
        loaded = ps.load(model)
        repr(loaded), loaded._repr_html_(), loaded.history
        loaded.to_xarray().load()
        if inference == "gibbs":
            len(loaded.draws), loaded.diagnostics

    def update() -> None:
        target = folder / "update"
        places = target / "counts.zarr", target / "model.zarr"
        ps.load(model).update(NEW, *places, sweeps=1, progress=False, threads=1, **draws)

    def fit() -> None:
        fitted = ps.PairedSymbols(factors=2, inference=inference)
        fitted.fit(counts, model, sweeps=3, progress=False, threads=1)

    def open_counts() -> None:
        opened = ps.open_counts(counts)
        repr(opened), opened._repr_html_(), opened.marginal("items")

    return {
        "open_counts": open_counts,
        "to_scipy": lambda: ps.open_counts(counts).to_scipy(),
        "load": load,
        "recommend": recommend,
        "verify counts": lambda: verify(counts),
        "verify model": lambda: verify(model),
        "info counts": lambda: describe(str(counts)),
        "info model": lambda: describe(str(model)),
        "update": update,
        "fit": fit,
    }


def try_all(folder: Path, model: str) -> tuple[Counter[str], list[str]]:
    """How often actions answered and refused, and everything that went wrong."""
    found, wrong = Counter[str](), []
    for name, action in actions(folder, model).items():
        try:
            action()
            found[f"{name} ({model}): answered"] += 1
        except PairsymError as error:
            found[f"{name} ({model}): refused"] += 1
            if not str(error).strip() or "Traceback" in str(error):
                wrong.append(f"{name}: no words: {error!r}")
        except BaseException as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1500:]}")
    return found, wrong


def refuse_network(*arguments: Any, **options: Any) -> None:
    raise AssertionError(f"a forged store made its reader call out: {arguments[1:]}")


def limit() -> None:
    """Limits of this process; a hang ends it by a signal."""
    taken = memory("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    socket.socket.connect = refuse_network  # type: ignore[method-assign]


def memory(name: str) -> int:
    """A line of this process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main(folder: Path, first: int, stop: int) -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    dask.config.set(scheduler="synchronous")
    base = folder / "base"
    work = folder / f"warm-{first}"
    link_copy(base, work)
    for model in MODELS:
        assert not try_all(work, model)[1], "sound stores work"  # and everything is compiled
        shutil.rmtree(work / "update")
    shutil.rmtree(work)
    gc.freeze()  # what imports have left need not be looked through again and again
    limit()
    before = memory("VmRSS")
    for number in range(first, stop):
        print(json.dumps({"begin": number}), flush=True)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        began = time.perf_counter()
        work = folder / f"work-{number}"
        link_copy(base, work)
        model = list(MODELS)[number % len(MODELS)]
        done = [f"{model}: {kind}" for kind in forge(Forger(work, number, model))]
        found, wrong = try_all(work, model)
        shutil.rmtree(work)
        line = {
            "end": number, "done": done, "found": found, "wrong": wrong, "seconds": time.perf_counter() - began,
            "grown": memory("VmHWM") - before,
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
