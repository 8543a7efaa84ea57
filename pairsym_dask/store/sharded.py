"""Chunks that are written into shards and read from them; `shards` says where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import DamagedStoreError, StoreError
from .arrays import OTHER_BYTES, ArraySpec, Manifest, Sealed, write, write_block
from .fields import MANIFEST, Fields
from .records import canonical, check_record_size, parse
from .shards import DIGEST, Group, Shards, group_name
from .storage import Storage, digest, join_keys

AT_ONCE = 2**25  # bytes that are fetched together, where several chunks are wanted


class Output:
    """What one task has made of its shards so far: a task owns whole shards, and writes each as soon as it is full."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[bytearray, dict[int, bytes]]] = {}

    def put(
        self, storage: Storage, folder: str, shards: Shards | None, spec: ArraySpec, block: int, values: np.ndarray
    ) -> list[Any]:
        """Write a chunk, or keep it until its shard is full; manifest entries of what was written."""
        if shards is None:
            return [write_block(storage, folder, spec, spec.index(block), values, soon=True)]
        group, number = shards.find(spec.path, block)
        key, body = group.key(number), group.body_bytes(number)
        if key not in self._open:
            self._open[key] = bytearray(group.size(number)), {}
        data, digests = self._open[key]
        offset, size, place = group.place(spec.path, block)
        view = memoryview(data)
        view[offset : offset + size] = spec.encode(values)
        digests[place] = bytes.fromhex(digest(view[offset : offset + size]))
        if len(digests) < group.held(number) * len(group.arrays):
            return []
        view[body:] = b"".join(digests[k] for k in range(len(digests))) + group.mark(number)
        del self._open[key]
        storage.write_soon(join_keys(folder, key), view.toreadonly())
        return [(key, len(data), digest(view[body:]))]


def write_manifest(storage: Storage, folder: str, files: Manifest) -> Manifest:
    """Put the list of a generation's files beside them; the manifest of that list."""
    _, size, check = write(storage, join_keys(folder, MANIFEST), canonical({"files": files}))
    return {MANIFEST: (size, check)}


def read_manifest(storage: Storage, folder: str, top: Manifest, shards: Shards) -> Sharded:
    """All files of a generation by the list that a commit record vouches for: none lacks, each has its size."""
    listed = Sealed(storage, folder, top)
    check_record_size(top[MANIFEST][0], listed.where(MANIFEST))
    data = listed.read_bytes(MANIFEST)
    try:
        files = Fields(parse(data), listed.where(MANIFEST)).manifest("files")
    except (ValueError, RecursionError):
        raise DamagedStoreError(f"{listed.where(MANIFEST)} is not a readable record") from None
    found = Sharded(storage, folder, {**files, **top}, shards)
    found.check_shards()
    found.check_others(files, max(OTHER_BYTES, shards.largest))
    return found


def seal(storage: Storage, folder: str, files: Manifest, shards: Shards | None) -> Sealed:
    """What has been written below a folder, in shards or not."""
    return Sealed(storage, folder, files) if shards is None else Sharded(storage, folder, files, shards)


@dataclass(frozen=True)
class Sharded(Sealed):
    """Arrays in shards whose every byte is vouched for by a manifest."""

    shards: Shards
    ends: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)  # those that were read and checked

    ahead: dict[tuple[str, int], np.ndarray] = field(default_factory=dict, compare=False, repr=False)  # `read_next`

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"ends": {}, "ahead": {}}

    def holder(self, spec: ArraySpec, block: int) -> str:
        group, number = self.shards.find(spec.path, block)
        return group.key(number)

    def holders(self, specs: Iterable[ArraySpec], blocks: Iterable[int]) -> Iterable[str]:
        groups = [self.shards.groups[name] for name in dict.fromkeys(group_name(spec.path) for spec in specs)]
        if isinstance(blocks, range) and blocks.step == 1:  # many blocks a shard
            if not blocks:
                return []
            runs = [range(blocks.start // group.run, -(-blocks.stop // group.run)) for group in groups]
            return [group.key(n) for group, numbers in zip(groups, runs, strict=True) for n in numbers]
        found = np.fromiter(blocks, np.int64)
        return [group.key(int(n)) for group in groups for n in np.unique(found // group.run)]

    def read_bytes(self, key: str) -> bytes:
        """Checked bytes of a key, of a shard every chunk of it."""
        named = self.shards.named(key)
        if named is None:
            return super().read_bytes(key)
        data = self._whole(key)
        group, number = named
        end = self._checked_end(key, group, number, data[group.body_bytes(number) :])
        for path, block in group.chunks(number):
            offset, size, place = group.place(path, block)
            self._check(key, memoryview(data)[offset : offset + size], end, place, path, block)
        return data

    def check_file(self, key: str, specs: Mapping[str, ArraySpec]) -> int:
        data, named = self.read_bytes(key), self.shards.named(key)
        if named is not None:
            group, number = named
            for path, block in group.chunks(number):
                offset, size, _ = group.place(path, block)
                self._decode(specs[path], block, data[offset : offset + size])
        return len(data)

    def read_block(self, spec: ArraySpec, *index: int) -> np.ndarray:
        return self.read_several([(spec, index[0])])[0]

    def read_next(self, spec: ArraySpec, block: int) -> np.ndarray:
        """From afar the rest of the shard's blocks comes along, and waits."""
        if not self.storage.far:
            return self.read_block(spec, block)
        waiting = self.ahead.pop((spec.path, block), None)
        if waiting is not None:
            return waiting
        group, number = self.shards.find(spec.path, block)
        blocks = range(block, number * group.run + group.held(number))
        found = self.read_several([(spec, k) for k in blocks])
        self.ahead.update({(spec.path, k): values for k, values in zip(blocks[1:], found[1:], strict=True)})
        return found[0]

    def read_several(self, wanted: Sequence[tuple[ArraySpec, int]]) -> list[np.ndarray]:
        """Some chunks, each checked; ends of shards that are not known yet are fetched with them."""
        places = []
        ends: dict[str, tuple[Group, int]] = {}
        for spec, block in wanted:
            group, number = self.shards.find(spec.path, block)
            key = group.key(number)
            places.append((key, *group.place(spec.path, block)))
            if key not in self.ends:
                ends[key] = group, number
        ranges = [(key, offset, size) for key, offset, size, _ in places]
        for key, (group, number) in ends.items():
            ranges.append((key, self._entry(key)[0] - group.end_bytes(number), group.end_bytes(number)))
        found = self._read_ranges(ranges)
        for (key, (group, number)), end in zip(ends.items(), found[len(places) :], strict=True):
            self.ends[key] = self._checked_end(key, group, number, end)
        out = []
        for (spec, block), (key, _, _, place), part in zip(wanted, places, found[: len(places)], strict=True):
            self._check(key, part, self.ends[key], place, spec.path, block)
            out.append(self._decode(spec, block, part))
        return out

    def read_array(self, spec: ArraySpec) -> np.ndarray:
        out = np.empty(spec.shape, spec.dtype)
        blocks, step, rows = range(spec.grid[0]), max(1, AT_ONCE // spec.chunk_bytes), spec.chunks[0]
        for some in (blocks[k : k + step] for k in range(0, len(blocks), step)):
            for block, part in zip(some, self.read_several([(spec, block) for block in some]), strict=True):
                out[block * rows : (block + 1) * rows] = part
        return out

    def ask_block(self, spec: ArraySpec, *index: int) -> None:
        group, number = self.shards.find(spec.path, index[0])
        offset, size, _ = group.place(spec.path, index[0])
        self.storage.ask(join_keys(self.prefix, group.key(number)), offset, size)

    def check_complete(self, keys: Iterable[tuple[ArraySpec, str]], count: int) -> None:
        self.check_shards()

    def check_shards(self) -> None:
        """See that the manifest lists all shards, each as large as it must be; absurd shapes cost nothing."""
        if self.shards.count > len(self.manifest):
            raise DamagedStoreError(
                f"the manifest of {self.where('')} lists {len(self.manifest)} files, but its arrays need "
                f"{self.shards.count}"
            )
        for key, size in self.shards.all():
            if key not in self.manifest:
                raise DamagedStoreError(f"the manifest of {self.where('')} lacks {key}")
            if self.manifest[key][0] != size:
                raise DamagedStoreError(
                    f"{self.where(key)} has {self.manifest[key][0]} bytes, which a shard of its arrays cannot have"
                )

    # Bytes

    def _whole(self, key: str) -> bytes:
        size, _ = self._entry(key)
        try:
            data = self.storage.read(join_keys(self.prefix, key), limit=size + 1)
        except FileNotFoundError:
            raise self._missing(key) from None
        self._check_size(key, len(data), size)
        return data

    def _entry(self, key: str) -> tuple[int, str]:
        if key not in self.manifest:
            raise DamagedStoreError(f"{self.where(key)} is not in the store's manifest")
        return self.manifest[key]

    def _read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[bytes]:
        """Bytes of ranges (key, offset, size), all there."""
        order = sorted(range(len(ranges)), key=lambda k: ranges[k])  # neighbours are fetched together
        asked = [(join_keys(self.prefix, ranges[k][0]), *ranges[k][1:]) for k in order]
        try:
            read = self.storage.read_ranges(asked)
        except (FileNotFoundError, StoreError):  # also of a range beyond the end, which many stores refuse
            for key in dict.fromkeys(key for key, _, _ in ranges):
                self._check_length(key)
            raise
        found = [b""] * len(ranges)
        for k, part in zip(order, read, strict=True):
            found[k] = part
        for (key, _, size), part in zip(ranges, found, strict=True):
            if len(part) != size:
                self._check_length(key)
                raise DamagedStoreError(f"{self.where(key)} ends too early")
        return found

    def _check_length(self, key: str) -> None:
        try:
            found = self.storage.size(join_keys(self.prefix, key))
        except FileNotFoundError:
            raise self._missing(key) from None
        self._check_size(key, found, self._entry(key)[0])

    def _check_size(self, key: str, found: int, size: int) -> None:
        if found != size:
            told = f"{found} bytes" if found < size else "more bytes"
            raise DamagedStoreError(f"{self.where(key)} has {told}, not {size}")

    def _checked_end(self, key: str, group: Group, number: int, end: bytes) -> bytes:
        if digest(end) != self._entry(key)[1]:
            raise DamagedStoreError(f"{self.where(key)} does not hold the bytes that were written")
        if len(end) != group.end_bytes(number) or not end.endswith(group.mark(number)):
            raise DamagedStoreError(f"{self.where(key)} is not a shard of its arrays")
        return end

    def _check(self, key: str, part: bytes | memoryview, end: bytes, place: int, path: str, block: int) -> None:
        if bytes.fromhex(digest(part)) != end[place * DIGEST : (place + 1) * DIGEST]:
            raise DamagedStoreError(
                f"{self.where(key)} does not hold the bytes that were written (block {block} of {path})"
            )

    def _decode(self, spec: ArraySpec, block: int, data: bytes) -> np.ndarray:
        try:
            return spec.decode(data, spec.index(block))
        except ValueError as error:
            where = self.where(self.holder(spec, block))
            raise DamagedStoreError(f"{where} holds no block {block} of {spec.path}: {error}") from None
