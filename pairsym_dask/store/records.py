"""The door: every record that is read from a store is checked here, field by field, before anybody believes it.

A digest tells damage from what was written; it does not tell who wrote it. So a record from a stranger may say
anything, and what passes here has the fields, kinds and ranges that the rest of the package relies on.
"""

from __future__ import annotations

import base64
import json
import math
import re
import reprlib
from dataclasses import dataclass, fields
from typing import Any, NotRequired, TypedDict

import numpy as np

from ..errors import DamagedStoreError, InputError, StoreError
from ..settings import SIDES, Settings
from .arrays import Manifest
from .fields import MANIFEST, Fields
from .storage import Storage, digest

RECORD_BYTES = 2**27  # of a counts or commit record, at most: half a million files take a third of it
SMALL_BYTES = 2**20  # of any other record, at most
VALUES = 2**18  # values a record may hold beside those of its files
BYTES_A_VALUE = 20  # of the part of a record that lists files, at least
COUNT_TYPES = ("uint8", "uint16", "uint32", "uint64", "float64")
LABEL_TYPES = ("int64", "string")
SOLVERS = ("cholesky", "gradients", "cholesky, xi* last", "gradients, xi* last", "gradients, xi* last, items first")
FINITE_SCALARS = ("elbo", "xi_star", "log_z_next")
WATCHED = 8  # energies that a chain traces
CHAIN_SCALARS = ("log_likelihood", "shown", "log_psi", *(f"energy_{k}" for k in range(WATCHED)))
_GENERATION = re.compile(r"generation-(\d{5,20})-[0-9a-f]{1,64}")


class LayoutRecord(TypedDict):
    users: int
    items: int
    pairs: int
    count_dtype: str


class CountsRecord(TypedDict):
    """`counts.json`, checked."""

    format: str
    version: int
    layout: LayoutRecord
    cuts: dict[str, list[int]]
    chunk: int
    total: str
    labels: dict[str, str]
    tiles: dict[str, list[int]]
    files: Manifest
    content: str
    source: str
    digest: str


class CountsAddress(TypedDict):
    path: str
    digest: str


class TagsAddress(TypedDict):
    path: str
    digest: str
    tags: int  # how many there are
    fades: NotRequired[bool]  # see `TagPrior`; no word of it in the first stores with tags, where it grew


class StartRecord(TypedDict):
    path: str
    sweep: int
    digest: str


class CommitRecord(TypedDict):
    """`commits/<sweep>.json`, checked."""

    format: str
    version: int
    sweep: int
    kept: bool
    generation: str
    parent: str | None
    settings: dict[str, Any]
    counts: CountsAddress
    rows: dict[str, int]
    blocks: dict[str, int]
    scalars: dict[str, str]
    seconds: float
    files: Manifest
    mark: str
    digest: str
    shards: NotRequired[dict[str, int]]  # from version 2 on: blocks a shard; `files` has the list of them alone
    solver: NotRequired[str]
    start: NotRequired[StartRecord]
    tags: NotRequired[dict[str, TagsAddress]]
    backgrounds: NotRequired[dict[str, str]]  # of a variational fit
    priors: NotRequired[dict[str, str]]  # of a chain, as are the next two
    draw: NotRequired[bool]
    burn: NotRequired[int]


@dataclass(frozen=True)
class HolderRecord:
    """`lock/<number>.json`, checked."""

    id: str
    host: str
    machine: str
    pid: int
    started: float
    since: str


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """A JSON record with its own digest; one that it has already does not count."""
    body = {key: value for key, value in record.items() if key != "digest"}
    return {**body, "digest": digest(canonical(body))}


def seal(record: dict[str, Any]) -> bytes:
    """A JSON record with its own digest, as canonical bytes."""
    return canonical(sealed(record))


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """A record written by `seal`: the bytes that were written, its fields not yet looked at."""
    try:
        record = parse(data)
        sound = record["digest"] == sealed(record)["digest"]
    except (ValueError, KeyError, RecursionError):
        raise DamagedStoreError(f"{where} is not a readable record") from None
    if not sound:
        raise DamagedStoreError(f"{where} does not hold the record that was written")
    return record


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object; ValueError or RecursionError for anything else, and for one of many more values than we write."""
    # Empty lists and short numbers take ten times their text in memory.
    if data.count(b",") > VALUES + len(data) // BYTES_A_VALUE:
        raise ValueError("a record of too many values")
    record = json.loads(data)
    if not isinstance(record, dict):
        raise ValueError("a record that is no object")
    return record


def canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def check_record_size(size: int, where: str, most: int = RECORD_BYTES) -> None:
    """Refuse to read a record that is far larger than any that we write."""
    if size > most:
        raise DamagedStoreError(f"{where} has {size} bytes; a record has {most} at most")


def read_record(storage: Storage, key: str, most: int = RECORD_BYTES) -> bytes:
    """The bytes of a record; FileNotFoundError when there is none."""
    check_record_size(storage.size(key), f"{storage.url}/{key}", most)
    return storage.read(key, limit=most)


def check_format(record: dict[str, Any], form: str, where: str, *versions: int) -> None:
    """Refuse a record of another format or version than those that are read here."""
    found = record.get("format"), record.get("version")
    if found not in [(form, version) for version in versions]:
        shown, read = " version ".join(map(reprlib.repr, found)), " or ".join(map(str, versions))
        raise StoreError(f"{where} has format {shown}; this pairsym_dask reads {form!r} version {read}")


def counts_record(record: dict[str, Any], where: str) -> CountsRecord:
    """A counts record whose fields are there, of the right kind and within range; the format is known to be ours."""
    found = Fields(record, where)
    layout = found.inside("layout")
    pairs, total = layout.whole("pairs", 0, 2**62), found.real("total")
    if not (0 < total < math.inf if pairs else total == 0):
        found.refuse("total", "a finite number above 0, or 0 without pairs")
    sides, cuts, tiles = found.inside("labels"), found.inside("cuts"), found.inside("tiles")
    return CountsRecord(
        format=found.text("format"),
        version=found.whole("version"),
        layout=LayoutRecord(
            users=layout.whole("users", 1, 2**32 - 1),
            items=layout.whole("items", 1, 2**32 - 1),
            pairs=pairs,
            count_dtype=layout.one_of("count_dtype", COUNT_TYPES),
        ),
        cuts={side: cuts.wholes(side, 1) for side in SIDES},
        chunk=found.whole("chunk", 1),
        total=record["total"],
        labels={side: sides.one_of(side, LABEL_TYPES) for side in SIDES},
        tiles={side: tiles.wholes(side, 0) for side in SIDES},
        files=found.manifest("files"),
        content=found.digest("content"),
        source=found.shown("source"),
        digest=found.digest("digest"),
    )


def commit_record(record: dict[str, Any], where: str) -> CommitRecord:
    """A commit record whose fields are there, of the right kind and within range; the format is known to be ours."""
    found = Fields(record, where)
    sweep = found.whole("sweep", 0, 10**12)
    generation = found.text("generation")
    named = _GENERATION.fullmatch(generation)
    if named is None or int(named[1]) != sweep:
        found.refuse("generation", f"the folder of a generation of sweep {sweep}")
    counts, rows, blocks = (found.inside(name) for name in ("counts", "rows", "blocks"))
    settings, scalars = _settings(found), found.inside("scalars")
    chain = settings["inference"] == "gibbs"
    names = _chain_scalars(scalars, sweep, settings["components"]) if chain else _fit_scalars(scalars)
    checked = CommitRecord(
        format=found.text("format"),
        version=found.whole("version"),
        sweep=sweep,
        kept=found.truth("kept"),
        generation=generation,
        parent=None if record.get("parent") is None else found.digest("parent"),
        settings=settings,
        counts=CountsAddress(path=counts.text("path"), digest=counts.digest("digest")),
        rows={side: rows.whole(side, 1, 2**32 - 1) for side in SIDES},
        blocks={side: blocks.whole(side, 1, 2**32 - 1) for side in SIDES},
        scalars={name: float(scalars.real(name)).hex() for name in names},
        seconds=found.seconds("seconds"),
        files=found.manifest("files"),
        mark=found.digest("mark"),
        digest=found.digest("digest"),
    )
    if checked["version"] > 1:
        checked["shards"] = found.runs("shards")
        if set(checked["files"]) != {MANIFEST}:
            found.refuse("files", f"size and digest of {MANIFEST} alone")
    if chain:
        checked["draw"], checked["burn"] = found.truth("draw"), found.whole("burn", 0, 10**12)
        checked["priors"] = {side: _prior(found.inside("priors"), side, settings["factors"]) for side in SIDES}
    else:
        checked["backgrounds"] = {side: found.inside("backgrounds").numbers(side) for side in SIDES}
    if "solver" in record:
        checked["solver"] = found.one_of("solver", SOLVERS)
    if "tags" in record:
        given = found.inside("tags")
        sides = {side: given.inside(side) for side in SIDES if side in given.values}
        if not sides or set(given.values) != set(sides):
            found.refuse("tags", "tag stores by side")
        checked["tags"] = {side: _tags_address(one) for side, one in sides.items()}
    if record.get("start") is not None:
        start = found.inside("start")
        checked["start"] = StartRecord(
            path=start.text("path"), sweep=start.whole("sweep", 0, 10**12), digest=start.digest("digest")
        )
    return checked


def _tags_address(one: Fields) -> TagsAddress:
    address = TagsAddress(path=one.text("path"), digest=one.digest("digest"), tags=one.whole("tags", 1, 2**32 - 1))
    if "fades" in one.values:
        address["fades"] = one.truth("fades")
    return address


def _prior(priors: Fields, side: str, factors: int) -> str:
    """The normal priors of a side: K means, K x K precisions, mean and precision of biases."""
    text = priors.numbers(side)
    values = np.frombuffer(base64.b64decode(text), "<f8")
    if values.size != factors + factors**2 + 2 or not values[-1] > 0:
        priors.refuse(side, f"priors of {factors} traits and a bias")
    try:
        np.linalg.cholesky(values[factors : factors + factors**2].reshape(factors, factors))
    except np.linalg.LinAlgError:
        priors.refuse(side, "priors whose precisions are positive")
    return text


def _fit_scalars(scalars: Fields) -> list[str]:
    """Names of a variational sweep's scalars, checked."""
    for name in FINITE_SCALARS:
        if not math.isfinite(scalars.real(name)):
            scalars.refuse(name, "a finite number")
    if scalars.real("xi_star") < 0:
        scalars.refuse("xi_star", "a number from 0 on")
    names = [*FINITE_SCALARS, "log_z_items", "log_z_users"]
    if "discount_scale" in scalars.values:
        names.append("discount_scale")
        if not 0 < scalars.real("discount_scale") < math.inf:
            scalars.refuse("discount_scale", "a finite number above 0")
    return names


def selected_names(side: str, components: int) -> list[str]:
    """Scalars of a chain that hold what a side's Gamma numbers of selection sum to, by component."""
    return [f"selected_{side}"] if components == 1 else [f"selected_{side}_{n}" for n in range(components)]


def _chain_scalars(scalars: Fields, sweep: int, components: int) -> list[str]:
    """Names of a chain's scalars, checked; its start has no likelihood yet."""
    later = ("log_likelihood", "shown")
    if components > len(scalars.values):  # a stranger's number of components, before anything is made as large
        scalars.refuse("selected_users", f"a number for each of {components} components")
    selected = [name for side in SIDES for name in selected_names(side, components)]
    for name in (*CHAIN_SCALARS, *selected):
        if not math.isfinite(scalars.real(name)) and not (sweep == 0 and name in later):
            scalars.refuse(name, "a finite number")
    for name in selected:
        if not scalars.real(name) > 0:
            scalars.refuse(name, "a number above 0")
    return [*CHAIN_SCALARS, *selected]


def _settings(found: Fields) -> dict[str, Any]:
    values = found.inside("settings").values
    known = {field.name for field in fields(Settings)}
    if not known - Settings.later() <= set(values) <= known:
        found.refuse("settings", f"the settings {', '.join(sorted(known))}")
    try:
        return Settings.from_record(values).to_dict()
    except (InputError, OverflowError) as error:
        raise DamagedStoreError(f"{found.where} holds settings that cannot be: {error}") from None


def holder_record(data: bytes) -> HolderRecord | None:
    """Who holds a store, None when the record cannot be read or believed."""
    try:
        found = Fields(parse(data), "")
        texts = {name: found.shown(name, 1000) for name in ("id", "host", "machine", "since")}
        return HolderRecord(pid=found.whole("pid", 1, 2**31 - 1), started=found.seconds("started"), **texts)
    except (ValueError, RecursionError, DamagedStoreError):
        return None
