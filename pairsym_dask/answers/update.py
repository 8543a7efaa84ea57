"""`update`: more pairs of known and new symbols, and a fit that starts where an earlier one stands.

Stores are never changed: the old pairs and the new ones become a new counts store, and the fit to it is a model store
of its own whose sweep 0 is the warm start. Known symbols take their posterior rows, new ones begin as the average one.
"""

from __future__ import annotations

import os
from typing import Any

import fsspec.core
from dask.base import tokenize

from ..errors import InputError, StoreError
from ..pairs.files import find_files
from ..pairs.ingest import write_pairs
from ..pairs.matrices import is_matrix
from ..pairs.parts import Columns
from ..pairs.sources import opened
from ..settings import SIDES, Settings
from ..store.counts import RECORD, Counts, open_counts
from ..store.model_store import Commit, ModelStore
from ..store.storage import is_local, open_storage
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
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    progress: bool = False,
    **fitting: Any,
) -> Counts:
    """Write the counts store at `grown`, fit to it in `store` from the rows of `commit`; the new counts.

    What an interrupted update has finished is not done again.
    """
    _check_settings(settings, commit.settings)
    check_options(**fitting)
    if open_storage(grown, options).url == store.url:
        raise InputError(f"the counts and the model need a store each, not both {store.url}")
    store.check_target()
    if store.is_model():
        check_warm(store.commits(last=0), commit, store)
    where = {"client": client, "threads": threads, "memory": memory, "progress": progress}
    more = _grow(counts, source, columns, grown, options, where)
    rows = {side: counts.find(side, more.labels(side)) for side in SIDES}
    fit(more, settings, store, warm=Warm(commit, rows), **where, **fitting)
    return more


def _check_settings(settings: Settings, before: Settings) -> None:
    for name in ("factors", "biases"):
        if getattr(settings, name) != getattr(before, name):
            raise InputError(
                f"an update takes over posterior rows of {name}={getattr(before, name)!r}, "
                f"so {name} cannot become {getattr(settings, name)!r}; fit from scratch for that"
            )


def _grow(
    counts: Counts, source: Any, columns: Columns, path: Any, options: dict[str, Any], where: dict[str, Any]
) -> Counts:
    """The store of the old pairs and the new ones; one that an interrupted update has finished is taken as it is."""
    listed = [opened(one, options) for one in (source if isinstance(source, (list, tuple)) else [source])]
    if any(is_matrix(one) for one in listed):
        raise InputError(
            "new pairs cannot come as a matrix, whose rows have no labels; give a frame, files or a Counts"
        )
    remark = f" (update {tokenize(counts.digest, columns, [_fingerprint(one, options) for one in listed])})"
    if open_storage(path, options).exists(RECORD):
        there = open_counts(path, options)
        if not there.record["source"].endswith(remark):
            raise StoreError(
                f"{there.path} exists already and is not the store of {counts.path} with just these new pairs; "
                "remove it first, or give another path"
            )
        return there
    return write_pairs([counts, *listed], path, columns, options, remark, **where)


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
