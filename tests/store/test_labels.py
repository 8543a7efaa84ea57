"""Labels are read a chunk at a time: found, taken and checked over chunk borders, with and without the chunks' ends."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.faults import run_fit, write_counts

import pairsym_dask as ps
from pairsym_dask.errors import DamagedStoreError
from pairsym_dask.store import cuts, labels
from pairsym_dask.store.arrays import Sealed
from pairsym_dask.store.counts import RECORD, Counts
from pairsym_dask.store.records import canonical, seal
from pairsym_dask.store.storage import digest
from pairsym_dask.store.verify import verify

# Equal prefixes, the same letter written in two ways, the ends of the code points, and nothing at all.
TEXTS = sorted(
    ["", " ", "a", "a\0", "aa", "aaa", "aaaa", "aaab", "ab", "b" * 300, "b" * 301, "e\u0301", "\u00e9", "z", "\u0416"]
    + ["\u65e5\u672c", "\ue000", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff"]
    + [f"user-{k:03d}" for k in range(40)]
)
NUMBERS = np.sort(np.random.default_rng(1).choice(np.arange(-(2**40), 2**40, 2**33), 60, replace=False)) * 2


@pytest.fixture(params=[1, 4, 7, 1000])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Labels a chunk."""
    monkeypatch.setattr(cuts, "LABELS", request.param)
    return int(request.param)


@pytest.fixture(params=["ends", "no ends"])
def store(request: pytest.FixtureRequest, chunk: int, tmp_path: Path) -> Counts:
    """Texts as users, numbers as items; with the ends of chunks, or as stores of earlier versions are."""
    return made(tmp_path, request.param == "ends")


def made(folder: Path, ends: bool = True) -> Counts:
    dense = np.ones((len(TEXTS), NUMBERS.size), np.uint16)
    found = write_counts(dense, folder / "c.zarr", {"users": np.array(TEXTS, object), "items": NUMBERS})
    if not ends:
        change(found, lambda record: record.pop("ends", None))
    return ps.open_counts(found.path)


def change(counts: Counts, how: Any) -> None:
    """Change a store's record, and make its digest right."""
    path = Path(counts.path) / RECORD
    record = json.loads(path.read_bytes())
    how(record)
    path.write_bytes(seal(record))


def forge(counts: Counts, key: str, where: str, data: bytes) -> None:
    """Put other bytes in the place of a file, with the digest that they have."""
    (Path(counts.path) / key).write_bytes(data)
    change(counts, lambda record: record[where].__setitem__(key, [len(data), digest(data)]))


def test_every_label_is_found_and_taken_whatever_the_chunks(store: Counts) -> None:
    for side, known in (("users", TEXTS), ("items", NUMBERS.tolist())):
        order = np.random.default_rng(0).permutation(len(known))
        asked = np.array(known, object if side == "users" else np.int64)[order]
        assert store.find(side, asked).tolist() == order.tolist()
        assert [store.positions(side, [label])[0] for label in known] == list(range(len(known)))
        assert store.label_rows(side, order).tolist() == asked.tolist()
        assert store.labels(side).tolist() == known
        assert store.labels(side).dtype == store.columns[side].dtype
        for first, stop in ((0, 0), (0, 1), (3, 9), (6, 7), (len(known) - 1, len(known)), (0, len(known))):
            assert store.some_labels(side, first, stop).tolist() == known[first:stop]
        assert store.find(side, asked[:0]).tolist() == store.label_rows(side, order[:0]).tolist() == []
    assert verify(store.path).sound


def test_absent_labels_are_nowhere(store: Counts) -> None:
    absent = ["a\0\0", "aaaaa", "user-0", "user-0390", "zz", "\U0010ffff\0", "B", 5, None, np.nan, b"a", True]
    assert set(store.find("users", np.array(absent, object)).tolist()) == {-1}
    between = NUMBERS + 1
    assert set(store.find("items", between).tolist()) == {-1}
    odd = [-(2**63), 2**63 - 1, 2**63, 2**64, 0.5, np.inf, np.nan, True, "0", None]
    assert set(store.find("items", np.array(odd, object)).tolist()) == {-1}
    as_float = np.array([float(NUMBERS[3]), 0.25])
    assert store.find("items", as_float).tolist() == [3, -1]
    mixed = np.array(["nobody", TEXTS[30], 7, TEXTS[2]], object)
    assert store.find("users", mixed).tolist() == [-1, 30, -1, 2]
    with pytest.raises(
        ps.InputError, match=r"unknown user labels: aaaaa, B; the store knows 61 users, for instance ''"
    ):
        store.positions("users", ["a", "aaaaa", "B"])
    with pytest.raises(ps.InputError, match="user labels must be integers or text"):
        store.positions("users", [["a"]])


def test_many_labels_are_found_as_few_are(store: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = np.array([*TEXTS, "nobody", *TEXTS], object)
    found = store.find("users", asked).tolist()
    monkeypatch.setattr(labels, "FEW", 0)
    assert store.find("users", asked).tolist() == found == [*range(len(TEXTS)), -1, *range(len(TEXTS))]


def test_a_question_reads_the_chunks_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 2)
    counts, read = made(tmp_path), list[str]()
    real = Sealed.read_bytes

    def noted(sealed: Sealed, key: str) -> bytes:
        read.append(key)
        return real(sealed, key)

    monkeypatch.setattr(Sealed, "read_bytes", noted)
    assert counts.positions("users", [TEXTS[40], TEXTS[41], TEXTS[3]]).tolist() == [40, 41, 3]
    assert read == ["users/label_ends/c.0.0", "users/label/c.1", "users/label/c.20"]
    counts.label_rows("users", np.array([41, 3, 40]))
    assert len(read) == 3  # what was read stays
    read.clear()
    change(counts, lambda record: record.pop("ends"))
    older = ps.open_counts(counts.path)
    assert older.positions("users", [TEXTS[40]]).tolist() == [40]
    assert len(read) <= 6  # of 31, by halving


def test_what_stays_decoded_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 2)
    monkeypatch.setattr(labels, "KEPT", 2000)
    column = made(tmp_path).columns["users"]
    assert column.take(np.arange(len(TEXTS))[::-1]).tolist() == TEXTS[::-1]
    assert column._bytes == sum(map(labels._size, column._kept.values())) <= 2000
    assert 1 < len(column._kept) < 20


def test_a_store_travels_without_the_labels_it_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 16)
    counts = made(tmp_path)
    before = len(pickle.dumps(counts))
    counts.labels("users")
    counts.positions("users", TEXTS)
    assert len(pickle.dumps(counts)) == before
    assert pickle.loads(pickle.dumps(counts)).positions("users", TEXTS[5:7]).tolist() == [5, 6]


def test_a_spoiled_chunk_is_named_and_the_others_answer(store: Counts, chunk: int) -> None:
    if chunk > len(TEXTS):
        pytest.skip("one chunk")
    key = f"users/label/c.{40 // chunk}"
    path = Path(store.path) / key
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    if store.ends:  # by halving any chunk may be looked at
        assert ps.open_counts(store.path).positions("users", [TEXTS[1]]).tolist() == [1]
    with pytest.raises(DamagedStoreError, match=f"{key} does not hold the bytes that were written"):
        ps.open_counts(store.path).positions("users", [TEXTS[40]])
    assert any(key in line for line in verify(store.path).damage)


def test_spoiled_ends_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 4)
    counts = made(tmp_path)
    path = Path(counts.path) / "users/label_ends/c.0.0"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DamagedStoreError, match=r"users/label_ends/c\.0\.0 does not hold the bytes"):
        counts.positions("users", ["a"])
    assert not verify(counts.path).sound


def test_forged_ends_are_told_from_the_chunks_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 4)
    counts = made(tmp_path)
    ends = counts.columns["users"].ends
    true = counts.sealed.read_block(ends, 0, 0)
    other = true.copy()
    other[2, 1] = true[2, 1] + "!"
    forge(counts, ends.key(0, 0), "ends", bytes(ends.encode(other)))
    with pytest.raises(DamagedStoreError, match=r"label_ends has other ends of users/label/c\.2 than the chunk has"):
        ps.open_counts(counts.path).positions("users", [TEXTS[9]])
    assert not verify(counts.path).sound
    forge(counts, ends.key(0, 0), "ends", bytes(ends.encode(true[::-1])))
    with pytest.raises(DamagedStoreError, match="users/label_ends do not rise"):
        ps.open_counts(counts.path).positions("users", [TEXTS[9]])
    change(counts, lambda record: record["ends"].__setitem__("users/label/c.0", [3, "0" * 32]))
    with pytest.raises(DamagedStoreError, match="ends lists other files"):
        ps.open_counts(counts.path)


def test_labels_that_fall_from_chunk_to_chunk_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 4)
    counts = made(tmp_path, ends=False)
    spec = counts.columns["users"].spec
    forge(counts, spec.key(1), "files", bytes(spec.encode(np.array(TEXTS[:4], object))))
    with pytest.raises(DamagedStoreError, match=r"users/label do not rise from chunk to chunk"):
        _ = ps.open_counts(counts.path).user_ids
    assert not verify(counts.path).sound


def test_ends_are_beside_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 4)
    counts = made(tmp_path)
    body = {name: counts.record[name] for name in counts.record if name not in ("content", "source", "digest")}  # type: ignore[literal-required]
    assert not any("label_ends" in key for key in counts.record["files"])
    assert digest(canonical(body)) == counts.digest
    assert {key.split("/")[0] for key in counts.ends} == {"users", "items"}
    import zarr

    ends = zarr.open_group(counts.path, mode="r")["users/label_ends"][:]
    assert ends.tolist() == [[TEXTS[k], TEXTS[min(k + 3, len(TEXTS) - 1)]] for k in range(0, len(TEXTS), 4)]


def test_a_pack_keeps_the_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LABELS", 4)
    counts = made(tmp_path)
    run_fit(counts, tmp_path / "model.zarr", 1)
    ps.load(tmp_path / "model.zarr").pack(tmp_path / "served")
    served = ps.load(tmp_path / "served")
    assert served.counts.ends == counts.ends
    top = served.recommend([TEXTS[50], TEXTS[2]], n=2, exclude_seen=False)
    assert top["user"].tolist() == [TEXTS[50]] * 2 + [TEXTS[2]] * 2
    assert set(top["item"]) <= set(NUMBERS.tolist())
    assert verify(tmp_path / "served").sound


@pytest.mark.parametrize("side", ["users", "items"])
def test_a_side_may_have_far_longer_labels_than_the_other(side: str, tmp_path: Path) -> None:
    """65,536 digests fill a chunk with more bytes than any chunk of numbers has."""
    rng = np.random.default_rng(3)
    codes = np.array(sorted(rng.bytes(40).hex() for _ in range(2**16)), object)
    long, short = np.concatenate([codes, rng.choice(codes, 2**16)]), rng.integers(0, 500, 2**17)
    other = "items" if side == "users" else "users"
    frame = pd.DataFrame({side: long, other: short})
    counts = ps.ingest(frame, tmp_path / "c.zarr", user="users", item="items")
    assert counts.columns[side].dtype != counts.columns[other].dtype
    assert ps.open_counts(counts.path).positions(side, codes[[0, 1000, -1]]).tolist() == [0, 1000, 2**16 - 1]
    assert verify(counts.path).sound
