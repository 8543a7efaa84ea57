"""What we write below a folder, by name; whatever has another name is somebody else's, and is never removed."""

from __future__ import annotations

import re
from typing import Any

Names = dict[str, Any]  # pattern of a name -> the names below it, None for a file
PARTIAL = ".partial"  # ending of files that are being written
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{12}\.partial")
ARRAYS: Names = {"zarr.json": None, "[a-z_]+": {"zarr.json": None, r"c(\.\d+)+": None}}  # a zarr group of arrays

SHARDS: Names = {"[0-9a-f]{2}": {r"[a-z_]+\.\d+\.shard": None}, "manifest.json": None}  # of a generation


def below(names: Names, name: str) -> Names | None:
    """The names below a folder; none when it is not ours."""
    return next((inner for pattern, inner in names.items() if inner and re.fullmatch(pattern, name)), None)


def is_file(names: Names, name: str) -> bool:
    """Whether a file's name is ours, also while it is being written.

    >>> is_file({"zarr.json": None}, ".zarr.json.0123456789ab.partial"), is_file({"zarr.json": None}, "thesis.partial")
    (True, False)
    """
    partial = _PARTIAL.fullmatch(name)
    name = partial[1] if partial else name
    return any(inner is None and re.fullmatch(pattern, name) for pattern, inner in names.items())


def is_ours(names: Names, key: str) -> bool:
    """Whether a key below a folder is ours.

    >>> is_ours({"users": ARRAYS}, "users/mean/c.0.0"), is_ours({"users": ARRAYS}, "users/mean/notes.txt")
    (True, False)
    """
    *folders, name = key.split("/")
    for folder in folders:
        found = below(names, folder)
        if found is None:
            return False
        names = found
    return is_file(names, name)
