"""Forged stores: whatever a stranger may write, with digests that are right, from a number.

A forgery starts from a sound pair of stores, changes records or chunks, and then makes every digest, size and link of
the chain right again, so that nothing but the checks of what is said stands between it and its reader.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from pairsym_dask.store.arrays import ArraySpec
from pairsym_dask.store.counts import open_counts
from pairsym_dask.store.fields import MANIFEST
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.records import canonical, seal
from pairsym_dask.store.shards import DIGEST
from pairsym_dask.store.storage import digest

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 63, 64, 65, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0,
    1e308, float("nan"), float("inf"), "", "0", "nan", "inf", "-inf", "0x1p5000", "0x1p1023", "-0x1p0", "x" * 5000,
    "\ud800", "\0", "../..", "/dev/zero", "http://127.0.0.1:9/counts.zarr", "s3://bucket/counts.zarr",
    "simplecache::http://127.0.0.1:9/x", "float64", "object", "int64", "string", "float32", "uint32", [], {}, [[]],
    [None], [0], [1, 2], [2**40], [-1], {"users": 1}, {"users": 1, "items": 1}, {"users": [1], "items": [1]},
]  # fmt: skip


def link_copy(source: Path, target: Path) -> None:
    """A copy that shares its files with the source; `put` never writes into them."""
    shutil.copytree(source, target, copy_function=os.link, symlinks=True)


def put(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def counts_arrays(path: Path) -> dict[str, ArraySpec]:
    counts = open_counts(path)
    specs = {}
    for side in ("users", "items"):
        for spec in counts.pair_arrays[side]:
            specs[spec.path] = spec
        for spec in (counts.layout.marginal(side), counts.layout.label(side, counts.record["labels"][side])):
            specs[spec.path] = spec
    return specs


class Forger:
    """Changes a copy of a pair of stores in a folder: `counts.zarr`, and a model or a chain fitted to it."""

    def __init__(self, folder: Path, number: int, model: str = "model.zarr") -> None:
        self.counts, self.model = folder / "counts.zarr", folder / model
        self.random = random.Random(number)
        self.record = json.loads((self.counts / "counts.json").read_bytes())
        names = sorted((self.model / "commits").glob("*.json"))
        self.commits = [json.loads(name.read_bytes()) for name in names]
        newest = ModelStore(self.model).commits()[-1]
        self.arrays, self.shards = newest.arrays, newest.shards
        self.specs = counts_arrays(self.counts) | self.arrays

    # Making it all right again.

    def reseal_counts(self, honest: bool = True) -> None:
        """Write the record; with `honest` its content digest is right and the model names it."""
        if honest:
            body = {key: value for key, value in self.record.items() if key not in ("content", "source", "digest")}
            self.record["content"] = digest(canonical(body))
        put(self.counts / "counts.json", seal(self.record))
        if honest:
            for commit in self.commits:
                if isinstance(commit.get("counts"), dict):
                    commit["counts"]["digest"] = self.record["content"]
            self.reseal_commits()

    def reseal_commits(self) -> None:
        """Write the chain with right digests, and the receipts that go with it."""
        parent = None
        for sweep, commit in enumerate(self.commits):
            if sweep and "parent" in commit:
                commit["parent"] = parent
            data = seal(commit)
            parent = json.loads(data)["digest"]
            put(self.model / f"commits/{sweep:05d}.json", data)
            folder = commit.get("generation")
            named = isinstance(folder, str) and folder.isprintable() and len(folder) < 200
            if named and (self.model / folder / "receipt").is_file():
                put(self.model / folder / "receipt", seal({"sweep": sweep, "commit": parent}))

    def write_chunk(self, root: Path, record: dict[str, Any], key: str, data: bytes) -> None:
        put(root / key, data)
        record["files"][key] = [len(data), digest(data)]

    # Generations, of either layout.

    def listed(self, commit: dict[str, Any]) -> dict[str, Any]:
        """The record that lists the files of a generation."""
        if self.shards is None:
            return commit
        found: dict[str, Any] = json.loads((self.model / commit["generation"] / MANIFEST).read_bytes())
        return found

    def relist(self, commit: dict[str, Any], listed: dict[str, Any]) -> None:
        """Write a changed list, if it is a file of its own."""
        if self.shards is not None:
            self.write_chunk(self.model / commit["generation"], commit, MANIFEST, canonical(listed))

    def read_chunk(self, commit: dict[str, Any], spec: ArraySpec, block: int) -> bytes:
        """The bytes of a chunk of a generation."""
        root = self.model / commit["generation"]
        if self.shards is None:
            return (root / spec.key(*spec.index(block))).read_bytes()
        group, number = self.shards.find(spec.path, block)
        offset, size, _ = group.place(spec.path, block)
        return (root / group.key(number)).read_bytes()[offset : offset + size]

    def replace_chunk(self, commit: dict[str, Any], spec: ArraySpec, block: int, data: bytes) -> None:
        """Put other bytes in the place of a chunk; in a shard they fill it."""
        root = self.model / commit["generation"]
        if self.shards is None:
            self.write_chunk(root, commit, spec.key(*spec.index(block)), data)
            return
        group, number = self.shards.find(spec.path, block)
        offset, size, place = group.place(spec.path, block)
        shard = bytearray((root / group.key(number)).read_bytes())
        shard[offset : offset + size] = data = data[:size].ljust(size, b"\1")
        end = group.body_bytes(number)
        shard[end + DIGEST * place : end + DIGEST * (place + 1)] = bytes.fromhex(digest(data))
        self.write_shard(commit, group.key(number), bytes(shard), end)

    def write_shard(self, commit: dict[str, Any], key: str, shard: bytes, end: int) -> None:
        listed = self.listed(commit)
        put(self.model / commit["generation"] / key, shard)
        listed["files"][key] = [len(shard), digest(shard[end:])]
        self.relist(commit, listed)

    # Records.

    def strange(self, value: Any) -> Any:
        """Something else in the place of a value."""
        rng = self.random
        if isinstance(value, int) and rng.random() < 0.5:
            as_float = float(value) if abs(value) < 2**1000 else 0.5
            return rng.choice([value + 1, value - 1, -value, 2 * value, value // 2, as_float, str(value)])
        if isinstance(value, str) and rng.random() < 0.3:
            return rng.choice([value[:-1], value + "0", value.upper(), "-" + value, value[::-1]])
        if isinstance(value, list) and value and rng.random() < 0.6:
            one = list(value)
            at = rng.randrange(len(one))
            change = rng.randrange(5)
            if change == 0:
                one[at] = self.strange(one[at])
            elif change == 1:
                del one[at]
            elif change == 2:
                one.insert(at, rng.choice(STRANGE))
            elif change == 3:
                one[at], one[0] = one[0], one[at]
            else:
                one = one * 2
            return one
        return rng.choice(STRANGE)

    def change_field(self, record: dict[str, Any]) -> None:
        """Change, drop or add one field, somewhere."""
        rng = self.random
        place: Any = record
        while True:
            name = rng.choice(sorted(place)) if place else "new"
            if rng.random() < 0.6 and name == "files" and place is record:
                name = rng.choice(sorted(place))
            if isinstance(place.get(name), dict) and place[name] and rng.random() < 0.9:
                place = place[name]
                continue
            break
        change = rng.random()
        if change < 0.12:
            place.pop(name, None)
        elif change < 0.2:
            place[rng.choice(["new", "", "../x", "users", "a" * 300, "c.0"])] = rng.choice(STRANGE)
        else:
            place[name] = self.strange(place.get(name))
