"""What a source turns out to be: stores, files and frames in parts, dask frames."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from ..errors import InputError
from ..store.counts import RECORD, Counts, open_counts
from ..store.secrets import without_credentials
from ..store.storage import is_local, local_path, open_storage
from .csv_files import CsvPart, has_quotes
from .files import file_parts, find_files
from .frames import as_frame
from .parts import Columns, Part, frame_parts, store_parts
from .writing import Stages

FRAMES = (pd.DataFrame, pa.Table, pa.RecordBatch)


@dataclass(frozen=True)
class Found:
    """What a source turns out to be: parts of stores, parts of files and frames, dask frames."""

    stores: list[Counts]
    stored: list[Part]
    parts: list[Part]
    partitions: list[Partitions]
    there: set[Any]  # names of columns
    name: str


@dataclass(frozen=True)
class Partitions:
    """A dask frame: its graph, and the keys of its partitions."""

    graph: dict[Any, Any]
    keys: list[Any]


def find_sources(source: Any, columns: Columns, stages: Stages, options: dict[str, Any]) -> Found:
    found = Found([], [], [], [], set(), "")
    paths, names = [], []
    listed = list_sources(source, columns, options)
    frames = [k for k, one in enumerate(listed) if isinstance(one, FRAMES)]
    for k, one in enumerate(listed):
        if isinstance(one, Counts):
            found.stores.append(one)
            found.stored.extend(store_parts(one, columns))
            names.append(one.path)
        elif is_dask_collection(one) and hasattr(one, "columns"):
            columns.check(list(one.columns), "the dask frame")
            wanted = one[columns.names].optimize()
            found.partitions.append(Partitions(dict(wanted.__dask_graph__()), list(wanted.__dask_keys__())))
            found.there.update(one.columns)
            names.append("the dask frame")
        elif isinstance(one, FRAMES):
            name = "the frame" if len(frames) == 1 else f"frame {1 + frames.index(k)} of {len(frames)}"
            parts, there = frame_parts(one, name, columns, stages.rows)
            found.parts.extend(parts)
            found.there.update(there)
            if k == frames[0]:
                names.append("the frame" if len(frames) == 1 else f"{len(frames)} frames")
        elif isinstance(one, (str, os.PathLike)):
            paths.append(one)
            text = os.fspath(one)
            names.append(without_credentials(text))
        else:
            raise _unreadable(one)
    if not names:
        raise _unreadable(source)
    files: list[Part] = []
    for file in find_files(paths, options) if paths else []:
        parts, there = file_parts(file, columns, stages.rows, options)
        files += parts
        found.there.update(there)
    found.parts.extend(_join_quoted(files, stages))
    return replace(found, name=", ".join(names))


def list_sources(source: Any, columns: Columns, options: dict[str, Any]) -> list[Any]:
    """What a source is made of, one by one: stores opened, rows in memory as frames; read once, as streams may be."""
    if is_dask_collection(source):
        return [source]
    frame = as_frame(source, columns)
    if frame is not None:
        return [frame]
    if isinstance(source, (list, tuple)):
        if source and all(isinstance(row, list) for row in source):
            raise InputError("rows in a list must be tuples, not lists; give [tuple(row) for row in rows]")
        return [part for one in source for part in list_sources(one, columns, options)]
    return [_opened(source, options)]


def _opened(source: Any, options: dict[str, Any]) -> Any:
    """A source, as a `Counts` when it is the path of a counts store."""
    if not isinstance(source, (str, os.PathLike)) or glob.has_magic(os.fspath(source)):
        return source
    if is_local(source) and not os.path.isdir(local_path(source)):
        return source
    storage = open_storage(source, options)
    return open_counts(storage) if storage.exists(RECORD) else source


def _unreadable(source: Any) -> InputError:
    return InputError(
        f"pairs cannot be read from a {type(source).__name__}; give paths, a frame of pandas, arrow, "
        "polars or dask, a dict of columns, a list of tuples, or a sparse matrix"
    )


def _join_quoted(parts: list[Part], stages: Stages) -> list[Part]:
    """CSV files with quotes become one part each: a line break inside quotes does not end a row."""
    blocks = [part for part in parts if isinstance(part, CsvPart) and part.stop is not None]
    found = stages.run("scan-csv", has_quotes, [(block,) for block in blocks])
    quoted = {block.name for block, quotes in zip(blocks, found, strict=True) if quotes}
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, CsvPart) and part.name in quoted:
            if part.start == 0:
                kept.append(replace(part, stop=None))
        else:
            kept.append(part)
    return kept
