"""Compiled code that several processes keep in one folder is never another's, nor damaged, nor needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

KERNEL = """
from pairsym_dask.kernels.accelerate import compiled

@compiled
def halved(values):
    for k in range(values.size):
        values[k] = values[k] / 2
"""
# Numbers of one size, so that code of the other kind would run, and give other numbers.
CALL = """
import sys
import numpy as np
from kernel import halved

for kind in sys.argv[1:]:
    values = np.array([3, 5], kind)
    halved(values)
    print(kind, values.tolist(), sum(halved.stats.cache_hits.values()))
"""
# Before it keeps its code, a process waits for the other one, which has read by then what is there.
TOGETHER = """
import os, sys, time
from pairsym_dask.kernels.kept_code import KeptCode

keep, until = KeptCode._dump, time.monotonic() + 60

def wait_and_keep(self, what):
    open(f"here-{os.getpid()}", "w").close()
    while len([name for name in os.listdir() if name.startswith("here-")]) < 2:
        assert time.monotonic() < until, "the other process never came"
        time.sleep(0.001)
    return keep(self, what)

KeptCode._dump = wait_and_keep
"""
FULL = "import kernel, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
# Not a byte can be written, not even to see whether a folder takes files.
NO_ROOM = """
import kernel, errno, tempfile

def no_room(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")

tempfile.TemporaryFile = no_room
"""
NO_PLACE = NO_ROOM.replace("import kernel, ", "import ")  # from the beginning
# A file stands where the folder was by the time code is kept.
NO_FOLDER = """
import kernel, shutil
from pathlib import Path

shutil.rmtree("cache")
Path("cache").write_text("")
"""
# A numba whose parts have other names.
OTHER_NUMBA = """
import numba.core.caching as caching

begin = caching.Cache.__init__

def begin_otherwise(self, function):
    begin(self, function)
    self.file = self.__dict__.pop("_cache_file")

caching.Cache.__init__ = begin_otherwise
"""
RIGHT = {"int64": [1, 2], "float64": [1.5, 2.5]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a module of one kernel."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


def start(folder: Path, *kinds: str, first: str = "") -> subprocess.Popen[str]:
    """A process that calls the kernel with numbers of some kinds, after it has run what comes `first`."""
    package = Path(__file__).parents[2]
    places = {"PYTHONPATH": f"{package}{os.pathsep}{folder}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    environment = os.environ | places | {"NUMBA_DISABLE_JIT": "0"}
    command = [sys.executable, "-c", first + CALL, *kinds]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=folder, text=True, stdout=pipe, stderr=pipe)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process that ended well wrote."""
    try:
        out, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return out, errors


def hits(process: subprocess.Popen[str]) -> int:
    """How many of its kinds a process found compiled; the numbers are right."""
    out, _ = ended(process)
    found = 0
    for line in out.splitlines():
        kind, rest = line.split(" ", 1)
        numbers, found_so_far = rest.rsplit(" ", 1)
        assert numbers == str(RIGHT[kind])
        found = int(found_so_far)
    return found


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("*.nbc"))


def test_processes_that_compile_at_the_same_time_keep_both(folder: Path) -> None:
    both = [start(folder, kind, first=TOGETHER) for kind in RIGHT]
    assert [hits(process) for process in both] == [0, 0]
    assert len(files(folder)) == 2
    assert hits(start(folder, *RIGHT)) == 2


def test_code_of_other_types_and_damaged_code_is_compiled_again(folder: Path) -> None:
    assert hits(start(folder, *RIGHT)) == 0
    one, other = files(folder)
    sound = one.read_bytes()
    one.write_bytes(other.read_bytes())  # as if two names had been mixed up
    assert hits(start(folder, *RIGHT)) == 1
    assert sorted(len(path.read_bytes()) for path in files(folder)) == sorted([len(sound), len(other.read_bytes())])
    for spoiled in (b"", sound[:-1], sound[:1000] + bytes([sound[1000] ^ 1]) + sound[1001:]):
        one.write_bytes(spoiled)
        assert hits(start(folder, *RIGHT)) == 1
    assert hits(start(folder, *RIGHT)) == 2


@pytest.mark.parametrize("first", [FULL, NO_ROOM, NO_FOLDER], ids=["full", "no room", "no folder"])
def test_where_code_cannot_be_kept_it_is_compiled_again(first: str, folder: Path) -> None:
    pytest.importorskip("resource")
    for _ in range(2):
        assert hits(start(folder, *RIGHT, first=first)) == 0
        assert files(folder) == []
        assert list((folder / "cache").rglob("*.tmp.*")) == []
        if (folder / "cache").is_file():
            (folder / "cache").unlink()


@pytest.mark.parametrize("first", [OTHER_NUMBA, NO_PLACE], ids=["other numba", "no place"])
def test_where_no_code_can_be_kept_it_is_compiled_again_with_one_warning(first: str, folder: Path) -> None:
    for _ in range(2):
        out, errors = ended(start(folder, *RIGHT, first=first))
        assert [line.rsplit(" ", 1) for line in out.splitlines()] == [[f"{kind} {RIGHT[kind]}", "0"] for kind in RIGHT]
        assert errors.count("kernels are compiled anew in every process") == 1
    assert files(folder) == []
