"""Tests of compiled code once more as plain Python, so that every kernel line is run where a debugger can see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = {  # by room: together they enter every compiled function
    "kernels": ["kernels"],
    "pairs": ["pairs/test_columns.py", "pairs/test_ingest.py", "pairs/test_simulate.py"],
    "evaluation": ["evaluation/test_evaluate.py"],
    "baselines": ["baselines"],
}
# About compiled code only, or of so many steps that each takes many seconds without it; `paired` are whole fits of the
# model among its baselines, whose kernels have tests of their own.
LEFT_OUT = (
    "other_threads", "preset", "however_they_come", "any_pairs", "as_good_as", "ranks_above", "paired",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("room", FILES)
def test_kernels_pass_without_jit(room: str) -> None:
    files = [str(TESTS / name) for name in FILES[room]]
    options = ["-x", "-m", "quick", "-k", f"not ({' or '.join(LEFT_OUT)})", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *options, *files],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, cwd=TESTS.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
