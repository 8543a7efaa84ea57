"""Real files: rows that cannot be counted are listed or left out by one rule; separators and encodings are found."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.command import run_here

import pairsym_dask as ps

MESSY = """user,item,n
ann,go,1

,chess,2
bob,,1
bob,go,
"eve, the
second",poker,3
eve,go,many
eve,chess,-2
bob,chess,0
bob,poker,inf
bob,poker,1,extra
,go,1
"""
KINDS = (
    "2 without a user (first: line 4 of {0}), 1 without an item (first: line 5 of {0}), "
    "1 without a count (first: line 6 of {0}), 1 with a count that is no number (first: 'many' in line 9 of {0}), "
    "1 with an infinite count (first: 'inf' in line 12 of {0}), "
    "1 with a negative count (first: '-2' in line 10 of {0}), 1 with a count of zero (first: line 11 of {0}), "
    "1 with another number of columns (first: 'bob,poker,1,extra' in line 13 of {0})"
)


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "messy.csv"
    path.write_text(MESSY)
    return path


def test_rows_that_cannot_be_counted_are_listed_by_kind_with_the_line_an_editor_shows(messy, tmp_path):
    with pytest.raises(ps.InputError) as caught:
        ps.ingest(messy, tmp_path / "c.zarr", count="n")
    assert str(caught.value) == (
        f"9 of 11 rows cannot be counted: {KINDS.format(messy)}; "
        'mend them, or leave them out with invalid="drop" (--invalid drop)'
    )
    assert not (tmp_path / "c.zarr").exists()


def test_rows_that_cannot_be_counted_are_left_out_and_reported(messy, tmp_path):
    counts = ps.ingest(messy, tmp_path / "c.zarr", count="n", invalid="drop")
    assert counts.user_ids.tolist() == ["ann", "eve, the\nsecond"]
    assert counts.total == 4
    assert "(left out: 2 without a user, 1 without an item" in counts.record["source"]


def test_the_command_line_tells_what_was_read_and_left_out(messy):
    done = run_here("ingest", "messy.csv", "c.zarr", "--count", "n", cwd=messy.parent)
    assert done.returncode == 2
    assert "--invalid drop" in done.stderr
    done = run_here("ingest", "messy.csv", "c.zarr", "--count", "n", "--invalid", "drop", cwd=messy.parent)
    assert done.returncode == 0, done.stderr
    assert "messy.csv: 11 rows read, 9 left out (2 without a user, " in done.stderr
    assert "; 2 distinct pairs of 2 users and 2 items; " in done.stderr


def test_lines_are_right_far_into_a_file_that_is_read_in_blocks(tmp_path, small_tasks):
    lines = ["user,item", *(f"u{k},i{k % 7}" for k in range(3000))]
    lines[2000] = ",i3"  # line 2001
    lines.insert(500, "")
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(ps.InputError, match=r"1 of 3,000 rows .* 1 without a user \(first: line 2002 of .*a.csv\)"):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")


def test_the_first_of_each_kind_is_that_of_the_first_file(tmp_path, small_tasks):
    for name, row in (("a", 3), ("b", 1)):
        users = pa.array([None if k == row else f"u{k}" for k in range(200)])
        pq.write_table(pa.table({"user": users, "item": pa.array(range(200))}), tmp_path / f"{name}.parquet")
    with pytest.raises(ps.InputError, match=r"2 of 400 rows .* 2 without a user \(first: row 3 of .*a.parquet\)"):
        ps.ingest(tmp_path, tmp_path / "c.zarr")


def test_fold_in_refuses_them_too(small_model):
    with pytest.raises(ps.InputError, match=r"1 of 2 rows cannot be counted: 1 with a count of zero"):
        small_model.fold_in({"user": ["x", "x"], "item": [1, 2], "n": [0, 1]}, count="n")


ROWS = pd.DataFrame({"user": ["jürgen", "ann", "ann"], "item": ["straße", "go", "straße"], "n": [1.5, 2, 1]})


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separators_and_encodings_are_found(tmp_path, separator, encoding):
    ROWS.to_csv(tmp_path / "a.csv", sep=separator, encoding=encoding, index=False)
    expected = ps.ingest(ROWS, tmp_path / "frame.zarr", count="n")
    assert ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", count="n").digest == expected.digest


def test_a_decimal_comma_and_words_for_separators(tmp_path):
    ROWS.to_csv(tmp_path / "a.csv", sep=";", decimal=",", index=False)
    expected = ps.ingest(ROWS, tmp_path / "frame.zarr", count="n")
    options = {"count": "n", "decimal": ",", "separator": "semicolon"}
    assert ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", **options).digest == expected.digest
    with pytest.raises(
        ps.InputError, match=r"3 with a comma in the count \(first: '1,5' in line 2 of .*\); read decimal "
    ):
        ps.ingest(tmp_path / "a.csv", tmp_path / "d.zarr", count="n")


def test_counts_are_told_as_they_are_written(tmp_path):
    (tmp_path / "a.csv").write_text("user;item;n\nann;go;n/a\nann;go;1.234,5\nann;go;-2,50\n")
    with pytest.raises(
        ps.InputError, match=r"\(first: 'n/a' in line 2 of .*negative count \(first: '-2,50' in line 4"
    ) as it:
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", count="n", decimal=",")
    assert "decimal=" not in str(it.value)
    (tmp_path / "b.csv").write_text("user;item;n\nann;go;1.234,5\n")
    with pytest.raises(ps.InputError, match=r"no number \(first: '1.234,5' in line 2"):
        ps.ingest(tmp_path / "b.csv", tmp_path / "c.zarr", count="n", decimal=",")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_found_without_its_mark(tmp_path, encoding):
    ROWS.to_csv(tmp_path / "a.csv", sep=";", encoding=encoding, index=False)
    expected = ps.ingest(ROWS, tmp_path / "frame.zarr", count="n")
    assert ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", count="n").digest == expected.digest


@pytest.mark.parametrize("above", ["sep=;\r\n", '"sep=;"\r\n', "\r\n\r\n", "\r\nsep=;\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_lines_above_the_header_are_no_header(tmp_path, above, encoding):
    text = above + "user;item;n;;\r\njürgen;straße;1;;\r\n;go;1;;\r\nann;go;2;;\r\n"
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    line = above.count("\n") + 3
    with pytest.raises(ps.InputError, match=rf"1 of 3 rows .* 1 without a user \(first: line {line} of"):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", count="n")
    counts = ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", count="n", invalid="drop")
    assert counts.user_ids.tolist() == ["ann", "jürgen"]
    assert counts.total == 3


def test_a_told_separator_of_two_columns_is_no_row(tmp_path):
    (tmp_path / "a.csv").write_text("sep=;\nuser;item\nann;go\n ;go\n")
    with pytest.raises(ps.InputError, match=r"1 of 2 rows .* 1 without a user \(first: line 4 of"):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")


def test_labels_of_white_space_in_a_text_file_are_none(tmp_path):
    (tmp_path / "a.csv").write_text('user,item\n7,go\n  ,go\n"",go\n8,"\t"\n9,\u00a0\n', encoding="utf-8")
    words = r"4 of 5 rows .* 2 without a user \(first: line 3 of .*\), 2 without an item \(first: line 5 of"
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")
    counts = ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", invalid="drop")
    assert counts.user_ids.tolist() == [7]
    frame = pd.DataFrame(
        {"user": ["e", " "], "item": [" ", "e"]}
    )  # letters: a frame has nulls to say that nothing is there
    assert ps.ingest(frame, tmp_path / "letters.zarr").user_ids.tolist() == [" ", "e"]


def test_other_names_of_columns_are_shown_one_by_one_with_the_way_to_name_them(tmp_path):
    (tmp_path / "a.csv").write_text("kunde;artikel;menge\nann;go;1\n")
    words = r"no column 'user' in .*a.csv; there are: kunde, artikel, menge; name the users' with user= \(--user\)"
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")


def test_bytes_of_another_encoding_than_the_given_one_name_the_file(tmp_path):
    ROWS.to_csv(tmp_path / "a.csv", encoding="cp1252", index=False)
    words = r'a.csv holds bytes that are no text in UTF-8; give its encoding, such as encoding="cp1252"'
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", count="n", encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"invalid": "ignore"}, "invalid must be 'error' or 'drop', not 'ignore'"),
        ({"decimal": ";"}, "decimal must be '.' or ',', not ';'"),
        ({"separator": "colon"}, "separator must be one character or one of comma, semicolon, tab, pipe, not 'colon'"),
        ({"encoding": "latin-seven"}, "there is no encoding 'latin-seven'"),
        ({"encoding": "ascii"}, "ascii"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(tmp_path, options, words):
    ROWS.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ps.InputError, match=words):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", **{"count": "n"} | options)
    assert not (tmp_path / "c.zarr").exists()


def test_line_ends_of_old_macintoshes(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"user;item\rann;go\rbob;chess\r;go\r")
    with pytest.raises(ps.InputError, match=r"1 of 3 rows .* \(first: line 4 of .*a.csv\)"):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")
    assert ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", invalid="drop").user_ids.tolist() == ["ann", "bob"]


def test_a_separator_that_is_not_found_is_asked_for(tmp_path):
    (tmp_path / "a.csv").write_text("user^item\nann^go\n")
    with pytest.raises(ps.InputError, match=r"one column, 'user\^item', where ',' separates columns; give what"):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")
    assert ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", separator="^").nnz == 1


def test_names_of_columns_with_spaces_around_are_shown_with_them(tmp_path):
    (tmp_path / "a.csv").write_text("user; item\nann;go\n")
    with pytest.raises(ps.InputError, match=r"no column 'item' in .*; there are: user, ' item'; name the items'"):
        ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr")
    assert ps.ingest(tmp_path / "a.csv", tmp_path / "c.zarr", item=" item").nnz == 1
