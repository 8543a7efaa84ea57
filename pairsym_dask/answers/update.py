"""`update`: more pairs of known and new symbols, and a fit that starts where an earlier one stands.

Stores are never changed: the old pairs and the new ones become a new counts store, and the fit to it is a model store
of its own whose sweep 0 is the warm start. Known symbols take their posterior rows, new ones begin as the average one.
"""

from __future__ import annotations

import os
from dataclasses import astuple
from typing import Any

import fsspec.core
import numpy as np
from dask.base import tokenize
from dask.hashing import hash_buffer_hex
from dask.tokenize import normalize_token

from ..errors import InputError, StoreError
from ..pairs.files import find_files
from ..pairs.ingest import write_pairs
from ..pairs.matrices import is_matrix
from ..pairs.parts import Columns, Reading
from ..pairs.sources import list_sources
from ..pairs.times import HalfLife
from ..sampler.chain import sample
from ..settings import SIDES, Settings
from ..store.commit import Commit
from ..store.counts import RECORD, Counts, open_counts
from ..store.model_store import ModelStore
from ..store.secrets import hidden
from ..store.storage import is_local, open_storage
from ..store.tags import Tags
from ..sweep.fit import Warm, fit
from ..sweep.resume import check_options, check_warm


def update(
    commit: Commit,
    counts: Counts,
    settings: Settings,
    source: Any,
    columns: Columns,
    grown: str | os.PathLike[str],
    store: ModelStore,
    options: dict[str, Any],
    *,
    half_life: Any = None,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    progress: bool = False,
    sampling: dict[str, Any] | None = None,
    tags: dict[str, Tags] | None = None,
    earlier_tags: dict[str, Tags] | None = None,
    **fitting: Any,
) -> Counts:
    """Write the counts store at `grown`, fit to it in `store` from the rows of `commit`; the new counts.

    What an interrupted update has finished is not done again. `sampling` are burn and thin of draws, `tags` the tag
    stores of the new fit, `earlier_tags` those of the commit.
    """
    _check_settings(settings, commit.settings)
    check_options(**fitting)
    if open_storage(grown, options).url == store.url:
        raise InputError(f"the counts and the model need a store each, not both {store.url}")
    store.check_target()
    if store.is_model():
        check_warm(store.commits(last=0), commit, store)
    where = {"client": client, "threads": threads, "memory": memory, "progress": progress}
    with hidden(source if isinstance(source, (list, tuple)) else [source], options):
        fade = _same_fading(counts, columns, half_life)
        more = _grow(counts, source, columns, fade, grown, options, where)
    rows = {side: _rows_before(counts, more, side) for side in SIDES}
    warm = Warm(commit, rows, earlier_tags or {})
    if settings.inference == "gibbs":
        fitting.pop("tol", None)
        sample(more, settings, store, warm=warm, tags=tags, **where, **fitting, **(sampling or {}))
    else:
        fit(more, settings, store, warm=warm, tags=tags, **where, **fitting)
    return more


def _rows_before(counts: Counts, more: Counts, side: str) -> np.ndarray:
    """Row in the earlier store of every symbol of the new one, -1 for new symbols."""
    rows, first = np.empty(more.cuts[side].rows, np.int64), 0
    for labels in more.columns[side].chunks():
        rows[first : first + len(labels)] = counts.columns[side].find(labels)
        first += len(labels)
    return rows


def _check_settings(settings: Settings, before: Settings) -> None:
    for name in ("factors", "biases", "inference"):
        if getattr(settings, name) != getattr(before, name):
            raise InputError(
                f"an update takes over posterior rows of {name}={getattr(before, name)!r}, "
                f"so {name} cannot become {getattr(settings, name)!r}; fit from scratch for that"
            )


def _same_fading(counts: Counts, columns: Columns, half_life: Any) -> HalfLife | None:
    """The half-life of the model's counts; new events fade by the same one, or neither does."""
    if counts.faded is None:
        if columns.time is not None or half_life is not None:
            raise InputError(
                f"the counts of {counts.path} do not fade: leave time and half_life out, or fit to events ingested so"
            )
        return None
    if columns.time is None:
        raise InputError(f"the counts of {counts.path} fade with the age of events: name that of new ones with time")
    fade = HalfLife(counts.faded[0]) if half_life is None else HalfLife.read(columns.time, half_life)
    assert fade is not None
    fade.follow(counts.faded, counts.path)
    return fade


def _grow(
    counts: Counts,
    source: Any,
    columns: Columns,
    fade: HalfLife | None,
    path: Any,
    options: dict[str, Any],
    where: dict[str, Any],
) -> Counts:
    """The store of the old pairs and the new ones; one that an interrupted update has finished is taken as it is."""
    listed = list_sources(source, columns, options)
    if any(is_matrix(one) for one in listed):
        raise InputError(
            "new pairs cannot come as a matrix, whose rows have no labels; give a frame, files or a Counts"
        )
    found = [_fingerprint(one, options) for one in listed]
    # How text was read is part of it where it was asked for; stores without it are those of earlier versions.
    reading = () if columns.reading == Reading() else astuple(columns.reading)
    reading += () if columns.time is None else (columns.time,)
    remark = _remark(counts.digest, (columns.user, columns.item, columns.count, *reading), found)
    if open_storage(path, options).exists(RECORD):
        there = open_counts(path, options)
        known = (remark, _remark(counts.digest, FirstColumns(columns), found))
        if not there.record["source"].endswith(known):
            raise StoreError(
                f"{there.path} exists already and is not the store of {counts.path} with just these new pairs; "
                "remove it first, or give another path"
            )
        return there
    return write_pairs([counts, *listed], path, columns, options, remark, half_life=fade, **where)


def _remark(*what: Any) -> str:
    """The end of what a grown store says about its source: which pairs were added to which."""
    return f" (update {tokenize(*what)})"


class FirstColumns:
    """Columns as stores of version 0.1.0 remember them, where dask hashed the class `pairsym_dask.sources.Columns`."""

    # A pickle of that class.
    REFERENCE = b"\x80\x05\x95$\0\0\0\0\0\0\0\x8c\x14pairsym_dask.sources\x94\x8c\x07Columns\x94\x93\x94."

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def __dask_tokenize__(self) -> Any:
        parameters = self.columns.__dataclass_params__  # type: ignore[attr-defined]
        names = parameters.__slots__
        return (
            (hash_buffer_hex(self.REFERENCE), []),
            [(name, getattr(parameters, name)) for name in names],
            [(name, normalize_token(getattr(self.columns, name))) for name in ("user", "item", "count")],
        )


def _fingerprint(source: Any, options: dict[str, Any]) -> Any:
    """What tells a source from another: the content of stores and frames, names and ages of files."""
    if isinstance(source, Counts):
        return source.digest
    if not isinstance(source, (str, os.PathLike)):
        return source
    found = []
    for name in find_files(source, options):
        files, path = fsspec.core.url_to_fs(name, **({} if is_local(name) else options))
        found.append((name, files.ukey(path)))
    return found
