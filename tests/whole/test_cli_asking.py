"""More of the command line: files of users, one CSV for everybody, new users, explanations, ways out of trouble."""

from __future__ import annotations

import pandas as pd
import pytest
from helpers.command import run_here

import pairsym_dask as ps
from pairsym_dask import demo
from pairsym_dask.kernels import accelerate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("asking")
    rows = [(f"user{k % 23}", f"item{(k * k + k // 23) % 41}") for k in range(300)]
    counts = ps.ingest([*rows, ("needs, quotes", "item1")], place / "plays.zarr")
    ps.PairedSymbols(factors=3).fit(counts, place / "model.zarr", sweeps=4, progress=False)
    return place


def test_everybody_in_one_csv_file(folder):
    done = run_here("recommend", "model.zarr", "--all", "--output", "top.csv", "-n", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "top.csv: 48 rows\n"
    ps.load(folder / "model.zarr").recommend_all(folder / "top.parquet", n=2)
    found = pd.read_csv(folder / "top.csv")
    pd.testing.assert_frame_equal(found, pd.read_parquet(folder / "top.parquet"))
    assert "needs, quotes" in set(found["user"])
    assert not (folder / "top.csv.parts").exists()
    again = run_here("recommend", "model.zarr", "--all", "--output", "top.csv", cwd=folder)
    assert again.returncode == 2
    assert "top.csv exists already" in again.stderr


def test_users_from_a_file(folder):
    (folder / "who.txt").write_text("user3\n\n user5 \n")
    pd.DataFrame({"user": ["user3", "user5", "user3"]}).to_csv(folder / "who.csv", index=False)
    expected = run_here("recommend", "model.zarr", "user3", "user5", "-n", 2, cwd=folder).stdout
    for name in ("who.txt", "who.csv"):
        assert run_here("recommend", "model.zarr", "--users-from", name, "-n", 2, cwd=folder).stdout == expected
    missing = run_here("recommend", "model.zarr", "--users-from", "nobody.txt", cwd=folder)
    assert missing.returncode == 2
    assert "nobody.txt" in missing.stderr


def test_explain(folder):
    done = run_here("explain", "model.zarr", "user1", "item2", "-n", 3, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(ps.load(folder / "model.zarr").explain("user1", "item2", 3))
    done = run_here("explain", "model.zarr", "user1", "item2", "--output", "why.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {"part", "energy"} <= set(pd.read_csv(folder / "why.csv"))


def test_new_users_by_items_and_by_file(folder):
    model = ps.load(folder / "model.zarr")
    done = run_here("fold-in", "model.zarr", "--has", "item1", "--has", "item2", "-n", 3, cwd=folder)
    assert done.returncode == 0, done.stderr
    items = model.recommend(model.fold_in(["item1", "item2"]), n=3)["item"].tolist()
    assert [line.split()[-7] for line in done.stdout.strip().splitlines()[1:]] == items
    frame = pd.DataFrame({"who": ["x", "x", "y"], "what": ["item1", "item2", "item3"], "times": [1, 2, 1]})
    frame.to_csv(folder / "new.csv", index=False)
    columns = ("--user", "who", "--item", "what", "--count", "times", "--output", "new-top.csv")
    done = run_here("fold-in", "model.zarr", "new.csv", *columns, "-n", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(folder / "new-top.csv")["user"].tolist() == ["x", "x", "y", "y"]
    neither = run_here("fold-in", "model.zarr", cwd=folder)
    assert neither.returncode == 2
    assert "give a file of pairs, or items of one user by --has" in neither.stderr


def test_fewer_sweeps_than_there_are_is_said(folder):
    done = run_here("fit", "plays.zarr", "model.zarr", "--factors", 3, "--sweeps", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "model.zarr: sweep 4, bound" in done.stdout
    assert "--sweeps 2 is the total, and the store has more already" in done.stdout


@pytest.mark.parametrize(
    "words",
    [("info", "none.zarr"), ("fit", "none.zarr", "m.zarr"), ("recommend", "none.zarr", "x"), ("verify", "none.zarr")],
)
def test_what_is_missing_is_called_missing(folder, words):
    done = run_here(*words, cwd=folder)
    assert done.returncode == 2
    assert "there is no" in done.stderr
    assert "store at" in done.stderr
    assert not (folder / "m.zarr").exists()


def test_a_damaged_sweep_names_the_way_out(folder, tmp_path):
    counts = ps.open_counts(folder / "plays.zarr")
    ps.PairedSymbols(factors=2).fit(counts, tmp_path / "m.zarr", sweeps=2, progress=False)
    record = max((tmp_path / "m.zarr" / "commits").glob("*.json"))
    record.write_text(record.read_text().replace('"sweep"', '"swoop"'))
    words = ("fit", folder / "plays.zarr", "m.zarr", "--factors", 2, "--sweeps", 3)
    done = run_here(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "--discard-damaged sets what is damaged aside" in done.stderr
    asked = run_here("recommend", "m.zarr", "u1", cwd=tmp_path)
    assert asked.returncode == 2
    assert "--discard-damaged sets what is damaged aside" in asked.stderr


def test_lists_go_to_files_of_known_kinds_and_other_stores_are_named(folder):
    done = run_here("recommend", "model.zarr", "--all", "--output", "top.xlsx", cwd=folder)
    assert "lists are written as one .csv file or as a folder of .parquet files, not as 'top.xlsx'" in done.stderr
    assert not (folder / "top.xlsx").exists()
    (folder / "some.csv").write_text("user\n")
    for store, kind in (("plays.zarr", "counts store"), ("some.csv", "file")):
        assert f"is a {kind}, not a model store" in run_here("recommend", store, "u1", cwd=folder).stderr
    done = run_here("recommend", "model.zarr", "--users-from", "nobody.csv", cwd=folder)
    assert "no such file: nobody.csv" in done.stderr


def test_compiling_is_told_where_nothing_is_compiled_yet(folder, tmp_path, monkeypatch, capsys):
    counts = ps.open_counts(folder / "plays.zarr")
    for compiled, told in ((True, False), (False, True)):
        monkeypatch.setattr("pairsym_dask.model.is_compiled", lambda module, answer=compiled: answer)
        ps.PairedSymbols(factors=2).fit(counts, tmp_path / f"{told}.zarr", sweeps=1)
        assert ("compiling for this type of machine" in capsys.readouterr().err) == told


@pytest.mark.slow
def test_warm_up_compiles_what_a_fit_needs():
    words = demo.warm_up()
    assert accelerate.cache_folder() in words
    assert accelerate.is_compiled("rows")
    assert not accelerate.is_compiled("no_such_module")


@pytest.mark.filterwarnings("default")
def test_warnings_are_sentences_without_lines_of_code(folder):
    (folder / "counted.csv").write_text("user,item,count\na,x,2\n")
    done = run_here("ingest", "counted.csv", "counted.zarr", cwd=folder)
    assert done.returncode == 0
    assert 'pairsym: the column "count" of counted.csv is not used: each row is one pair' in done.stderr
    assert "UserWarning" not in done.stderr


def test_tables_are_read_in_the_way_they_are_written(folder):
    (folder / "who-semicolon.csv").write_text("user;age\nuser3;1\nuser5;2\n", encoding="utf-16")
    (folder / "pairs-semicolon.csv").write_text("user;item\nzoë;item1\nzoë;item2\n", encoding="cp1252")
    expected = run_here("recommend", "model.zarr", "user3", "user5", "-n", 2, cwd=folder).stdout
    assert (
        run_here("recommend", "model.zarr", "--users-from", "who-semicolon.csv", "-n", 2, cwd=folder).stdout == expected
    )
    done = run_here("fold-in", "model.zarr", "pairs-semicolon.csv", "-n", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("zoë") == 2
