"""The model store: one write-once generation of arrays per sweep, made real by a chained commit record.

    model.zarr/zarr.json                            marks the folder as a model store
    model.zarr/generation-00003-<attempt>/users/..  arrays of sweep 3, each chunk written by one task
    model.zarr/commits/00003.json                   put if absent; digests of every file, scalars, parent's digest
    model.zarr/generation-00003-<attempt>/receipt   left after the commit, so that a lost record is seen as damage

A reader believes commit records only: what they do not list does not exist. No pointer is ever changed.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import ArraySpec, Manifest, Sealed, group_metadata, seal, unseal, write_metadata
from .spec import SIDES, DamagedStoreError, Settings, StoreError
from .storage import Storage, open_storage

FORMAT, VERSION = "pairsym-model", 1
KEPT = 2  # newest generations that are kept
_GENERATION = re.compile(r"generation-(\d{5,})-[0-9a-f]+")


def generation_arrays(rows: dict[str, int], blocks: dict[str, int], settings: Settings) -> dict[str, ArraySpec]:
    """Arrays of a generation by path; a block of rows is one chunk of each."""
    specs = {}
    for side in SIDES:
        n, block, name = rows[side], blocks[side], side[:-1]
        for array in ("mean", "precision"):
            shape, chunks = (n, settings.factors), (block, settings.factors)
            specs[f"{side}/{array}"] = ArraySpec(f"{side}/{array}", shape, chunks, settings.dtype, (name, "factor"))
        for array, dtype in (
            ("bias", settings.dtype),
            ("bias_precision", settings.dtype),
            ("selection", "float64"),
            ("background", "float64"),
        ):
            specs[f"{side}/{array}"] = ArraySpec(f"{side}/{array}", (n,), (block,), dtype, (name,))
    # log s_i of the next sweep, up to its normaliser: a by-product of the selection pass.
    specs["users/next"] = ArraySpec("users/next", (rows["users"],), (blocks["users"],), "float64", ("user",))
    return specs


@dataclass(frozen=True)
class Commit:
    """One committed sweep."""

    storage: Storage
    record: dict[str, Any]

    @property
    def sweep(self) -> int:
        return int(self.record["sweep"])

    @property
    def settings(self) -> Settings:
        return Settings(**self.record["settings"])

    @property
    def folder(self) -> str:
        return str(self.record["generation"])

    def scalar(self, name: str) -> float:
        return float.fromhex(self.record["scalars"][name])

    @property
    def sealed(self) -> Sealed:
        files = {key: (int(size), str(check)) for key, (size, check) in self.record["files"].items()}
        return Sealed(self.storage, self.folder, files)

    @property
    def arrays(self) -> dict[str, ArraySpec]:
        return generation_arrays(self.record["rows"], self.record["blocks"], self.settings)


class ModelStore:
    """A folder of generations and commits."""

    def __init__(self, path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> None:
        self.storage = open_storage(path, storage_options)
        self.url = self.storage.url

    def is_model(self) -> bool:
        try:
            text = self.storage.read("zarr.json")
        except (FileNotFoundError, NotADirectoryError):
            return False
        return f'"{FORMAT}"'.encode() in text

    def create(self) -> None:
        """Make the folder, or accept a model store that is there; refuse anything else."""
        if self.is_model():
            return
        if os.path.isfile(self.url) or self.storage.keys():
            raise StoreError(f"{self.url} exists already and is not a model store; give another path")
        self.storage.write("zarr.json", group_metadata({"format": FORMAT, "version": VERSION}))

    def commits(self) -> list[Commit]:
        """All commit records, oldest first, with their chain checked."""
        if not self.is_model():
            if os.path.exists(self.url) or "://" in self.url:
                raise StoreError(f"{self.url} is not a model store")
            raise StoreError(f"there is no model store at {self.url}")
        keys = [key for key in self.storage.keys("commits") if key.endswith(".json")]
        commits: list[Commit] = []
        for number, key in enumerate(sorted(keys)):
            where = f"{self.url}/{key}"
            record = unseal(self.storage.read(key), where)
            if record.get("format") != FORMAT or record.get("version") != VERSION:
                raise StoreError(
                    f"{where} has format {record.get('format')!r} version {record.get('version')}; "
                    f"this pairsym_dask reads {FORMAT!r} version {VERSION}"
                )
            parent = commits[-1].record["digest"] if commits else None
            if record["sweep"] != number or record["parent"] != parent or key != commit_key(number):
                raise DamagedStoreError(f"{where} does not follow from the commit before it")
            commits.append(Commit(self.storage, record))
        receipts = [
            int(match[1])
            for name in self.storage.folders()
            if (match := _GENERATION.fullmatch(name)) and self.storage.exists(f"{name}/receipt")
        ]
        if receipts and max(receipts) >= len(commits):
            raise DamagedStoreError(
                f"{self.url} holds a receipt for sweep {max(receipts)}, but its commit record is gone"
            )
        return commits

    def begin_generation(self, sweep: int, specs: dict[str, ArraySpec]) -> tuple[str, Manifest]:
        """A new, empty generation folder with the metadata of its arrays."""
        folder = f"generation-{sweep:05d}-{uuid.uuid4().hex[:12]}"
        return folder, write_metadata(self.storage, folder, list(specs.values()), {"sweep": sweep})

    def commit(self, record: dict[str, Any], specs: dict[str, ArraySpec]) -> Commit:
        """Make a generation real. Every chunk must be accounted for; exactly one writer wins a sweep."""
        files = record["files"]
        missing = [key for spec in specs.values() for key in spec.keys() if key not in files]
        if missing:
            raise StoreError(f"sweep {record['sweep']} is not complete: {len(missing)} chunks lack, first {missing[0]}")
        self.storage.sync(record["generation"])
        data = seal({**record, "format": FORMAT, "version": VERSION})
        if not self.storage.put_if_absent(commit_key(record["sweep"]), data):
            raise StoreError(f"another fit has committed sweep {record['sweep']} of {self.url}; this one stops")
        self.storage.write(f"{record['generation']}/receipt", data[-44:])
        return Commit(self.storage, unseal(data, self.url))

    def clean(self, commits: list[Commit]) -> None:
        """Remove generations that no kept commit stands for."""
        kept = {commit.folder for commit in commits[-KEPT:]}
        for name in self.storage.folders():
            if _GENERATION.fullmatch(name) and name not in kept:
                self.storage.remove(name)


def commit_key(sweep: int) -> str:
    return f"commits/{sweep:05d}.json"


def read_rows(commit: Commit, path: str, positions: np.ndarray) -> np.ndarray:
    """Some rows of an array, reading only the chunks they lie in."""
    spec, sealed = commit.arrays[path], commit.sealed
    out = np.empty((positions.size, *spec.shape[1:]), spec.dtype)
    block = positions // spec.chunks[0]
    for b in np.unique(block):
        here = block == b
        chunk = sealed.read_block(spec, int(b), *([0] * (len(spec.shape) - 1)))
        out[here] = chunk[positions[here] - b * spec.chunks[0]]
    return out
