"""What durability costs: sweeps with fsync and digests on and off, in turn, within one fit.

python workflows/benchmark_durability.py [scale] [sweeps]
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import pairsym_dask as ps
from pairsym_dask.store import arrays, disk, local, storage

OFF = "0" * 32  # a digest that nothing has


class NoSync(disk.Disk):
    def fsync(self, descriptor: int) -> None:
        pass

    def fsync_folder(self, path: Path) -> None:
        pass


class Switch:
    """Turns fsyncs and digests of chunks on and off."""

    def __init__(self) -> None:
        self.on = True
        arrays.write = self.write
        arrays.Sealed.read_bytes = lambda sealed, key: self.read(sealed, key)  # type: ignore[method-assign]

    def write(self, store: storage.Storage, key: str, data: Any, soon: bool = False) -> tuple[str, int, str]:
        (store.write_soon if soon else store.write)(key, data)
        return key, memoryview(data).nbytes, storage.digest(data) if self.on else OFF

    def read(self, sealed: arrays.Sealed, key: str) -> bytes:
        data = sealed.storage.read(f"{sealed.prefix}/{key}" if sealed.prefix else key)
        if self.on and storage.digest(data) != sealed.manifest[key][1] != OFF:
            raise AssertionError(key)
        return data

    def turn(self) -> None:
        self.on = not self.on
        local.disk = disk.Disk() if self.on else NoSync()


def main(scale: float = 0.1, sweeps: int = 24) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pairsym-durability-", dir="."))
    try:
        counts = ps.simulate(folder / "counts.zarr", preset="xbox-movies", scale=scale)
        switch = Switch()
        seconds: dict[bool, list[float]] = {True: [], False: []}

        def after(sweep: int, bound: float, took: float) -> None:
            if sweep > 2:  # the first ones compile and fill the shelves
                seconds[switch.on].append(took)
            switch.turn()

        load = os.getloadavg()[0]
        model = ps.PairedSymbols(factors=20, selection="constant")  # small and quick sweeps: writing weighs most there
        model.fit(counts, folder / "model.zarr", sweeps=sweeps, callback=after, progress=False)
        on, off = (statistics.median(seconds[which]) for which in (True, False))
        print(f"{counts!r}, load average {load:.1f} before the fit")
        print(f"on  {[round(s, 2) for s in seconds[True]]}\noff {[round(s, 2) for s in seconds[False]]}")
        # Neighbours in time meet the same load of the machine.
        ratio = statistics.median(a / b for a, b in zip(seconds[True], seconds[False], strict=False))
        print(f"median sweep {on:.3f} s with durability, {off:.3f} s without ({100 * (on / off - 1):+.1f} %)")
        print(f"median ratio of neighbouring sweeps {100 * (ratio - 1):+.1f} %")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((float, int), sys.argv[1:], strict=False)))
