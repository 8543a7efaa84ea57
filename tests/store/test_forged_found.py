"""What long runs of forgeries have found: each is refused in words now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import forged_child
from helpers.forger import Forger
from numcodecs.zstd import Zstd

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError, NumericError, StoreError
from pairsym_dask.store.storage import open_storage
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep.discount import Discount

pytestmark = pytest.mark.draws
SIZE = 2**31  # as large as a listed file may say it is


def other(forger: Forger, model: str) -> Forger:
    """A forger of another one of the models."""
    return Forger(forger.model.parent, 0, model)


def fit(forger: Forger) -> None:
    forged_child.actions(forger.model.parent, forger.model.name)["fit"]()


@pytest.mark.parametrize("model", forged_child.MODELS)
def test_a_folder_in_the_place_of_a_receipt_is_told(model: str, forger: Forger) -> None:
    forger = other(forger, model)
    receipt = forger.model / forger.commits[-1]["generation"] / "receipt"
    receipt.unlink()
    receipt.mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*/receipt: a folder stands in its place; move that away"):
        fit(forger)


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    for write in (open_storage(tmp_path).write, open_storage(tmp_path).put_if_absent):
        with pytest.raises(StoreError, match=r"cannot write .*a/b: a file stands where one of its folders should"):
            write("a/b", b"")


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for write in (open_storage(tmp_path).write, open_storage(tmp_path).put_if_absent):
        with pytest.raises(StoreError, match=r"cannot write .*a: a folder stands in its place; move that away"):
            write("a", b"")


@pytest.mark.parametrize("change", [lambda v: 0 * v, lambda v: 2 * v, lambda v: v + 1e308])
@pytest.mark.parametrize("side", ["users", "items"])
def test_sums_of_rows_that_do_not_make_the_total_are_refused(
    side: str, change: Callable[[np.ndarray], np.ndarray], forger: Forger
) -> None:
    key = f"{side}/marginal/c.0"
    values = np.frombuffer(Zstd().decode((forger.counts / key).read_bytes()))
    forger.write_chunk(forger.counts, forger.record, key, bytes(Zstd().encode(change(values).tobytes())))
    forger.reseal_counts()
    counts = ps.open_counts(forger.counts)
    with pytest.raises(DamagedStoreError, match=rf"{side}/marginal sums to .* total is {counts.total}"):
        counts.marginal(side)
    assert not verify(forger.counts).sound
    if side == "items":  # the shorter one, whose sums are discounted
        with pytest.raises(DamagedStoreError, match="items/marginal sums to"):
            fit(forger)


@pytest.mark.parametrize("sums", [0.0, 5e-324, np.inf])
def test_discounted_counts_that_nothing_scales_are_told(sums: float) -> None:
    with pytest.raises(NumericError, match=r"discounted by 0.2 the counts sum to .* total of 4.0; verify the counts"):
        Discount.measure(0.2, 4.0, np.array([4.0]), np.array([sums]))


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("users", "shards must be blocks a shard by group of arrays, users and items among them"),
        ("items", "shards must be blocks a shard by group of arrays, users and items among them"),
        ("users_next", "has shards of .*, but needs some of users, items, users_next"),
    ],
)
@pytest.mark.parametrize("model", ["shards.zarr", "shards-of-chain.zarr"])
def test_shards_of_one_side_alone_are_refused(model: str, group: str, words: str, forger: Forger) -> None:
    forger = other(forger, model)
    for commit in forger.commits:
        if commit["shards"].pop(group, None) is None:
            pytest.skip("a chain has no such group")
    forger.reseal_commits()
    for use in (lambda: fit(forger), lambda: ps.load(forger.model).recommend("u000")):
        with pytest.raises(DamagedStoreError, match=words):
            use()


def listed(forger: Forger, key: str) -> None:
    """List a file of the newest generation with the largest size that there is."""
    commit = forger.commits[-1]
    found = forger.listed(commit)
    found["files"][key] = [SIZE, "0" * 32]
    forger.relist(commit, found)
    forger.reseal_commits()


@pytest.mark.parametrize("key", ["zarr.json", "users/mean/c.999.0"])
@pytest.mark.parametrize("model", forged_child.MODELS)
def test_a_listed_file_takes_no_more_memory_than_chunks_do(model: str, key: str, forger: Forger) -> None:
    forger = other(forger, model)
    listed(forger, key)
    words = rf"{key} has {SIZE} bytes; a file that is no chunk has \d+ at most"
    with pytest.raises(DamagedStoreError, match=words):
        ps.load(forger.model).recommend("u000")
    assert words.split()[0] in str(verify(forger.model))
    forger.record["files"][key] = [SIZE, "0" * 32]
    forger.reseal_counts()
    with pytest.raises(DamagedStoreError, match=words):
        ps.open_counts(forger.counts)


def test_a_read_takes_no_more_memory_than_its_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    storage = open_storage(tmp_path)
    assert [storage.read("a", limit=limit) for limit in (2**60, 3, 2)] == [b"abc", b"abc", b"ab"]
