"""The model store: one write-once generation of arrays per sweep, made real by a chained commit record.

    model.zarr/zarr.json                            marks the folder as a model store
    model.zarr/generation-00003-<attempt>/users/..  arrays of sweep 3, each chunk written by one task (or shards.py)
    model.zarr/commits/00003.json                   put if absent; digests of every file, scalars, parent's digest
    model.zarr/generation-00003-<attempt>/receipt   left after the commit, so that a lost record is seen as damage
    model.zarr/attempts/                            which attempts may be committed, which were given up (attempts.py)
    model.zarr/lock/                                who is fitting (lock.py)
    model.zarr/damaged-<time>/                      what discard.py has set aside

A reader believes commit records only: what they do not list does not exist. No pointer is ever changed.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import Any, cast

from ..errors import DamagedStoreError, StoreError
from . import attempts
from .arrays import ArraySpec, Manifest, Sealed, group_metadata, write_metadata
from .commit import Commit
from .counts import RECORD as COUNTS_RECORD
from .fields import Fields
from .lock import Holder, Lock, holder, now
from .ours import ARRAYS, SHARDS, Names
from .records import (
    SMALL_BYTES,
    CommitRecord,
    canonical,
    check_format,
    check_record_size,
    commit_record,
    parse,
    read_record,
    seal,
    sealed,
    unseal,
)
from .sharded import write_manifest
from .shards import Shards, choose_runs, wants_shards
from .storage import Storage, digest, is_local, open_storage

FORMAT, VERSION, SHARDED = "pairsym-model", 1, 2  # versions of generations of zarr arrays, and of shards
KEPT = 2  # newest generations that are kept
GRACE_SECONDS = 120.0  # an attempt without a commit is removed when nothing was written to it for so long
SPARE = 2**20  # bytes that must be free beside a generation: for its metadata and the commit record
GENERATION = re.compile(r"generation-(\d{5,})-[0-9a-f]+")
_COMMIT = re.compile(r"commits/(\d{5,})\.json")
SHARED = ("settings", "rows", "blocks", "tags", "version", "shards")  # by the records of all sweeps
PACKED = "packed.json"  # of a pack: the sweeps whose generations it holds
_REMOVED = "removed-"  # a generation that is being deleted
NAMES: Names = {  # in a generation
    "zarr.json": None,
    "receipt": None,
    "users|items|user_tags|item_tags": ARRAYS,
    **SHARDS,
}
FOLDERS: dict[str, Names] = {  # beside the generations
    "": {"zarr.json": None, PACKED: None},
    "commits": {r"\d{5,}\.json": None},
    attempts.FOLDER: {r"generation-.+\.json": None},
    "lock": {r"\d{5,}\.(json|beat)|[0-9a-f]{32}\.clock": None},
}


class ModelStore:
    """A folder of generations and commits."""

    def __init__(self, path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> None:
        self.storage = open_storage(path, storage_options)
        self.url = self.storage.url

    def is_model(self) -> bool:
        return self._mark() is not None

    def _mark(self) -> bytes | None:
        """The file that marks a model store, None when this is none."""
        try:
            text = self.storage.read("zarr.json", limit=SMALL_BYTES)
            return text if parse(text)["attributes"]["format"] == FORMAT else None
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def check_target(self) -> None:
        """Refuse a place that holds something else than a model store."""
        if self.is_model():
            return
        if (os.path.isfile(self.url) or self.storage.keys()) and not self.is_model():  # another one may have made it
            raise StoreError(f"{self.url} exists already and is not a sound model store; give another path")

    def create(self, sharded: bool = False) -> None:
        """Make the folder, or accept a model store of the same layout that is there; refuse anything else."""
        self.check_target()
        mark = self._mark()
        if mark is None:
            self.storage.write("zarr.json", _mark_of(SHARDED if sharded else VERSION))
            self.storage.sync()
        elif sharded != _is_sharded(mark):
            raise StoreError(f"{self.url} was begun with another layout by another fit; run this one again")

    def choose_runs(self, specs: dict[str, ArraySpec], long: str) -> dict[str, int] | None:
        """Blocks a shard of a fit to this store, None for a file a chunk: as it began, or as a new one is best."""
        first = self._first()
        if first:
            return Fields(first, f"{self.url}/{commit_key(0)}").runs("shards") if "shards" in first else None
        mark = self._mark()
        wanted = wants_shards(self.url, specs) if mark is None else _is_sharded(mark)
        return choose_runs(specs, long) if wanted else None

    def _first(self) -> dict[str, Any]:
        """The record of the first commit, empty where there is none that can be read."""
        try:
            return self._committed(0)
        except DamagedStoreError:
            return {}

    def expected_mark(self) -> bytes:
        """The bytes that mark a store of this one's layout, whatever is there now."""
        return _mark_of(SHARDED if "shards" in self._first() else VERSION)

    def lock(self) -> Lock:
        """Hold the store for a fit."""
        return Lock(self.storage)

    def holder(self) -> Holder | None:
        """Who is fitting in this store now."""
        held = holder(self.storage, reading=True)
        return held if held is not None and held.alive else None

    def holds_commits(self) -> bool:
        return bool(self.commit_keys())

    def commit_keys(self) -> list[str]:
        """Keys of all commit records, oldest first."""
        found = self.storage.listing("commits")
        keys = sorted((key for key in found if _COMMIT.fullmatch(key)), key=lambda key: (len(key), key))
        for key in keys:
            check_record_size(found[key].size, f"{self.url}/{key}")
        return keys

    def commits(self, last: int | None = None) -> list[Commit]:
        """All commit records, oldest first, with their chain checked; with `last` those up to that sweep only."""
        mark = self._mark()
        if mark is None:
            if self.storage.is_empty() and not os.path.isfile(self.url):
                raise StoreError(f"there is no model store at {self.url}: nothing is there")
            if os.path.isfile(self.url):
                raise StoreError(f"{self.url} is a file, not a model store; ingest and fit make one of pairs")
            if self.storage.exists(COUNTS_RECORD):
                raise StoreError(f"{self.url} is a counts store, not a model store; fit makes one of it")
            raise StoreError(f"{self.url} is not a model store")
        keys = self.commit_keys()[: None if last is None else last + 1]
        commits: list[Commit] = []
        for key, data in zip(keys, self._read_records(keys), strict=True):
            commits.append(self.chained(commits, key, data, mark))
        if last is None:
            self._check_receipts(len(commits))
        return commits

    def _read_records(self, keys: list[str]) -> list[bytes]:
        try:
            return self.storage.read_many(keys)
        except FileNotFoundError as error:
            raise DamagedStoreError(f"{error.filename} is listed but cannot be read") from None

    def sound_commits(self) -> list[Commit]:
        """The commits before the first damaged one."""
        mark, commits = self._mark(), list[Commit]()
        if mark is None:
            return commits
        try:
            keys = self.commit_keys()
            for key, data in zip(keys, self._read_records(keys), strict=True):
                commits.append(self.chained(commits, key, data, mark))
        except StoreError:
            pass
        return commits

    def take_up(self) -> list[Commit]:
        """All commits, after one that a stopped driver had declared has been put for it."""
        commits = self.commits()
        for data in attempts.declared(self.storage, len(commits)):
            key = commit_key(len(commits))
            try:
                self.chained(commits, key, data, self._mark() or b"").sealed.check_sizes()
            except StoreError:
                continue  # its files are gone, or it followed from a commit that was set aside
            self.storage.put_if_absent(key, data)
            return self.commits()
        return commits

    def chained(self, before: list[Commit], key: str, data: bytes, mark: bytes) -> Commit:
        """A commit record that follows from those before it."""
        where = f"{self.url}/{key}"
        unchecked = unseal(data, where)
        check_format(unchecked, FORMAT, where, VERSION, SHARDED)
        record = commit_record(unchecked, where)
        number = len(before)
        parent = before[-1].record["digest"] if before else None
        if record["sweep"] != number or record["parent"] != parent or key != commit_key(number):
            raise DamagedStoreError(f"{where} does not follow from the commit before it")
        if before and any(record.get(name) != before[0].record.get(name) for name in SHARED):
            raise DamagedStoreError(f"{where} has other settings or shapes than the first commit")
        if record["mark"] != digest(mark):
            raise DamagedStoreError(f"{self.url}/zarr.json does not hold the bytes that were written")
        return Commit(self.storage, record)

    def _check_receipts(self, commits: int) -> None:
        receipts = [
            int(match[1])
            for name in self.storage.folders()
            if (match := GENERATION.fullmatch(name)) and self.storage.exists(f"{name}/receipt")
        ]
        if receipts and max(receipts) >= commits and max(receipts) >= len(self.commit_keys()):
            raise DamagedStoreError(
                f"{self.url} holds a receipt for sweep {max(receipts)}, but its commit record is gone"
            )

    def mend(self, commits: list[Commit]) -> None:
        """Finish what a killed fit left half done after its last commit: names on disk, the receipt."""
        try:
            self.storage.settle()
        except StoreError:
            pass  # of an attempt that has failed already
        if commits:
            self.storage.sync("commits")
            if not self.storage.exists(f"{commits[-1].folder}/receipt"):
                self._leave_receipt(commits[-1].record)

    def _leave_receipt(self, record: CommitRecord) -> None:
        self.storage.write(f"{record['generation']}/receipt", receipt(record))
        self.storage.sync_names(record["generation"])

    def check_space(self, needed: int, commits: list[Commit]) -> None:
        """Refuse to begin a sweep that the disk cannot hold; dead attempts go first."""
        if self._lacks(needed):
            self.clean(commits, grace=0.0)
        if self._lacks(needed):
            free = self.storage.free() or 0
            raise StoreError(
                f"the disk of {self.url} has {free / 2**20:,.1f} MiB free and a sweep needs "
                f"{(needed + SPARE) / 2**20:,.1f} MiB; free some space and run the fit again: "
                "it goes on where it stopped"
            )

    def _lacks(self, needed: int) -> bool:
        free = self.storage.free()
        return free is not None and free < needed + SPARE

    def begin_generation(
        self, sweep: int, specs: dict[str, ArraySpec], shards: Shards | None = None
    ) -> tuple[str, Manifest]:
        """A new, empty generation folder with the metadata of its arrays, or of shards."""
        folder = f"generation-{sweep:05d}-{uuid.uuid4().hex[:12]}"
        if shards is not None:
            return folder, write_metadata(self.storage, folder, [], {"sweep": sweep, "shards": shards.runs})
        return folder, write_metadata(self.storage, folder, list(specs.values()), {"sweep": sweep})

    def commit(self, record: dict[str, Any], specs: dict[str, ArraySpec], shards: Shards | None = None) -> Commit:
        """Make a generation real. Every chunk must be accounted for; exactly one writer wins a sweep."""
        files = record["files"]
        wanted = (key for spec in specs.values() for key in spec.keys()) if shards is None else shards.keys()
        missing = [key for key in wanted if key not in files]
        if missing:
            what = "chunks" if shards is None else "shards"
            raise StoreError(f"sweep {record['sweep']} is not complete: {len(missing)} {what} lack, first {missing[0]}")
        own: dict[str, Any] = {"version": VERSION}
        if shards is not None:
            top = write_manifest(self.storage, record["generation"], files)
            own, files = {"version": SHARDED, "shards": shards.runs, "files": top}, files | top
        # Chunks and their names are on disk before the record that vouches for them.
        self.storage.sync(record["generation"])
        mark = digest(read_record(self.storage, "zarr.json", SMALL_BYTES))
        record = sealed({**record, "mark": mark, "format": FORMAT, **own})
        data = canonical(record)
        if not attempts.declare(self.storage, record["generation"], data):
            raise StoreError(
                f"another fit has taken over {self.url} and given up this one's sweep {record['sweep']}; this one stops"
            )
        # From here on nobody removes the files; what happened to them before is seen now.
        Sealed(self.storage, record["generation"], files).check_sizes()
        self._check_parent(record)
        if not self.storage.put_if_absent(commit_key(record["sweep"]), data):
            raise StoreError(f"another fit has committed sweep {record['sweep']} of {self.url}; this one stops")
        commit = Commit(self.storage, cast(CommitRecord, record))
        self._leave_receipt(commit.record)
        attempts.forget(self.storage, record["generation"])
        return commit

    def _check_parent(self, record: dict[str, Any]) -> None:
        """See that the commit before is still the one that the sweep started from."""
        if record["sweep"] and self._committed(record["sweep"] - 1).get("digest") != record["parent"]:
            raise StoreError(
                f"another fit has set aside sweep {record['sweep'] - 1} of {self.url} as damaged; this one stops"
            )

    def _committed(self, sweep: int) -> dict[str, Any]:
        """The commit record of a sweep as it is now, empty when there is none."""
        try:
            return unseal(read_record(self.storage, commit_key(sweep)), f"{self.url}/{commit_key(sweep)}")
        except FileNotFoundError:
            return {}

    def wanted(self, commits: list[Commit]) -> list[Commit]:
        """Commits whose generations are promised to be there: the last ones, and those that the user keeps.

        A pack has those that answer, and says which.
        """
        if self.storage.exists(PACKED):
            listed = unseal(read_record(self.storage, PACKED, SMALL_BYTES), f"{self.url}/{PACKED}").get("sweeps")
            return [commit for commit in commits if isinstance(listed, list) and commit.sweep in listed]
        return [commit for commit in commits if commit.kept or commit.sweep >= len(commits) - KEPT]

    def is_there(self, commit: Commit) -> bool:
        """Whether a commit's generation has not been removed."""
        return self.storage.exists(f"{commit.folder}/zarr.json")

    def clean(self, commits: list[Commit], grace: float | None = None) -> None:
        """Remove generations that no wanted commit stands for; attempts without a commit after a grace time."""
        grace = GRACE_SECONDS if grace is None else grace
        kept = {commit.folder for commit in self.wanted(commits)}
        committed = {commit.folder for commit in commits}
        clock: float | None = None
        for name in self.storage.folders():
            if name.startswith(_REMOVED) and GENERATION.fullmatch(name.removeprefix(_REMOVED)):
                self.storage.remove_ours(name, NAMES)
            elif (match := GENERATION.fullmatch(name)) and name not in kept:
                if name not in committed and grace > 0:
                    clock = now(self.storage) if clock is None else clock
                    # Tasks of a driver that was killed beside a living cluster may still be writing.
                    if self.storage.last_write(name) > clock - grace:
                        continue
                if name in committed or self._is_lost(name, int(match[1])):
                    self.remove_generation(name)
        for name, sweep in attempts.decided(self.storage):
            if self.storage.exists(commit_key(sweep)):
                attempts.forget(self.storage, name)
        if clock is not None:
            for folder, names in FOLDERS.items():
                self.storage.remove_partials(folder, names, clock - grace)

    def _is_lost(self, name: str, sweep: int) -> bool:
        """Whether an attempt can never be committed: its sweep has another commit, or it is given up now."""
        record = self._committed(sweep)
        if not record:
            if not attempts.give_up(self.storage, name):
                return False
            record = self._committed(sweep)  # it may have been committed, and the decision forgotten, in between
        return record.get("generation") != name

    def remove_generation(self, folder: str) -> None:
        """Delete a generation so that it is never seen half deleted; what is not ours in it stays where it is."""
        if not is_local(self.url) or self.storage.strangers(NAMES, folder):
            self.storage.remove(f"{folder}/zarr.json")
            self.storage.remove_ours(folder, NAMES)
            return
        try:
            self.storage.move(folder, _REMOVED + folder)
        except FileNotFoundError:
            return  # gone already
        self.storage.remove_ours_soon(_REMOVED + folder, NAMES)


def _mark_of(version: int) -> bytes:
    return group_metadata({"format": FORMAT, "version": version})


def _is_sharded(mark: bytes) -> bool:
    return bool(parse(mark)["attributes"].get("version") == SHARDED)


def commit_key(sweep: int) -> str:
    return f"commits/{sweep:05d}.json"


def receipt(record: CommitRecord) -> bytes:
    """What is left in a generation after its commit."""
    return seal({"sweep": record["sweep"], "commit": record["digest"]})
