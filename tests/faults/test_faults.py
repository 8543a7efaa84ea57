"""Kills, full disks and failing calls at every operation of a fit: no committed sweep is lost, no bit differs."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.faults import FaultyDisk, all_bits, in_child, operations, quick_folder, run_fit, tiny_counts, using

from pairsym_dask.errors import StoreError
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify

SWEEPS = 2
QUICK = 23  # every so many operations in the quick form


@pytest.fixture(scope="module")
def folder(layout: str) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process leaves the same files on any file system."""
    with quick_folder() as path:
        yield path


@pytest.fixture(scope="module")
def counts(folder: Path) -> Counts:
    return tiny_counts(folder / "counts.zarr")


@pytest.fixture(scope="module")
def reference(folder: Path, counts: Counts) -> list[str]:
    """Bits of every sweep of an undisturbed fit; it also compiles the kernels before anything is forked."""
    run_fit(counts, folder / "reference.zarr", SWEEPS)
    return all_bits(folder / "reference.zarr")


def killed_fit(counts: Counts, path: Path, fault: str, at: int, sweeps: int = SWEEPS) -> tuple[int, int]:
    """A fit whose process is killed at an operation; its exit status and how many sweeps it had reported."""
    told = path.with_suffix(".told")

    def work() -> None:
        with using(FaultyDisk(fault, at)), open(told, "w") as file:

            def report(sweep: int, bound: float, seconds: float) -> None:
                file.write("x")
                file.flush()

            run_fit(counts, path, sweeps, callback=report)

    status = in_child(work)
    return status, told.stat().st_size if told.exists() else 0


def check_kill(counts: Counts, reference: list[str], path: Path, faults: list[tuple[str, int]]) -> int:
    """Kill a fit once or more, then finish it; how many of the kills struck."""
    struck = 0
    told = 0
    for fault, at in faults:
        status, reported = killed_fit(counts, path, fault, at)
        assert status in (0, -9)
        struck += status == -9
        told = max(told, reported)
        store = ModelStore(path)
        if store.is_model():
            bits = all_bits(path)
            assert len(bits) > told or not told, "a reported sweep is lost"
            assert bits == reference[: len(bits)]
            assert verify(path).sound, str(verify(path))
    run_fit(counts, path, SWEEPS)
    assert all_bits(path) == reference
    assert verify(path).sound, str(verify(path))
    shutil.rmtree(path)
    return struck


def kill_cases(names: list[str], step: int) -> list[tuple[str, int]]:
    cases = []
    for n in range(1, len(names) + 1):
        if n % step == 0 or (step > 1 and names[n - 1] == "link"):  # links are the commits
            cases += [("before", n), ("after", n)]
        if names[n - 1] == "write" and (n // 3) % step == 0:
            cases.append(("torn", n))
    return cases


@pytest.mark.slow
def test_killed_at_any_operation_a_fit_resumes_to_the_same_bits(
    folder: Path, counts: Counts, reference: list[str]
) -> None:
    names = operations(lambda: run_fit(counts, folder / "counted.zarr", SWEEPS))
    cases = kill_cases(names, QUICK)
    struck = [check_kill(counts, reference, folder / "killed.zarr", [case]) for case in cases]
    assert sum(struck) == len(cases)


@pytest.mark.slow
def check_two_kills(counts: Counts, reference: list[str], path: Path, rng: random.Random) -> None:
    """Kill a fit, kill what resumes it, then finish it; both kills strike."""
    for _ in range(2):
        copy = path.with_suffix(".copy")
        if path.exists():
            shutil.copytree(path, copy)
        names = operations(lambda copy=copy: run_fit(counts, copy, SWEEPS))
        shutil.rmtree(copy)
        status, told = killed_fit(counts, path, rng.choice(["before", "torn", "after"]), rng.randint(1, len(names)))
        assert status == -9
        if ModelStore(path).is_model():
            assert len(all_bits(path)) > told or not told, "a reported sweep is lost"
    assert check_kill(counts, reference, path, []) == 0


@pytest.mark.slow
def test_killed_again_during_resume_and_clean_up(folder: Path, counts: Counts, reference: list[str]) -> None:
    rng = random.Random(0)
    for _ in range(8):
        check_two_kills(counts, reference, folder / "twice.zarr", rng)


@pytest.mark.long
def test_long_driver_kills(folder: Path, counts: Counts, reference: list[str]) -> None:
    names = operations(lambda: run_fit(counts, folder / "counted-long.zarr", SWEEPS))
    cases = kill_cases(names, 1)
    struck = sum(check_kill(counts, reference, folder / "k.zarr", [case]) for case in cases)
    print(f"\ndriver kills: {len(names)} operations, {len(cases)} cases, {struck} kills; 0 sweeps lost, 0 bits differ")
    assert struck == len(cases)
    rng = random.Random(1)
    for _ in range(400):
        check_two_kills(counts, reference, folder / "kk.zarr", rng)
    print("double faults: 400 runs, 800 kills; 0 sweeps lost, 0 bits differ")


def check_error(counts: Counts, reference: list[str], path: Path, fault: str, at: int) -> tuple[bool, bool]:
    """A fit that meets an error from the disk; whether one struck, and whether it was told."""
    told = ""
    disk = FaultyDisk(fault, at)
    with using(disk):
        try:
            run_fit(counts, path, SWEEPS)
        except StoreError as error:
            told = str(error)
    assert not told or "No space left" in told or "Input/output error" in told
    if ModelStore(path).is_model():
        bits = all_bits(path)
        assert bits == reference[: len(bits)]
        assert verify(path).sound, str(verify(path))
    with using(FaultyDisk()):
        run_fit(counts, path, SWEEPS)
    assert all_bits(path) == reference
    assert verify(path).sound
    shutil.rmtree(path)
    assert disk.struck or (fault == "ENOSPC" and not {"mkdir", "create", "write", "link"} & {*disk.names[at - 1 :]})
    assert not told or disk.struck
    return disk.struck > 0, bool(told)


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "lost"])
def test_an_error_at_any_operation_leaves_a_store_that_goes_on(
    fault: str, folder: Path, counts: Counts, reference: list[str]
) -> None:
    names = operations(lambda: run_fit(counts, folder / f"counted-{fault}.zarr", SWEEPS))
    for at in range(5, len(names) + 1, 2 * QUICK):
        struck, _ = check_error(counts, reference, folder / "failed.zarr", fault, at)
        assert struck or at > len(names) - 2 * QUICK


@pytest.mark.long
@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "lost"])
def test_long_errors_at_every_operation(fault: str, folder: Path, counts: Counts, reference: list[str]) -> None:
    names = operations(lambda: run_fit(counts, folder / f"counted-long-{fault}.zarr", SWEEPS))
    found = [check_error(counts, reference, folder / "e.zarr", fault, at) for at in range(1, len(names) + 1)]
    struck, told = (sum(column) for column in zip(*found, strict=True))
    print(f"\n{fault} at each of {len(names)} operations: {struck} struck, {told} told, all went on to the same bits")


def test_a_full_disk_is_seen_before_a_sweep(
    folder: Path, counts: Counts, reference: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "full.zarr"
    run_fit(counts, path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("pairsym_dask.store.local.LocalStorage.free", lambda self: 1000)
        with pytest.raises(StoreError, match=r"MiB free and a sweep needs .* MiB; free some space"):
            run_fit(counts, path, SWEEPS)
    run_fit(counts, path, SWEEPS)
    assert all_bits(path) == reference


# Negative control: the same harness against a writer that overwrites its arrays in place.


def naive_sweeps(path: Path, sweeps: int) -> None:
    """A loop with one mutable state, two files and a counter, as one would write it first."""
    path.mkdir(exist_ok=True)
    counter = path / "sweep"
    done = int(counter.read_text() or 0) if counter.exists() else 0
    state = [(path / name).read_bytes() if done else b"\0" * 400 for name in ("users", "items")]
    from pairsym_dask.store import local

    def overwrite(target: Path, data: bytes) -> None:
        target.unlink(missing_ok=True)
        descriptor = local.disk.create(target)
        local.disk.write(descriptor, memoryview(data))
        os.close(descriptor)

    for sweep in range(done + 1, sweeps + 1):
        state[0] = bytes((a + b + 1) % 256 for a, b in zip(*state, strict=True))
        overwrite(path / "users", state[0])
        state[1] = bytes((2 * a + b + 1) % 256 for a, b in zip(*state, strict=True))
        overwrite(path / "items", state[1])
        overwrite(counter, str(sweep).encode())


@pytest.mark.slow
def test_the_harness_finds_losses_of_a_naive_writer(folder: Path) -> None:
    naive_sweeps(folder / "good", 3)
    wanted = [(folder / "good" / name).read_bytes() for name in ("users", "items")]
    cases = 0
    wrong = 0
    for fault in ("before", "torn", "after"):
        for at in range(1, 19):

            def work(fault: str = fault, at: int = at) -> None:
                with using(FaultyDisk(fault, at)):
                    naive_sweeps(folder / "naive", 3)

            assert in_child(work) == -9
            cases += 1
            try:
                naive_sweeps(folder / "naive", 3)
                wrong += [(folder / "naive" / name).read_bytes() for name in ("users", "items")] != wanted
            except (OSError, ValueError):
                wrong += 1
            shutil.rmtree(folder / "naive")
    print(f"\nnaive writer: {wrong} of {cases} kills ended in lost or wrong state")
    assert wrong > cases / 3
