"""The kernels' tests once more as plain Python, so that every kernel line is run where a debugger can see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_kernels_pass_without_jit():
    here = Path(__file__).parent
    files = [str(here / name) for name in ("test_kernels.py", "test_polya_gamma.py", "test_draws.py")]
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", *files]
    skipped = ["-k", "not other_threads"]  # about compiled code only, and slow without it
    run = subprocess.run(
        command + skipped, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, cwd=here.parent
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert " passed" in run.stdout
