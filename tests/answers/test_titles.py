"""The user's own table of items beside answers, and lists of a category."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers.command import run_here

import pairsym_dask as ps

GENRES = ["jazz", "soul", "rock"]
FILMS = pd.DataFrame({"item": np.arange(100), "title": [f"film {k}" for k in range(100)]}).assign(
    genre=lambda frame: frame["item"].map(lambda k: GENRES[k % 3])
)  # the store has 90 items


@pytest.mark.parametrize(
    "titles", [FILMS, FILMS.set_index("item"), FILMS[::-1]], ids=["column", "index", "another order"]
)
def test_columns_of_a_table_of_items_are_joined_after_the_item(small_model, titles):
    plain = small_model.recommend([3, 5], n=4)
    found = small_model.recommend([3, 5], n=4, titles=titles)
    assert list(found.columns[:5]) == ["user", "item", "title", "genre", "rank"]
    pd.testing.assert_frame_equal(found.drop(columns=["title", "genre"]), plain)
    assert found["title"].tolist() == [f"film {k}" for k in plain["item"]]
    assert "title" in small_model.similar_items(2, n=3, titles=titles)


def test_plain_titles_are_a_dict_or_a_series_and_gaps_stay_empty(small_model):
    first = small_model.recommend(3, n=2)["item"].tolist()
    for titles in ({first[0]: "the best"}, pd.Series({first[0]: "the best"})):
        found = small_model.recommend(3, n=2, titles=titles)["title"]
        assert found.iloc[0] == "the best"
        assert pd.isna(found.iloc[1])


def test_a_category_is_a_set_of_candidates(small_model, tmp_path):
    found = small_model.recommend(3, n=5, titles=FILMS, where={"genre": "jazz"})
    assert set(found["genre"]) == {"jazz"}
    jazz = [k for k in range(90) if k % 3 == 0]
    pd.testing.assert_frame_equal(found[["item", "rank"]], small_model.recommend(3, n=5, items=jazz)[["item", "rank"]])
    both = small_model.recommend(3, n=50, titles=FILMS, where={"genre": ["jazz", "soul"]}, items=range(10))
    assert set(both["item"]) <= {k for k in range(10) if k % 3 < 2}
    small_model.recommend_all(tmp_path / "top.parquet", n=3, titles=FILMS, where={"genre": "soul"})
    found = pd.read_parquet(tmp_path / "top.parquet")
    assert set(found["item"] % 3) == {1}
    assert list(found.columns[:5]) == ["user", "item", "title", "genre", "rank"]
    assert found["title"].tolist() == [f"film {k}" for k in found["item"]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"titles": 7}, "titles must be a dict or a Series by item"),
        ({"titles": pd.concat([FILMS, FILMS])}, "one row an item: 0 has several"),
        ({"titles": FILMS.assign(rank=1)}, "columns that the answer has already: rank"),
        ({"where": {"genre": "jazz"}}, "where goes by columns of titles"),
        ({"titles": FILMS, "where": {"director": "x"}}, "titles has no column 'director'; it has title, genre"),
        ({"titles": FILMS, "where": "jazz"}, "where must have values by column"),
        ({"titles": FILMS, "where": {"genre": "polka"}}, "titles has no item with genre 'polka'"),
    ],
)
def test_what_cannot_be_joined_is_one_sentence(small_model, options, words):
    with pytest.raises(ps.InputError, match=words):
        small_model.recommend(3, **options)


def test_titles_and_categories_at_the_command_line(small_model, tmp_path):
    FILMS.to_csv(tmp_path / "films.csv", index=False, sep=";")
    words = ["--titles", "films.csv", "--where", "genre=jazz", "--where", "genre=rock", "-n", 4]
    done = run_here("recommend", small_model.path, 3, *words, "--output", "top.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(tmp_path / "top.csv")
    assert set(found["genre"]) <= {"jazz", "rock"}
    assert found["title"].tolist() == [f"film {k}" for k in found["item"]]
    assert "film " in run_here("similar", small_model.path, 2, "--titles", "films.csv", cwd=tmp_path).stdout
    done = run_here("recommend", small_model.path, 3, "--where", "jazz", cwd=tmp_path)
    assert done.returncode == 2
    assert "--where is COLUMN=VALUE" in done.stderr


@pytest.mark.parametrize("side", ["users", "items"])
def test_factors_with_labels_are_a_frame_or_a_parquet_file(small_model, tmp_path, side):
    bare = small_model.export_factors(side)
    frame = small_model.export_factors(side, labelled=True)
    np.testing.assert_array_equal(frame.to_numpy(), bare)
    assert frame.index.tolist() == small_model.counts.labels(side).tolist()
    head = small_model.export_factors(side, tmp_path / "f.parquet", labelled=True)
    table = pq.read_table(tmp_path / "f.parquet")
    assert table.column(side[:-1]).to_pylist() == frame.index.tolist()
    np.testing.assert_array_equal(np.stack(table.column("vector").to_pylist()).astype(bare.dtype), bare)
    assert len(head) == 5
    for path, labelled in ((tmp_path / "f.npy", True), (tmp_path / "g.parquet", False)):
        with pytest.raises(ps.InputError, match=r"rows with labels go to a \.parquet file"):
            small_model.export_factors(side, path, labelled=labelled)
