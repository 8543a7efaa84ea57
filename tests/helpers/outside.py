"""A dask cluster of separate processes, as on several machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


class OutsideCluster:
    """A scheduler and two workers, as three processes that talk over TCP."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        self.file = folder / "scheduler.json"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": ROOT}
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", **(env or {})}
        self.scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
             "--scheduler-file", self.file],
            env=environment, **quiet,
        )  # fmt: skip
        while (address := self._written()) is None:
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.address = address
        self.workers = [
            subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", self.file, "--no-nanny",
                 "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--death-timeout", "20"],
                env=environment, **quiet,
            )
            for _ in range(2)
        ]  # fmt: skip

    def _written(self) -> str | None:
        """The scheduler's address, once its file is there and whole."""
        try:
            return str(json.loads(self.file.read_text())["address"])
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def __enter__(self) -> OutsideCluster:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()
