"""Every request of a fit on S3 fails once, or is done and its answer lost: the same bits, or one clear sentence."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.faults import all_bits, new_stores_in, quick_folder, run_fit, tiny_counts
from helpers.s3 import SECRET, FaultyServer, Watch, drop, fetch, nothing

from pairsym_dask.errors import StoreError
from pairsym_dask.store import writers
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.verify import verify

pytestmark = [pytest.mark.s3, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

SWEEPS = 1
FAULTS = ("fail", "lost")


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
        run_fit(counts, path, SWEEPS)
    return all_bits(path)


@pytest.fixture(scope="module")
def hasty(server: FaultyServer) -> Iterator[dict[str, Any]]:
    """A client that sends nothing twice by itself: every fault comes through."""
    yield server.options(retries={"max_attempts": 0})
    server.rule = nothing


@pytest.fixture(scope="module")
def kinds(counts: Counts, hasty: dict[str, Any], server: FaultyServer) -> list[str]:
    """Kinds of the requests of an undisturbed fit, in order."""
    server.rule = watch = Watch()
    run_fit(counts, f"s3://bucket/{uuid.uuid4().hex}/model.zarr", SWEEPS, storage_options=hasty)
    return watch.kinds


def spoil(counts: Counts, reference: list[str], options: dict[str, Any], server: FaultyServer, watch: Watch) -> bool:
    """Fit while one request is spoiled, then again; whether it was told."""
    url = f"s3://bucket/{uuid.uuid4().hex}/model.zarr"
    server.rule = watch
    told = ""
    try:
        run_fit(counts, url, SWEEPS, storage_options=options)
    except StoreError as error:
        told = str(error)
    assert len(watch.struck) == 1, "nothing was spoiled"
    assert SECRET not in told
    assert len(told.splitlines()) < 2
    server.rule = nothing
    run_fit(counts, url, SWEEPS, storage_options=options)
    with quick_folder() as folder:
        path = fetch(url, folder / "model.zarr")
        assert all_bits(path) == reference
        assert verify(path).sound
    drop(url, options)
    return bool(told)


def spoil_all(
    counts: Counts, reference: list[str], options: dict[str, Any], server: FaultyServer, cases: list[tuple[int, str]]
) -> str:
    """Spoil single requests, each in a fit of its own."""
    struck: Counter[str] = Counter()
    told = 0
    for at, what in cases:
        watch = Watch(at, what)
        told += spoil(counts, reference, options, server, watch)
        struck[f"{watch.struck[0]} {what}"] += 1
    assert sum(struck.values()) == len(cases)
    return f"{sum(struck.values())} requests spoiled, {told} told, the same bits in all: {dict(sorted(struck.items()))}"


def test_a_request_of_each_kind_fails_once_or_loses_its_answer(
    counts: Counts, reference: list[str], hasty: dict[str, Any], server: FaultyServer, kinds: list[str]
) -> None:
    assert {kind.split()[0] for kind in kinds} >= {"GET", "HEAD", "PUT", "DELETE"}
    first = {kind: at for at, kind in reversed(list(enumerate(kinds, 1)))}
    cases = [(at, FAULTS[k % 2]) for k, at in enumerate(sorted(first.values()))]
    spoil_all(counts, reference, hasty, server, cases)


@pytest.mark.long
def test_long_every_request_fails_once_or_loses_its_answer(
    counts: Counts, reference: list[str], hasty: dict[str, Any], server: FaultyServer, kinds: list[str]
) -> None:
    cases = [(at, what) for at in range(1, len(kinds) + 1) for what in FAULTS]
    said = spoil_all(counts, reference, hasty, server, cases)
    print(f"\nS3, each of {len(kinds)} requests failing or losing its answer, client retries off: {said}")


def test_a_client_that_sends_again_hides_single_faults(
    counts: Counts, reference: list[str], options: dict[str, Any], server: FaultyServer, kinds: list[str]
) -> None:
    at = next(at for at, kind in enumerate(kinds, 1) if kind == "PUT commits")
    for what in FAULTS:
        assert not spoil(counts, reference, options, server, Watch(at, what))
