"""What the workflow scripts share: where tasks run, and errors in one sentence."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pairsym_dask as ps


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every step has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a dask scheduler, such as tcp://host:8786")
    parser.add_argument("--threads", type=int, help="tasks under way at a time without a scheduler (all cores)")
    return parser


@contextmanager
def place(arguments: argparse.Namespace) -> Iterator[None]:
    """Inside, tasks run on the scheduler of --scheduler, as the current dask client; else on threads."""
    if arguments.scheduler is None:
        yield
        return
    from distributed import Client

    with Client(arguments.scheduler) as client:
        print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
        yield


def run(main: Callable[[], Any]) -> None:
    """Run a step; what a person can do something about is one sentence on stderr, and exit code 2."""
    try:
        main()
    except (ps.PairsymError, OSError) as error:
        print(f"{os.path.basename(sys.argv[0])}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
