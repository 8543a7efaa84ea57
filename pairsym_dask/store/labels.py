"""Labels of one side of a counts store: in order, read a chunk at a time, so that a billion of them need megabytes.

Where there are several chunks the store keeps the first and the last label of each in an array of its own,
`<side>/label_ends`; stores of earlier versions have none, and what is needed of it is found by halving.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
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
FEW = 2_048  # labels of a chunk that are found by halving, more by hash


class Labels:
    """Labels of one side; what has been read of them stays, within limits."""

    def __init__(self, sealed: Sealed, spec: ArraySpec, ends: ArraySpec) -> None:
        self.sealed, self.spec, self.ends = sealed, spec, ends
        self.text = spec.dtype == STRING
        self.dtype = np.dtype(object if self.text else np.int64)
        self._forget()

    def _forget(self) -> None:
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self._bytes = 0
        self._lasts: dict[int, Any] = {}  # of chunks that were read
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
        first, stop, _ = part.indices(len(self))
        parts = [np.empty(0, self.dtype)]
        for k in range(first // self.step, -(-max(first, stop) // self.step)):
            parts.append(self.chunk(k)[max(first - k * self.step, 0) : stop - k * self.step])
        return np.concatenate(parts)

    def arrow(self, first: int, stop: int) -> pa.Array:
        """The same in arrow's form."""
        return arrow_labels(self[first:stop])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Labels of rows, in the given order."""
        rows = np.asarray(rows, np.int64)
        if self.spec.count == 1:
            return self.chunk(0)[rows]
        out = np.empty(rows.size, self.dtype)
        for k, here in _by_chunk(rows // self.step):
            out[here] = self.chunk(k)[rows[here] - k * self.step]
        return out

    def find(self, labels: np.ndarray) -> np.ndarray:
        """Row numbers of labels, -1 for unknown ones; what can be no label at all is a TypeError."""
        out = np.full(len(labels), -1, np.int64)
        places, wanted = _texts(labels) if self.text else _wholes(labels)
        for k, here in _by_chunk(self._chunks_of(wanted)):
            if k < self.spec.count:
                found = _find_sorted(self.chunk(k), wanted[here])
                out[places[here]] = np.where(found < 0, -1, k * self.step + found)
        return out

    def _chunks_of(self, wanted: np.ndarray) -> np.ndarray:
        """The chunk that each label is in if it is anywhere; those above all labels are beyond the last."""
        if self.spec.count == 1:
            return np.zeros(wanted.size, np.int64)
        if self._ends is not None:
            return np.searchsorted(self._ends[:, 1], wanted)
        chunks = range(self.spec.count)
        return np.array([bisect_left(chunks, label, key=self._last) for label in wanted.tolist()], np.int64)

    def chunks(self) -> Iterator[np.ndarray]:
        """All labels, chunk by chunk; that they rise from chunk to chunk is seen to."""
        before = None
        for k in range(self.spec.count):
            chunk = self.chunk(k)
            if before is not None and chunk[0] <= before:
                raise DamagedStoreError(
                    f"labels of {self.sealed.where(self.spec.path)} do not rise from chunk to chunk"
                )
            before = chunk[-1]
            yield chunk

    def chunk(self, k: int) -> np.ndarray:
        """One chunk, checked against its digest, that its labels rise, and that the ends are its own."""
        with self._lock:
            if k in self._kept:
                self._kept.move_to_end(k)
                return self._kept[k]
        chunk = self.sealed.read_block(self.spec, k)
        if self._ends is not None and self._ends[k].tolist() != chunk[[0, -1]].tolist():
            raise DamagedStoreError(
                f"{self.sealed.where(self.ends.path)} has other ends of {self.spec.key(k)} than the chunk has"
            )
        with self._lock:
            self._lasts[k] = chunk[-1]
            if k not in self._kept:
                self._kept[k] = chunk
                self._bytes += _size(chunk)
            while self._bytes > KEPT and len(self._kept) > 1:
                self._bytes -= _size(self._kept.popitem(last=False)[1])
        return chunk

    def _last(self, k: int) -> Any:
        """The last label of a chunk, of a store that does not keep the ends."""
        if k not in self._lasts:
            self.chunk(k)
        return self._lasts[k]

    @cached_property
    def _ends(self) -> np.ndarray | None:
        """First and last label of every chunk, where the store has them."""
        if self.ends.key(0, 0) not in self.sealed.manifest:
            return None
        found = self.sealed.read_block(self.ends, 0, 0)
        if not ((found[:, 0] <= found[:, 1]).all() and (found[1:, 0] > found[:-1, 1]).all()):
            raise DamagedStoreError(f"labels of {self.sealed.where(self.ends.path)} do not rise")
        return found


def arrow_labels(labels: np.ndarray) -> pa.Array:
    """Labels in arrow's form."""
    return pa.array(labels, pa.large_string() if labels.dtype == object else pa.int64())


def _size(chunk: np.ndarray) -> int:
    """Bytes that a chunk takes, those of its strings included."""
    return chunk.nbytes + (sum(map(len, chunk)) + 57 * chunk.size if chunk.dtype == object else 0)


def _by_chunk(chunks: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Each chunk that is named, in order, and where."""
    if not chunks.size or (chunks == chunks[0]).all():
        yield from [(int(k), slice(None)) for k in chunks[:1]]
        return
    order = np.argsort(chunks, kind="stable")
    starts = np.flatnonzero(np.diff(chunks[order], prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), order.size], strict=True):
        yield int(chunks[order[start]]), order[start:stop]


def all_whole(labels: Any) -> bool:
    """Whether a label, or every one of some, is a whole number."""
    values = [labels] if np.isscalar(labels) else labels
    return all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values)


def place_of(labels: pa.Array, label: Any) -> int:
    """Where a label stands among labels in order, or would stand."""
    return bisect_left(labels, label, key=_as_py)


def _as_py(value: pa.Scalar) -> Any:
    return value.as_py()


def _texts(labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of those labels that are text."""
    values = np.asarray(labels, object)
    mine = np.fromiter((isinstance(value, str) for value in values), bool, values.size)
    for value in values[~mine]:
        hash(value)  # containers are no labels
    for value in values[mine]:
        value.encode()  # nor are halves of surrogate pairs
    return np.flatnonzero(mine), values[mine]


def _wholes(labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of those labels that are whole numbers of 64 bits, 3.0 among them and True not."""
    values = np.asarray(labels)
    if values.dtype.kind == "i":
        return np.arange(values.size), values.astype(np.int64, copy=False)
    places, wholes = [], []
    for place, value in enumerate(values.tolist() if values.dtype.kind != "O" else values):
        hash(value)
        if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
            whole = int(value) if np.isfinite(float(value)) else 2**63
            if whole == value and -(2**63) <= whole < 2**63:
                places.append(place)
                wholes.append(whole)
    return np.array(places, np.int64), np.array(wholes, np.int64)


def _find_sorted(chunk: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Places of labels in a chunk, -1 for those that are not there."""
    if chunk.dtype == object and wanted.size > FEW:
        return np.asarray(pc.fill_null(pc.index_in(arrow_labels(wanted), arrow_labels(chunk)), -1).to_numpy())
    at = np.minimum(np.searchsorted(chunk, wanted), chunk.size - 1)
    return np.where(chunk[at] == wanted, at, -1)
