"""Workers of a nanny use the memory of large arrays again while a fit has tasks there, and give it back afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="not glibc")

CODE = """
import resource
import numpy as np
from pairsym_dask.run.allocator import give_memory_back, keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(2**20, np.uint8)  # 256 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = [faults()]
for change in (keep_memory, give_memory_back, keep_memory):
    change()
    faults()
    found.append(faults())
print(*found)
"""


def faults(**environment: str) -> list[int]:
    """Pages that the system gave for arrays: at first, kept, given back, kept again."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    run = subprocess.run(
        [sys.executable, "-c", CODE], env=plain | environment, capture_output=True, text=True, check=True
    )
    return [int(number) for number in run.stdout.split()]


def test_memory_is_used_again_between_keep_and_give_back() -> None:
    first, kept, back, again = faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert min(first, back) > 50 * 200
    assert max(kept, again) < 50


def test_what_a_user_has_set_stays() -> None:
    assert min(faults(MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_="131072")) > 50 * 200
