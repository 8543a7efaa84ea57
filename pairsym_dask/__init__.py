"""Bayesian modelling of paired symbols from counts, out of core, on dask.

Names are imported when they are first used, so that `import pairsym_dask` and `pairsym --help` are quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "Counts": "counts",
    "open_counts": "counts",
    "ingest": "ingest",
    "simulate": "simulate",
    "PairedSymbols": "model",
    "load": "model",
    "leave_one_out": "splits",
    "split_by_fraction": "splits",
    "evaluate": "evaluate",
    "compare": "evaluate",
    "tune": "tune",
    "PairsymError": "spec",
    "InputError": "spec",
    "StoreError": "spec",
    "DamagedStoreError": "spec",
    "MemoryBudgetError": "spec",
    "SchedulerError": "spec",
    "NumericError": "spec",
}

__all__ = [*_PLACES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Importing a module, from wherever, must not put it in the place of the function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if _PLACES.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
