"""Secrets of addresses are in no error, record or log; unreachable hosts are told in one sentence."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pairsym_dask as ps
from pairsym_dask.errors import InputError, PairsymError, StoreError
from pairsym_dask.pairs.csv_files import CsvPart
from pairsym_dask.pairs.parts import Columns
from pairsym_dask.store.secrets import hide, without_credentials

TOKEN = "s3cr3t/t0k3n"
QUOTED = "s3cr3t%2Ft0k3n"


class Answer(http.server.BaseHTTPRequestHandler):
    """Files that are there for those with the token, but are no files of pairs."""

    def do_GET(self) -> None:
        self.send_response(200)
        body = b"user,item\na,\n\xff\xff,x\n"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    pytest.importorskip("aiohttp")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def refusal(source: Any, target: Path, **options: Any) -> str:
    with pytest.raises(PairsymError) as error:
        ps.ingest(source, target, **options)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("file", ["pairs.csv", "pairs.parquet", "pairs.txt"])
def test_tokens_of_an_address_are_in_no_refusal(file: str, host: str, tmp_path: Path) -> None:
    for address in (f"http://{host}/{file}?token={QUOTED}&v=1", f"http://{host}/{file}?x.csv&token={QUOTED}.csv"):
        said = refusal([address], tmp_path / "p")
        assert host in said
        assert TOKEN not in said
        assert QUOTED not in said


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("protocol", ["http", "s3"])
def test_an_unreachable_host_is_told_in_one_sentence(protocol: str, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp" if protocol == "http" else "s3fs")
    options: dict[str, Any] = {}
    if protocol == "s3":
        options = {"key": "AKIDEXAMPLE", "secret": TOKEN, "endpoint_url": "http://127.0.0.1:9",
                   "config_kwargs": {"retries": {"max_attempts": 0}}}  # fmt: skip
    host = "127.0.0.1:9" if protocol == "http" else "bucket"
    said = refusal(f"{protocol}://{host}/pairs.csv", tmp_path / "p", storage_options=options)
    assert f"{protocol}://{host}/pairs.csv" in said
    assert TOKEN not in said
    if protocol == "s3":
        with pytest.raises(StoreError, match=r"cannot read s3://bucket/model.zarr/") as error:
            ps.load("s3://bucket/model.zarr", storage_options=options)
        assert TOKEN not in str(error.value)
        assert len(str(error.value).splitlines()) == 1


def test_what_dask_logs_of_a_failed_task_holds_no_credentials() -> None:
    name = f"https://me:hunter2@host/a.csv?token={QUOTED}"
    part = CsvPart(name, Columns("user", "item", None), 1, {"token": TOKEN}, ("user", "item"), ",", "utf-8", 0)
    assert repr(part) == "CsvPart('https://host/a.csv')"


def test_updates_hide_tokens_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": ["a", "b", "b"], "item": ["x", "x", "y"]})
    model = ps.PairedSymbols(factors=1).fit(ps.ingest(frame, tmp_path / "c.zarr"), tmp_path / "m.zarr", sweeps=1)
    with pytest.raises(InputError) as error:
        model.update(f"memory://none/a.csv?token={QUOTED}", tmp_path / "c2.zarr", tmp_path / "m2.zarr", sweeps=1)
    assert "memory://none/a.csv" in str(error.value)
    assert QUOTED not in str(error.value)


def test_texts_and_addresses_without_secrets_stay_as_they_are() -> None:
    assert without_credentials("C:plays?.csv") == "C:plays?.csv"
    assert hide("no such file: plays?a=bcd.csv", ["plays?a=bcd.csv"], {}) == "no such file: plays?a=bcd.csv"
