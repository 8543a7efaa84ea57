"""Read everything in a store and say what is sound and what is not."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ..errors import DamagedStoreError, StoreError
from ..settings import SIDES
from . import counts as counts_module
from .arrays import ArraySpec, Sealed
from .commit import Commit
from .counts import Counts
from .model_store import ModelStore, receipt
from .records import SMALL_BYTES, canonical
from .storage import Storage, digest, open_storage
from .versions import Version, find_version


@dataclass
class Report:
    """What `verify` found; prints as one line a finding."""

    path: str
    kind: str  # "counts", "tags", "model" or "version"
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    @property
    def sound(self) -> bool:
        return not self.damage

    def lines(self) -> list[str]:
        """The findings, the verdict last."""
        read = f"{self.files:,} files, {self.bytes / 2**20:,.1f} MiB read"
        verdict = "sound" if self.sound else f"NOT SOUND ({len(self.damage)} findings)"
        return [*self.notes, *(f"damaged: {line}" for line in self.damage), f"{self.path}: {verdict}; {read}"]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def verify(path: str | os.PathLike[str] | Storage, storage_options: dict[str, Any] | None = None) -> Report:
    """Read every file of a counts or model store, or of both of a version, against its digest; a fit may be running."""
    storage = open_storage(path, storage_options)
    store = ModelStore(storage)
    if store.is_model() or store.holds_commits():
        return _verify_model(store)
    version = find_version(storage)
    return _verify_counts(storage) if version is None else _verify_version(version, storage_options)


def _verify_version(version: Version, options: dict[str, Any] | None) -> Report:
    """Both stores of a version or a pack."""
    report = Report(version.address, "version")
    for path in (version.counts, version.model):
        found = verify(path, options)
        report.damage += found.damage
        report.notes += found.notes
        report.files, report.bytes = report.files + found.files, report.bytes + found.bytes
    return report


def _verify_counts(storage: Storage) -> Report:
    report = Report(storage.url, "counts")
    try:
        counts = counts_module.counts_as_recorded(storage)
    except FileNotFoundError:
        if not (storage.exists("zarr.json") or storage.exists(counts_module.MARK)):
            raise StoreError(f"there is no counts or model store at {storage.url}") from None
        report.damage.append(
            f"{storage.url}/{counts_module.RECORD} is missing: the ingest was interrupted, or the file was lost"
        )
        return report
    except StoreError as error:
        report.damage.append(str(error))
        return report
    report.kind = counts.holds if counts.holds == "tags" else report.kind
    report.files += 1
    for key in sorted(counts.sealed.manifest):
        _read(report, counts.sealed, key, {})
    if report.sound:
        try:
            _look_through(counts)
        except StoreError as error:
            report.damage.append(str(error))
    known = {*counts.sealed.manifest, counts_module.RECORD}
    report.notes += [f"not part of the store: {key}" for key in storage.keys() if key not in known]
    return report


def _look_through(counts: Counts) -> None:
    """See that sound bytes say what can be: every tile, label and sum, and the digest of them all."""
    body = {name: value for name, value in counts.record.items() if name not in ("content", "source", "digest")}
    if counts.kept == SIDES and digest(canonical(body)) != counts.digest:  # a pack names that of the whole
        raise DamagedStoreError(f"{counts.path}/{counts_module.RECORD} names another content than it lists")
    for side in SIDES:
        for _ in counts.columns[side].chunks():
            pass
        counts.marginal(side)
        for _ in counts_module.iterate_rows(counts, side) if side in counts.kept else ():
            pass


def _read(report: Report, sealed: Sealed, key: str, arrays: dict[str, ArraySpec]) -> None:
    """Read one file against its digest; chunks of known arrays also for what their values may be."""
    try:
        report.bytes += sealed.check_file(key, arrays)
        report.files += 1
    except StoreError as error:
        report.damage.append(str(error))


def _verify_model(store: ModelStore) -> Report:
    report = Report(store.url, "model")
    try:
        commits = store.commits()
    except StoreError as error:
        report.damage.append(str(error))
        commits = store.sound_commits()
    report.files += len(commits) + store.is_model()
    for commit in store.wanted(commits):
        _verify_generation(report, store, commit, len(commits))
    if not commits and report.sound:
        report.notes.append("no sweep is committed yet")
    held = store.holder()
    if held is not None:
        report.notes.append(f"in use by {held}")
    folders = {commit.folder for commit in commits}
    for name in store.storage.folders():
        if name.startswith("generation-") and name not in folders:
            report.notes.append(f"{name}: an attempt without a commit, removed by a later fit")
        if name.startswith("damaged-"):
            report.notes.append(f"{name}: set aside earlier, not read")
    return report


def _verify_generation(report: Report, store: ModelStore, commit: Commit, commits: int) -> None:
    found = Report(report.path, report.kind)
    try:
        sealed = commit.sealed  # first: what follows is as large as its shapes
        for key in sorted(sealed.manifest):
            _read(found, sealed, key, commit.arrays)
    except StoreError as error:
        found.damage.append(str(error))
    name = f"{store.url}/{commit.folder}/receipt"
    try:
        if store.storage.read(f"{commit.folder}/receipt", limit=SMALL_BYTES) != receipt(commit.record):
            found.damage.append(f"{name} does not hold the bytes that were written")
        found.files += 1
    except FileNotFoundError:
        # The newest one is written a moment after its commit: a fit that was killed in between left none.
        if commit.sweep < commits - 1:
            found.damage.append(f"{name} is missing")
        else:
            found.notes.append(f"sweep {commit.sweep} has no receipt yet; the next fit leaves it")
    if found.damage and not store.is_there(commit) and not _still_wanted(store, commit):
        return  # a fit that runs has moved on
    report.damage += found.damage
    if not found.damage:
        found.notes.insert(0, f"sweep {commit.sweep}: sound, {found.files} files")
    report.notes += found.notes
    report.files += found.files
    report.bytes += found.bytes


def _still_wanted(store: ModelStore, commit: Commit) -> bool:
    try:
        commits = store.commits()
    except StoreError:
        return True
    return commit.sweep in [wanted.sweep for wanted in store.wanted(commits)]
