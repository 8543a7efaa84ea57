"""The command line, in a process of its own or in this one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from pairsym_dask import cli


def run(*words, **options):
    command = [sys.executable, "-m", "pairsym_dask.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ), **options)


def run_here(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same without the two seconds that a new process takes to import everything."""
    command = ["pairsym", *map(str, words)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
