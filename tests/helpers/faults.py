"""Tools for fault tests: tiny stores, a counted disk that fails at the n-th call, damage, a disk that forgets."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import scipy.sparse

from pairsym_dask.errors import StoreError
from pairsym_dask.settings import SIDES, Settings
from pairsym_dask.store import local, lock, shards, writers
from pairsym_dask.store.commit import Commit
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.counts_writer import begin, finish, write_labels, write_marginal, write_tile
from pairsym_dask.store.cuts import Layout, Tile
from pairsym_dask.store.disk import Disk
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.storage import digest
from pairsym_dask.sweep.fit import fit

SETTINGS = Settings(factors=2)


def write_counts(
    dense: Any, path: Any, labels: dict[str, Any] | None = None, storage_options: dict[str, Any] | None = None
) -> Counts:
    """A counts store of a small matrix."""
    matrix = scipy.sparse.csr_matrix(dense)
    storage = begin(path, storage_options)
    layout = Layout(*matrix.shape, int(matrix.nnz), "uint16")
    entries: list[Any] = []
    pairs: dict[str, list[int]] = {}
    for side in SIDES:
        rows = (matrix if side == "users" else matrix.T).tocsr()
        cut = layout.cuts[side]
        pairs[side] = [0] * cut.tiles
        for block in range(cut.blocks):
            first, stop = cut.row_range(block)
            for group in range(cut.groups):
                start, end = cut.column_range(group)
                part = rows[first:stop, start:end].tocsr()
                part.sort_indices()
                tile = Tile(part.indptr.astype(np.int64), (part.indices + start).astype(np.uint32), part.data)
                pairs[side][cut.tile(block, group)] = int(part.nnz)
                entries += write_tile(storage, layout, side, block, group, tile)
    labels = labels or {"users": np.arange(matrix.shape[0]), "items": np.arange(matrix.shape[1])}
    for side, sums in (("users", matrix.sum(1)), ("items", matrix.sum(0))):
        for block in range(layout.cuts[side].blocks):
            part = np.asarray(sums, np.float64).ravel()[slice(*layout.cuts[side].row_range(block))]
            entries.append(write_marginal(storage, layout, side, block, part))
    written = {side: write_labels(storage, layout, side, labels[side]) for side in SIDES}
    return finish(storage, layout, pairs, float(matrix.sum()), written, entries, "a test")


def tiny_counts(path: Any, users: int = 150, items: int = 11, seed: int = 0, **options: Any) -> Counts:
    dense = np.random.default_rng(seed).poisson(0.3, (users, items)).astype(np.uint16)
    dense[0, :] = 1
    dense[:, 0] = 1
    return write_counts(dense, path, **options)


def run_fit(counts: Counts, path: Any, sweeps: int = 2, **options: Any) -> Commit:
    """A small fit, tasks one after another in this thread."""
    settings = options.pop("settings", SETTINGS)
    storage_options = options.pop("storage_options", None)
    with dask.config.set(scheduler="synchronous"):
        return fit(counts, settings, ModelStore(path, storage_options), sweeps=sweeps, **options)


LAYOUTS = ("files", "shards")


@contextmanager
def new_stores_in(layout: str, least: int = 1) -> Iterator[None]:
    """Model stores that begin meanwhile on a local disk have a file a chunk, or shards, `least` of a side's."""
    with pytest.MonkeyPatch.context() as patch:
        if layout == "shards":
            patch.setattr(shards, "PLAIN_FILES", 0)
            patch.setattr(shards, "LEAST_SHARDS", least)
        yield


def bits(commit: Commit) -> str:
    """One digest of a committed state: every array and every scalar."""
    files = {key: value for key, value in commit.record["files"].items() if not key.endswith("zarr.json")}
    return digest(repr((sorted(files.items()), sorted(commit.record["scalars"].items()))).encode())


def chunk_bits(store: ModelStore) -> dict[str, str]:
    """Digests of the newest sweep's chunks as zarr would have them, in whatever layout they are, and of its scalars."""
    commit = store.commits()[-1]
    blocks = ((spec, k, commit.sealed.read_block(spec, *spec.index(k))) for spec, k in _blocks(commit))
    found = {spec.key(*spec.index(k)): digest(spec.encode(values)) for spec, k, values in blocks}
    return found | dict(commit.record["scalars"])


def _blocks(commit: Commit) -> list[tuple[Any, int]]:
    return [(spec, k) for spec in commit.arrays.values() for k in range(spec.grid[0])]


def all_bits(path: Any, storage_options: dict[str, Any] | None = None) -> list[str]:
    return [bits(commit) for commit in ModelStore(path, storage_options).commits()]


def race(
    counts: Counts, path: Any, sweeps: int, storage_options: dict[str, Any] | None = None
) -> tuple[list[list[int]], int]:
    """Two drivers that do not heed the lock; the sweeps that each has committed, and how many commits were refused."""
    refused = []
    won: list[list[int]] = [[], []]
    start = threading.Barrier(2)
    crashes: list[BaseException] = []

    def drive(n: int) -> None:
        start.wait()
        while True:
            try:
                run_fit(counts, path, sweeps, storage_options=storage_options, callback=lambda s, *_: won[n].append(s))
                return
            except StoreError as error:
                if "another fit has committed" in str(error):
                    refused.append(n)
                elif "removed since" not in str(error):
                    crashes.append(error)
                    return
            except BaseException as error:
                crashes.append(error)
                return

    threads = [threading.Thread(target=drive, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if crashes:
        raise crashes[0]
    return won, len(refused)


class FaultyDisk(Disk):
    """Counts the calls that change the disk, and does something at the n-th.

    `fault`: "before" and "after" kill the process around the call, "torn" in the middle of a write; "ENOSPC" and
    "EIO" raise, from then on for ENOSPC; "lost" does the call and raises; "" only counts.
    """

    def __init__(self, fault: str = "", at: int = 0, kill: Callable[[], None] | None = None) -> None:
        self.fault, self.at, self.count = fault, at, 0
        self.struck = 0  # calls that something was done to
        self.names: list[str] = []
        self.kill = kill or (lambda: os.kill(os.getpid(), signal.SIGKILL))

    def _call(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        self.count += 1
        self.names.append(name)
        hit = self.count == self.at
        full = (
            self.fault == "ENOSPC"
            and self.at
            and self.count >= self.at
            and name in ("mkdir", "create", "write", "link")
        )
        if full:
            self.struck += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not hit:
            return call(*arguments)
        self.struck += self.fault != "ENOSPC"
        if self.fault == "EIO":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.fault == "before":
            self.kill()
        if self.fault == "torn" and name == "write":
            descriptor, data = arguments
            os.write(descriptor, data[: len(data) // 2])
            self.kill()
        try:
            result = call(*arguments)
        except OSError:
            if self.fault in ("after", "torn"):
                self.kill()
            raise
        if self.fault == "lost":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.fault in ("after", "torn"):
            self.kill()
        return result


def _counted(name: str) -> Callable[..., Any]:
    def method(self: FaultyDisk, *arguments: Any) -> Any:
        return self._call(name, getattr(Disk, name).__get__(self), *arguments)

    return method


CALLS = ("mkdir", "create", "write", "fsync", "fsync_file", "fsync_folder", "replace", "link", "unlink", "rmdir")
for _name in CALLS:
    setattr(FaultyDisk, _name, _counted(_name))


@contextmanager
def using(disk: Disk) -> Iterator[Disk]:
    """Put another disk in place, with calls in a fixed order."""
    before = local.disk, writers.IN_TURN, lock.BEAT_SECONDS
    local.disk, writers.IN_TURN, lock.BEAT_SECONDS = disk, True, 1e6
    try:
        yield disk
    finally:
        local.disk, writers.IN_TURN, lock.BEAT_SECONDS = before


def in_child(work: Callable[[], Any]) -> int:
    """Run something in a forked process, where a kill is a kill; its exit status (negative: the signal)."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            if os.environ.get("FAULTS_TALK"):
                traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def operations(work: Callable[[], Any]) -> list[str]:
    """Names of the calls that some work makes, found in a child."""
    read, write = os.pipe()

    def count() -> None:
        with using(FaultyDisk()) as disk:
            work()
        os.write(write, ",".join(disk.names).encode())  # type: ignore[attr-defined]

    assert in_child(count) == 0
    os.close(write)
    with open(read) as file:
        return file.read().split(",")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=base, prefix="pairsym-faults-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def files_of(path: Any) -> list[Path]:
    return sorted(p for p in Path(path).rglob("*") if p.is_file())
