"""Shards: one object with the chunks of all arrays that one task writes for a run of consecutive blocks.

    generation-00003-<attempt>/zarr.json          a group without arrays, whose attributes say what is here
    generation-00003-<attempt>/0a/users.10.shard  blocks of users in fixed places, then digests of all its chunks
    generation-00003-<attempt>/manifest.json      size and digest of every shard; the commit record holds this one's

Chunks lie block by block, in a block array by array, each encoded as zarr would. The end of a shard is a digest of 16
bytes for every chunk, in the same order, and a mark with the numbers of blocks and arrays. A shard's entry in the
manifest is its size and the digest of its end: so a chunk is read by its range, and checked by its own digest. Where
chunks lie follows from shapes and blocks a shard alone. Of a missing chunk zarr would make zeros, so there is no
`zarr.json` of arrays here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import DamagedStoreError
from ..settings import SIDES
from .arrays import ArraySpec
from .storage import is_local

PLAIN_FILES = 4096  # chunks of a generation that a local disk has as files of their own, at most
MOST_BLOCKS = 64  # a shard
SHARD_BYTES = 2**25  # of a shard, at most, where one block is not larger
LARGEST_SHARD = 2**28  # bytes of a shard of several blocks that is read, at most
LEAST_SHARDS = 128  # that a side keeps, for as many tasks
DIGEST = 16  # bytes of a chunk's digest
_MARK = b"pairsym shard 1\n"


@dataclass(frozen=True)
class Group:
    """Arrays whose chunks lie in the same shards; all have the same blocks."""

    name: str
    blocks: int
    run: int  # blocks a shard
    arrays: dict[str, int]  # bytes of a chunk by path, in the order of a block

    @cached_property
    def block_bytes(self) -> int:
        return sum(self.arrays.values())

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Offset in a block, and number, of every array."""
        found, offset = {}, 0
        for number, (path, size) in enumerate(self.arrays.items()):
            found[path] = offset, number
            offset += size
        return found

    def __getstate__(self) -> dict[str, Any]:
        """What travels: not what follows from it."""
        return {name: self.__dict__[name] for name in ("name", "blocks", "run", "arrays")}

    @property
    def count(self) -> int:
        """Shards."""
        return -(-self.blocks // self.run)

    def key(self, number: int) -> str:
        """Key of a shard; the first folder spreads shards over prefixes, which object stores serve each by itself.

        >>> Group("users", 5000, 8, {"users/mean": 80}).key(299)
        '2b/users.299.shard'
        """
        return f"{number & 255:02x}/{self.name}.{number}.shard"

    def held(self, number: int) -> int:
        """Blocks in a shard."""
        return min(self.run, self.blocks - number * self.run)

    def body_bytes(self, number: int) -> int:
        return self.held(number) * self.block_bytes

    def end_bytes(self, number: int) -> int:
        return self.held(number) * len(self.arrays) * DIGEST + len(self.mark(number))

    def size(self, number: int) -> int:
        return self.body_bytes(number) + self.end_bytes(number)

    def mark(self, number: int) -> bytes:
        """The last bytes of a shard."""
        return _MARK + struct.pack("<IIQ", self.held(number), len(self.arrays), self.body_bytes(number))

    def place(self, path: str, block: int) -> tuple[int, int, int]:
        """Where a chunk lies in its shard: offset and size, and the number of its digest."""
        within = block % self.run
        offset, number = self._places[path]
        return within * self.block_bytes + offset, self.arrays[path], within * len(self.arrays) + number

    def chunks(self, number: int) -> Iterator[tuple[str, int]]:
        """Paths and blocks of a shard's chunks, in their order."""
        for block in range(number * self.run, number * self.run + self.held(number)):
            for path in self.arrays:
                yield path, block


def group_name(path: str) -> str:
    """The group of an array: users' next weights are written by a later pass than the rest of them.

    >>> group_name("users/mean"), group_name("users/next")
    ('users', 'users_next')
    """
    return "users_next" if path == "users/next" else path.split("/")[0]


def _grouped(specs: Mapping[str, ArraySpec]) -> dict[str, list[ArraySpec]]:
    groups: dict[str, list[ArraySpec]] = {}
    for spec in specs.values():
        groups.setdefault(group_name(spec.path), []).append(spec)
    return groups


def choose_runs(specs: Mapping[str, ArraySpec], long: str) -> dict[str, int]:
    """Blocks a shard for every group, a power of two, from the shapes alone.

    Blocks of the short side are closed one by one, and tags of a side are written by one task.
    """
    runs = {}
    for name, arrays in _grouped(specs).items():
        size, blocks = sum(spec.file_bytes for spec in arrays), arrays[0].grid[0]
        least = LEAST_SHARDS if name in SIDES else 1
        run = 1
        while name != "users_next" and (name == long or name not in SIDES) and 2 * run <= MOST_BLOCKS:
            if run >= blocks or 2 * run * size > SHARD_BYTES or -(-blocks // (2 * run)) < least:
                break
            run *= 2
        runs[name] = run
    if "users_next" in runs:
        runs["users_next"] = runs["users"]  # a task has the same blocks in every pass
    return runs


def wants_shards(url: str, specs: Mapping[str, ArraySpec]) -> bool:
    """Whether a new store should have shards: where every object is a call, or where there would be many files."""
    return not is_local(url) or many_files(specs)


def many_files(specs: Mapping[str, ArraySpec]) -> bool:
    """Whether chunks are too many for files of their own."""
    return sum(spec.count for spec in specs.values()) > PLAIN_FILES


@dataclass(frozen=True)
class Shards:
    """Where the chunks of a generation lie."""

    groups: dict[str, Group]

    @staticmethod
    def of(specs: Mapping[str, ArraySpec], runs: Mapping[str, int], where: str = "a store") -> Shards:
        grouped = _grouped(specs)
        if grouped.keys() != runs.keys():
            raise DamagedStoreError(f"{where} has shards of {', '.join(runs)}, but needs some of {', '.join(grouped)}")
        groups = {
            name: Group(name, arrays[0].grid[0], runs[name], {spec.path: spec.file_bytes for spec in arrays})
            for name, arrays in grouped.items()
        }
        for name, group in groups.items():
            if group.run > 1 and group.size(0) > LARGEST_SHARD:
                raise DamagedStoreError(
                    f"{where} has shards of {name} with {group.run} blocks, {group.size(0)} bytes, where "
                    f"{LARGEST_SHARD} are the most"
                )
        return Shards(groups)

    @property
    def runs(self) -> dict[str, int]:
        """Blocks a shard, as records have them."""
        return {name: group.run for name, group in self.groups.items()}

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum((group.count - 1) * group.size(0) + group.size(group.count - 1) for group in self.groups.values())

    @property
    def largest(self) -> int:
        """Bytes of the largest shard."""
        return max(group.size(0) for group in self.groups.values())

    def all(self) -> Iterator[tuple[str, int]]:
        """Keys and sizes of all shards."""
        for group in self.groups.values():
            for number in range(group.count):
                yield group.key(number), group.size(number)

    def keys(self) -> Iterator[str]:
        return (key for key, _ in self.all())

    def find(self, path: str, block: int) -> tuple[Group, int]:
        """The group and the number of the shard that holds a chunk."""
        group = self.groups[group_name(path)]
        return group, block // group.run

    def named(self, key: str) -> tuple[Group, int] | None:
        """The group and the number of a shard by its key, None for another file."""
        name, number, ending = (*key.rpartition("/")[2].split("."), "", "")[:3]
        if ending != "shard" or name not in self.groups or not number.isdecimal():
            return None
        group = self.groups[name]
        return (group, int(number)) if int(number) < group.count and group.key(int(number)) == key else None
