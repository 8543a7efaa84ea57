"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run(*words, **options):
    command = [sys.executable, "-m", "pairsym_dask.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ), **options)
