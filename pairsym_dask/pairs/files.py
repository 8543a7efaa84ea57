"""Files of pairs: finding them behind paths, folders and globs, opening them, and their parts."""

from __future__ import annotations

import glob
import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import fsspec
import fsspec.utils
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import InputError, PairsymError
from ..store.secrets import first_line, without_credentials
from ..store.storage import is_local, local_path
from .checks import INTEGER, TEXT
from .parts import Columns, Part

CSV_ROW = 16  # bytes, about: for cutting files into parts
PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
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
        with _readable(text, "remote"):
            fs = fsspec.filesystem(protocol, **options)
            isdir, isfile, find = fs.isdir, fs.isfile, fs.find
            matches = [fs.unstrip_protocol(name) for name in fs.glob(text)] if glob.has_magic(text) else [text]
    else:
        isdir, isfile = os.path.isdir, os.path.isfile
        matches = glob.glob(text, recursive=True) if glob.has_magic(text) and not os.path.exists(text) else [text]

        def find(folder: str) -> list[str]:
            return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]

    files: list[str] = []
    with _readable(text, "remote"):
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
    with _readable(name, "CSV"), _opened(name, options) as file:
        line = file.read(2**20).split(b"\n", 1)[0]  # readline(limit) is not for files on S3
        if not line.strip():
            raise InputError(f"{name} is empty: a CSV file begins with the names of its columns")
        parse = pa.csv.ParseOptions(delimiter=_delimiter(name))
        header = pa.csv.read_csv(pa.BufferReader(line + b"\n"), parse_options=parse).column_names
        columns.check(header, name)
        size = None if name.endswith(".gz") else file.seek(0, os.SEEK_END)
    part = CsvPart(name, columns, rows, options, tuple(header))
    if size is None:
        return [part], header
    part = replace(part, rows=min(rows, -(-size // CSV_ROW)))
    step = CSV_ROW * rows  # bytes
    return [replace(part, start=start, stop=min(start + step, size)) for start in range(0, size, step)], header


def _opened(name: str, options: dict[str, Any]) -> Any:
    compression = "gzip" if name.endswith(".gz") else None
    if is_local(name) and _ends(name, PARQUET_ENDINGS):
        return pa.OSFile(name)  # reads without the GIL
    return fsspec.open(name, "rb", compression=compression, **({} if is_local(name) else options)).open()


class _readable:
    """Turns what a reader says about broken bytes into one sentence."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        broken = (pa.ArrowInvalid, pa.ArrowKeyError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)
        if isinstance(error, PairsymError):
            return
        # A client library of a remote file system has errors of its own.
        away = isinstance(error, Exception) and not is_local(self.name)
        if away or isinstance(error, (*broken, PermissionError, FileNotFoundError)) or type(error) is OSError:
            where = without_credentials(self.name)
            raise InputError(f"{where} is not a readable {self.kind} file: {first_line(error)}") from None


@dataclass(frozen=True, repr=False)
class ParquetPart(Part):
    """Some row groups of a Parquet file."""

    options: dict[str, Any]
    groups: tuple[int, ...]
    first: int
    kinds: tuple[str | None, str | None]  # what the label columns hold, as far as the schema says

    def read(self, rows: int) -> Iterator[tuple[int, list[Any]]]:
        first = self.first
        with _readable(self.name, "Parquet"), _opened(self.name, self.options) as file:
            # Buffered streams: a row group of any length is read page by page.
            reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20)
            batches = reader.iter_batches(rows, self.groups, columns=self.columns.names, use_threads=False)
            for batch in batches:
                yield first, [batch.column(column) for column in self.columns.names]
                first += batch.num_rows


def _parquet_parts(name: str, columns: Columns, rows: int, options: dict[str, Any]) -> tuple[list[Part], list[Any]]:
    with _readable(name, "Parquet"), _opened(name, options) as file:
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
    if pa.types.is_integer(kind):
        return INTEGER
    return TEXT if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


@dataclass(frozen=True, repr=False)
class CsvPart(Part):
    """Lines of a CSV file that begin in a range of bytes, or (stop None) the whole file as one stream."""

    options: dict[str, Any]
    header: tuple[str, ...]
    start: int = 0
    stop: int | None = None

    @property
    def is_csv(self) -> bool:
        return True

    def _settings(self, first: bool, wanted: list[str], **parse: Any) -> dict[str, Any]:
        return {
            "read_options": pa.csv.ReadOptions(
                column_names=self.header,
                skip_rows=1 if first else 0,
                use_threads=False,
                block_size=max(CSV_ROW * self.rows, 2**20),
            ),
            "parse_options": pa.csv.ParseOptions(delimiter=_delimiter(self.name), **parse),
            "convert_options": pa.csv.ConvertOptions(
                include_columns=wanted,
                column_types={column: pa.large_string() for column in wanted},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        }

    def read(self, rows: int) -> Iterator[tuple[int, list[Any]]]:
        odd: list[str] = []  # rows of the wrong length, in words

        def refuse(row: Any) -> str:
            odd.append(f"{row.actual_columns} columns, not {row.expected_columns}: {row.text[:100]!r}")
            return "error"

        settings = self._settings(
            self.start == 0, self.columns.names, newlines_in_values=self.stop is None, invalid_row_handler=refuse
        )
        with _readable(self.name, "CSV"), _opened(self.name, self.options) as file:
            if self.stop is not None:
                data = fsspec.utils.read_block(file, self.start, self.stop - self.start, b"\n")
                if not data:
                    return
                settings["read_options"].block_size = max(len(data), 1)
                file = pa.BufferReader(data)
            first = 0
            try:
                for batch in _csv_batches(file, settings):
                    for start in range(0, batch.num_rows, rows):
                        yield first + start, [batch.column(k).slice(start, rows) for k in range(batch.num_columns)]
                    first += batch.num_rows
            except pa.ArrowInvalid:
                if odd:
                    raise InputError(f"{self.name} has a row of {odd[0]}") from None
                raise

    def row_number(self, first: int, k: int) -> int:
        """Rows before a block are only counted when one has to be named."""
        if self.start == 0:
            return first + k
        settings = self._settings(True, [self.columns.user])
        with _opened(self.name, self.options) as file:
            before = fsspec.utils.read_block(file, 0, self.start, b"\n")
        return first + k + sum(len(batch) for batch in _csv_batches(pa.BufferReader(before), settings))


def _csv_batches(file: Any, settings: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    try:
        yield from pa.csv.open_csv(file, **settings)
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):  # a header and nothing more
            raise


def _delimiter(name: str) -> str:
    return "\t" if ".tsv" in os.path.basename(name).lower() else ","


def has_quotes(part: CsvPart) -> bool:
    """Whether a quote stands anywhere in a block: then a line break may stand inside a value."""
    assert part.stop is not None
    with _opened(part.name, part.options) as file:
        file.seek(part.start)
        data = file.read(part.stop - part.start)
    header = data.find(b"\n") + 1 if part.start == 0 else 0  # many programs put the names alone into quotes
    return b'"' in data[header:]
