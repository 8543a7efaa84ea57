"""What the tests of ingest share."""

from __future__ import annotations

import pytest

from pairsym_dask.pairs import writing


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of a few dozen pairs, so that small data take every path."""
    monkeypatch.setattr(writing, "ROWS", 64)
