"""What the fault tests share: both layouts of a model store, and an S3 server for those that need one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from helpers.faults import LAYOUTS, new_stores_in
from helpers.s3 import FaultyServer


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
    with suppress(FileExistsError):  # servers of one process share what they hold
        s3fs.S3FileSystem(use_listings_cache=False, **server.options()).mkdir("bucket")
    yield server
    server.close()


@pytest.fixture(scope="module")
def options(server: FaultyServer) -> dict[str, Any]:
    return server.options()
