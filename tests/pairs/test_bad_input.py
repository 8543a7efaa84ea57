"""Bad input is refused in one sentence that names the row, and leaves nothing behind."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sparse
from helpers.pairs import make_frame

import pairsym_dask as ps


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (scipy.sparse.csr_matrix([[1, -3.0]]), r"entry \(0, 1\) of the matrix has count -3"),
        (scipy.sparse.csr_matrix([[1, np.nan]]), "counts must be finite"),
        (scipy.sparse.csr_matrix((3, 3)), "no pairs in the matrix"),
        (scipy.sparse.csr_matrix([[1j]]), "counts must be numbers"),
        (sparse.COO.from_numpy(np.ones((2, 2, 2))), "two dimensions"),
        (sparse.COO.from_numpy(np.ones((2, 2)), fill_value=1), "must be 0 where nothing is stored"),
    ],
)
def test_bad_matrices_are_refused(tmp_path, matrix, message):
    with pytest.raises(ps.InputError, match=message):
        ps.ingest(matrix, tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr").exists()


def refused(source, tmp_path, message, **options):
    """Bad input is one sentence, and leaves nothing behind."""
    with pytest.raises(ps.InputError, match=message) as caught:
        ps.ingest(source, tmp_path / "c.zarr", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "c.zarr").exists()


def place(name, row):
    """A row as messages name it: in a CSV file by the line that an editor shows."""
    if ".csv" in name:
        return f"line {row + 2} of .*{name}"
    return f"row {row} of {'the frame' if name == 'frame' else f'.*{name}'}"


def write(path, frame):
    if path.name.endswith(".parquet"):
        frame.to_parquet(path, row_group_size=200)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["plays.parquet", "plays.csv", "plays.csv.gz"])
def test_missing_columns_are_named_with_those_there_are(tmp_path, name):
    path = write(tmp_path / name, make_frame())
    refused(path, tmp_path, f"no column 'person' in .*{name}; there are: user, item, n", user="person")
    refused(path, tmp_path, "no column 'weight'", count="weight")
    refused(path, tmp_path, "different columns", item="user")


@pytest.mark.parametrize("name", ["plays.parquet", "plays.csv", "plays.csv.gz", "frame"])
@pytest.mark.parametrize(
    ("count", "message"),
    [
        (-3, r"1 with a negative count \(first: '-3.0' in {row}\)"),
        (np.inf, r"1 with an infinite count \(first: 'inf' in {row}\)"),
        (np.nan, r"1 without a count \(first: {row}\)"),
        (0, r"1 with a count of zero \(first: {row}\)"),
    ],
)
def test_bad_counts_are_named_by_file_and_row(tmp_path, small_tasks, name, count, message):
    frame = make_frame().astype({"n": float})
    frame.loc[1234, "n"] = count
    source = frame if name == "frame" else write(tmp_path / name, frame)
    refused(source, tmp_path, "1 of 1,500 rows cannot be counted: " + message.format(row=place(name, 1234)), count="n")


def test_counts_that_are_no_numbers_are_refused(tmp_path, small_tasks):
    frame = make_frame().astype({"n": object})
    frame.loc[77, "n"] = "many"
    words = r"1 with a count that is no number \(first: 'many' in {}\)"
    refused(write(tmp_path / "a.csv", frame), tmp_path, words.format("line 79 of .*a.csv"), count="n")
    refused(frame, tmp_path, words.format("row 77 of the frame"), count="n")
    text = frame.astype({"n": str})
    refused(write(tmp_path / "a.parquet", text), tmp_path, words.format("row 77 of .*a.parquet"), count="n")
    dates = frame.assign(n=pd.Timestamp("2020-01-01"))
    refused(dates, tmp_path, "counts must be numbers: column 'n' of the frame holds timestamp", count="n")
    refused(frame.assign(n=True), tmp_path, "holds bool", count="n")


@pytest.mark.parametrize("name", ["plays.parquet", "plays.csv", "plays.csv.gz", "frame"])
@pytest.mark.parametrize("side", ["user", "item"])
def test_missing_labels_are_named_by_file_and_row(tmp_path, small_tasks, name, side):
    frame = make_frame()
    frame.loc[901, side] = None
    source = frame if name == "frame" else write(tmp_path / name, frame)
    refused(source, tmp_path, rf"1 without an? {side} \(first: {place(name, 901)}\)")


def test_labels_of_mixed_types_are_refused(tmp_path, small_tasks):
    text, numbers = make_frame(), make_frame(labels="numbers")
    both = [write(tmp_path / "a.parquet", numbers), write(tmp_path / "b.parquet", text)]
    refused(both, tmp_path, "'user' holds integers in .*a.parquet and strings in .*b.parquet")
    csv = write(tmp_path / "c.csv", text)
    refused([both[0], csv], tmp_path, r"users are integers elsewhere, but line 2 of .*c.csv has 'u\d+'")
    mixed = pd.DataFrame({"user": [1, "a"] * 100, "item": 1})
    refused(mixed, tmp_path, "labels of mixed types: column 'user' of the frame holds mixed-integer values")
    halves = pd.DataFrame({"user": pd.Series([1] * 128 + ["a"] * 128, dtype=object), "item": 1})
    refused(halves, tmp_path, "'user' holds integers and strings in the frame")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.5, 2.0], "integers or strings: column 'user' of the frame holds double"),
        ([True, False], "holds bool"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "holds timestamp"),
        (
            np.array([2**63, 1], np.uint64),
            "labels must be below 2\\*\\*63: row 0 of the frame has user 9223372036854775808",
        ),
        ([2**70, 1], "within 64 bits"),
        ([b"\xff", b"a"], "UTF-8"),
        (["x" * 20_000, "y"], "at most 16000 bytes long: row 0"),
    ],
)
def test_labels_of_other_types_are_refused(tmp_path, values, message):
    refused(pd.DataFrame({"user": values, "item": 1}), tmp_path, message)


def test_files_that_are_not_there_are_refused(tmp_path):
    refused(tmp_path / "none.parquet", tmp_path, "no such file: .*none.parquet")
    refused(tmp_path / "*.parquet", tmp_path, r"no file matches .*\*.parquet")
    refused([tmp_path], tmp_path, "no file of pairs in")
    refused([], tmp_path, "cannot be read from a list")
    refused({"user": [1]}, tmp_path, "no column 'item' in the frame")
    (tmp_path / "a.xlsx").write_text("x")
    refused(tmp_path / "a.xlsx", tmp_path, "not a file of pairs by its name")


def test_broken_files_are_refused(tmp_path, small_tasks):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is not")
    refused(tmp_path / "a.parquet", tmp_path, "not a readable Parquet file")
    whole = gzip.compress(make_frame().to_csv(index=False).encode())
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "a.csv.gz", tmp_path, "not a readable CSV file")
    (tmp_path / "b.csv").write_text("user,item\n" + "1,2\n" * 300 + "1,2,3\n")
    refused(tmp_path / "b.csv", tmp_path, r"1 with another number of columns \(first: '1,2,3' in line 302 of .*b.csv\)")
    (tmp_path / "c.csv").write_bytes(b"user,item\n\xff,2\n")
    refused(tmp_path / "c.csv", tmp_path, "UTF-?8", encoding="utf-8")


def test_empty_input_is_refused(tmp_path):
    frame = make_frame()
    (tmp_path / "empty.csv").write_text("")
    refused(tmp_path / "empty.csv", tmp_path, "empty.csv is empty")
    refused(write(tmp_path / "head.csv", frame[:0]), tmp_path, "no pairs in .*head.csv")
    refused(write(tmp_path / "head.parquet", frame[:0]), tmp_path, "no pairs in .*head.parquet")
    refused(frame[:0], tmp_path, "no pairs in the frame")
    words = r"no pairs in the frame, 1,500 left out \(1,500 with a count of zero\)"
    refused(frame.assign(n=0), tmp_path, words, count="n", invalid="drop")


def test_a_path_that_exists_is_refused_and_left_alone(tmp_path):
    frame = make_frame()
    counts = ps.ingest(frame, tmp_path / "c.zarr")
    with pytest.raises(ps.StoreError, match="exists already"):
        ps.ingest(frame, tmp_path / "c.zarr")
    assert ps.open_counts(tmp_path / "c.zarr").digest == counts.digest
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    for name in ("notes", "notes/a.txt"):
        with pytest.raises(ps.StoreError, match="exists already"):
            ps.ingest(frame, tmp_path / name)
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"


def test_bad_input_leaves_a_folder_that_was_there_as_it_was(tmp_path):
    (tmp_path / "c.zarr").mkdir()
    with pytest.raises(ps.InputError, match="no pairs"):
        ps.ingest(make_frame()[:0], tmp_path / "c.zarr")
    assert list((tmp_path / "c.zarr").iterdir()) == []


def test_memory_too_small_for_a_block_is_refused_with_the_arithmetic(tmp_path):
    with pytest.raises(ps.MemoryBudgetError, match=r"2 tasks x 16384 pairs x \d+ bytes = "):
        ps.ingest(make_frame(), tmp_path / "c.zarr", memory="1MiB", threads=2)
    with pytest.raises(ps.InputError, match="memory must be a size"):
        ps.ingest(make_frame(), tmp_path / "c.zarr", memory="lots")


def test_half_a_surrogate_pair_is_no_label(tmp_path):
    users = pd.Series(["a", "b", "\ud800"], dtype=object)
    frame = pd.DataFrame({"user": users, "item": [1, 2, 3]})
    with pytest.raises(ps.InputError, match=r"UTF-8 can write: row 2 of the frame has '\\ud800' in column 'user'"):
        ps.ingest(frame, tmp_path / "c.zarr")
    counts = ps.ingest(frame[:2], tmp_path / "c.zarr")
    with pytest.raises(ps.InputError, match=r"user labels must be integers or text, not \['\\ud800'\]"):
        counts.positions("users", ["\ud800"])
    with pytest.raises(ps.InputError, match=r"user labels must be integers or text, not \{\}"):
        counts.positions("users", {})


@pytest.mark.parametrize("count", [2**53 + 1, 2**63])
@pytest.mark.parametrize("kind", ["frame", "matrix", "text"])
def test_whole_counts_that_floats_cannot_hold_are_refused(tmp_path, kind, count):
    if kind == "frame":
        source = pd.DataFrame({"user": ["a", "b"], "item": [1, 2], "count": np.array([1, count], np.uint64)})
        where = "row 1 of the frame"
    elif kind == "matrix":
        source, where = scipy.sparse.csr_array(np.array([[1, count]], np.uint64)), r"entry \(0, 1\) of the matrix"
    else:
        source, where = str(tmp_path / "a.csv"), "line 3 of .*a.csv"
        (tmp_path / "a.csv").write_text(f"user,item,count\na,1,1\nb,2,{count}\n")
    options = {} if kind == "matrix" else {"count": "count"}
    words = rf"whole counts must be at most 2\*\*53, .*: {where} has count {count}; give floats"
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(source, tmp_path / "c.zarr", **options)


def test_whole_counts_up_to_the_limit_and_large_floats_are_taken(tmp_path):
    frame = pd.DataFrame({"user": ["a", "b"], "item": [1, 2], "count": [2**53, 1]})
    assert ps.ingest(frame, tmp_path / "c.zarr", count="count").to_scipy().max() == 2**53
    frame["count"] = [2.0**60, 1.0]
    assert ps.ingest(frame, tmp_path / "d.zarr", count="count").to_scipy().max() == 2.0**60


def test_names_that_are_none_are_refused(tmp_path):
    frame = pd.DataFrame({"user": ["a"], "item": [1]})
    with pytest.raises(ps.InputError, match=r"must each name one column, not \['user'\]"):
        ps.ingest(frame, tmp_path / "c.zarr", user=["user"])
    with pytest.raises(ps.StoreError, match="a store's path must be text or a path, not 5"):
        ps.ingest(frame, 5)
    with pytest.raises(ps.StoreError, match="a store's path must be text that a file name can hold"):
        ps.ingest(frame, "\ud800.zarr")
