"""Stores on Google Cloud Storage and on Azure, by emulators: one winner a commit, the same bits, clear words."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import fsspec
import pytest
from helpers.clouds import KEY, Azure, Google
from helpers.faults import all_bits, new_stores_in, race, run_fit, tiny_counts

import pairsym_dask as ps
from pairsym_dask.errors import StoreError
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.remote import RemoteStorage
from pairsym_dask.store.storage import open_storage
from pairsym_dask.store.verify import verify

pytestmark = [
    pytest.mark.clouds,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]

Cloud = Google | Azure


@pytest.fixture(scope="module", params=[Google, Azure], ids=["google", "azure"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    cloud = request.param()
    yield cloud
    cloud.close()


@pytest.fixture(scope="module")
def careless() -> Iterator[Google]:
    """A service that ignores the condition of a put."""
    cloud = Google(heeds=False)
    yield cloud
    cloud.close()


@pytest.fixture
def url(cloud: Cloud) -> str:
    return f"{cloud.url}/{uuid.uuid4().hex}/model.zarr"


@pytest.fixture(scope="module")
def counts(cloud: Cloud) -> Counts:
    return tiny_counts(f"{cloud.url}/counts.zarr", storage_options=cloud.options)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("reference")
    with new_stores_in("shards"):
        run_fit(tiny_counts(folder / "counts.zarr"), folder / "model.zarr", 3)
    return all_bits(folder / "model.zarr")


# One winner


def test_of_threads_that_put_one_key_one_wins(cloud: Cloud) -> None:
    storage = open_storage(f"{cloud.url}/{uuid.uuid4().hex}", cloud.options)
    for turn in range(20):
        won: list[int] = []
        barrier = threading.Barrier(8)

        def put(n: int, turn: int = turn, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            if storage.put_if_absent(f"commits/{turn}", b"%d" % n):
                won.append(n)

        threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read(f"commits/{turn}") == b"%d" % won[0]


def _put_all(url: str, options: dict[str, Any], n: int, keys: int) -> list[int]:
    """In a process of its own: the keys that it has won."""
    storage = open_storage(url, options)
    return [key for key in range(keys) if storage.put_if_absent(f"commits/{key}", b"%d" % n)]


def test_of_processes_that_put_one_key_one_wins(cloud: Cloud) -> None:
    url, keys = f"{cloud.url}/{uuid.uuid4().hex}", 30
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        won = [each.result() for each in [pool.submit(_put_all, url, cloud.options, n, keys) for n in range(4)]]
    assert sorted(key for each in won for key in each) == list(range(keys))
    storage = open_storage(url, cloud.options)
    assert all(storage.read(f"commits/{key}") == b"%d" % n for n, each in enumerate(won) for key in each)


@pytest.mark.usefixtures("lawless")
def test_two_drivers_have_one_winner_a_sweep(counts: Counts, reference: list[str], cloud: Cloud, url: str) -> None:
    for n in range(2):
        won, _ = race(counts, f"{url}-{n}", 3, cloud.options)
        assert sorted(won[0] + won[1]) == [1, 2, 3], "a sweep has two winners, or none"
        assert all_bits(f"{url}-{n}", cloud.options) == reference
        assert verify(f"{url}-{n}", cloud.options).sound


def test_of_two_drivers_that_heed_the_lock_one_is_refused(counts: Counts, cloud: Cloud, url: str) -> None:
    refused: list[str] = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(StoreError) as error:
            run_fit(counts, url, 2, storage_options=cloud.options)
        refused.append(str(error.value))

    run_fit(counts, url, 1, storage_options=cloud.options, callback=meanwhile)
    assert "is in use by a fit on" in refused[0]


def test_a_service_that_ignores_the_condition_is_refused(careless: Google) -> None:
    counts = tiny_counts("gs://bucket/counts.zarr", storage_options=careless.options)  # needs no condition
    assert verify("gs://bucket/counts.zarr", careless.options).sound
    with pytest.raises(StoreError, match=r"gs://bucket/model.zarr cannot hold .*conditional puts are ignored") as error:
        run_fit(counts, "gs://bucket/model.zarr", 1, storage_options=careless.options)
    assert len(str(error.value).splitlines()) == 1
    assert open_storage("gs://bucket/model.zarr", careless.options).keys("lock") == []
    fs, _ = fsspec.core.url_to_fs("gs://bucket", **careless.options)
    for data in (b"1", b"2"):  # both win: this is what was refused
        fs.pipe_file("bucket/both", data, mode="create")


def test_a_file_system_that_looks_first_is_told_of() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}/model.zarr")
    with pytest.warns(UserWarning, match="memory:// looks first and then writes"):
        assert storage.put_if_absent("commits/0", b"1")
    assert not storage.put_if_absent("commits/0", b"2")  # and is told of once
    assert storage.keys() == ["commits/0"]


# Everything


def test_ingest_fit_resume_verify_and_recommend(cloud: Cloud, url: str, tmp_path: Any) -> None:
    pairs = "user,item\n" + "".join(f"u{u},i{u * k % 23}\n" for u in range(60) for k in (1, 2, 3, 5))
    fs, path = fsspec.core.url_to_fs(f"{url}.csv", **cloud.options)
    fs.pipe_file(path, pairs.encode())
    (tmp_path / "pairs.csv").write_text(pairs)
    there = ps.ingest(f"{url}.csv", f"{url}-counts.zarr", storage_options=cloud.options)
    here = ps.ingest(tmp_path / "pairs.csv", tmp_path / "counts.zarr")
    model = ps.PairedSymbols(factors=2)
    model.fit(there, url, sweeps=2, progress=False, storage_options=cloud.options)
    model.fit(there, url, sweeps=4, progress=False, storage_options=cloud.options)
    with new_stores_in("shards"):
        local = ps.PairedSymbols(factors=2).fit(here, tmp_path / "model.zarr", sweeps=4, progress=False)
    assert all_bits(url, cloud.options) == all_bits(tmp_path / "model.zarr")
    for address in (url, f"{url}-counts.zarr"):
        report = verify(address, cloud.options)
        assert report.sound, str(report)
    again = ps.load(url, storage_options=cloud.options)  # finds its counts store by itself
    assert again.recommend(["u1", "u7"], n=3).equals(local.recommend(["u1", "u7"], n=3))
    names = open_storage(url, cloud.options)
    assert len([name for name in names.folders() if name.startswith("generation-")]) == 2
    assert names.keys("lock") == []


def test_objects_have_the_time_of_the_service(cloud: Cloud) -> None:
    """Leftovers and heartbeats are judged by it; a time of zero would make all of them old."""
    storage = open_storage(f"{cloud.url}/{uuid.uuid4().hex}", cloud.options)
    storage.write("a", b"1")
    first = storage.entry("a").changed
    assert first > 1.7e9
    assert storage.listing()["a"].changed == first
    assert storage.last_write("") == first


# Words


def test_a_missing_bucket_is_told(counts: Counts, cloud: Cloud) -> None:
    url = f"{cloud.kind}://no-such-bucket/model.zarr"
    with pytest.raises(StoreError, match=f"^cannot write {url}/.*(no such bucket|container does not exist)") as error:
        run_fit(counts, url, 1, storage_options=cloud.options)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(StoreError, match=r"cannot write .*(no such bucket|container does not exist)"):
        open_storage(url, cloud.options).put_if_absent("commits/0", b"1")


def test_wrong_credentials_are_told_and_not_shown(counts: Counts, cloud: Cloud, url: str) -> None:
    options, secret = dict(cloud.options), "QUJD" + KEY[4:]
    if isinstance(cloud, Azure):
        options["connection_string"] = options["connection_string"].replace(KEY, secret)
    else:
        cloud.refusing = 403  # the emulator knows no credentials
    try:
        with pytest.raises(StoreError, match=f"^cannot (read|write|list) {url}.*(authenticate|Forbidden)") as error:
            run_fit(counts, url, 1, storage_options=options)
    finally:
        if isinstance(cloud, Google):
            cloud.refusing = 0
    assert secret not in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_credentials_are_in_no_object(counts: Counts, cloud: Cloud, url: str) -> None:
    run_fit(counts, url, 1, storage_options=cloud.options)
    for storage in (open_storage(url, cloud.options), counts.storage):
        keys = storage.keys()
        assert keys
        assert not any(KEY.encode() in storage.read(key) for key in keys)


def test_credentials_of_azure_and_google_are_hidden() -> None:
    sas = "sv=2024-11-04&sig=abc%2Fdef%3D"
    options = {
        "connection_string": f"AccountName=plays;AccountKey={KEY};SharedAccessSignature={sas}",
        "account_key": KEY[:40], "sas_token": sas, "token": {"private_key": "-----BEGIN"},
    }  # fmt: skip
    storage = RemoteStorage("abfs://container@account.dfs.core.windows.net/m.zarr", options)
    assert storage.url == "abfs://container@account.dfs.core.windows.net/m.zarr"
    said = f"no {KEY}, {KEY[:40]}, {sas}, abc/def= or -----BEGIN at container"
    assert storage._reason(ValueError(said)) == "no ***, ***, ***, *** or *** at container"
    assert RemoteStorage("az://me:hunter2@account/m.zarr", {}).url == "az://account/m.zarr"


def test_an_account_without_credentials_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("adlfs")
    for name in ("ACCOUNT_NAME", "CONNECTION_STRING", "ACCOUNT_KEY", "SAS_TOKEN"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    with pytest.raises(StoreError, match=r"cannot open az://bucket/model.zarr: .*account_name") as error:
        open_storage("az://bucket/model.zarr").keys()
    assert len(str(error.value).splitlines()) == 1
