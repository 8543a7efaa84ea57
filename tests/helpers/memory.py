"""Peak memory of a command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

PROGRAM = """
import sys
import distributed
import pairsym_dask.cli, pairsym_dask.model

if sys.argv[1:]:
    pairsym_dask.cli.pairsym.main(standalone_mode=False)
(most,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(most)
"""


def peak(*words: Any) -> int:
    """Peak resident bytes of a process that runs a command; without one, that of an interpreter with its imports."""
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stdout.split()[-1])
