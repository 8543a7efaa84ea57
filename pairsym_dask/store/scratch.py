"""Scratch: arrays that the writer of a store puts aside between steps, beside the store, where every worker sees them.

Scratch needs no fsync and no digest: it never outlives the run that wrote it. Only the driver makes its folders,
so that a task left over from a dead run fails instead of bringing a removed folder back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ours import Names
from .storage import Storage

STEP = "[a-z]+"  # name of a step's folder
NAMES: Names = {"[a-z0-9-]+": None}  # of the files of a step
FOLDERS: Names = {r"scratch-[0-9a-f]+": {STEP: NAMES}}


@dataclass(frozen=True, slots=True)
class Stored:
    """A one-dimensional array in a scratch file, or a slice of one; small enough to travel."""

    key: str
    offset: int  # bytes
    dtype: str
    size: int

    def __getitem__(self, part: slice) -> Stored:
        """A slice, without reading anything.

        >>> Stored("a", 8, "uint32", 10)[2:5]
        Stored(key='a', offset=16, dtype='uint32', size=3)
        """
        start, stop, step = part.indices(self.size)
        assert step == 1
        width = np.dtype(self.dtype).itemsize
        return Stored(self.key, self.offset + start * width, self.dtype, max(0, stop - start))


@dataclass(frozen=True)
class Scratch:
    """The scratch folder of one run."""

    storage: Storage
    name: str

    def make(self, step: str) -> None:
        """Make the folder of a step; for the driver only."""
        self.storage.make_folder(f"{self.name}/{step}")

    def remove(self, step: str = "") -> None:
        """Remove what a step has left, or all steps."""
        self.storage.remove_ours(f"{self.name}/{step}" if step else self.name, NAMES if step else {STEP: NAMES})

    def write(self, key: str, *arrays: np.ndarray) -> tuple[Stored, ...]:
        """Put arrays under one key; running a task twice leaves the same bytes."""
        parts, offset = [], 0
        for array in arrays:
            parts.append(Stored(key, offset, array.dtype.name, array.size))
            offset += array.nbytes
        self.storage.put_aside(f"{self.name}/{key}", *(np.ascontiguousarray(array).data for array in arrays))
        return tuple(parts)

    def flag(self, key: str) -> None:
        """Raise a flag that other tasks can see."""
        self.write(key, np.zeros(1, np.uint8))

    def flagged(self, key: str) -> bool:
        return self.storage.exists(f"{self.name}/{key}")

    def read(self, stored: Stored) -> np.ndarray:
        """The array's values."""
        values = np.empty(stored.size, stored.dtype)
        if stored.size:
            self.storage.read_into(f"{self.name}/{stored.key}", stored.offset, values.view(np.uint8).data)
        return values
