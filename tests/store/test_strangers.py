"""Nothing that we did not write is ever removed: every removal of the package meets files of somebody else."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from helpers.faults import all_bits, run_fit, tiny_counts

import pairsym_dask as ps
from pairsym_dask import demo
from pairsym_dask.answers.batch import UNFINISHED as RECOMMENDING
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.store import model_store
from pairsym_dask.store.counts import MARK, Counts
from pairsym_dask.store.counts_writer import UNFINISHED
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.scratch import Scratch
from pairsym_dask.store.verify import verify

FRAME = pd.DataFrame({"user": ["a", "a", "b", "b"], "item": ["x", "y", "x", "z"]})


def leave(*paths: Path) -> Callable[[], None]:
    """Somebody's files; what is returned sees that they are all still there."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"precious {path.name}")

    def check() -> None:
        for path in paths:
            assert path.read_text() == f"precious {path.name}", path

    return check


def writers(folder: Path) -> dict[str, Callable[[Path], Any]]:
    """All that writes a counts store."""
    counts = ps.ingest(FRAME, folder / "counts.zarr")
    bad = FRAME.assign(count=-1)
    return {
        "ingest": lambda path: ps.ingest(FRAME, path),
        "ingest of bad input": lambda path: ps.ingest(bad, path, count="count"),
        "simulate": lambda path: ps.simulate(path, users=20, items=5, pairs=60),
        "leave_one_out": lambda path: ps.leave_one_out(counts, path),
        "split_by_fraction": lambda path: ps.split_by_fraction(counts, path, 0.5),
    }


WRITERS = ["ingest", "ingest of bad input", "simulate", "leave_one_out", "split_by_fraction"]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_happens_to_be_called_like_our_mark_opens_no_folder_to_removal(writer: str, tmp_path: Path) -> None:
    target = tmp_path / "p"
    check = leave(target / "thesis/a", target / MARK, target / "b.txt")
    with pytest.raises(StoreError, match="exists already and is not an unfinished counts store; give another path"):
        writers(tmp_path)[writer](target)
    check()


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("stranger", ["thesis/a", "by_user/index/notes", "notes.txt", "scratch-0a/runs/x.csv"])
def test_an_unfinished_store_with_anything_else_in_it_is_refused(writer: str, stranger: str, tmp_path: Path) -> None:
    target = tmp_path / "p"
    check = leave(target / stranger)
    (target / MARK).write_bytes(UNFINISHED)
    (target / "by_user/index").mkdir(parents=True, exist_ok=True)
    (target / "by_user/index/c.0.0").write_bytes(b"ours")
    shown = stranger.split("/")[0] if stranger.startswith("thesis") else stranger
    with pytest.raises(
        StoreError, match=rf"holds {shown}, which no writer of an unfinished counts store has left there"
    ):
        writers(tmp_path)[writer](target)
    check()
    assert (target / "by_user/index/c.0.0").exists()


def test_an_unfinished_store_of_ours_alone_is_begun_again(tmp_path: Path) -> None:
    target = tmp_path / "p"
    for name in (
        "by_user/index/c.0.0",
        "users/.zarr.json.0123456789ab.partial",
        "scratch-0a/parse/0-users",
        "zarr.json",
    ):
        leave(target / name)
    (target / MARK).write_bytes(UNFINISHED)
    (target / "scratch-0b/runs").mkdir(parents=True)
    ps.ingest(FRAME, target)
    assert verify(target).sound
    assert {path.name for path in target.iterdir()} == {
        "by_item", "by_user", "counts.json", "items", "users", "zarr.json",
    }  # fmt: skip


def test_a_file_that_comes_while_bad_input_is_read_survives_its_refusal(tmp_path: Path) -> None:
    import dask.dataframe as dd

    target = tmp_path / "p"

    def read(part: int) -> pd.DataFrame:
        leave(target / "notes.txt", target / "mine/a", next(target.glob("scratch-*")) / "parse/table.csv")
        return FRAME.assign(count=-1)

    frame = dd.from_map(read, [0], meta=FRAME.assign(count=1))
    with pytest.raises(InputError), dask.config.set({"dataframe.convert-string": False}):
        ps.ingest(frame, target, count="count")
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == ["a", "notes.txt", "table.csv"]


def test_refused_input_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        ps.ingest(FRAME.assign(count=-1), tmp_path / "p", count="count")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("mark", [b"precious", RECOMMENDING])
def test_recommendations_are_not_written_over_anything_else(mark: bytes, tmp_path: Path) -> None:
    counts = tiny_counts(tmp_path / "counts.zarr")
    run_fit(counts, tmp_path / "model.zarr", 1)
    model = ps.load(tmp_path / "model.zarr")
    target = tmp_path / "top.parquet"
    check = leave(target / "part-00000.parquet", target / "part-of-my-thesis", target / "deep/a")
    (target / MARK).write_bytes(mark)
    with pytest.raises(StoreError, match="give another path"):
        model.recommend_all(target)
    check()
    assert (target / MARK).read_bytes() == mark
    for path in (target / "part-of-my-thesis", target / "deep/a"):
        path.unlink()
    (target / "deep").rmdir()
    (target / MARK).write_bytes(RECOMMENDING)
    model.recommend_all(target)
    assert len(pd.read_parquet(target)) > 0


def test_a_list_is_not_written_over_a_file_of_its_name_nor_of_a_name_like_it(tmp_path: Path) -> None:
    counts = tiny_counts(tmp_path / "counts.zarr", users=40, items=5)
    run_fit(counts, tmp_path / "model.zarr", 1)
    model = ps.load(tmp_path / "model.zarr")
    check = leave(tmp_path / "top.csv", tmp_path / "top.csv.partial", tmp_path / "other.csv.partial")
    with pytest.raises(StoreError, match=r"top\.csv exists already; remove it first, or give another path"):
        model.recommend_all(tmp_path / "top.csv")
    model.recommend_all(tmp_path / "other.csv")
    check()
    assert len(pd.read_csv(tmp_path / "other.csv")) > 0


def test_a_fit_removes_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store, "GRACE_SECONDS", 1e-9)
    counts = tiny_counts(tmp_path / "counts.zarr", users=40, items=5)
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 1)
    first = next(path.glob("generation-00000-*"))
    attempt = path / "generation-00002-abcdef"
    check = leave(
        path / "notes.txt", path / "film.mp4.partial", path / ".notes.0123456789ab.partial", path / "removed-photos/a",
        path / "generation-gap/a", path / "commits/notes.txt", path / "commits/film.partial", path / "lock/00000.txt",
        path / "lock/my.json", path / "lock/0.clock", path / "attempts/a.json", first / "notes.txt",
        first / "users/mean/plot.png", attempt / "items/a.csv",
    )  # fmt: skip
    leave(attempt / "items/mean/c.0.0", attempt / "zarr.json", path / "commits/.00001.json.0123456789ab.partial")
    os.symlink(tmp_path, first / "users/link")
    run_fit(counts, path, 6)
    check()
    assert (first / "users/link").is_symlink()
    assert sorted(p.name for p in first.rglob("*")) == ["link", "mean", "notes.txt", "plot.png", "users"]
    assert sorted(p.name for p in attempt.rglob("*")) == ["a.csv", "items"]
    assert not list(path.glob("commits/.*"))
    assert verify(path).sound
    assert len(all_bits(path)) == 7


def test_what_is_set_aside_as_damaged_takes_nothing_along_to_its_end(tmp_path: Path) -> None:
    counts = tiny_counts(tmp_path / "counts.zarr", users=40, items=5)
    path = tmp_path / "model.zarr"
    run_fit(counts, path, 2)
    newest = next(path.glob("generation-00002-*"))
    leave(newest / "users/notes.txt")
    check = leave(path / "notes.txt")
    next(newest.glob("users/mean/c.*")).write_bytes(b"")
    with pytest.warns(UserWarning, match="set aside as damaged"):
        run_fit(counts, path, 4, discard_damaged=True)
    check()
    (kept,) = path.rglob("users/notes.txt")
    assert kept.read_text() == "precious notes.txt"


def test_scratch_removes_only_its_own(tmp_path: Path) -> None:
    scratch = Scratch(LocalStorage(str(tmp_path)), "scratch-0a")
    scratch.make("runs")
    scratch.make("parse")
    scratch.write("runs/0", np.arange(3))
    scratch.write("parse/0-users", np.arange(3))
    check = leave(tmp_path / "scratch-0a/runs/table.csv", tmp_path / "scratch-0a/notes.txt", tmp_path / "notes.txt")
    scratch.remove("runs")
    scratch.remove()
    check()
    assert sorted(path.name for path in (tmp_path / "scratch-0a").rglob("*")) == ["notes.txt", "runs", "table.csv"]


def test_the_demo_refuses_a_folder_that_holds_anything(tmp_path: Path) -> None:
    check = leave(tmp_path / "p/thesis/a")
    with pytest.raises(StoreError, match="is not empty; give another folder"):
        demo.run(str(tmp_path / "p"), 1)
    check()


@pytest.mark.slow
def test_a_search_for_settings_removes_only_its_own(tmp_path: Path) -> None:
    counts: Counts = tiny_counts(tmp_path / "counts.zarr", users=40, items=5)
    check = leave(tmp_path / "notes.txt", tmp_path / "pairsym-tune-mine/a")
    ps.tune(counts, space={"factors": [2]}, sweeps=(1,), candidates=1)
    check()


def test_nothing_is_removed_but_through_the_disk_of_a_storage() -> None:
    """A new way to remove files must come through here, or be looked at."""
    package = Path(ps.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name, owner = node.func.attr, ast.unparse(node.func.value)
                if name in ("rmtree", "unlink", "rmdir", "removedirs", "rm", "rm_file", "delete", "TemporaryDirectory"):
                    found.add((path.relative_to(package).as_posix(), f"{owner}.{name}"))
                elif name == "remove" and owner == "os":
                    found.add((path.relative_to(package).as_posix(), "os.remove"))
    assert found == {
        ("run/machine.py", "os.unlink"),  # notes of tables in a folder of the user's alone, by their names and form
        ("store/disk.py", "os.unlink"),
        ("store/disk.py", "os.rmdir"),
        ("store/disk.py", "self.unlink"),  # of what a failed write has just made
        ("store/local.py", "disk.unlink"),
        ("store/local.py", "disk.rmdir"),
        ("store/remote.py", "self.fs.rm"),
        ("store/remote.py", "self.fs.rm_file"),
        ("benchmarks/benchmark.py", "tempfile.TemporaryDirectory"),
        ("benchmarks/parts.py", "tempfile.TemporaryDirectory"),
        ("demo.py", "tempfile.TemporaryDirectory"),
        ("evaluation/truths.py", "tempfile.TemporaryDirectory"),
        ("evaluation/tune.py", "tempfile.TemporaryDirectory"),
        ("report/projection.py", "tempfile.TemporaryDirectory"),
    }
