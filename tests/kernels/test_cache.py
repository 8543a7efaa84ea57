"""Compiled code belongs to the sources of the whole package: after a change anywhere, new code runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pairsym_dask

# Numba itself watches the file of a kernel only, not those whose constants and functions melt into it.
KERNEL = """
from .kernels.accelerate import compiled
from .settings import MELTED

@compiled
def melted():
    return MELTED
"""
PROGRAM = "from pairsym_dask.melting import melted; print(melted(), sum(melted.stats.cache_hits.values()))"


def run(folder: Path) -> tuple[int, int, set[str]]:
    """What the kernel returns, how often it was found compiled, and the cache folders that there are."""
    settings = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache"), "NUMBA_DISABLE_JIT": "0"}
    environment = os.environ | settings
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    value, hits = map(int, done.stdout.split())
    return value, hits, {path.name for path in (folder / "cache").iterdir()}


@pytest.mark.slow
def test_a_change_in_any_module_leads_to_new_compiled_code(tmp_path: Path) -> None:
    package = tmp_path / "pairsym_dask"
    shutil.copytree(Path(pairsym_dask.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "melting.py").write_text(KERNEL)
    source = package / "settings.py"  # a module that has nothing to do with compiled code
    text = source.read_text()
    source.write_text(text + "\nMELTED = 1\n")
    value, hits, before = run(tmp_path)
    assert (value, hits, len(before)) == (1, 0, 1)
    assert run(tmp_path) == (1, 1, before)  # nothing has changed: nothing is compiled again
    source.write_text(text + "\nMELTED = 2\n")
    value, hits, after = run(tmp_path)
    assert (value, hits) == (2, 0)
    assert len(after) == 2
    assert after > before
