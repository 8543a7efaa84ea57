"""Labels of one side of a counts store: in order, read a chunk at a time, so that a billion of them need megabytes.

Where there are several chunks the store keeps the first and the last label of each in an array of its own,
`<side>/label_ends`; stores of earlier versions have none, and what is needed of it is found by halving.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import DamagedStoreError
from .arrays import STRING, ArraySpec, Sealed

KEPT = 64 * 2**20  # bytes of chunks that stay decoded
FEW = 64  # labels of a chunk that are found by halving, more by hash


class Labels:
    """Labels of one side; what has been read of them stays, within limits."""

    def __init__(self, sealed: Sealed, spec: ArraySpec, ends: ArraySpec) -> None:
        self.sealed, self.spec, self.ends = sealed, spec, ends
        self.text = spec.dtype == STRING
        self.dtype = np.dtype(object if self.text else np.int64)
        self._forget()

    def _forget(self) -> None:
        self._kept: OrderedDict[int, pa.Array] = OrderedDict()
        self._bytes = 0
        self._known: dict[int, tuple[Any, Any]] = {}  # first and last label of chunks
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Labels travel without what has been read of them."""
        return {name: self.__dict__[name] for name in ("sealed", "spec", "ends", "text", "dtype")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __len__(self) -> int:
        return self.spec.shape[0]

    @property
    def step(self) -> int:
        """Labels a chunk."""
        return self.spec.chunks[0]

    def __getitem__(self, part: slice) -> np.ndarray:
        """Labels of a range of rows, reading only their chunks."""
        return _numpy(self.arrow(*part.indices(len(self))[:2]))

    def arrow(self, first: int, stop: int) -> pa.Array:
        """The same in arrow's form."""
        parts = [pa.array([], pa.large_string() if self.text else pa.int64())]
        for k in range(first // self.step, -(-max(first, stop) // self.step)):
            start = max(first - k * self.step, 0)
            parts.append(self.chunk(k)[start : stop - k * self.step])
        return pa.concat_arrays(parts)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Labels of rows, in the given order."""
        rows = np.asarray(rows, np.int64)
        out = np.empty(rows.shape, self.dtype)
        chunk = rows // self.step
        for k in np.unique(chunk).tolist():
            here = chunk == k
            out[here] = _numpy(self.chunk(k).take(pa.array(rows[here] - k * self.step)))
        return out

    def find(self, labels: np.ndarray | pa.Array) -> np.ndarray:
        """Row numbers of labels, -1 for unknown ones; what can be no label at all is a TypeError."""
        out = np.full(len(labels), -1, np.int64)
        if isinstance(labels, pa.Array) and pa.types.is_integer(labels.type) != self.text:
            places, wanted = np.arange(len(labels)), labels
        else:
            places, wanted = _texts(labels) if self.text else _wholes(labels)
        if self.spec.count > 1:  # labels of a chunk together, chunk after chunk
            order = pc.array_sort_indices(wanted)
            places, wanted = places[order.to_numpy()], wanted.take(order)
        at = 0
        while at < len(wanted):
            k, stop = 0, len(wanted)
            if self.spec.count > 1:
                k = bisect_left(range(self.spec.count), wanted[at].as_py(), key=self._last)
                if k == self.spec.count:
                    break
                stop = bisect_right(wanted, self._last(k), at, key=_as_py)
            found = _find_sorted(self.chunk(k), wanted[at:stop])
            out[places[at:stop]] = np.where(found < 0, -1, k * self.step + found)
            at = stop
        return out

    def chunks(self) -> Iterator[pa.Array]:
        """All labels, chunk by chunk; that they rise from chunk to chunk is seen to."""
        before = None
        for k in range(self.spec.count):
            chunk = self.chunk(k)
            if before is not None and chunk[0].as_py() <= before:
                raise DamagedStoreError(
                    f"labels of {self.sealed.where(self.spec.path)} do not rise from chunk to chunk"
                )
            before = chunk[-1].as_py()
            yield chunk

    def chunk(self, k: int) -> pa.Array:
        """One chunk, checked against its digest, that its labels rise, and that the ends are its own."""
        with self._lock:
            if k in self._kept:
                self._kept.move_to_end(k)
                return self._kept[k]
        chunk = pa.array(self.sealed.read_block(self.spec, k), pa.large_string() if self.text else pa.int64())
        ends = chunk[0].as_py(), chunk[-1].as_py()
        if self._ends is not None and self._ends[k] != ends:
            raise DamagedStoreError(
                f"{self.sealed.where(self.ends.path)} has other ends of {self.spec.key(k)} than the chunk has"
            )
        with self._lock:
            self._known[k] = ends
            if k not in self._kept:
                self._kept[k] = chunk
                self._bytes += chunk.nbytes
            while self._bytes > KEPT and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return chunk

    def _last(self, k: int) -> Any:
        """The last label of a chunk."""
        if self._ends is not None:
            return self._ends[k][1]
        if k not in self._known:
            self.chunk(k)
        return self._known[k][1]

    @cached_property
    def _ends(self) -> list[tuple[Any, Any]] | None:
        """First and last label of every chunk, where the store has them."""
        if self.ends.key(0, 0) not in self.sealed.manifest:
            return None
        found = [(first, last) for first, last in self.sealed.read_block(self.ends, 0, 0).tolist()]
        last = None
        for first, after in found:
            if first > after or (last is not None and first <= last):
                raise DamagedStoreError(f"labels of {self.sealed.where(self.ends.path)} do not rise")
            last = after
        return found


def all_whole(labels: Any) -> bool:
    """Whether a label, or every one of some, is a whole number."""
    values = [labels] if np.isscalar(labels) else labels
    return all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values)


def place_of(labels: pa.Array, label: Any) -> int:
    """Where a label stands among labels in order, or would stand."""
    return bisect_left(labels, label, key=_as_py)


def _as_py(value: pa.Scalar) -> Any:
    return value.as_py()


def _numpy(labels: pa.Array) -> np.ndarray:
    return np.asarray(labels.to_numpy(zero_copy_only=False))


def _texts(labels: Any) -> tuple[np.ndarray, pa.Array]:
    """Places and values of those labels that are text."""
    values = np.asarray(labels, object)
    mine = np.fromiter((isinstance(value, str) for value in values), bool, values.size)
    for value in values[~mine]:
        hash(value)  # containers are no labels
    return np.flatnonzero(mine), pa.array(values[mine], pa.large_string())


def _wholes(labels: Any) -> tuple[np.ndarray, pa.Array]:
    """Places and values of those labels that are whole numbers of 64 bits, 3.0 among them and True not."""
    values = np.asarray(labels)
    if values.dtype.kind == "i":
        return np.arange(values.size), pa.array(values.astype(np.int64, copy=False))
    places, wholes = [], []
    for place, value in enumerate(values.tolist() if values.dtype.kind != "O" else values):
        hash(value)
        if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
            whole = int(value) if np.isfinite(float(value)) else 2**63
            if whole == value and -(2**63) <= whole < 2**63:
                places.append(place)
                wholes.append(whole)
    return np.array(places, np.int64), pa.array(wholes, pa.int64())


def _find_sorted(chunk: pa.Array, wanted: pa.Array) -> np.ndarray:
    """Places of labels in a chunk, -1 for those that are not there."""
    if pa.types.is_integer(chunk.type):
        values, numbers = chunk.to_numpy(), wanted.to_numpy()
        at = np.minimum(np.searchsorted(values, numbers), values.size - 1)
        return np.where(values[at] == numbers, at, -1)
    if len(wanted) > FEW:
        return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=chunk), -1).to_numpy()).astype(np.int64)
    found = np.empty(len(wanted), np.int64)
    for n, label in enumerate(wanted.to_pylist()):
        at = place_of(chunk, label)
        found[n] = at if at < len(chunk) and chunk[at].as_py() == label else -1
    return found
