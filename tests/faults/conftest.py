"""What the fault tests share: both layouts of a model store, an S3 server, drivers without a lock."""

from __future__ import annotations

import contextlib
import logging
import types
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.faults import LAYOUTS, new_stores_in
from helpers.s3 import FaultyServer

from pairsym_dask.store.model_store import ModelStore


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Iterator[str]:
    """What uses this runs once with a file a chunk and once with shards; on object stores there are shards anyway."""
    with new_stores_in(request.param):
        yield request.param


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    pytest.importorskip("moto")
    s3fs = pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = FaultyServer()
    with contextlib.suppress(FileExistsError):  # servers of one process share what they hold
        s3fs.S3FileSystem(use_listings_cache=False, **server.options()).mkdir("bucket")
    yield server
    server.close()


@pytest.fixture(scope="module")
def options(server: FaultyServer) -> dict[str, Any]:
    return server.options()


@pytest.fixture
def lawless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers that do not see each other's lock, as after a long silence of the network."""
    monkeypatch.setattr(ModelStore, "lock", lambda self: contextlib.nullcontext(types.SimpleNamespace(key="zarr.json")))
