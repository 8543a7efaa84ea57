"""CSV files: separator and encoding found or given, read in blocks of bytes, rows named by the line an editor shows."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import fsspec.utils
import pyarrow as pa
import pyarrow.csv

from ..errors import InputError
from ..store.secrets import without_credentials
from .faults import ODD, Fault, Faults
from .opening import open_file, readable
from .parts import SEPARATORS, Columns, Part, Reading

CSV_ROW = 16  # bytes, about: for cutting files into parts
SAMPLE = 2**20  # bytes in which header and encoding are looked for
SAMPLE_OF_ZEROS = 2**10
LINE_END = re.compile("\r\n|\r|\n")
TOLD_SEPARATOR = re.compile(r'^"?sep=(.)"?$')  # the line that Excel writes and reads above a header


@dataclass(frozen=True, repr=False)
class CsvPart(Part):
    """Lines of a CSV file that begin in a range of bytes, or (stop None) the whole file as one stream."""

    options: dict[str, Any]
    header: tuple[str, ...]
    separator: str
    encoding: str
    above: int  # lines before the header
    start: int = 0
    stop: int | None = None

    @property
    def is_csv(self) -> bool:
        return True

    def _settings(self, handler: Any) -> dict[str, Any]:
        wanted = self.columns.names
        return {
            "read_options": pa.csv.ReadOptions(
                column_names=self.header,
                skip_rows=self.above + 1 if self.start == 0 else 0,
                use_threads=False,
                block_size=max(CSV_ROW * self.rows, 2**20),
                encoding=self.encoding,
            ),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=self.stop is None, invalid_row_handler=handler
            ),
            "convert_options": pa.csv.ConvertOptions(
                include_columns=wanted,
                column_types={column: pa.large_string() for column in wanted},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        }

    def read(self, rows: int, faults: Faults) -> Iterator[tuple[int, list[Any]]]:
        odd: list[str] = []  # rows of the wrong length

        def skip(row: Any) -> str:
            odd.append(row.text[:100])
            return "skip"

        settings = self._settings(skip)
        with readable(self.name, "CSV"), open_file(self.name, self.options) as file:
            if self.stop is not None:
                data = fsspec.utils.read_block(file, self.start, self.stop - self.start, b"\n")
                if not data:
                    return
                settings["read_options"].block_size = max(len(data), 1)
                file = pa.BufferReader(data)
            first = 0
            for batch in self._batches(file, settings):
                for start in range(0, batch.num_rows, rows):
                    yield first + start, [batch.column(k).slice(start, rows) for k in range(batch.num_columns)]
                first += batch.num_rows
        if odd:
            faults.rows += len(odd)
            faults.add(ODD, Fault(len(odd), self, None, odd[0]))

    def _batches(self, file: Any, settings: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        try:
            yield from pa.csv.open_csv(file, **settings)
        except pa.ArrowInvalid as error:
            if "invalid UTF8" in str(error):
                raise InputError(
                    f"{without_credentials(self.name)} holds bytes that are no text in {self.encoding.upper()}; "
                    'give its encoding, such as encoding="cp1252" (--encoding cp1252)'
                ) from None
            if "Empty CSV" not in str(error):  # a header and nothing more
                raise

    def where(self, index: int | None) -> str:
        """The line of a row as a text editor counts them; the file is only read again when one has to be named."""
        before = 0
        encoding = "utf-8-sig" if self.encoding == "utf-8" and not self.start else self.encoding  # without its mark
        with readable(self.name, "CSV"), open_file(self.name, self.options) as file:
            if self.stop is None:
                text: Any = io.TextIOWrapper(file, encoding, "replace", newline="")
            else:
                if self.start:
                    before = fsspec.utils.read_block(file, 0, self.start, b"\n").count(b"\n")
                data = fsspec.utils.read_block(file, self.start, self.stop - self.start, b"\n")
                text = io.StringIO(data.decode(encoding, "replace"), newline="")
            return f"line {before + self._line(text, index)} of {self.name}"

    def _line(self, text: Any, index: int | None) -> int:
        """Where in a text a row begins: by its number among rows of the right length, or the first of another."""
        reader = csv.reader(text, delimiter=self.separator)
        number, line = (-1 if self.start == 0 else 0), 1
        above = self.above if self.start == 0 else 0
        for fields in reader:
            begins, line = line, reader.line_num + 1
            if not fields or begins <= above:
                continue  # an empty line is no row
            right = len(fields) == len(self.header)
            if (number == index and right) or (index is None and number >= 0 and not right):
                return begins
            number += right
        return line


def csv_parts(name: str, columns: Columns, rows: int, options: dict[str, Any]) -> tuple[list[Part], list[Any]]:
    """Parts of a CSV file, and the names of its columns."""
    found = find_dialect(name, columns.names, columns.reading, options)
    header = list(found.header)
    if len(header) == 1:
        raise InputError(
            f"{without_credentials(name)} has one column, {header[0]!r}, where {found.separator!r} separates columns; "
            "give what does with separator= (--separator)"
        )
    columns.check(header, name)
    size = None
    if not name.endswith(".gz") and found.encoding == "utf-8":  # other encodings cannot be cut at any byte
        with readable(name, "CSV"), open_file(name, options) as file:
            size = file.seek(0, os.SEEK_END)
    part = CsvPart(name, columns, rows, options, found.header, found.separator, found.encoding, found.above)
    if size is None:
        return [part], header
    part = replace(part, rows=min(rows, -(-size // CSV_ROW)))
    step = CSV_ROW * rows  # bytes
    return [replace(part, start=start, stop=min(start + step, size)) for start in range(0, size, step)], header


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written."""

    header: tuple[str, ...]
    separator: str
    encoding: str
    above: int = 0  # lines before the header


def find_dialect(
    name: str, wanted: list[Any], reading: Reading | None = None, options: dict[str, Any] | None = None
) -> Dialect:
    """How a CSV file with some wanted columns is written, as far as `reading` does not say it."""
    reading = reading or Reading()
    with readable(name, "CSV"), open_file(name, options or {}) as file:
        sample = file.read(SAMPLE)
    encoding = reading.encoding or find_encoding(sample)
    try:
        lines = LINE_END.split(sample.decode(encoding, "ignore").lstrip("\ufeff"))
    except LookupError:
        raise InputError(f"there is no encoding {encoding!r}; utf-8, utf-16 and cp1252 are common ones") from None
    told = [TOLD_SEPARATOR.match(line) for line in lines]
    above = next((k for k, line in enumerate(lines) if line.strip() and not told[k]), None)
    if above is None:
        raise InputError(f"{name} is empty: a CSV file begins with the names of its columns")
    line = lines[above]
    separator = reading.separator or next((found[1] for found in told[:above] if found), None)
    separator = separator or find_separator(line, name, wanted)
    return Dialect(tuple(next(csv.reader([line], delimiter=separator))), separator, encoding, above)


def find_encoding(sample: bytes) -> str:
    """UTF-16 by its mark or its zeros, UTF-8 where that is what the bytes are, else what old programs of Windows write.

    >>> find_encoding("straße".encode()), find_encoding("straße".encode("utf-16")), find_encoding(b"stra\\xdfe")
    ('utf-8', 'utf-16', 'cp1252')
    """
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in sample[:SAMPLE_OF_ZEROS]:  # which no text has but that of two bytes a letter
        low, high = (sample[k:SAMPLE_OF_ZEROS:2].count(0) for k in range(2))
        return "utf-16-le" if high > low else "utf-16-be"
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(sample) - 4:  # not just a letter that the sample's end cuts
            return "cp1252"
        return "utf-8" if len(sample) == SAMPLE else "cp1252"
    return "utf-8"


def find_separator(line: str, name: str, wanted: list[Any]) -> str:
    """What the header must be cut by to have the wanted columns; where nothing gives them, what cuts it most."""
    usual = "\t" if ".tsv" in os.path.basename(name).lower() else ","
    cuts = {one: next(csv.reader([line], delimiter=one)) for one in (usual, *SEPARATORS.values())}
    wanting = [one for one, columns in cuts.items() if set(wanted) <= set(columns)]
    return wanting[0] if wanting else max(cuts, key=lambda one: len(cuts[one]))


def has_quotes(part: CsvPart) -> bool:
    """Whether a quote stands anywhere in a block: then a line break may stand inside a value."""
    assert part.stop is not None
    with open_file(part.name, part.options) as file:
        file.seek(part.start)
        data = file.read(part.stop - part.start)
    header = data.find(b"\n") + 1 if part.start == 0 else 0  # many programs put the names alone into quotes
    return b'"' in data[header:]
