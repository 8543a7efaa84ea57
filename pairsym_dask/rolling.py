"""Rolling updates: a model that is brought up to date again and again under one name.

Every update is a dated version, a counts store and a model store in a folder of their own (`store/versions.py`). The
newest one remembers the content of all that was ever fed, so that nothing is counted twice by accident.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

import fsspec.core
import xxhash
from dask.base import tokenize

from .errors import InputError, MemoryBudgetError
from .model import PairedSymbols, load
from .options import one_of, whole_number
from .pairs.files import find_files
from .pairs.parts import Columns
from .pairs.sources import list_sources
from .store.counts import RECORD, Counts
from .store.model_store import ModelStore
from .store.secrets import without_credentials
from .store.storage import is_local, local_path
from .store.versions import COUNTS, MODEL, Fed, Version, Versions, write_version

Source = tuple[Any, str, str]  # a file, a frame or a store; its name; a digest of its content


def roll(
    folder: str | os.PathLike[str],
    source: Any,
    *,
    start: PairedSymbols | str | os.PathLike[str] | None = None,
    keep_last: int | None = None,
    repeated: str = "error",
    sweeps: int = 3,
    user: Any = "user",
    item: Any = "item",
    count: Any = None,
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> PairedSymbols:
    """Bring the model under a name up to date with more pairs, as a new dated version.

    Parameters
    ----------
    folder : path
        Holds the versions; `load` and the command line open the newest one by this name.
    source : path, frame or list
        New pairs, as `ingest` takes them (no matrix).
    start : PairedSymbols or path, optional
        The fitted model that the first update starts from.
    keep_last : int, optional
        Remove all but so many of the newest versions; all stay by default.
    repeated : {"error", "skip", "again"}
        What was fed before, known by its content whatever its name, is an error; or left out, so that the same glob
        can be given every day; or counted again.
    sweeps : int
        Sweeps of the update.
    user, item, count : column names
        Without `count` each row is one pair. Repeated pairs are added up.
    storage_options : dict, optional
        Options of fsspec for remote stores.
    **options
        Others of `PairedSymbols.update`.

    Returns
    -------
    PairedSymbols
        The new model; the old one where there is nothing new. An update that was interrupted goes on where it stopped
        when it is called again with the same pairs.

    Examples
    --------
    >>> model = ps.roll("plays", [("eve", "poker")], start="model.zarr", progress=False)
    >>> ps.load("plays").counts.total
    7.0
    """
    one_of("repeated", repeated, ("error", "skip", "again"))
    keep = None if keep_last is None else whole_number("keep_last", keep_last, least=1)
    versions = Versions(folder, storage_options)
    _check_folder(versions)
    _check_start(versions, versions.newest(), start)
    columns = Columns(user, item, count, time=options.get("time"))
    named = list(_named(source, columns, storage_options or {}))
    with versions.held():
        before = versions.newest()
        _check_start(versions, before, start)
        first = versions.url if start is None else start
        model = first if isinstance(first, PairedSymbols) else load(first, storage_options=storage_options)
        fed = () if before is None else before.fed
        for some in _rounds(_fresh(named, fed, repeated), versions.begun()):
            now = datetime.datetime.now(datetime.UTC)
            new = tuple(Fed(name, content, now.isoformat(timespec="seconds")) for _, name, content in some)
            name = versions.begin(new, now, before)
            try:
                model = model.update(
                    [one for one, _, _ in some],
                    f"{versions.url}/{name}/{COUNTS}",
                    f"{versions.url}/{name}/{MODEL}",
                    sweeps,
                    user=user,
                    item=item,
                    count=count,
                    storage_options=storage_options,
                    **options,
                )
            except (InputError, MemoryBudgetError):
                versions.give_up(name)
                raise
            fed += new
            before = write_version(versions.storage, name, fed)
        if keep is not None:
            versions.prune(keep)
    return model if before is None else load(folder, storage_options=storage_options)


def _rounds(fresh: list[Source], begun: list[str]) -> list[list[Source]]:
    """What is fed together: what an interrupted update was about, where all of it is given again, and then the rest."""
    given = {content: (one, name, content) for one, name, content in fresh}
    if not begun or not given.keys() >= set(begun):
        return [fresh] if fresh else []
    rest = [source for source in fresh if source[2] not in begun]
    return [[given[content] for content in begun], *([rest] if rest else [])]


def _check_folder(versions: Versions) -> None:
    """Versions have a folder of their own."""
    if ModelStore(versions.storage).is_model() or versions.storage.exists(RECORD):
        raise InputError(
            f"{versions.url} is a store, and versions go into a folder of their own: give a name for it, and the store "
            "as start (--start); or give the names of two new stores (update, --counts and --model)"
        )


def _check_start(versions: Versions, before: Version | None, start: Any) -> None:
    """A first update needs a model to start from, and a later one must not have another."""
    if before is not None and start is not None:
        raise InputError(f"{versions.url} has versions already; start is for the first update")
    if before is None and start is None:
        raise InputError(f"{versions.url} holds no version yet; give the fitted model to start from (start, --start)")


def _named(source: Any, columns: Columns, options: dict[str, Any]) -> Any:
    """What a source is made of, file by file, each with its name and a digest of its content."""
    for one in list_sources(source, columns, options):
        if isinstance(one, Counts):
            yield one, one.path, one.digest
        elif isinstance(one, (str, os.PathLike)):
            for file in find_files(one, options):
                yield file, without_credentials(file), _content(file, options)
        else:
            yield one, f"a {type(one).__name__}", tokenize(one)


def _content(file: str, options: dict[str, Any]) -> str:
    if not is_local(file):
        files, path = fsspec.core.url_to_fs(file, **options)
        return str(files.ukey(path))
    found = xxhash.xxh3_128()
    with open(local_path(file), "rb") as stream:
        while data := stream.read(2**20):
            found.update(data)
    return found.hexdigest()


def _fresh(named: list[Source], fed: tuple[Fed, ...], repeated: str) -> list[Source]:
    """Sources that were not fed before; each content once."""
    if repeated == "again":
        return named
    known = {one.digest: f"was fed on {one.when} as {one.name}" for one in fed}
    fresh = []
    for one, name, content in named:
        if content not in known:
            fresh.append((one, name, content))
            known[content] = f"is given twice, also as {name}"
        elif repeated == "error":
            raise InputError(
                f'{name} {known[content]}: its pairs would count twice; leave it out with repeated="skip" '
                '(--repeated skip), or count it again with "again"'
            )
    return fresh
