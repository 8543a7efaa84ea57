"""Columns of pairs: labels and counts of any type, and how text is read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.pairs import add_up, check, make_frame
from hypothesis import given, settings
from hypothesis import strategies as st

import pairsym_dask as ps
from pairsym_dask.kernels import keys as grouping
from pairsym_dask.pairs import checks

INT64 = np.iinfo(np.int64)


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


def test_symbols_with_zero_counts_only_are_left_out_with_them(tmp_path):
    frame = pd.DataFrame({"user": ["a", "b", "c"], "item": ["x", "y", "x"], "n": [1.0, 0.0, -0.0]})
    counts = ps.ingest(frame, tmp_path / "c.zarr", count="n", invalid="drop")
    assert counts.user_ids.tolist() == ["a"]
    assert counts.item_ids.tolist() == ["x"]


def test_unused_column_of_counts_is_a_warning(tmp_path):
    frame = make_frame().rename(columns={"n": "count"})
    with pytest.warns(UserWarning, match='give count="count"'):
        ps.ingest(frame, tmp_path / "c.zarr")


def test_a_pair_repeated_beyond_a_task_is_added_up_on_the_way(tmp_path, small_tasks):
    frame = pd.DataFrame({"user": ["the"] * 5000 + ["a"], "item": [f"w{k % 7}" for k in range(5001)]})
    check(ps.ingest(frame, tmp_path / "c.zarr"), add_up(frame.assign(n=1)))


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
