"""Opening files of pairs, and what readers say about broken ones in one sentence."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import fsspec
import pyarrow as pa

from ..errors import InputError, PairsymError
from ..store.secrets import first_line, without_credentials
from ..store.storage import is_local

PARQUET_ENDINGS = (".parquet", ".parq", ".pq")


def open_file(name: str, options: dict[str, Any]) -> Any:
    """A file to read bytes from, unpacked."""
    compression = "gzip" if name.endswith(".gz") else None
    if is_local(name) and name.lower().endswith(PARQUET_ENDINGS):
        return pa.OSFile(name)  # reads without the GIL
    return fsspec.open(name, "rb", compression=compression, **({} if is_local(name) else options)).open()


class readable:
    """Turns what a reader says about broken bytes into one sentence."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        broken = (pa.ArrowInvalid, pa.ArrowKeyError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)
        if isinstance(error, PairsymError):
            return
        if isinstance(error, FileNotFoundError) and is_local(self.name):
            raise InputError(f"no such file: {self.name}") from None
        # A client library of a remote file system has errors of its own.
        away = isinstance(error, Exception) and not is_local(self.name)
        if away or isinstance(error, (*broken, PermissionError)) or type(error) is OSError:
            where = without_credentials(self.name)
            raise InputError(f"{where} is not a readable {self.kind} file: {first_line(error)}") from None
