"""A driver on S3 is held at any of its requests, another takes over to any end: what was reported is there."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.faults import all_bits, new_stores_in, quick_folder, run_fit, tiny_counts
from helpers.s3 import FaultyServer, Request, Watch, drop, fetch, nothing
from helpers.stopped import Driver, impatient

from pairsym_dask.errors import StoreError
from pairsym_dask.store import writers
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.remote import RemoteStorage
from pairsym_dask.store.verify import verify

pytestmark = [pytest.mark.s3, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

SWEEPS = 1
THIRDS = 3
FIRST = "AKIDFIRST"  # access key of the driver that is held


class Died(BaseException):
    """A driver that is no more."""


def ends_without_the_sweep(fit: Callable[[int], Any], store: ModelStore) -> None:
    fit(len(store.commit_keys()) - 1 if store.holds_commits() else 0)


def commits_the_sweep(fit: Callable[[int], Any], store: ModelStore) -> None:
    fit(SWEEPS)


def dies_after_cleaning_up(fit: Callable[[int], Any], store: ModelStore) -> None:
    write = RemoteStorage.write

    def die(self: RemoteStorage, key: str, data: Any) -> None:
        if key.startswith("generation-"):
            raise Died
        write(self, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteStorage, "write", die)
        with pytest.raises(Died):
            fit(SWEEPS + 1)


def lacks_space(fit: Callable[[int], Any], store: ModelStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteStorage, "free", lambda self: 1000)
        with pytest.raises(StoreError, match="free some space"):
            fit(SWEEPS + 1)


ENDS = [ends_without_the_sweep, commits_the_sweep, dies_after_cleaning_up, lacks_space]


@pytest.fixture(scope="module", autouse=True)
def in_turn() -> Iterator[None]:
    """Requests in a fixed order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "IN_TURN", True)
        yield


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return tiny_counts(tmp_path_factory.mktemp("counts") / "counts.zarr", users=40, items=5)


@pytest.fixture(scope="module")
def reference(counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("reference") / "model.zarr"
    with new_stores_in("shards"):
        run_fit(counts, path, SWEEPS + 1)
    return all_bits(path)


@pytest.fixture
def quiet(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    impatient(monkeypatch)
    yield
    server.rule = nothing


def start(counts: Counts, url: str, server: FaultyServer) -> Driver:
    """The first driver, a client of its own."""
    options = server.options(FIRST)
    return Driver(lambda report: run_fit(counts, url, SWEEPS, storage_options=options, callback=report))


def new_url() -> str:
    return f"s3://bucket/{uuid.uuid4().hex}/model.zarr"


def requests_of_a_fit(counts: Counts, server: FaultyServer) -> list[str]:
    server.rule = watch = Watch(client=FIRST)
    assert start(counts, new_url(), server).end() == ([1], "")
    return watch.kinds


def take_over(counts: Counts, reference: list[str], server: FaultyServer, at: int, end: Any) -> str:
    """Hold the first driver at a request, let another one take over, let the request go; what became of the first."""
    url, options = new_url(), server.options()
    held, go = threading.Event(), threading.Event()

    def hold(request: Request) -> None:
        held.set()
        assert go.wait(300)

    server.rule = watch = Watch(at, hold, FIRST)
    driver = start(counts, url, server)
    reported: list[int] = []
    try:
        assert held.wait(120), f"request {at} was never sent"

        def fit(sweeps: int) -> None:
            run_fit(counts, url, sweeps, storage_options=options, callback=lambda sweep, *_: reported.append(sweep))

        end(fit, ModelStore(url, options))
    finally:
        go.set()
        told, error = driver.end()
    server.rule = nothing
    with quick_folder() as folder:
        path = fetch(url, folder / "model.zarr")
        drop(url, options)
        found = all_bits(path)
        assert found == reference[: len(found)]
        assert len(found) > max([*told, *reported], default=-1), "a reported sweep is lost"
        report = verify(path)
        assert report.sound, f"held at {at} ({watch.struck}), the other {end.__name__}: {report}"
        run_fit(counts, path, SWEEPS + 1)
        assert all_bits(path) == reference
        assert verify(path).sound
    return "was told" if error else "went on"


@pytest.mark.usefixtures("quiet")
def test_a_driver_on_s3_that_is_held_and_let_go_reports_nothing_that_is_not_there(
    counts: Counts, reference: list[str], server: FaultyServer
) -> None:
    kinds = requests_of_a_fit(counts, server)
    last = {kind: at for at, kind in enumerate(kinds, 1)}
    for kind in ("PUT attempts", "PUT commits", "PUT generation chunk"):
        for end in (ends_without_the_sweep, lacks_space):
            take_over(counts, reference, server, last[kind], end)


@pytest.mark.long
@pytest.mark.usefixtures("quiet")
def test_long_take_overs_on_s3(counts: Counts, reference: list[str], server: FaultyServer) -> None:
    kinds = requests_of_a_fit(counts, server)
    outcomes: Counter[str] = Counter()
    for first in range(1, THIRDS + 1):  # a run that is stopped has seen every part
        places = range(first, len(kinds) + 1, THIRDS)
        outcomes.update(take_over(counts, reference, server, at, end) for at in places for end in ENDS)
        print(
            f"\nhold and take over on S3, {first} of {THIRDS}: {len(kinds)} requests x {len(ENDS)} ends, "
            f"{sum(outcomes.values())} cases ({dict(outcomes)}); 0 reported sweeps lost, 0 bits differ", flush=True
        )  # fmt: skip
    assert sum(outcomes.values()) == len(kinds) * len(ENDS)
