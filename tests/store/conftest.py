"""What the storage tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import forged_child
from helpers.faults import quick_folder, tiny_counts
from helpers.forger import Forger

from pairsym_dask.store.counts import Counts


@pytest.fixture(scope="session")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr")


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A folder whose `base` has the sound stores that forgeries start from."""
    with quick_folder() as folder:
        (folder / "base").mkdir()
        forged_child.make(folder / "base")
        yield folder


@pytest.fixture
def forger(base: Path, tmp_path: Path) -> Forger:
    shutil.copytree(base / "base", tmp_path / "work")
    return Forger(tmp_path / "work", 0)
