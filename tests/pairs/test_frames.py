"""Rows in memory come in many shapes and make the same store."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pairsym_dask as ps

FRAME = pd.DataFrame({"user": ["ann", "ann", "bob", "eve"], "item": ["go", "chess", "go", "poker"], "n": [1, 2, 1, 5]})


class Stream:
    """Anything with arrow's stream protocol; a column beside those that are wanted."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.append_column("when", pa.array(range(len(table))))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def shapes():
    table = pa.Table.from_pandas(FRAME)
    yield "dict of lists", FRAME.to_dict("list")
    yield "dict of arrays", {name: column.to_numpy() for name, column in FRAME.items()}
    yield "list of tuples", list(FRAME.itertuples(index=False, name=None))
    yield "record batch reader", table.to_reader(2)
    yield "arrow stream", Stream(table)
    yield "several", [table.slice(0, 2), FRAME.iloc[2:].to_dict("list")]


@pytest.mark.parametrize(("name", "source"), [pytest.param(*shape, id=shape[0]) for shape in shapes()])
def test_every_shape_of_rows_makes_the_same_store(tmp_path, name, source):
    found = ps.ingest(source, tmp_path / "c.zarr", count="n")
    assert found.digest == ps.ingest(FRAME, tmp_path / "frame.zarr", count="n").digest


@pytest.mark.parametrize("lazy", [False, True])
def test_frames_of_polars(tmp_path, lazy):
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(FRAME)
    found = ps.ingest(frame.lazy() if lazy else frame, tmp_path / "c.zarr", count="n")
    assert found.digest == ps.ingest(FRAME, tmp_path / "frame.zarr", count="n").digest


def test_relations_of_duckdb(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.from_arrow(pa.Table.from_pandas(FRAME)).project('"user", item, n')
    found = ps.ingest(relation, tmp_path / "c.zarr", count="n")
    assert found.digest == ps.ingest(FRAME, tmp_path / "frame.zarr", count="n").digest


def test_tuples_without_counts_are_one_pair_each(tmp_path):
    counts = ps.ingest([("ann", "go"), ("ann", "go"), ("bob", "chess")], tmp_path / "c.zarr")
    assert (counts.nnz, counts.total) == (2, 3)
    with pytest.warns(UserWarning, match='column "count" of the frame is not used'):
        ps.ingest([("ann", "go", 3)], tmp_path / "unused.zarr")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([("a", "b"), ("c",)], r"\(user, item\) or \(user, item, count\), not tuples of 1 and 2"),
        ({"user": [1], "item": [1, 2]}, "a dict of columns holds lists of the same length"),
        ({"user": [1], "thing": [1]}, "no column 'item' in the frame; there are: user, thing"),
        (3, "pairs cannot be read from a int; give paths, a frame of pandas"),
        ([], "pairs cannot be read from a list"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(tmp_path, source, words):
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(source, tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr").exists()


@pytest.mark.parametrize("items", [[3, 5], (3, 5), {3, 5}, np.array([3, 5]), pd.Series([3, 5])])
def test_a_plain_list_of_items_is_one_new_user(small_model, items):
    one = small_model.fold_in(items)
    frame = small_model.fold_in(pd.DataFrame({"user": ["x", "x"], "item": [3, 5]}))
    assert one.user_ids.tolist() == ["new user"]
    np.testing.assert_array_equal(one.users.mean, frame.users.mean)
    assert set(small_model.recommend(one, n=5)["item"]).isdisjoint({3, 5})


def test_tuples_and_dicts_are_folded_in_too(small_model):
    pairs = small_model.fold_in([("x", 3), ("x", 5), ("y", 4)])
    columns = small_model.fold_in({"user": ["x", "x", "y"], "item": [3, 5, 4]})
    assert pairs.user_ids.tolist() == columns.user_ids.tolist() == ["x", "y"]
    with pytest.raises(ps.InputError, match="fold_in takes a list of items, or a frame with columns 'user' and 'item'"):
        small_model.fold_in(3.5)


BAD = pd.DataFrame({"user": ["ann", None, "bob", "eve"], "item": ["go", "go", None, "go"], "n": [1.0, 2.0, 3.0, 0.0]})


@pytest.mark.parametrize("shape", ["pandas", "arrow", "polars", "lazy polars", "duckdb", "reader"])
def test_rows_that_cannot_be_counted_are_told_alike_whatever_holds_them(tmp_path, shape):
    table = pa.Table.from_pandas(BAD, preserve_index=False)
    if shape == "duckdb":
        source = pytest.importorskip("duckdb").from_arrow(table)
    elif "polars" in shape:
        frame = pytest.importorskip("polars").from_pandas(BAD)
        source = frame.lazy() if shape.startswith("lazy") else frame
    else:
        source = {"pandas": BAD, "arrow": table, "reader": table.to_reader(2)}[shape]
    if shape != "reader":  # which can be read once
        with pytest.raises(ps.InputError) as caught:
            ps.ingest(source, tmp_path / "c.zarr", count="n")
        assert str(caught.value).startswith(
            "3 of 4 rows cannot be counted: 1 without a user (first: row 1 of the frame), "
            "1 without an item (first: row 2 of the frame), 1 with a count of zero (first: row 3 of the frame); mend"
        )
    assert ps.ingest(source, tmp_path / "c.zarr", count="n", invalid="drop").user_ids.tolist() == ["ann"]


@pytest.mark.parametrize("kind", ["frame", "parquet", "polars"])
def test_whole_numbers_that_became_floats_for_a_missing_one_are_whole_numbers(tmp_path, kind):
    """What pandas makes of a column of ids as soon as one is missing."""
    frame = pd.DataFrame({"user": [7, None, 9, 7], "item": ["go", "go", "go", "chess"]})
    assert frame["user"].dtype == "float64"
    source = frame
    if kind == "parquet":
        source = tmp_path / "a.parquet"
        frame.to_parquet(source)
    elif kind == "polars":
        source = pytest.importorskip("polars").DataFrame(dict(frame), nan_to_null=False)
    with pytest.raises(ps.InputError, match=r"1 of 4 rows cannot be counted: 1 without a user \(first: row 1 of "):
        ps.ingest(source, tmp_path / "c.zarr")
    counts = ps.ingest(source, tmp_path / "c.zarr", invalid="drop")
    assert counts.user_ids.tolist() == [7, 9]
    assert counts.record["labels"]["users"] == "int64"
    if kind == "parquet":
        (tmp_path / "more.csv").write_text("user,item\n8,go\n")
        both = ps.ingest([source, tmp_path / "more.csv"], tmp_path / "both.zarr", invalid="drop")
        assert both.user_ids.tolist() == [7, 8, 9]


def test_rows_of_several_frames_are_told_apart(tmp_path):
    batches = pa.Table.from_pandas(BAD, preserve_index=False).to_batches(max_chunksize=2)
    words = r"user \(first: row 1 of frame 1 of 2\).*item \(first: row 0 of frame 2 of 2\)"
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(batches, tmp_path / "c.zarr", count="n")
    assert ps.ingest(batches, tmp_path / "c.zarr", invalid="drop").record["source"].startswith("2 frames (left out")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([["ann", "go"], ["bob", "go"]], "rows in a list must be tuples, not lists"),
        ([{"user": "ann", "item": "go"}], r"holds a list a column, not 'ann' as .* pd.DataFrame\(rows\)"),
        (FRAME.set_index(["user", "item"])["n"], "a Series is one column, not a table; give a frame with"),
    ],
)
def test_what_holds_no_rows_says_what_does(tmp_path, source, words):
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(source, tmp_path / "c.zarr")
