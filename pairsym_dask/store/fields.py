"""Fields of a record: read one by one, each of the kind and within the range that it must be."""

from __future__ import annotations

import base64
import binascii
import re
import reprlib
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..errors import DamagedStoreError
from ..settings import SIDES
from .arrays import Manifest

MANIFEST = "manifest.json"  # of a generation in shards: the list of its files
FILE_BYTES = 2**31  # of a file that a manifest lists, at most
SHARD_BLOCKS = 2**16  # blocks a shard, at most
TEXT = 2**20  # characters of a text in a record, at most
_KEY = re.compile(
    r"(?:[a-z_]{1,32}/){0,4}(?:zarr\.json|c(?:\.\d{1,12}){1,4})"
    r"|manifest\.json|[0-9a-f]{2}/[a-z_]{1,32}\.\d{1,12}\.shard"
)
_GROUP = re.compile("[a-z_]{1,32}")
_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Fields:
    """Reads the fields of a record; one that lacks or is of another kind is damage, named by where it stands."""

    values: dict[str, Any]
    where: str
    above: str = ""

    def refuse(self, name: str, wanted: str) -> NoReturn:
        shown = reprlib.repr(self.values[name]) if name in self.values else "missing"
        name = self.above + name
        raise DamagedStoreError(f"{self.where} is not a sound record: {name} must be {wanted}, not {shown}")

    def inside(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return Fields(value, self.where, f"{self.above}{name}.")

    def whole(self, name: str, least: int = 0, most: int = 2**62) -> int:
        value = self.values.get(name)
        if type(value) is not int or not least <= value <= most:
            self.refuse(name, f"a whole number from {least} to {most}")
        return int(value)  # type: ignore[arg-type]

    def wholes(self, name: str, least: int) -> list[int]:
        value = self.values.get(name)
        if not isinstance(value, list) or not all(type(one) is int and least <= one <= 2**62 for one in value):
            self.refuse(name, f"a list of whole numbers from {least} on")
        return list(value)  # type: ignore[arg-type]

    def text(self, name: str, most: int = TEXT) -> str:
        value = self.values.get(name)
        if not isinstance(value, str) or len(value) > most:
            self.refuse(name, f"a text of at most {most} characters")
        return str(value)

    def shown(self, name: str, most: int = TEXT) -> str:
        """A text for people: what would steer a terminal stands there as its code."""
        value = self.text(name, most)
        if value.isprintable():
            return value
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        value = self.values.get(name)
        if value not in known:
            self.refuse(name, f"one of {', '.join(known)}")
        return str(value)

    def truth(self, name: str) -> bool:
        value = self.values.get(name)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return bool(value)

    def digest(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            self.refuse(name, "a digest")
        return str(value)

    def real(self, name: str) -> float:
        """A number written as a hexadecimal float."""
        text = self.values.get(name)
        try:
            if isinstance(text, str) and len(text) < 64:
                return float.fromhex(text)
        except (ValueError, OverflowError):
            pass
        self.refuse(name, "a number as a hexadecimal float")

    def seconds(self, name: str) -> float:
        value = self.values.get(name)
        if type(value) not in (int, float) or not 0 <= value < 1e12:  # type: ignore[operator]
            self.refuse(name, "seconds")
        return float(value)  # type: ignore[arg-type]

    def numbers(self, name: str) -> str:
        """Finite float64 numbers in base64."""
        text = self.values.get(name)
        try:
            data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        except (binascii.Error, ValueError):
            data = b""
        if not data or len(data) % 8 or not np.isfinite(np.frombuffer(data, "<f8")).all():
            self.refuse(name, "finite float64 numbers in base64")
        return str(text)

    def runs(self, name: str) -> dict[str, int]:
        """Blocks a shard by group of arrays; both sides have some."""
        inner = self.inside(name)
        if not inner.values.keys() >= set(SIDES) or not all(_GROUP.fullmatch(group) for group in inner.values):
            self.refuse(name, f"blocks a shard by group of arrays, {' and '.join(SIDES)} among them")
        return {group: inner.whole(group, 1, SHARD_BLOCKS) for group in inner.values}

    def manifest(self, name: str) -> Manifest:
        found: Manifest = {}
        for key, entry in self.inside(name).values.items():
            if not (
                isinstance(entry, list)
                and len(entry) == 2
                and type(entry[0]) is int
                and 0 <= entry[0] <= FILE_BYTES
                and isinstance(entry[1], str)
                and _DIGEST.fullmatch(entry[1])
                and _KEY.fullmatch(key)
            ):
                self.refuse(name, "keys of chunks, each with a size and a digest")
            found[key] = (entry[0], entry[1])
        return found
