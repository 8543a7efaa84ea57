"""Files are data: whatever a record or a chunk says, it does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from helpers.faults import run_fit, tiny_counts

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError, StoreError
from pairsym_dask.store.arrays import ArraySpec, Sealed, write_block
from pairsym_dask.store.counts import Counts, open_counts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.records import seal
from pairsym_dask.store.storage import digest


def test_nothing_in_the_package_unpickles_a_store() -> None:
    package = Path(ps.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        if path != package / "kernels/kept_code.py":  # numba's cache of this user's compiled code, which is no store
            assert "pickle.load" not in text, path
        assert "numcodecs.pickles" not in text, path


def _reseal(path: Path, **changes: Any) -> None:
    record = json.loads(path.read_bytes())
    for name, value in changes.items():
        place = record
        *parents, last = name.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    path.write_bytes(seal(record))


@pytest.mark.parametrize(
    "changes",
    [
        {"layout__users": 10**15},
        {"layout__items": 10**15},
        {"layout__pairs": 10**15},
        {"layout__pairs": -1},
        {"layout__users": 0},
        {"layout__users": "many"},
        {"layout__count_dtype": "object"},
        {"tiles": {}},
        {"files": {}},
        {"cuts": None},
    ],
)
def test_absurd_shapes_in_a_counts_record_do_no_harm(changes: dict[str, Any], tmp_path: Path) -> None:
    tiny_counts(tmp_path / "c.zarr")
    _reseal(tmp_path / "c.zarr/counts.json", **changes)
    with pytest.raises(StoreError):
        open_counts(tmp_path / "c.zarr").to_scipy()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows__users": 10**15},
        {"blocks__users": 10**15},
        {"settings__factors": 10**9},
        {"generation": "../../outside"},
        {"generation": "generation-00001-" + "a/../../.."},
        {"files": {}},
    ],
)
def test_absurd_shapes_and_paths_in_a_commit_do_no_harm(
    changes: dict[str, Any], counts: Counts, tmp_path: Path
) -> None:
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    _reseal(path / "commits/00001.json", **changes)
    with pytest.raises(StoreError):
        ps.load(path, counts=counts)


def test_a_chunk_that_would_grow_beyond_its_array_is_refused(tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    spec = ArraySpec("a", (10,), (10,), "float64", ("n",), compressed=True)
    key, size, check = write_block(store, "", spec, (0,), np.arange(10.0))
    assert Sealed(store, "", {key: (size, check)}).read_block(spec, 0).tolist() == list(range(10))
    bomb = numcodecs.Zstd().encode(bytes(2**28))
    store.write(key, bomb)
    with pytest.raises(DamagedStoreError, match="declares another size"):
        Sealed(store, "", {key: (len(bomb), digest(bomb))}).read_block(spec, 0)
