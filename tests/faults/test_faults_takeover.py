"""A driver stops at any operation, another one takes over to any end, the first wakes: what was reported is there."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.faults import all_bits, quick_folder, run_fit, tiny_counts, using
from helpers.stopped import Driver, impatient

import pairsym_dask as ps
from pairsym_dask.errors import StoreError
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify

SWEEPS = 2
QUICK = 101  # every so many operations in the quick form


class Died(BaseException):
    """A driver that is no more."""


class DyingDisk(Disk):
    """The disk of a driver that dies when it begins a generation: nothing changes after that."""

    def __init__(self) -> None:
        self.dead = False

    def mkdir(self, path: Path) -> None:
        self._live(path.name.startswith("generation-"))
        super().mkdir(path)

    def create(self, path: Path) -> int:
        self._live()
        return super().create(path)

    def unlink(self, path: Path) -> None:
        self._live()
        super().unlink(path)

    def _live(self, last: bool = False) -> None:
        self.dead |= last
        if self.dead:
            raise Died


def ends_without_the_sweep(counts: Counts, path: Path, report: Any) -> None:
    """Has no more sweeps to do than are committed."""
    store = ModelStore(path)
    run_fit(counts, path, len(store.commit_keys()) - 1 if store.holds_commits() else 0, callback=report)


def commits_the_sweep(counts: Counts, path: Path, report: Any) -> None:
    store = ModelStore(path)
    run_fit(counts, path, min(SWEEPS, len(store.commit_keys())), callback=report)


def finishes(counts: Counts, path: Path, report: Any) -> None:
    run_fit(counts, path, SWEEPS + 1, callback=report)


def dies_after_cleaning_up(counts: Counts, path: Path, report: Any) -> None:
    with using(DyingDisk()), pytest.raises(Died):
        run_fit(counts, path, SWEEPS + 1, callback=report)


def lacks_space(counts: Counts, path: Path, report: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "free", lambda self: 1000)
        with pytest.raises(StoreError, match="free some space"):
            run_fit(counts, path, SWEEPS + 1, callback=report)


ENDS: list[Callable[[Counts, Path, Any], None]] = [
    ends_without_the_sweep,
    commits_the_sweep,
    finishes,
    dies_after_cleaning_up,
    lacks_space,
]


@pytest.fixture(scope="module")
def folder(layout: str) -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture(scope="module")
def counts(folder: Path) -> Counts:
    return tiny_counts(folder / "counts.zarr", users=40, items=5)


@pytest.fixture(scope="module")
def reference(folder: Path, counts: Counts) -> list[str]:
    run_fit(counts, folder / "reference.zarr", SWEEPS + 1)
    return all_bits(folder / "reference.zarr")


@pytest.fixture(scope="module")
def steps(folder: Path, counts: Counts, reference: list[str]) -> list[str]:
    """Names of the operations of an undisturbed fit."""
    driver = Driver(lambda report: run_fit(counts, folder / "counted.zarr", SWEEPS, callback=report))
    names = driver.names()
    assert driver.end() == ([1, 2], "")
    return names


def take_over(counts: Counts, reference: list[str], path: Path, at: int, end: Any) -> str:
    """Stop a driver at an operation, let another one take over, wake the first; what became of it."""
    reported: list[int] = []
    driver = Driver(lambda report: run_fit(counts, path, SWEEPS, callback=report), at)
    assert driver.stopped(), f"operation {at} was never reached"
    try:
        end(counts, path, lambda sweep, *_: reported.append(sweep))
    finally:
        told, error = driver.end()
    found = all_bits(path)
    assert found == reference[: len(found)]
    assert len(found) > max([*told, *reported], default=-1), "a reported sweep is lost"
    report = verify(path)
    assert report.sound, f"stopped at {at}, the other {end.__name__}: {report}"
    if found:
        ps.load(path, counts=counts).to_xarray().load()
    run_fit(counts, path, SWEEPS + 1)
    assert all_bits(path) == reference
    assert verify(path).sound
    shutil.rmtree(path)
    return "was told" if error else "went on"


def take_overs(counts: Counts, reference: list[str], path: Path, places: list[int]) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        impatient(patch)
        return Counter(take_over(counts, reference, path, at, end) for at in places for end in ENDS)


@pytest.mark.slow
def test_a_driver_that_stops_and_wakes_after_a_take_over_reports_nothing_that_is_not_there(
    folder: Path, counts: Counts, reference: list[str], steps: list[str]
) -> None:
    commits = [at for at, name in enumerate(steps, 1) if name == "link"]
    outcomes = take_overs(counts, reference, folder / "m.zarr", sorted({*range(1, len(steps) + 1, QUICK), *commits}))
    assert set(outcomes) == {"went on", "was told"}


@pytest.mark.long
def test_long_take_overs(folder: Path, counts: Counts, reference: list[str], steps: list[str]) -> None:
    outcomes = take_overs(counts, reference, folder / "l.zarr", list(range(1, len(steps) + 1)))
    print(
        f"\nstop and take over: {len(steps)} operations x {len(ENDS)} ends, {sum(outcomes.values())} cases "
        f"({dict(outcomes)}); 0 reported sweeps lost, 0 bits differ"
    )
