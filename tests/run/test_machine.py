"""Arrays that processes of one machine share: made once, gone with their processes, never waited for in vain."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairsym_dask.run import machine
from pairsym_dask.run.machine import forget_notes, on_this_machine

if not hasattr(os, "memfd_create"):
    pytest.skip("this system has no memory without a name", allow_module_level=True)

SIZE = 10_000
CHILD = """
import sys, numpy as np
from pairsym_dask.run.machine import on_this_machine
def fill(array):
    print("filling", flush=True)
    if sys.argv[2] == "stay":
        sys.stdin.readline()
    array[:] = np.arange(array.size)
array = on_this_machine(sys.argv[1], 10_000, "float32", fill)
print("none" if array is None else int(array.sum()), flush=True)
if sys.argv[2] == "spoil":
    array[:] = 0
sys.stdin.readline()
"""


class Neighbour:
    """Another process that asks for an array, and has it until it is told to go."""

    def __init__(self, name: str, way: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, name, way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        if how == signal.SIGKILL:
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                pipe.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes of these tests alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Path(machine.notes())


@pytest.fixture
def neighbour() -> Iterator[Any]:
    made: list[Neighbour] = []

    def make(*arguments: str) -> Neighbour:
        made.append(Neighbour(*arguments))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.end()


def fill(array: np.ndarray) -> None:
    array[:] = np.arange(array.size)


def refuse(array: np.ndarray) -> None:
    raise AssertionError("it is there already")


TOTAL = str(int(np.arange(SIZE, dtype="float32").sum()))


def test_an_array_is_made_once_and_seen_by_all(folder: Path, neighbour: Any) -> None:
    other = neighbour("a", "spoil")
    assert (other.says(), other.says()) == ("filling", TOTAL)
    array = on_this_machine("a", SIZE, "float32", refuse)
    assert array is not None
    assert np.array_equal(array, np.arange(SIZE))  # the other one has written zeros since, to a copy of its own
    array[0] = 7
    again = on_this_machine("a", SIZE, "float32", refuse)
    assert again is not None
    assert again[0] == 0
    other.end()
    assert array[1] == 1  # it lives on without its maker
    del array, again
    forget_notes()
    assert list(folder.iterdir()) == []


def test_a_maker_does_not_wait_for_its_own_note(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(machine.time, "sleep", slept.append)
    arrays = [on_this_machine(name, SIZE, "float32", fill) for name in "ab"]
    assert all(array is not None for array in arrays)
    assert slept == []
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_somebody_who_looks_at_an_array_while_it_is_made_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As dask's profiler does; somebody who does not let go costs the sharing, not the task."""
    held: list[np.ndarray] = []

    def look(array: np.ndarray) -> None:
        fill(array)
        held.append(array)

    with monkeypatch.context() as patch:
        patch.setattr(machine.time, "sleep", lambda _: held.clear())
        array = on_this_machine("a", SIZE, "float32", look)
    assert array is not None
    assert np.array_equal(array, np.arange(SIZE))
    assert on_this_machine("b", SIZE, "float32", look) is None
    assert np.array_equal(held[0], np.arange(SIZE))


def test_arrays_of_other_names_and_sizes_are_others(neighbour: Any) -> None:
    other = neighbour("a")
    assert (other.says(), other.says()) == ("filling", TOTAL)
    for name, size in (("b", SIZE), ("a", SIZE + 1)):
        filled: list[int] = []
        assert (
            on_this_machine(name, size, "float32", lambda array, filled=filled: filled.append(array.size)) is not None
        )
        assert filled == [size]


def test_a_maker_killed_in_the_middle_leaves_nothing_half_made(folder: Path, neighbour: Any) -> None:
    other = neighbour("a", "stay")
    assert other.says() == "filling"
    waiting = neighbour("a")
    other.end()
    assert (waiting.says(), waiting.says()) == ("filling", TOTAL)
    waiting.end()
    assert [path.stat().st_size for path in folder.iterdir()] == [64]  # the note of a process that could not remove it
    array = on_this_machine("b", SIZE, "float32", fill)
    assert [path.name for path in folder.iterdir()] == ["b"]
    del array
    forget_notes()
    assert list(folder.iterdir()) == []


def test_a_maker_that_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, neighbour: Any) -> None:
    monkeypatch.setattr(machine, "WAIT_SECONDS", 0.05)
    other = neighbour("a", "stay")
    assert other.says() == "filling"
    other.end(signal.SIGSTOP)
    assert on_this_machine("a", SIZE, "float32", refuse) is None


def test_nothing_is_left_open(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        array = on_this_machine("a", SIZE, "float32", fill)
        assert array is not None
        del array
    assert len(os.listdir("/proc/self/fd")) == before

    def fail(array: np.ndarray) -> None:
        raise KeyError("a block that cannot be read")

    with pytest.raises(KeyError):
        on_this_machine("a", SIZE, "float32", fail)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_others_may_enter_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    assert on_this_machine("a", SIZE, "float32", refuse) is None
    folder.rmdir()
    (folder.parent / "mine").mkdir(0o700)
    folder.symlink_to(folder.parent / "mine")
    assert on_this_machine("a", SIZE, "float32", refuse) is None
    folder.unlink()
    folder.write_text("a file")
    assert on_this_machine("a", SIZE, "float32", refuse) is None


def test_a_note_that_leads_elsewhere_is_not_followed(folder: Path) -> None:
    with tempfile.TemporaryFile() as stranger:
        stranger.write(bytes(4 * SIZE))
        stranger.flush()
        folder.mkdir(0o700)
        (folder / "a").write_text(f"{os.getpid()} {stranger.fileno()}")
        array = on_this_machine("a", SIZE, "float32", fill)
        assert array is not None
        assert array[1] == 1


def test_want_of_room_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        assert on_this_machine("a", SIZE, "float32", refuse) is None
    monkeypatch.setattr(os, "pwrite", full)  # no room for a note: an array that no neighbour finds
    array = on_this_machine("a", SIZE, "float32", fill)
    assert array is not None
    assert on_this_machine("a", SIZE, "float32", lambda array: None) is not array


def test_a_stranger_among_the_notes_stays() -> None:
    folder = Path(machine.notes())
    stranger, stale = folder / "thesis.txt", folder / "stale"
    folder.mkdir(mode=0o700, exist_ok=True)
    stranger.write_text("nine years of work")
    stale.write_text("999999999 7".ljust(64))
    forget_notes()
    assert stranger.read_text() == "nine years of work"
    assert not stale.exists()
    stranger.unlink()
