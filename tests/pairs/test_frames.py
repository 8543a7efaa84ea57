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
