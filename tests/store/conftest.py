"""What the storage tests share."""

from __future__ import annotations

import pytest
from helpers.faults import tiny_counts

from pairsym_dask.store.counts import Counts


@pytest.fixture(scope="session")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr")
