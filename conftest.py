"""What examples in docstrings find: the package as `ps`, and the README's stores in the current folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

PAIRS = [("ann", "go"), ("ann", "chess"), ("bob", "go"), ("bob", "poker"), ("eve", "chess"), ("eve", "go")]
TAGS = [("go", "board"), ("chess", "board"), ("bridge", "cards"), ("poker", "cards")]  # nobody has bridge


@pytest.fixture(scope="session")
def example_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pairsym_dask as ps

    folder = tmp_path_factory.mktemp("examples")
    counts = ps.ingest(PAIRS, folder / "plays.zarr")
    ps.PairedSymbols(factors=2).fit(counts, folder / "model.zarr", sweeps=3, progress=False)
    tags = ps.ingest_tags(TAGS, folder / "tags.zarr")
    ps.PairedSymbols(factors=2).fit(counts, folder / "tagged.zarr", sweeps=3, item_tags=tags, progress=False)
    return folder


@pytest.fixture(autouse=True)
def examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """For docstrings alone; stores only for those that use the package."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import pairsym_dask as ps

    doctest_namespace["ps"] = ps
    if any("ps." in example.source for example in request.node.dtest.examples):
        folder = request.getfixturevalue("tmp_path") / "examples"
        shutil.copytree(request.getfixturevalue("example_stores"), folder)
        request.getfixturevalue("monkeypatch").chdir(folder)
