"""Labels on their way into a store: numbered in order though nobody holds them all."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.memory import peak

import pairsym_dask as ps
from pairsym_dask.pairs import assemble, labels, writing
from pairsym_dask.pairs.runs import Run
from pairsym_dask.store import cuts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.scratch import Scratch, Stored
from pairsym_dask.store.verify import verify


@pytest.fixture(params=[64, 500, 2**20])
def tasks(request, monkeypatch):
    """Tasks of so many labels; a small sample, so that ranges differ in size."""
    monkeypatch.setattr(writing, "ROWS", request.param)
    monkeypatch.setattr(labels, "SAMPLE", 32)


def names(kind: str, n: int) -> list:
    rng = np.random.default_rng(3)
    numbers = rng.choice(10**6, n, replace=False) - 10**5
    if kind == "numbers":
        return numbers.tolist()
    if kind == "equal prefixes":
        return [f"{'same beginning ' * 20}{k}" for k in numbers]
    letters = np.array(["", "a", "Z", "\0", "\u00e9", "e\u0301", "\u65e5", "\uffff", "\U0001f600"], object)
    return list(dict.fromkeys("".join(rng.choice(letters, rng.integers(1, 9))) + chr(33 + k % 7) for k in range(n)))


@pytest.mark.parametrize("kind", ["numbers", "equal prefixes", "unicode"])
def test_labels_are_numbered_in_order(tmp_path, tasks, monkeypatch, kind):
    monkeypatch.setattr(cuts, "LABELS", 50)
    known = names(kind, 700)
    rng = np.random.default_rng(0)
    user = np.concatenate([np.arange(len(known)), rng.integers(0, len(known), 900)])
    rng.shuffle(user)
    frame = pd.DataFrame({"user": [known[k] for k in user], "item": rng.integers(0, 30, user.size)})
    counts = ps.ingest(frame, tmp_path / "c.zarr")
    assert counts.user_ids.tolist() == sorted(known)
    table = pd.crosstab(pd.Categorical(frame["user"], sorted(known)), frame["item"])
    assert (counts.to_scipy().toarray() == table.to_numpy()).all()
    assert verify(counts.path).sound


def test_csv_labels_are_numbers_only_where_all_tasks_say_so(tmp_path, tasks):
    user = np.random.default_rng(0).permutation(1500)
    frame = pd.DataFrame({"user": user, "item": user % 7})
    frame.to_csv(tmp_path / "whole.csv", index=False)
    assert ps.ingest(tmp_path / "whole.csv", tmp_path / "whole.zarr").user_ids.tolist() == list(range(1500))
    frame["user"] = frame["user"].astype(str).replace("77", "077")
    frame.to_csv(tmp_path / "text.csv", index=False)
    text = ps.ingest(tmp_path / "text.csv", tmp_path / "text.zarr")
    assert text.user_ids.tolist() == sorted(frame["user"])


def test_a_store_goes_in_with_symbols_that_have_no_pairs(tmp_path, tasks, monkeypatch):
    monkeypatch.setattr(cuts, "LABELS", 50)
    matrix = scipy.sparse.coo_matrix(([1, 2, 3], ([0, 400, 899], [5, 0, 9])), (900, 11))
    more = pd.DataFrame({"user": [-5, 450, 1000], "item": [1, 2, 99]})
    grown = ps.ingest([ps.ingest(matrix, tmp_path / "a.zarr"), more], tmp_path / "b.zarr")
    assert grown.user_ids.tolist() == [-5, *range(900), 1000]
    assert grown.item_ids.tolist() == [*range(11), 99]
    rows, columns = grown.to_scipy().nonzero()
    assert rows.tolist() == [0, 1, 401, 451, 900, 901]
    assert columns.tolist() == [1, 5, 0, 2, 9, 11]


@pytest.mark.parametrize("size", [5, 1000, 12_345])
def test_sums_read_back_in_parts_have_the_bits_of_numpys(tmp_path, monkeypatch, size):
    monkeypatch.setattr(assemble, "SUMMED", 128)
    user, count = np.arange(size), np.random.default_rng(2).random(size)
    frame = pd.DataFrame({"user": user, "item": user % 5, "count": count})
    counts = ps.ingest(frame, tmp_path / "c.zarr", count="count")
    assert counts.total == counts.marginal("users").sum()


def test_offsets_at_blocks_and_runs(tmp_path):
    lengths = np.random.default_rng(0).integers(0, 9, 1000).astype(np.uint32)
    before = np.concatenate([[0], np.cumsum(lengths)])
    scratch = Scratch(LocalStorage(str(tmp_path)), "scratch")
    scratch.make("runs")
    none, starts = Stored("runs/0", 0, "uint64", 0), [0, 10, 64, 65, 700, 1000]
    runs = [
        Run(first, stop - first, none, None, *scratch.write(f"runs/{first}", lengths[first:stop]), 1, True)
        for first, stop in itertools.pairwise(starts)
    ]
    offsets = assemble.Offsets.read(scratch, runs, cuts.Cut("users", 1000, 10, 64, 10))
    for row in {*starts, *range(0, 1000, 64)}:
        assert offsets[row] == before[row]


@pytest.mark.slow
def test_peak_memory_of_an_ingest_does_not_grow_with_the_labels(tmp_path):
    used = []
    for n in (200_000, 1_600_000):
        number = np.arange(n) * 982_451_653 % n
        frame = pd.DataFrame({"user": [f"{k:09d}-{'x' * 40}" for k in number], "item": number % 100})
        frame.to_parquet(tmp_path / f"{n}.parquet", row_group_size=50_000)
        del frame
        command = ("ingest", tmp_path / f"{n}.parquet", tmp_path / f"{n}.zarr", "--memory", "40MiB")
        used.append(peak(*command))
    assert used[1] - used[0] < 1_400_000 * 50 / 2, used  # half of the bytes of the labels that are more
