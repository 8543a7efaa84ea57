"""The command line as people type it: results, one-sentence errors; what depends on a process runs in one."""

from __future__ import annotations

import socket
import subprocess
import sys

import pandas as pd
import pytest
from helpers.command import run, run_here

import pairsym_dask as ps
from pairsym_dask.run import execute


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CSV on its way to recommendations, each step a process."""
    place = tmp_path_factory.mktemp("cli")
    rows = [f"user{k % 23},item{(k * k + k // 23) % 41},{1 + k % 3}" for k in range(300)]
    (place / "plays.csv").write_text("\n".join(["user,item,count", *rows]) + "\n")
    for words in (
        ("ingest", "plays.csv", "plays.zarr", "--count", "count"),
        ("fit", "plays.zarr", "model.zarr", "--factors", 3, "--sweeps", 4, "--threads", 2, "--memory", "1GiB"),
    ):
        done = run(*words, cwd=place)
        assert done.returncode == 0, done.stderr
    return place


def test_from_csv_to_recommendations(folder):
    done = run("recommend", "model.zarr", "user1", "user2", "-n", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:8] == ["user", "item", "rank", "probability", "sigma", "sd", "low", "high"]
    assert len(done.stdout.strip().splitlines()) == 5
    done = run_here("recommend", "model.zarr", "user1", "--output", "one.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(folder / "one.csv")["user"].unique().tolist() == ["user1"]
    done = run_here("recommend", "model.zarr", "--all", "--output", "top.parquet", "-n", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(folder / "top.parquet")) == 23


def test_lists_by_strategy_and_with_filters(folder):
    words = ("recommend", "model.zarr", "user1", "--strategy", "thompson", "--random-state", 3, "--include-seen")
    done = run_here(
        *words, "--items", "item1", "--items", "item2", "--items", "item5", "--exclude", "item2", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert {line.split()[1] for line in done.stdout.strip().splitlines()[1:]} == {"item1", "item5"}


def test_similar_items_and_users(folder):
    model = ps.load(folder / "model.zarr")
    done = run_here("similar", "model.zarr", "item1", "-n", 3, "--measure", "model", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.strip().splitlines()]
    assert lines[0] == ["item", "rank", "similarity"]
    assert [line[0] for line in lines[1:]] == model.similar_items("item1", n=3, measure="model")["item"].tolist()
    done = run_here("similar", "model.zarr", "user1", "--users", "--output", "alike.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(folder / "alike.csv")["user"].tolist() == model.similar_users("user1")["user"].tolist()


@pytest.mark.slow
def test_fit_logs_a_line_a_sweep_without_a_terminal(folder):
    done = run("fit", "plays.zarr", "again.zarr", "--factors", 3, "--sweeps", 3, cwd=folder)
    lines = done.stderr.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["sweep 0/3", "sweep 1/3", "sweep 2/3", "sweep 3/3"]
    assert "bound" in lines[1]
    assert "left" in lines[1]
    assert ps.load(folder / "again.zarr").history["sweep"].iloc[-1] == 3


def test_split_evaluate_compare_and_verify(folder):
    done = run_here("split", "plays.zarr", "train.zarr", "held.csv", "--random-state", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(folder / "held.csv")) == 23
    assert run_here("fit", "train.zarr", "trained.zarr", "--factors", 2, "--sweeps", 2, cwd=folder).returncode == 0
    done = run_here("evaluate", "trained.zarr", "held.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "ndcg" in done.stdout.lower()
    done = run_here("compare", "trained.zarr", "held.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "popularity" in done.stdout
    for store in ("train.zarr", "trained.zarr"):
        done = run_here("verify", store, cwd=folder)
        assert done.returncode == 0, done.stdout
        assert "sound" in done.stdout
    chunk = next((folder / "train.zarr" / "by_user" / "index").rglob("c*0*"))
    chunk = next(path for path in [chunk, *chunk.rglob("*")] if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    done = run_here("verify", "train.zarr", cwd=folder)
    assert done.returncode == 3
    assert "NOT SOUND" in done.stdout


def test_info_of_both_stores(folder):
    counts, model = (run_here("info", name, cwd=folder).stdout for name in ("plays.zarr", "model.zarr"))
    assert "23 users x" in counts
    assert "labels: users strings" in counts
    assert "sweep 4, bound" in model
    assert "factors=3" in model
    assert "longer side" in model
    assert "a row is updated by" in model


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ingest", "nothing.csv", "x.zarr"), "nothing.csv"),
        (("ingest", "plays.csv", "x.zarr", "--user", "usr"), "usr"),
        (("ingest", "plays.csv", "plays.zarr", "--count", "count"), "exists already"),
        (("fit", "nothing.zarr", "m.zarr"), "nothing.zarr"),
        (("fit", "plays.zarr", "m.zarr", "--factors", 0), "factors must be a whole number, at least 1"),
        (("fit", "plays.zarr", "m.zarr", "--memory", "1KiB"), "too small"),
        (("fit", "plays.zarr", "model.zarr", "--factors", 9), "other settings"),
        (("recommend", "model.zarr", "nobody"), "unknown user label: nobody"),
        (("recommend", "model.zarr"), "name at least one user"),
        (("recommend", "model.zarr", "user1", "--exclude", "nothing"), "unknown item label: nothing"),
        (("recommend", "model.zarr", "user1", "--strategy", "best"), "strategy must be one of mean, thompson, ucb"),
        (("similar", "model.zarr", "user1"), "unknown item label: user1"),
        (("info", "."), "neither a counts store nor a model store"),
        (("simulate", "s.zarr", "--preset", "spotify"), "xbox-movies"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(folder, words, message):
    done = run_here(*words, cwd=folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr
    assert not (folder / "x.zarr").exists()
    assert not (folder / "m.zarr").exists()


@pytest.mark.cluster
def test_a_scheduler_that_does_not_answer_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(execute, "CONNECT_SECONDS", 1)
    with socket.socket() as taken:  # a port that accepts and then says nothing
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        done = run_here("fit", "plays.zarr", "m.zarr", "--scheduler", address, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.strip().startswith(f"pairsym: the dask scheduler at {address} does not answer")


@pytest.mark.cluster
def test_a_scheduler_by_address_gives_the_same_bits(folder, cluster):
    words = ("fit", "plays.zarr", "cluster.zarr", "--factors", 3, "--sweeps", 4)
    done = run(*words, "--scheduler", cluster.scheduler_address, cwd=folder)
    assert done.returncode == 0, done.stderr
    one, two = ps.load(folder / "model.zarr"), ps.load(folder / "cluster.zarr")
    assert one.history["elbo"].tolist() == two.history["elbo"].tolist()


def test_help_needs_no_heavy_imports():
    code = "import sys, pairsym_dask.cli; print([m for m in ('numba', 'dask', 'pandas', 'zarr') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.slow
def test_demo_shows_what_it_promises(tmp_path):
    done = run("demo", "--sweeps", 4, "--keep", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    for words in ("140,031 pairs", "bound", "popularity", "this model", "r-cran-ggplot2"):
        assert words in done.stdout
    assert ps.load(tmp_path / "demo" / "model.zarr").history["elbo"].is_monotonic_increasing
