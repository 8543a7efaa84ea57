"""The notebooks run from top to bottom, and what is kept of an earlier run is fit to be seen."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import nbformat
import pytest

from pairsym_dask.errors import InputError

WORKFLOWS = Path(__file__).parents[2] / "workflows"
NOTEBOOKS = sorted(path.name for path in WORKFLOWS.glob("*.ipynb"))


@pytest.fixture
def movielens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(WORKFLOWS)
    import movielens

    return movielens


def outputs(notebook):
    return [(cell, output) for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.notebooks
@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    if name == "uncertainty.ipynb":
        place = Path(os.environ.get("PAIRSYM_DATA", "nowhere"))
        if not any((place / file).exists() for file in ("ml-100k-ratings.parquet", "ml-100k/u.data", "ml-100k.zip")):
            pytest.skip("PAIRSYM_DATA names no folder with MovieLens 100K")
    if name == "cold_start.ipynb":
        place = Path(os.environ.get("PAIRSYM_DATA", "nowhere"))
        if not all(
            (place / f"{file}.parquet").exists() for file in ("citeulike-cold", "citeulike-tags", "ml-100k-titles")
        ):
            pytest.skip("PAIRSYM_DATA names no folder with CiteULike-a and MovieLens 100K")
    monkeypatch.setenv("PAIRSYM_SMALL", "1")
    monkeypatch.setenv("PYTHONPATH", f"{WORKFLOWS.parent}{os.pathsep}{WORKFLOWS}")
    notebook = nbformat.read(WORKFLOWS / name, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    warned = [o["text"] for _, o in outputs(notebook) if o.get("name") == "stderr" and "Warning" in o["text"]]
    assert warned == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_kept_outputs_are_whole_and_name_no_place_on_a_machine(name: str) -> None:
    notebook = nbformat.read(WORKFLOWS / name, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run it from top to bottom"
    kinds = {output["output_type"] for _, output in outputs(notebook)}
    assert kinds <= {"stream", "display_data", "execute_result"}
    text = re.sub(r'"image/png": ".*?"', "", nbformat.writes(notebook))
    assert re.findall(r"(?:/(?:home|root|tmp|Users|work|mnt|var)/|[A-Z]:\\\\)\S{0,60}", text) == []
    assert any("image/png" in output.get("data", {}) for _, output in outputs(notebook))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_figure_has_a_title_and_named_axes(name: str) -> None:
    notebook = nbformat.read(WORKFLOWS / name, as_version=4)
    for cell, output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            assert "set_title(" in cell.source, cell.source
            assert "set_xlabel(" in cell.source, cell.source


# MovieLens


def test_the_archive_of_grouplens_is_read_as_it_is_written(movielens, tmp_path: Path) -> None:
    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "u.data").write_bytes(b"196\t2\t3\t881250949\n186\t1\t5\t891717742\n")
    items = '1|Mis\u00e9rables, Les (1995)|01-Jan-1995||http://x|0|1\n2|"Quoted" (1996)|01-Jan-1996||http://y|1|0\n'
    (tmp_path / "ml-100k" / "u.item").write_bytes(items.encode("latin-1"))
    ratings, titles = movielens.load(tmp_path)
    assert ratings.to_dict("list") == {
        "user": [196, 186], "item": [2, 1], "rating": [3, 5], "time": [881250949, 891717742],
    }  # fmt: skip
    assert titles.to_dict("list") == {"item": [1, 2], "title": ["Mis\u00e9rables, Les (1995)", '"Quoted" (1996)']}


def test_an_archive_is_unpacked_after_its_digest_is_checked(movielens, tmp_path: Path, monkeypatch) -> None:
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "7\t1\t4\t881250949\n")
        archive.writestr("ml-100k/u.item", "1|Toy Story (1995)|01-Jan-1995\n")
    with pytest.raises(InputError, match=r"ml-100k.zip is not MovieLens 100K: its MD5 is \w{32}, not 0e33842e"):
        movielens.load(tmp_path)
    import hashlib

    monkeypatch.setattr(movielens, "MD5", hashlib.md5((tmp_path / "ml-100k.zip").read_bytes()).hexdigest())
    ratings, titles = movielens.load(tmp_path)
    assert ratings["user"].tolist() == [7]
    assert titles["title"].tolist() == ["Toy Story (1995)"]


def test_a_download_comes_from_a_server_and_is_kept(movielens, tmp_path: Path, monkeypatch) -> None:
    import functools
    import hashlib
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "server").mkdir()
    with zipfile.ZipFile(tmp_path / "server" / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "7\t1\t4\t881250949\n")
        archive.writestr("ml-100k/u.item", "1|Toy Story (1995)|01-Jan-1995\n")
    digest = hashlib.md5((tmp_path / "server" / "ml-100k.zip").read_bytes()).hexdigest()
    monkeypatch.setattr(movielens, "MD5", digest)
    handler = functools.partial(Quiet, directory=str(tmp_path / "server"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        movielens.load(tmp_path / "kept", f"http://127.0.0.1:{server.server_port}/ml-100k.zip")
        server.shutdown()
        thread.join()
    assert movielens.load(tmp_path / "kept", "http://127.0.0.1:9/none")[0]["user"].tolist() == [7]


def test_without_a_network_it_says_where_to_put_the_file(movielens, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        movielens.load(tmp_path / "data", "http://127.0.0.1:9/ml-100k.zip")
    assert str(error.value).startswith("http://127.0.0.1:9/ml-100k.zip cannot be downloaded (")
    assert f"put it at {tmp_path / 'data' / 'ml-100k.zip'}" in str(error.value)


def test_the_local_copy_is_movielens_100k(movielens, real_data: Path) -> None:
    ratings, titles = movielens.load()
    assert ratings.shape == (100_000, 4)
    assert ratings["item"].isin(titles["item"]).all()
