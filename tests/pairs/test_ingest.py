"""`ingest`: the same pairs make the same store however they come, and bad input is refused in one sentence."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import textwrap

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import pairsym_dask as ps
from pairsym_dask.kernels import keys as grouping
from pairsym_dask.pairs import assemble, checks, sources
from pairsym_dask.store.cuts import Layout, make_cuts
from pairsym_dask.store.scratch import Scratch, Stored
from pairsym_dask.store.storage import LocalStorage

INT64 = np.iinfo(np.int64)


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of a few dozen pairs, so that small data take every path."""
    monkeypatch.setattr(assemble, "ROWS", 64)


def make_frame(pairs=1500, users=90, items=40, seed=0, labels="text"):
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, users, pairs), (items * rng.random(pairs) ** 2).astype(int)
    if labels == "text":
        user, item = [f"u{k}" for k in user], [f"straße {k}" for k in item]
    else:
        user = user * 1_000_003 - 40_000_000
    return pd.DataFrame({"user": user, "item": item, "n": rng.integers(0, 4, pairs)})


def add_up(frame):
    """The reference: what a store of these pairs must hold."""
    return frame[frame["n"] > 0].groupby(["user", "item"], observed=True)["n"].sum()


def check(counts, expected):
    """Everything a store says, against sums by (user, item)."""
    users = sorted(set(expected.index.get_level_values("user")))
    items = sorted(set(expected.index.get_level_values("item")))
    assert counts.user_ids.tolist() == users
    assert counts.item_ids.tolist() == items
    dense = expected.unstack(fill_value=0).reindex(index=users, columns=items).to_numpy()
    check_dense(counts, dense)


def check_dense(counts, dense):
    assert counts.shape == dense.shape
    assert counts.nnz == (dense > 0).sum()
    np.testing.assert_array_equal(counts.to_scipy().toarray(), dense)
    np.testing.assert_allclose(counts.marginal("users"), dense.sum(1), rtol=1e-13)
    np.testing.assert_allclose(counts.marginal("items"), dense.sum(0), rtol=1e-13)
    assert counts.total == pytest.approx(dense.sum(), rel=1e-13)
    for side, matrix in (("users", dense), ("items", dense.T)):
        cut = counts.cuts[side]
        for block in range(cut.blocks):
            for group in range(cut.groups):
                rows, columns = slice(*cut.row_range(block)), slice(*cut.column_range(group))
                tile, wanted = counts.read_tile(side, block, group), scipy.sparse.csr_matrix(matrix[rows, columns])
                np.testing.assert_array_equal(tile.indptr, wanted.indptr)
                np.testing.assert_array_equal(tile.indices, wanted.indices + columns.start)
                np.testing.assert_array_equal(tile.counts, wanted.data)


# What is stored -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", ["text", "numbers"])
@pytest.mark.parametrize("shape", [(90, 40), (40, 90), (1, 60), (60, 1), (700, 5)])
def test_store_holds_sums_of_pairs(tmp_path, small_tasks, labels, shape):
    frame = make_frame(users=shape[0], items=shape[1], labels=labels)
    check(ps.ingest(frame, tmp_path / "c.zarr", count="n"), add_up(frame))


def ways(frame, folder):
    """The same pairs in many guises: (source, keyword arguments)."""
    folder.mkdir()
    shuffled = frame.sample(frac=1, random_state=1)
    repeated = frame.loc[frame.index.repeat(frame["n"])]
    summed = add_up(frame).reset_index()
    thirds = np.array_split(np.arange(len(frame)), 3)

    frame.to_parquet(folder / "one.parquet", row_group_size=100)
    (folder / "many").mkdir()
    for k, rows in enumerate(thirds):
        shuffled.iloc[rows].to_parquet(folder / "many" / f"part-{k}.parquet")
    frame.to_csv(folder / "a.csv", index=False)
    shuffled.to_csv(folder / "a.tsv", index=False, sep="\t")
    repeated[["item", "user"]].to_csv(folder / "b.csv", index=False)
    frame.to_csv(folder / "c.csv.gz", index=False)
    shuffled.to_csv(folder / "q.csv", index=False, quoting=1)
    mixed = [folder / "one-third.parquet", folder / "two-thirds.csv"]
    frame.iloc[thirds[0]].to_parquet(mixed[0])
    frame.iloc[np.concatenate(thirds[1:])].to_csv(mixed[1], index=False)
    odd = shuffled.assign(user=shuffled["user"].astype("category"), n=shuffled["n"].astype("float32"))
    n = {"count": "n"}
    return {
        "frame": (frame, n),
        "shuffled, categories, float counts": (odd, n),
        "one row a pair": (repeated.drop(columns="n"), {}),
        "added up": (summed, n),
        "other names": (frame.set_axis(["who", "what", "n"], axis=1), n | {"user": "who", "item": "what"}),
        "arrow": (pa.Table.from_pandas(shuffled), n),
        "parquet": (folder / "one.parquet", n),
        "folder": (str(folder / "many"), n),
        "glob": (str(folder / "many" / "*.parquet"), n),
        "list": ([folder / "many" / f"part-{k}.parquet" for k in (2, 0, 1)], n),
        "csv": (folder / "a.csv", n),
        "tsv": (folder / "a.tsv", n),
        "csv without counts": (folder / "b.csv", {}),
        "gzip": (folder / "c.csv.gz", n),
        "quoted": (folder / "q.csv", n),
        "parquet and csv": (mixed, n),
        "url": ((folder / "one.parquet").as_uri(), n),
    }


@pytest.mark.parametrize("labels", ["text", "numbers"])
def test_same_pairs_make_the_same_store_however_they_come(tmp_path, small_tasks, labels):
    frame = make_frame(labels=labels)
    digests = {}
    for k, (name, (source, options)) in enumerate(ways(frame, tmp_path / "in").items()):
        digests[name] = ps.ingest(source, tmp_path / f"{k}.zarr", **options).digest
    assert len(set(digests.values())) == 1, digests
    check(ps.open_counts(tmp_path / "0.zarr"), add_up(frame))


def test_dask_frame_makes_the_same_store(tmp_path, small_tasks):
    import dask.dataframe as dd

    frame = make_frame()
    one = ps.ingest(frame, tmp_path / "a.zarr", count="n")
    two = ps.ingest(dd.from_pandas(frame, npartitions=4), tmp_path / "b.zarr", count="n")
    assert one.digest == two.digest


def test_store_depends_neither_on_scheduler_nor_on_task_size(tmp_path, monkeypatch):
    frame = make_frame()
    digests = set()
    for k, (rows, threads) in enumerate([(10**6, 1), (50, 3), (333, 2)]):
        monkeypatch.setattr(assemble, "ROWS", rows)
        digests.add(ps.ingest(frame, tmp_path / f"{k}.zarr", count="n", threads=threads).digest)
    with dask.config.set(scheduler="synchronous"):
        digests.add(ps.ingest(frame, tmp_path / "s.zarr", count="n", memory="16MiB").digest)
    assert len(digests) == 1


def test_cluster_makes_the_same_store(tmp_path):
    from distributed import Client, LocalCluster

    frame = make_frame()
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=300)
    one = ps.ingest(tmp_path / "a.parquet", tmp_path / "one.zarr", count="n")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        # Once more than once: a cluster remembers keys of tasks for a while.
        others = [ps.ingest(tmp_path / "a.parquet", tmp_path / f"{k}.zarr", count="n", client=client) for k in range(3)]
        with pytest.raises(ps.InputError, match="no such file"):
            ps.ingest(tmp_path / "b.parquet", tmp_path / "three.zarr")
    assert {other.digest for other in others} == {one.digest}


def test_remote_store_and_source(small_tasks):
    import fsspec

    frame = make_frame()
    with fsspec.open("memory://pairs/a.parquet", "wb") as file:
        frame.to_parquet(file)
    counts = ps.ingest("memory://pairs/*.parquet", "memory://stores/a.zarr", count="n")
    check(counts, add_up(frame))
    assert not [key for key in counts.storage.listing() if "scratch" in key]


@st.composite
def some_pairs(draw):
    text = draw(st.booleans())
    label = st.text(max_size=5) if text else st.integers(INT64.min, INT64.max) | st.integers(-3, 3)
    few = st.lists(label, min_size=1, max_size=8, unique=True)
    users, items = draw(few), draw(few)
    number = draw(st.sampled_from([st.integers(0, 300), st.floats(0, 1e6), st.integers(0, 2**33)]))
    row = st.tuples(st.sampled_from(users), st.sampled_from(items), number)
    rows = draw(st.lists(row, min_size=1, max_size=60).filter(lambda rows: any(row[2] > 0 for row in rows)))
    return pd.DataFrame(rows, columns=["user", "item", "n"])


@settings(max_examples=25, deadline=None)
@given(frame=some_pairs(), rows=st.sampled_from([3, 20, 1000]), seed=st.integers(0, 99))
def test_any_pairs_come_back(tmp_path_factory, frame, rows, seed):
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(assemble, "ROWS", rows)
        counts = ps.ingest(frame, folder / "a.zarr", count="n")
        again = ps.ingest(frame.sample(frac=1, random_state=seed), folder / "b.zarr", count="n")
    assert counts.digest == again.digest
    got = counts.to_scipy().tocoo()
    found = {(counts.user_ids[i], counts.item_ids[j]): n for i, j, n in zip(got.row, got.col, got.data, strict=True)}
    wanted = add_up(frame).to_dict()
    assert found.keys() == wanted.keys()
    assert all(found[pair] == pytest.approx(wanted[pair], rel=1e-13) for pair in wanted)
    assert counts.user_ids.tolist() == sorted({user for user, _ in wanted})


# Counts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(1, "uint8"), (255, "uint8"), (256, "uint16"), (70_000, "uint32"), (2**33, "uint64"), (2**52, "uint64")],
)
def test_whole_counts_take_the_smallest_type(tmp_path, largest, dtype):
    frame = pd.DataFrame({"user": [1, 2, 3], "item": [1, 1, 2], "n": [1, largest, 1.0]})
    counts = ps.ingest(frame, tmp_path / "c.zarr", count="n")
    assert counts.layout.count_dtype == dtype
    assert counts.to_scipy().max() == largest


def test_repetitions_may_add_up_to_a_larger_type(tmp_path, small_tasks):
    frame = pd.DataFrame({"user": [1] * 700 + [2], "item": 5})
    counts = ps.ingest(frame, tmp_path / "c.zarr")
    assert counts.layout.count_dtype == "uint16"
    assert counts.to_scipy().toarray().tolist() == [[700], [1]]


def test_sums_of_fractions_do_not_depend_on_the_order_of_rows(tmp_path, small_tasks):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": rng.integers(0, 20, 900), "item": rng.integers(0, 4, 900), "n": rng.random(900)})
    stores = [ps.ingest(frame.sample(frac=1, random_state=k), tmp_path / f"{k}.zarr", count="n") for k in range(3)]
    assert len({store.digest for store in stores}) == 1
    assert stores[0].layout.count_dtype == "float64"


def test_fractions_that_add_up_to_whole_numbers_are_whole(tmp_path):
    halves = pd.DataFrame({"user": [1, 1, 2], "item": [1, 1, 1], "n": [0.5, 0.5, 3]})
    whole = pd.DataFrame({"user": [1, 2], "item": [1, 1], "n": [1, 3]})
    one, two = ps.ingest(halves, tmp_path / "a.zarr", count="n"), ps.ingest(whole, tmp_path / "b.zarr", count="n")
    assert one.digest == two.digest


def test_symbols_with_zero_counts_only_are_dropped(tmp_path):
    frame = pd.DataFrame({"user": ["a", "b", "c"], "item": ["x", "y", "x"], "n": [1.0, 0.0, -0.0]})
    counts = ps.ingest(frame, tmp_path / "c.zarr", count="n")
    assert counts.user_ids.tolist() == ["a"]
    assert counts.item_ids.tolist() == ["x"]


def test_unused_column_of_counts_is_a_warning(tmp_path):
    frame = make_frame().rename(columns={"n": "count"})
    with pytest.warns(UserWarning, match='give count="count"'):
        ps.ingest(frame, tmp_path / "c.zarr")


def test_a_pair_repeated_beyond_a_task_is_added_up_on_the_way(tmp_path, small_tasks):
    frame = pd.DataFrame({"user": ["the"] * 5000 + ["a"], "item": [f"w{k % 7}" for k in range(5001)]})
    check(ps.ingest(frame, tmp_path / "c.zarr"), add_up(frame.assign(n=1)))


# Labels -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["10", "9", "-3"], [-3, 9, 10]),
        ([str(INT64.min), str(INT64.max)], [INT64.min, INT64.max]),
        (["7", "007"], ["007", "7"]),
        (["10", "x", "9"], ["10", "9", "x"]),
        (["1", "+2"], ["+2", "1"]),
        (["1", "-0"], ["-0", "1"]),
        (["1", str(2**63)], ["1", str(2**63)]),
        (["1", " 2"], [" 2", "1"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["NA", "null"], ["NA", "null"]),
        (["é", "z", "Ω"], ["z", "é", "Ω"]),
    ],
)
def test_csv_labels_are_integers_only_if_all_are_written_so(tmp_path, labels, kept):
    for k, label in enumerate(labels):
        (tmp_path / f"{k}.csv").write_text(f"user,item\n{label},i\n", encoding="utf-8")
    counts = ps.ingest(tmp_path / "*.csv", tmp_path / "c.zarr")
    assert counts.user_ids.tolist() == kept


def test_csv_with_line_breaks_inside_quotes(tmp_path, small_tasks):
    lines = [f'u{k % 30},"a ""film""\n{k % 11}",text' for k in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,note", *lines]))
    counts = ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")
    assert counts.shape == (30, 11)
    assert counts.total == 400
    assert counts.item_ids[0] == 'a "film"\n0'


def test_csv_with_windows_line_ends_and_a_byte_order_mark(tmp_path, small_tasks):
    lines = "".join(f"{k % 30},{k % 11}\r\n" for k in range(400))
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfuser,item\r\n" + lines.encode())
    counts = ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")
    assert counts.shape == (30, 11)
    assert counts.user_ids.dtype == np.int64


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "uint64", "Int64", "category"])
def test_integers_of_any_width(tmp_path, dtype):
    frame = pd.DataFrame({"user": [3, 1, 2], "item": [1, 1, 0]}).astype(dtype)
    counts = ps.ingest(frame, tmp_path / "c.zarr")
    assert counts.user_ids.tolist() == [1, 2, 3]
    assert counts.user_ids.dtype == np.int64


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_strings_of_any_arrow_type(tmp_path, kind):
    table = pa.table({"user": pa.array(["b", "a"]).cast(kind), "item": [1, 2]})
    assert ps.ingest(table, tmp_path / "c.zarr").user_ids.tolist() == ["a", "b"]


# Matrices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (300, 3)])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "array", "COO", "GCXS", "bool"])
def test_matrix_keeps_empty_rows_and_columns(tmp_path, small_tasks, shape, kind):
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, shape) * (rng.random(shape) < 0.2)
    dense[:3] = dense[-2:] = dense[:, 1] = 0
    dense[5 % shape[0], 0] = 4
    if kind == "bool":
        matrix, dense = scipy.sparse.csr_matrix(dense > 0), dense > 0
    elif kind in ("COO", "GCXS"):
        matrix = sparse.COO.from_numpy(dense).asformat(kind.lower())
    else:
        matrix = scipy.sparse.csr_array(dense) if kind == "array" else scipy.sparse.csr_matrix(dense).asformat(kind)
    counts = ps.ingest(matrix, tmp_path / "c.zarr")
    check_dense(counts, dense)
    assert counts.user_ids.tolist() == list(range(shape[0]))


def test_matrix_entries_are_added_up_and_zeros_dropped(tmp_path):
    matrix = scipy.sparse.coo_matrix(([1, 2, 0, 0.5], ([0, 0, 1, 2], [1, 1, 0, 1])), (4, 2))
    counts = ps.ingest(matrix, tmp_path / "c.zarr")
    np.testing.assert_array_equal(counts.to_scipy().toarray(), [[0, 3], [0, 0], [0, 0.5], [0, 0]])
    assert counts.nnz == 2


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


# Bad input ----------------------------------------------------------------------------------------------------------


def refused(source, tmp_path, message, **options):
    """Bad input is one sentence, and leaves nothing behind."""
    with pytest.raises(ps.InputError, match=message) as caught:
        ps.ingest(source, tmp_path / "c.zarr", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "c.zarr").exists()


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
    [(-3, "counts must be positive: {row} has count -3"), (np.inf, "counts must be finite: {row} has count inf"),
     (np.nan, "counts must be positive numbers: {row} has none")],
)  # fmt: skip
def test_bad_counts_are_named_by_file_and_row(tmp_path, small_tasks, name, count, message):
    frame = make_frame().astype({"n": float})
    frame.loc[1234, "n"] = count
    source = frame if name == "frame" else write(tmp_path / name, frame)
    row = "row 1234 of the frame" if name == "frame" else f"row 1234 of .*{name}"
    refused(source, tmp_path, message.format(row=row), count="n")


def test_counts_that_are_no_numbers_are_refused(tmp_path, small_tasks):
    frame = make_frame().astype({"n": object})
    frame.loc[77, "n"] = "many"
    refused(write(tmp_path / "a.csv", frame), tmp_path, "row 77 of .*a.csv has count 'many'", count="n")
    refused(frame, tmp_path, "row 77 of the frame has count 'many'", count="n")
    text = frame.astype({"n": str})
    refused(write(tmp_path / "a.parquet", text), tmp_path, "row 77 of .*a.parquet has count 'many'", count="n")
    dates = frame.assign(n=pd.Timestamp("2020-01-01"))
    refused(dates, tmp_path, "counts must be numbers: column 'n' of the frame holds timestamp", count="n")
    refused(frame.assign(n=True), tmp_path, "holds bool", count="n")


@pytest.mark.parametrize("name", ["plays.parquet", "plays.csv", "plays.csv.gz", "frame"])
@pytest.mark.parametrize("side", ["user", "item"])
def test_missing_labels_are_named_by_file_and_row(tmp_path, small_tasks, name, side):
    frame = make_frame()
    frame.loc[901, side] = None
    source = frame if name == "frame" else write(tmp_path / name, frame)
    row = "row 901 of the frame" if name == "frame" else f"row 901 of .*{name}"
    refused(source, tmp_path, f"labels must not be missing: {row} has no {side}")


def test_labels_of_mixed_types_are_refused(tmp_path, small_tasks):
    text, numbers = make_frame(), make_frame(labels="numbers")
    both = [write(tmp_path / "a.parquet", numbers), write(tmp_path / "b.parquet", text)]
    refused(both, tmp_path, "'user' holds integers in .*a.parquet and strings in .*b.parquet")
    csv = write(tmp_path / "c.csv", text)
    refused([both[0], csv], tmp_path, r"users are integers elsewhere, but row 0 of .*c.csv has 'u\d+'")
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
    refused({"user": [1]}, tmp_path, "cannot be read from a dict")
    (tmp_path / "a.xlsx").write_text("x")
    refused(tmp_path / "a.xlsx", tmp_path, "not a file of pairs by its name")


def test_broken_files_are_refused(tmp_path, small_tasks):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is not")
    refused(tmp_path / "a.parquet", tmp_path, "not a readable Parquet file")
    whole = gzip.compress(make_frame().to_csv(index=False).encode())
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "a.csv.gz", tmp_path, "not a readable CSV file")
    (tmp_path / "b.csv").write_text("user,item\n" + "1,2\n" * 300 + "1,2,3\n")
    refused(tmp_path / "b.csv", tmp_path, "a row of 3 columns, not 2: '1,2,3'")
    (tmp_path / "c.csv").write_bytes(b"user,item\n\xff,2\n")
    refused(tmp_path / "c.csv", tmp_path, "UTF-?8")


def test_empty_input_is_refused(tmp_path):
    frame = make_frame()
    (tmp_path / "empty.csv").write_text("")
    refused(tmp_path / "empty.csv", tmp_path, "empty.csv is empty")
    refused(write(tmp_path / "head.csv", frame[:0]), tmp_path, "no pairs in .*head.csv")
    refused(write(tmp_path / "head.parquet", frame[:0]), tmp_path, "no pairs in .*head.parquet")
    refused(frame[:0], tmp_path, "no pairs in the frame")
    refused(frame.assign(n=0), tmp_path, "no pairs in the frame", count="n")


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


# Interruption -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["parse-pairs", "merge-user-labels", "spread-pairs", "group-", "write-tile-by-user"])
def test_interrupted_ingest_is_no_store_and_runs_again(tmp_path, small_tasks, monkeypatch, step):
    frame = make_frame()
    wanted = ps.ingest(frame, tmp_path / "whole.zarr", count="n").digest
    run = assemble.Steps.run

    def interrupt(self, name, function, tasks):
        results = run(self, name, function, tasks)
        if name.startswith(step):
            raise KeyboardInterrupt
        return results

    with monkeypatch.context() as patch:
        patch.setattr(assemble.Steps, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ps.ingest(frame, tmp_path / "c.zarr", count="n")
    with pytest.raises(ps.StoreError, match="not complete"):
        ps.open_counts(tmp_path / "c.zarr")
    assert ps.ingest(frame, tmp_path / "c.zarr", count="n").digest == wanted
    assert not list((tmp_path / "c.zarr").glob("scratch*"))


def test_killed_ingest_is_no_store_and_runs_again(tmp_path):
    make_frame().to_parquet(tmp_path / "a.parquet")
    script = f"""
        import os, signal
        import pairsym_dask as ps
        from pairsym_dask.pairs import assemble

        write, assemble.ROWS = assemble.write_tile, 64

        def write_and_die(storage, layout, side, block, group, tile):
            if side == "items":
                os.kill(os.getpid(), signal.SIGKILL)
            return write(storage, layout, side, block, group, tile)

        assemble.write_tile = write_and_die
        ps.ingest({str(tmp_path / "a.parquet")!r}, {str(tmp_path / "c.zarr")!r}, count="n")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(ps.StoreError, match="not complete"):
        ps.open_counts(tmp_path / "c.zarr")
    check(ps.ingest(tmp_path / "a.parquet", tmp_path / "c.zarr", count="n"), add_up(make_frame()))


# Many pairs ---------------------------------------------------------------------------------------------------------


def test_more_than_2_to_the_31_pairs_do_not_overflow():
    lengths = np.full(1000, 2**23, np.uint32)  # 8.4e9 pairs
    starts = assemble.make_ranges(lengths, 2**30)
    assert np.diff(starts).max() == 128
    layout = Layout(1000, 10, int(lengths.sum(dtype=np.int64)), "uint8")
    offsets = np.concatenate([[0], lengths]).cumsum(dtype=np.int64)
    batches = assemble.cut_batches(layout, "users", offsets, 2**25)
    assert [block for batch in batches for block in batch] == list(range(layout.cuts["users"].blocks))
    runs = [
        assemble.Run(first, 500, Stored("k", 0, "uint64", 500 * 2**23), None, Stored("l", 0, "uint32", 500), 1, True)
        for first in (0, 500)
    ]
    found = list(assemble._stretches(layout, "users", range(9, 10), runs, offsets))
    first, stop = layout.cuts["users"].row_range(9)
    assert sum(part.keys.size for part in found) == (stop - first) * 2**23
    assert found[0].keys.offset == 8 * (first - found[0].first) * 2**23 > 2**31
    assert make_cuts(10**7, 10**5, 2**34)["items"].tiles > 1


def test_scratch_is_read_beyond_4_gigabytes(tmp_path):
    scratch = Scratch(LocalStorage(str(tmp_path)), "scratch")
    scratch.make("a")
    values = np.arange(10, dtype=np.uint64)
    with open(tmp_path / "scratch" / "a" / "b", "wb") as file:
        file.seek(2**33)
        file.write(values.data)
    stored = Stored("a/b", 0, "uint64", 2**30 + 10)[2**30 + 3 :]
    np.testing.assert_array_equal(scratch.read(stored), values[3:])


def test_row_groups_longer_than_a_task_are_read_in_batches(tmp_path, small_tasks):
    frame = make_frame()
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    (part,), _ = sources.file_parts(str(tmp_path / "a.parquet"), sources.Columns("user", "item", "n"), 64, {})
    sizes = [len(batch.users) for batch in part.batches(64, (checks.CSV_TEXT,) * 2)]
    assert max(sizes) <= 64
    assert sum(sizes) == (frame["n"] > 0).sum()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(INT64.min - 5, INT64.max + 5) | st.text("0123456789-+ x", max_size=21), min_size=1))
def test_integers_are_parsed_exactly_or_not_at_all(values):
    texts = [str(value) for value in values]
    found = grouping.parse_integers(*checks.text_buffers(pa.array(texts, pa.large_string())))

    def canonical(text):
        try:
            return str(int(text)) == text and INT64.min <= int(text) <= INT64.max
        except ValueError:
            return False

    if all(map(canonical, texts)):
        assert found.tolist() == [int(text) for text in texts]
    else:
        assert found is None
