"""Zarr arrays as chunks that one task owns whole: metadata by zarr, bytes by the zarr format, digests by us.

zarr-python reads a missing chunk as fill values, never calls fsync and keeps no digest of what it wrote, so
chunk bytes are written here, through `Storage`, in the encoding that the array's `zarr.json` declares; any
zarr reader opens the result. `Sealed` reads only what a manifest lists, and checks size and digest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from zarr.codecs import ZstdCodec
from zarr.storage import MemoryStore

from ..errors import DamagedStoreError, StoreError
from .storage import Storage, digest, join_keys

STRING = "string"
STRING_BYTES = 16_384  # of a label, on average over a large chunk, at most
STRING_ROOM = 2**26  # bytes that a chunk of strings may decode to however few they are
STRING_RATIO = 1024  # decoded bytes of strings beyond that for an encoded one, at most
ROUNDING = 1e-6  # of sums in other orders, relative, at most
OTHER_BYTES = 2**20  # of a listed file that is no chunk, at most, where no chunk is larger
Manifest = dict[str, tuple[int, str]]  # key -> size in bytes, digest


def _rise(values: np.ndarray) -> bool:
    return bool((values[1:] > values[:-1]).all())


# A comparison with NaN is false, and minimum and maximum hand NaN on.
DOMAINS: dict[str, Callable[[np.ndarray], bool]] = {
    "any": lambda values: True,
    "finite": lambda values: bool(values.min() > -np.inf and values.max() < np.inf),
    "above 0": lambda values: bool(values.min() > 0),
    "finite and above 0": lambda values: bool(values.min() > 0 and values.max() < np.inf),
    "finite and not below 0": lambda values: bool(values.min() >= 0 and values.max() < np.inf),
    "below infinity": lambda values: bool(values.max() < np.inf),
    "rising": _rise,
}


@dataclass(frozen=True)
class ArraySpec:
    """Shape, chunks and type of one array; `dtype` is a numpy name or "string"."""

    path: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    dimension_names: tuple[str, ...]
    compressed: bool = False
    domain: str = "any"  # what its values may be, a key of DOMAINS

    def key(self, *index: int) -> str:
        """Key of a chunk.

        >>> ArraySpec("users/mean", (10, 2), (4, 2), "float32", ("user", "factor")).key(2, 0)
        'users/mean/c.2.0'
        """
        return f"{self.path}/c.{'.'.join(map(str, index))}"

    def index(self, block: int) -> tuple[int, ...]:
        """Index of a chunk of an array that is cut into blocks of rows alone."""
        return block, *(0,) * (len(self.shape) - 1)

    def keys(self) -> list[str]:
        return [self.key(*index) for index in np.ndindex(*self.grid)]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True))

    @property
    def count(self) -> int:
        """Chunks of the array."""
        return math.prod(self.grid)

    def extent(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the part of a chunk that lies inside the array."""
        return tuple(min(c, n - c * k) for n, c, k in zip(self.shape, self.chunks, index, strict=True))

    def metadata(self) -> bytes:
        """The array's zarr.json, written by zarr itself."""
        return _array_metadata(self)

    def _metadata(self) -> bytes:
        store = MemoryStore()
        zarr.create_array(
            store,
            shape=self.shape,
            chunks=self.chunks,
            dtype=str if self.dtype == STRING else self.dtype,
            compressors=[ZstdCodec(level=1)] if self.compressed else None,
            filters=None,
            dimension_names=self.dimension_names,
            fill_value="" if self.dtype == STRING else 0,
            # Chunks of an array in one folder: every folder costs an fsync.
            chunk_key_encoding={"name": "default", "separator": "."},
        )
        return store._store_dict["zarr.json"].to_bytes()

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a decoded chunk; of strings the most that a chunk may hold."""
        count = math.prod(self.chunks)
        if self.dtype == STRING:
            return STRING_ROOM + count * STRING_BYTES
        return count * np.dtype(self.dtype).itemsize

    @property
    def file_bytes(self) -> int:
        """Bytes of an encoded chunk, at most: what does not compress grows a little."""
        return self.chunk_bytes + (self.chunk_bytes // 128 + 1024 if self.compressed else 0)

    def encode(self, block: np.ndarray) -> bytes | memoryview:
        """A chunk's bytes; blocks at the far edge are padded to the full chunk."""
        if block.shape != self.chunks:
            full = np.full(self.chunks, "", object) if self.dtype == STRING else np.zeros(self.chunks, self.dtype)
            full[tuple(map(slice, block.shape))] = block
            block = full
        if self.dtype == STRING:
            raw = VLenUTF8().encode(np.asarray(block, object))
        else:
            raw = np.ascontiguousarray(block, np.dtype(self.dtype).newbyteorder("<")).reshape(-1).view(np.uint8).data
        if not self.compressed:
            return raw
        data = bytes(Zstd(level=1).encode(raw))
        self._check_size(data)  # what is written can be read
        return data

    def decode(self, data: bytes, index: tuple[int, ...]) -> np.ndarray:
        """The part of a chunk that lies inside the array, its values within the array's domain."""
        if self.compressed:
            self._check_size(data)
        raw = Zstd().decode(data) if self.compressed else data
        if self.dtype == STRING:
            if raw[:4] != struct.pack("<I", math.prod(self.chunks)):
                raise ValueError("a chunk of another number of strings than its array's")
            block: np.ndarray = VLenUTF8().decode(raw).reshape(self.chunks)
        else:
            block = np.frombuffer(raw, np.dtype(self.dtype).newbyteorder("<")).reshape(self.chunks)
        extent = self.extent(index)
        block = block if extent == self.chunks else block[tuple(map(slice, extent))]
        if not DOMAINS[self.domain](block):
            raise ValueError(f"its values must be {self.domain}")
        return block

    def _check_size(self, data: bytes) -> None:
        """Refuse what would decode to another size than the chunk's, before it is decoded."""
        declared = _content_size(data)
        if self.dtype == STRING:
            sound = 0 <= declared <= min(self.chunk_bytes, STRING_ROOM + STRING_RATIO * len(data))
        else:
            sound = declared == self.chunk_bytes
        if not sound:
            raise ValueError("a chunk that declares another size than its array")


@lru_cache(256)
def _array_metadata(spec: ArraySpec) -> bytes:
    """The same for every generation of a fit, and zarr takes its time."""
    return spec._metadata()


def _content_size(data: bytes) -> int:
    """Decoded size that one zstd frame declares (RFC 8878, section 3.1.1), -1 when the bytes are anything else.

    More frames after the first one would decode to more than the first one declares.
    """
    if len(data) < 6 or data[:4] != b"\x28\xb5\x2f\xfd":
        return -1
    flag, single, checksum = data[4] >> 6, data[4] >> 5 & 1, data[4] >> 2 & 1
    start = 5 + (1 - single) + (0, 1, 2, 4)[data[4] & 3]
    width = (single, 2, 4, 8)[flag]
    field = data[start : start + width]
    end, last = start + width, 0
    while not last and end + 3 <= len(data):
        header = int.from_bytes(data[end : end + 3], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        end += 3 + (1 if kind == 1 else size)  # of kind 1 one byte is repeated
    if not width or not last or end + 4 * checksum != len(data):
        return -1
    return int.from_bytes(field, "little") + (256 if width == 2 else 0)


def group_metadata(attributes: dict[str, Any]) -> bytes:
    """A group's zarr.json."""
    store = MemoryStore()
    zarr.create_group(store, attributes=attributes)
    return store._store_dict["zarr.json"].to_bytes()


def write(storage: Storage, key: str, data: bytes | memoryview, soon: bool = False) -> tuple[str, int, str]:
    """Write bytes durably; key, size and digest for the manifest."""
    (storage.write_soon if soon else storage.write)(key, data)
    return key, memoryview(data).nbytes, digest(data)


def write_block(
    storage: Storage, prefix: str, spec: ArraySpec, index: tuple[int, ...], block: np.ndarray, soon: bool = False
) -> Any:
    """Write one chunk of an array that lives below `prefix`; its manifest entry, keyed relative to `prefix`.

    With `soon` the bytes are durable after the storage's next `settle`.
    """
    _, size, check = write(storage, join_keys(prefix, spec.key(*index)), spec.encode(block), soon)
    return spec.key(*index), size, check


def write_metadata(
    storage: Storage, prefix: str, specs: list[ArraySpec], attributes: dict[str, Any] | None = None
) -> Manifest:
    """Write zarr.json of the arrays, of the groups above them and of `prefix` itself; their manifest.

    Durable after the storage's next `settle`.
    """
    groups = {""} | {spec.path.rsplit("/", 1)[0] for spec in specs if "/" in spec.path}
    texts = {join_keys(group, "zarr.json"): group_metadata((attributes or {}) if not group else {}) for group in groups}
    texts.update({f"{spec.path}/zarr.json": spec.metadata() for spec in specs})
    manifest: Manifest = {}
    for key, text in sorted(texts.items()):
        _, size, check = write(storage, join_keys(prefix, key), text, soon=True)
        manifest[key] = (size, check)
    return manifest


@dataclass(frozen=True)
class Sealed:
    """Arrays below a prefix whose every byte is vouched for by a manifest."""

    storage: Storage
    prefix: str
    manifest: Manifest

    def where(self, key: str) -> str:
        return f"{self.storage.url}/{join_keys(self.prefix, key)}"

    def read_bytes(self, key: str) -> bytes:
        """Checked bytes of a key."""
        if key not in self.manifest:
            raise DamagedStoreError(f"{self.where(key)} is not in the store's manifest")
        size, check = self.manifest[key]
        try:
            data = self.storage.read(join_keys(self.prefix, key), limit=size + 1)
        except FileNotFoundError:
            raise self._missing(key) from None
        if len(data) != size:
            found = f"{len(data)} bytes" if len(data) < size else "more bytes"
            raise DamagedStoreError(f"{self.where(key)} has {found}, not {size}")
        if digest(data) != check:
            raise DamagedStoreError(f"{self.where(key)} does not hold the bytes that were written")
        return data

    def check_file(self, key: str, specs: Mapping[str, ArraySpec]) -> int:
        """Read a file against its digest, a chunk of a known array also for what its values may be; its bytes."""
        path, _, name = key.rpartition("/")
        if (spec := specs.get(path)) is not None and name.startswith("c."):
            index = tuple(map(int, name[2:].split(".")))
            if len(index) == len(spec.grid) and all(k < n for k, n in zip(index, spec.grid, strict=True)):
                self.read_block(spec, *index)
                return self.manifest[spec.key(*index)][0]
        return len(self.read_bytes(key))

    def holder(self, spec: ArraySpec, block: int) -> str:
        """Key of the file that holds a chunk of an array that is cut into blocks of rows."""
        return spec.key(*spec.index(block))

    def _missing(self, key: str) -> StoreError:
        if self.prefix and not self.storage.exists(join_keys(self.prefix, "zarr.json")):
            return StoreError(
                f"{self.storage.url}/{self.prefix} has been removed since it was opened: a fit has moved on; "
                "load the model again, or fit with keep= to keep sweeps"
            )
        return DamagedStoreError(f"{self.where(key)} is missing")

    def read_block(self, spec: ArraySpec, *index: int) -> np.ndarray:
        data = self.read_bytes(spec.key(*index))
        try:
            return spec.decode(data, index)
        except (ValueError, RuntimeError, UnicodeDecodeError) as error:
            raise DamagedStoreError(f"{self.where(spec.key(*index))} is not a chunk of its array: {error}") from None

    def read_next(self, spec: ArraySpec, block: int) -> np.ndarray:
        """A block of an array, by somebody who goes through blocks one after another."""
        return self.read_block(spec, *spec.index(block))

    def read_several(self, wanted: Sequence[tuple[ArraySpec, int]]) -> list[np.ndarray]:
        """Some chunks of arrays that are cut into blocks of rows, fetched together where that is quicker."""
        return [self.read_block(spec, *spec.index(block)) for spec, block in wanted]

    def holders(self, specs: Iterable[ArraySpec], blocks: Iterable[int]) -> Iterable[str]:
        """Keys that hold some blocks of arrays."""
        blocks = list(blocks)
        return [self.holder(spec, block) for spec in specs for block in blocks]

    def ask_block(self, spec: ArraySpec, *index: int) -> None:
        """Say that a block will be read soon."""
        self.storage.ask(join_keys(self.prefix, spec.key(*index)))

    def read_array(self, spec: ArraySpec) -> np.ndarray:
        """A whole (small) array."""
        out = np.empty(spec.shape, object if spec.dtype == STRING else spec.dtype)
        for index in np.ndindex(*spec.grid):
            out[tuple(slice(c * k, c * (k + 1)) for c, k in zip(spec.chunks, index, strict=True))] = self.read_block(
                spec, *index
            )
        return out

    def check_sizes(self) -> None:
        """See that every file is there with the right size, without reading any."""
        listing = self.storage.listing(self.prefix)
        for key, (size, _) in self.manifest.items():
            found = listing.get(join_keys(self.prefix, key))
            if found is None:
                raise self._missing(key)
            if found.size != size:
                raise DamagedStoreError(f"{self.where(key)} has {found.size} bytes, not {size}")

    def check_complete(self, keys: Iterable[tuple[ArraySpec, str]], count: int) -> None:
        """See that the manifest lists all `count` keys, which are those of all arrays, none larger than a chunk of its
        array can be.

        The count comes first, so that absurd shapes cost nothing.
        """
        if count > len(self.manifest):
            raise DamagedStoreError(
                f"the manifest of {self.where('')} lists {len(self.manifest)} files, but its arrays need {count}"
            )
        most = OTHER_BYTES
        for spec, key in keys:
            if key not in self.manifest:
                raise DamagedStoreError(f"the manifest of {self.where('')} lacks {key}")
            size, most = self.manifest[key][0], max(most, spec.file_bytes)
            if size > spec.file_bytes or (size < spec.file_bytes and not spec.compressed):
                raise DamagedStoreError(f"{self.where(key)} has {size} bytes, which its array's chunks cannot have")
        self.check_others(self.manifest, most)

    def check_others(self, files: Manifest, most: int) -> None:
        """See that whatever else is listed takes no more memory to read than the arrays' files do."""
        for key, (size, _) in files.items():
            if size > most:
                raise DamagedStoreError(
                    f"{self.where(key)} has {size} bytes; a file that is no chunk has {most} at most"
                )


def read_sums(sealed: Sealed, spec: ArraySpec, total: float) -> np.ndarray:
    """A whole array of sums of parts, none below 0, which together are the total but for rounding."""
    sums = sealed.read_array(spec)
    with np.errstate(over="ignore"):
        whole = float(sums.sum())
    if not abs(whole - total) <= ROUNDING * total:
        raise DamagedStoreError(f"{sealed.where(spec.path)} sums to {whole}, but the store's total is {total}")
    return sums
