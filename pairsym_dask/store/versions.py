"""Versions: models that follow one another under one name, each in a dated folder with its counts store.

    plays/2026-11-17T051810Z/counts.zarr    all pairs up to then
    plays/2026-11-17T051810Z/model.zarr     the model that was fitted to them
    plays/2026-11-17T051810Z/begun.json     which update is at work here
    plays/2026-11-17T051810Z/version.json   written last: what was fed so far
    plays/lock/                             who is updating (lock.py); gone when nobody is

A reader takes the newest folder that has its record. A pack, one model with what it needs to answer, is such a folder
by itself.
"""

from __future__ import annotations

import datetime
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import DamagedStoreError, StoreError
from .counts import RECORD as COUNTS_RECORD
from .counts_writer import NAMES as COUNTS_NAMES
from .lock import Lock
from .model_store import FOLDERS, GENERATION
from .model_store import NAMES as GENERATION_NAMES
from .ours import Names
from .records import check_format, read_record, seal, unseal
from .storage import Storage, digest, open_storage
from .tags import Tags, open_tags

FORMAT, VERSION = "pairsym-version", 1
RECORD, BEGUN = "version.json", "begun.json"
COUNTS, MODEL = "counts.zarr", "model.zarr"
TAGS = {"users": "user_tags.zarr", "items": "item_tags.zarr"}  # of a pack
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_WRITTEN = "%Y-%m-%dT%H%M%SZ"
NAMES: Names = {
    RECORD: None,
    BEGUN: None,
    COUNTS: {**COUNTS_NAMES, "counts.json": None},
    MODEL: {
        **FOLDERS[""],
        **{folder: names for folder, names in FOLDERS.items() if folder},
        f"(removed-)?{GENERATION.pattern}": GENERATION_NAMES,
    },
}


@dataclass(frozen=True)
class Fed:
    """Something that was fed: a file, a frame or a store."""

    name: str
    digest: str  # of its content
    when: str


@dataclass(frozen=True)
class Version:
    """A model and its counts store in one folder."""

    address: str
    fed: tuple[Fed, ...]  # in this version and all before it

    @property
    def model(self) -> str:
        return f"{self.address}/{MODEL}"

    @property
    def counts(self) -> str:
        return f"{self.address}/{COUNTS}"

    def tags(self, options: dict[str, Any] | None = None) -> dict[str, Tags]:
        """Tag stores that are in the folder, too."""
        places = {side: open_storage(f"{self.address}/{name}", options) for side, name in TAGS.items()}
        return {side: open_tags(place) for side, place in places.items() if place.exists(COUNTS_RECORD)}


def _read(storage: Storage, folder: str) -> Version:
    key = f"{folder}/{RECORD}" if folder else RECORD
    where = f"{storage.url}/{key}"
    record = unseal(read_record(storage, key), where)
    check_format(record, FORMAT, where, VERSION)
    try:
        fed = tuple(Fed(str(one["name"]), str(one["digest"]), str(one["when"])) for one in record["fed"])
    except (KeyError, TypeError):
        raise DamagedStoreError(f"{where} is not a sound record of a version") from None
    return Version(f"{storage.url}/{folder}" if folder else storage.url, fed)


def write_version(storage: Storage, folder: str, fed: tuple[Fed, ...]) -> Version:
    """Make a folder with a model and its counts a version."""
    listed = [{"name": one.name, "digest": one.digest, "when": one.when} for one in fed]
    storage.write(
        f"{folder}/{RECORD}" if folder else RECORD, seal({"format": FORMAT, "version": VERSION, "fed": listed})
    )
    storage.sync(folder)
    return _read(storage, folder)


def find_version(
    path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None
) -> Version | None:
    """The version at a path, or the newest one below it; None when there is none."""
    storage = open_storage(path, storage_options)
    if storage.exists(RECORD):
        return _read(storage, "")
    return Versions(storage).newest()


class Versions:
    """A folder of dated versions."""

    def __init__(self, path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> None:
        self.storage = open_storage(path, storage_options)
        self.url = self.storage.url

    def _dated(self) -> list[str]:
        return [name for name in self.storage.folders() if _DATE.fullmatch(name)]

    def names(self) -> list[str]:
        """Dates of all finished versions, oldest first."""
        return [name for name in self._dated() if self.storage.exists(f"{name}/{RECORD}")]

    def newest(self) -> Version | None:
        names = self.names()
        return _read(self.storage, names[-1]) if names else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the versions for an update: what it starts from stays the newest until it has ended."""
        try:
            with Lock(self.storage, "an update"):
                yield
        finally:
            self.storage.remove_ours("lock", {})  # folders only, where they are empty
            self.storage.remove_root()

    def begun(self) -> list[str]:
        """Digests of what is fed by an update that was interrupted or is under way; none where there is none."""
        for name in self._unfinished(self._dated()):
            return self.storage.read(f"{name}/{BEGUN}").decode("ascii", "replace").split()[2:]
        return []

    def begin(self, fed: tuple[Fed, ...], now: datetime.datetime, before: Version | None) -> str:
        """The folder of the version after `before`; one that the same update has begun is gone on with.

        A version that was begun keeps all other updates from beginning, and whoever begins looks after that whether
        another one came first: so none starts from an older version than the newest, lock or no lock.
        """
        what = digest("".join(one.digest for one in fed).encode()).encode()
        dated = self._dated()
        for name in self._unfinished(dated):
            if not self.storage.read(f"{name}/{BEGUN}").startswith(what):
                raise self._taken(name)
            self._check_newest(before)
            return name
        what += b" " + uuid.uuid4().hex.encode() + b" " + " ".join(one.digest for one in fed).encode()
        now = now.replace(microsecond=0)
        if dated:  # dates rise, whatever the clock says
            last = datetime.datetime.strptime(dated[-1], _WRITTEN).replace(tzinfo=datetime.UTC)
            now = max(now, last + datetime.timedelta(seconds=1))
        name = now.strftime(_WRITTEN)
        self._put(name, what)
        try:
            for other in self._unfinished(self._dated()):
                if other != name:
                    raise self._taken(other)
            self._check_newest(before)
        except StoreError:
            self.give_up(name)
            raise
        return name

    def _put(self, name: str, what: bytes) -> None:
        if not self.storage.put_if_absent(f"{name}/{BEGUN}", what):
            raise self._taken(name)

    def _unfinished(self, dated: list[str]) -> list[str]:
        """Those that were begun; what has neither record is left of a removed version, or somebody else's."""
        has = self.storage.exists
        return [name for name in dated if has(f"{name}/{BEGUN}") and not has(f"{name}/{RECORD}")]

    def _taken(self, name: str) -> StoreError:
        return StoreError(
            f"another update of {self.url} is under way or was interrupted in {name}; "
            "run it again with the same files to finish it, or remove that folder"
        )

    def _check_newest(self, before: Version | None) -> None:
        if self.newest() != before:
            raise StoreError(f"another update of {self.url} has come first; run it again: nothing of this one was kept")

    def give_up(self, name: str) -> None:
        """Remove a version that was begun with input that is refused."""
        self.storage.remove_ours(name, NAMES)

    def prune(self, keep: int) -> list[str]:
        """Remove the oldest versions, so that so many are left; nothing that is not ours goes. Their dates."""
        names = self.names()
        left = [name for name in self._dated() if name not in names and not self.storage.exists(f"{name}/{BEGUN}")]
        for name in names[:-keep]:
            # First, so that nobody opens what is half gone, or takes it for begun.
            self.storage.remove(f"{name}/{BEGUN}")
            self.storage.remove(f"{name}/{RECORD}")
        for name in (*left, *names[:-keep]):
            self.storage.remove_ours(name, NAMES)
        return names[:-keep]
