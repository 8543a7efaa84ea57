"""Bayesian modelling of paired symbols from counts, out of core, on dask.

Names are imported when they are first used, so that `import pairsym_dask` and `pairsym --help` are quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "Counts": "store.counts",
    "open_counts": "store.counts",
    "ingest": "pairs.ingest",
    "simulate": "pairs.simulate",
    "PairedSymbols": "model",
    "load": "model",
    "leave_one_out": "pairs.splits",
    "split_by_fraction": "pairs.splits",
    "evaluate": "evaluation.evaluate",
    "compare": "evaluation.evaluate",
    "tune": "evaluation.tune",
    "PairsymError": "errors",
    "InputError": "errors",
    "StoreError": "errors",
    "DamagedStoreError": "errors",
    "MemoryBudgetError": "errors",
    "SchedulerError": "errors",
    "NumericError": "errors",
}

__all__ = [*_PLACES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
