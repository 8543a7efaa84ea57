"""Files of pairs: finding them behind paths, folders and globs, opening them, and their parts."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fsspec
import fsspec.utils
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import InputError
from ..store.storage import is_local, local_path
from .checks import INTEGER, TEXT
from .csv_files import csv_parts
from .faults import Faults
from .opening import PARQUET_ENDINGS, open_file, readable
from .parts import Columns, Part

CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def find_files(source: Any, options: dict[str, Any]) -> list[str]:
    """Files behind a path, a folder, a glob or a list of these, in order."""
    if isinstance(source, (list, tuple)):
        return sorted({file for one in source for file in find_files(one, options)})
    text = local_path(source)
    endings = PARQUET_ENDINGS + CSV_ENDINGS
    remote = not is_local(text)
    if remote:
        protocol = text.split("://", 1)[0]
        with readable(text, "remote"):
            fs = fsspec.filesystem(protocol, **options)
            isdir, isfile, find = fs.isdir, fs.isfile, fs.find
            matches = [fs.unstrip_protocol(name) for name in fs.glob(text)] if glob.has_magic(text) else [text]
    else:
        isdir, isfile = os.path.isdir, os.path.isfile
        matches = glob.glob(text, recursive=True) if glob.has_magic(text) and not os.path.exists(text) else [text]

        def find(folder: str) -> list[str]:
            return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]

    files: list[str] = []
    with readable(text, "remote"):
        for match in matches:
            if isdir(match):
                hidden = [name for name in find(match) if os.path.basename(name)[0] not in "._"]
                files += [fs.unstrip_protocol(name) if remote else name for name in hidden if _ends(name, endings)]
            elif isfile(match):
                if not _ends(match, endings):
                    raise InputError(f"{match} is not a file of pairs by its name; known endings: {', '.join(endings)}")
                files.append(match)
            else:
                raise InputError(f"no such file: {match}")
    if not files:
        raise InputError(f"no file of pairs in {text}" if matches else f"no file matches {text}")
    return sorted(files)


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().endswith(endings)


def file_parts(name: str, columns: Columns, rows: int, options: dict[str, Any]) -> tuple[list[Part], list[Any]]:
    """Parts of a file, each of about `rows` rows, and the names of its columns."""
    if _ends(name, PARQUET_ENDINGS):
        return _parquet_parts(name, columns, rows, options)
    return csv_parts(name, columns, rows, options)


@dataclass(frozen=True, repr=False)
class ParquetPart(Part):
    """Some row groups of a Parquet file."""

    options: dict[str, Any]
    groups: tuple[int, ...]
    first: int
    kinds: tuple[str | None, str | None]  # what the label columns hold, as far as the schema says

    def read(self, rows: int, faults: Faults) -> Iterator[tuple[int, list[Any]]]:
        first = self.first
        with readable(self.name, "Parquet"), open_file(self.name, self.options) as file:
            # Buffered streams: a row group of any length is read page by page.
            reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20)
            batches = reader.iter_batches(rows, self.groups, columns=self.columns.names, use_threads=False)
            for batch in batches:
                yield first, [batch.column(column) for column in self.columns.names]
                first += batch.num_rows


def _parquet_parts(name: str, columns: Columns, rows: int, options: dict[str, Any]) -> tuple[list[Part], list[Any]]:
    with readable(name, "Parquet"), open_file(name, options) as file:
        reader = pq.ParquetFile(file)
        schema, there = reader.schema_arrow, reader.schema_arrow.names
        lengths = [reader.metadata.row_group(k).num_rows for k in range(reader.num_row_groups)]
    columns.check(there, name)
    kinds = (_kind_of(schema.field(columns.user).type), _kind_of(schema.field(columns.item).type))
    parts: list[Part] = []
    groups: list[int] = []
    first = held = 0
    for group, length in enumerate(lengths):
        groups.append(group)
        held += length
        if held >= rows or group == len(lengths) - 1:
            parts.append(ParquetPart(name, columns, held, options, tuple(groups), first, kinds))
            first, held, groups = first + held, 0, []
    return parts, there


def _kind_of(kind: pa.DataType) -> str | None:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):  # integers, one of which is missing
        return INTEGER
    return TEXT if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
