"""The `pairsym` command: the same words as the Python face, errors in one sentence and exit code 2.

Commands import what they need when they run, so that `pairsym --help` is quick.
"""

from __future__ import annotations

from .asking import explain, fold_in, recommend, similar
from .data import ingest, simulate, split, split_by_time
from .demonstration import demo, warm_up
from .fitting import fit, plan, tune, update
from .group import main, pairsym
from .judging import benchmark, calibrate, compare, evaluate, info, pack, report, verify
from .tags import ingest_tags, tags

__all__ = ["main", "pairsym"]

# In the order in which people need them.
for _command in (
    ingest, ingest_tags, plan, fit, update, recommend, fold_in, explain, similar, tags,
    split, split_by_time, evaluate, compare, tune, benchmark,
    report, calibrate, info, verify, pack, simulate, demo, warm_up,
):  # fmt: skip
    pairsym.add_command(_command)
