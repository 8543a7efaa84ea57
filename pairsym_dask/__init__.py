"""Bayesian modelling of paired symbols from counts, out of core, on dask.

Names are imported when they are first used, so that `import pairsym_dask` and `pairsym --help` are quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # what type checkers and editors see; a test keeps it the same as what is imported
    from .benchmarks.benchmark import benchmark as benchmark
    from .errors import DamagedStoreError as DamagedStoreError
    from .errors import InputError as InputError
    from .errors import MemoryBudgetError as MemoryBudgetError
    from .errors import NumericError as NumericError
    from .errors import PairsymError as PairsymError
    from .errors import SchedulerError as SchedulerError
    from .errors import StoreError as StoreError
    from .evaluation.evaluate import compare as compare
    from .evaluation.evaluate import evaluate as evaluate
    from .evaluation.tune import tune as tune
    from .model import PairedSymbols as PairedSymbols
    from .model import load as load
    from .pairs.ingest import ingest as ingest
    from .pairs.simulate import simulate as simulate
    from .pairs.splits import leave_one_out as leave_one_out
    from .pairs.splits import split_by_fraction as split_by_fraction
    from .pairs.tags import ingest_tags as ingest_tags
    from .pairs.time_splits import leave_last_out as leave_last_out
    from .pairs.time_splits import split_by_time as split_by_time
    from .report.calibrate import calibrate as calibrate
    from .report.sizes import plan as plan
    from .rolling import roll as roll
    from .store.counts import Counts as Counts
    from .store.counts import open_counts as open_counts
    from .store.tags import Tags as Tags
    from .store.tags import open_tags as open_tags
else:
    import importlib as _importlib

    _PLACES = {
        "Counts": "store.counts",
        "open_counts": "store.counts",
        "Tags": "store.tags",
        "open_tags": "store.tags",
        "ingest": "pairs.ingest",
        "ingest_tags": "pairs.tags",
        "simulate": "pairs.simulate",
        "PairedSymbols": "model",
        "load": "model",
        "roll": "rolling",
        "leave_one_out": "pairs.splits",
        "split_by_fraction": "pairs.splits",
        "split_by_time": "pairs.time_splits",
        "leave_last_out": "pairs.time_splits",
        "evaluate": "evaluation.evaluate",
        "compare": "evaluation.evaluate",
        "tune": "evaluation.tune",
        "calibrate": "report.calibrate",
        "plan": "report.sizes",
        "benchmark": "benchmarks.benchmark",
        "PairsymError": "errors",
        "InputError": "errors",
        "StoreError": "errors",
        "DamagedStoreError": "errors",
        "MemoryBudgetError": "errors",
        "SchedulerError": "errors",
        "NumericError": "errors",
    }

    __all__ = [*_PLACES, "__version__"]

    def __getattr__(name):
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(_importlib.import_module(f".{_PLACES[name]}", __name__), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted(__all__)
