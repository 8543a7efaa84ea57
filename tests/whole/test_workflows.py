"""The workflow scripts as people run them: processes of their own, on threads and files, on a cluster and S3."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.faults import chunk_bits
from helpers.outside import OutsideCluster

from pairsym_dask.store.model_store import ModelStore

WORKFLOWS = Path(__file__).parents[2] / "workflows"
KEY, SECRET = "AKIDEXAMPLE", "not-a-real-secret-of-anybody"


def steps(source: str, place: str) -> list[list[str]]:
    """The words of every step in order, stores below `place`."""
    return [
        ["01_ingest.py", source, f"{place}plays.zarr", "--user", "listener", "--item", "song", "--count", "plays"],
        ["02_split.py", f"{place}plays.zarr", f"{place}train.zarr", f"{place}held_out.parquet"],
        [
            "03_fit.py",
            f"{place}train.zarr",
            f"{place}model.zarr",
            *["--factors", "3", "--sweeps", "3", "--memory", "1GiB"],
        ],
        ["04_evaluate.py", f"{place}model.zarr", f"{place}held_out.parquet"],
        ["05_recommend.py", f"{place}model.zarr", f"{place}top.parquet", "-n", "2"],
    ]


def run_here(words: list[str]) -> None:
    """A script in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(WORKFLOWS)
        patch.setattr(sys, "argv", words)
        runpy.run_path(str(WORKFLOWS / words[0]), run_name="__main__")


def run_as_process(words: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, WORKFLOWS / words[0], *words[1:]],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(WORKFLOWS.parent), **env},
    )  # fmt: skip
    assert done.returncode == 0, f"{words[0]}: {done.stderr}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plays in a CSV file, and all steps done on two threads."""
    folder = tmp_path_factory.mktemp("workflows")
    rng = np.random.default_rng(0)
    listener, song = rng.integers(0, 200, 4000), rng.zipf(1.5, 4000) % 60
    plays = pd.DataFrame({"listener": listener, "song": song, "plays": rng.integers(1, 9, 4000)})
    plays["song"] = plays["song"].map("song {:02d}".format)
    plays.to_csv(folder / "plays.csv", index=False)
    for words in steps(str(folder / "plays.csv"), f"{folder}/"):
        run_here([*words, "--threads", "2"])
    return folder


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """An S3 server on loopback with a bucket; the environment that leads there."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    import s3fs

    files = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=environment["AWS_ENDPOINT_URL"])
    files.mkdir("plays-bucket")
    yield environment
    server.stop()


@pytest.mark.study
def test_every_step_on_threads(folder: Path) -> None:
    top = pd.read_parquet(folder / "top.parquet")
    assert len(top) == 400
    assert set(top["rank"]) == {1, 2}
    seen = pd.read_csv(folder / "plays.csv")
    held_out = pd.read_parquet(folder / "held_out.parquet")
    known = set(zip(seen["listener"], seen["song"], strict=True)) - set(
        zip(held_out["user"], held_out["item"], strict=True)
    )
    assert not known & set(zip(top["user"], top["item"], strict=True))


@pytest.mark.s3
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_same_steps_on_a_cluster_of_processes_and_s3_give_the_same_bits(
    folder: Path, s3: dict[str, str], tmp_path: Path
) -> None:
    import s3fs

    options = {"key": KEY, "secret": SECRET, "endpoint_url": s3["AWS_ENDPOINT_URL"]}
    files = s3fs.S3FileSystem(use_listings_cache=False, **options)
    files.put(str(folder / "plays.csv"), "plays-bucket/plays.csv")
    with OutsideCluster(tmp_path, env=s3) as cluster:
        for words in steps("s3://plays-bucket/plays.csv", "s3://plays-bucket/run/"):
            run_as_process([*words, "--scheduler", cluster.address], s3)
    there = ModelStore("s3://plays-bucket/run/model.zarr", options)
    assert "shards" in there.commits()[-1].record
    assert chunk_bits(there) == chunk_bits(ModelStore(folder / "model.zarr"))
    with files.open("plays-bucket/run/held_out.parquet") as file:
        pd.testing.assert_frame_equal(pd.read_parquet(file), pd.read_parquet(folder / "held_out.parquet"))
    assert [path.rsplit("/")[-1] for path in files.ls("plays-bucket/run/top.parquet")][:1] == ["part-00000.parquet"]


def test_a_step_says_in_one_sentence_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_here(["03_fit.py", str(tmp_path / "nowhere.zarr"), str(tmp_path / "model.zarr")])
    assert stopped.value.code == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("03_fit.py: ")
    assert "nowhere.zarr" in said
    assert "\n" not in said
