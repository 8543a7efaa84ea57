"""The workflow scripts as people run them: processes of their own, on threads and files, on a cluster and S3."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from faults import bits
from outside import OutsideCluster

from pairsym_dask.posterior import ModelStore

ROOT = Path(__file__).parent.parent
KEY, SECRET = "AKIDEXAMPLE", "not-a-real-secret-of-anybody"


def step(name: str, *words: Any, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "workflows" / name, *map(str, words)],
        capture_output=True, text=True, timeout=120, cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )  # fmt: skip


def all_steps(
    source: str, place: str, words: tuple[str, ...], cwd: Path, env: dict[str, str] | None = None
) -> list[str]:
    """Every step in order, stores below `place`; what each printed."""
    said = []
    for name, *rest in (
        ("01_ingest.py", source, f"{place}plays.zarr", "--user", "listener", "--item", "song", "--count", "plays"),
        ("02_split.py", f"{place}plays.zarr", f"{place}train.zarr", f"{place}held_out.parquet"),
        ("03_fit.py", f"{place}train.zarr", f"{place}model.zarr", "--factors", "3", "--sweeps", "3"),
        ("04_evaluate.py", f"{place}model.zarr", f"{place}held_out.parquet"),
        ("05_recommend.py", f"{place}model.zarr", f"{place}top.parquet", "-n", "2"),
    ):
        memory = () if name == "05_recommend.py" else ("--memory", "1GiB")
        done = step(name, *rest, *memory, *words, cwd=cwd, env=env)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        said.append(done.stdout)
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plays in a CSV file, and all steps done on two threads."""
    folder = tmp_path_factory.mktemp("workflows")
    rng = np.random.default_rng(0)
    listener, song = rng.integers(0, 200, 4000), rng.zipf(1.5, 4000) % 60
    plays = pd.DataFrame({"listener": listener, "song": song, "plays": rng.integers(1, 9, 4000)})
    plays["song"] = plays["song"].map("song {:02d}".format)
    plays.to_csv(folder / "plays.csv", index=False)
    said = all_steps("plays.csv", "", ("--threads", "2"), folder)
    (folder / "said.txt").write_text("".join(said))
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


def test_every_step_on_threads(folder: Path) -> None:
    said = (folder / "said.txt").read_text()
    assert "200 users x" in said
    assert "200 held-out pairs" in said
    assert "elbo" in said
    assert "popularity" in said
    top = pd.read_parquet(folder / "top.parquet")
    assert len(top) == 400
    assert set(top["rank"]) == {1, 2}
    seen = pd.read_csv(folder / "plays.csv")
    held_out = pd.read_parquet(folder / "held_out.parquet")
    known = set(zip(seen["listener"], seen["song"], strict=True)) - set(
        zip(held_out["user"], held_out["item"], strict=True)
    )
    assert not known & set(zip(top["user"], top["item"], strict=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_same_steps_on_a_cluster_of_processes_and_s3_give_the_same_bits(
    folder: Path, s3: dict[str, str], tmp_path: Path
) -> None:
    import s3fs

    options = {"key": KEY, "secret": SECRET, "endpoint_url": s3["AWS_ENDPOINT_URL"]}
    files = s3fs.S3FileSystem(use_listings_cache=False, **options)
    files.put(str(folder / "plays.csv"), "plays-bucket/plays.csv")
    with OutsideCluster(tmp_path, env=s3) as cluster:
        words = ("--scheduler", cluster.address)
        all_steps("s3://plays-bucket/plays.csv", "s3://plays-bucket/run/", words, tmp_path, s3)
    there = ModelStore("s3://plays-bucket/run/model.zarr", options).commits()
    assert bits(there[-1]) == bits(ModelStore(folder / "model.zarr").commits()[-1])
    with files.open("plays-bucket/run/held_out.parquet") as file:
        pd.testing.assert_frame_equal(pd.read_parquet(file), pd.read_parquet(folder / "held_out.parquet"))
    assert [path.rsplit("/")[-1] for path in files.ls("plays-bucket/run/top.parquet")][:1] == ["part-00000.parquet"]


def test_a_step_says_in_one_sentence_what_is_wrong(folder: Path) -> None:
    done = step("03_fit.py", "nowhere.zarr", "model-2.zarr", cwd=folder)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nowhere.zarr" in done.stderr
