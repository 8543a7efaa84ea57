"""The tag store: which tags each symbol has, and with what weight.

It is a counts store whose rows are symbols, whose columns are tags and whose counts are weights, so it is cut, sealed,
verified and read as one; its record says that it holds tags. Nothing but labels ties it to a counts store: a symbol may
have tags and no pairs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ..display.cards import nearby
from ..errors import InputError, StoreError
from .counts import Counts, iterate_rows, open_counts
from .cuts import Tile
from .some_rows import pairs_of
from .storage import Storage


@dataclass(frozen=True)
class Tags:
    """An open tag store."""

    links: Counts

    @property
    def path(self) -> str:
        return self.links.path

    @property
    def digest(self) -> str:
        """Digest of the content."""
        return self.links.digest

    @property
    def shape(self) -> tuple[int, int]:
        """Symbols and tags."""
        return self.links.shape

    @property
    def nnz(self) -> int:
        """Links of a symbol and a tag."""
        return self.links.nnz

    @property
    def symbol_ids(self) -> np.ndarray:
        return self.links.labels("users")

    @property
    def tag_ids(self) -> np.ndarray:
        return self.links.labels("items")

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """Symbols x tags in memory, weights as they were given.

        Returns
        -------
        scipy.sparse.csr_matrix
            Rows in the order of `symbol_ids`, columns in that of `tag_ids`.

        Examples
        --------
        >>> ps.open_tags("tags.zarr").to_scipy().shape
        (4, 2)
        """
        return self.links.to_scipy()

    def find(self, labels: np.ndarray) -> np.ndarray:
        """Rows of symbols by label, -1 for those without tags."""
        return self.links.find("users", labels)

    def symbols_a_tag(self) -> np.ndarray:
        """How many symbols have each tag."""
        out = np.zeros(self.shape[1], np.int64)
        for _, tile in iterate_rows(self.links, "users"):
            out += np.bincount(tile.indices, minlength=out.size)
        return out

    def rows(self, positions: np.ndarray) -> Tile:
        """Tags and weights of symbols by row, in the given order; -1 has none."""
        return pairs_of(self.links, "users", positions)

    def __repr__(self) -> str:
        symbols, tags = self.shape
        return f"Tags({nearby(self.path)!r}, {symbols:,} symbols x {tags:,} tags, {self.nnz:,} links)"


AnyTags = Tags | str | os.PathLike[str] | None  # as people give a tag store


def open_tags(path: str | os.PathLike[str] | Storage | Tags, storage_options: dict[str, Any] | None = None) -> Tags:
    """Open a tag store.

    Parameters
    ----------
    path : path
        What `ingest_tags` has made.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Tags
        The store, open.

    Examples
    --------
    >>> ps.open_tags("tags.zarr").tag_ids.tolist()
    ['board', 'cards']
    """
    if isinstance(path, Tags):
        return path
    if not isinstance(path, (str, os.PathLike, Storage)):
        raise InputError(
            f"a tag store is wanted here, not a {type(path).__name__}; make one of it first: "
            'tags = ps.ingest_tags(links, "tags.zarr")'
        )
    links = open_counts(path, storage_options)
    if links.holds != "tags":
        raise StoreError(f"{links.path} is a store of pairs, not of tags; ingest_tags makes one of tags")
    return Tags(links)


def open_sides(users: Any, items: Any, storage_options: dict[str, Any] | None = None) -> dict[str, Tags]:
    """The tag stores that are given, by side."""
    given = {"users": users, "items": items}
    return {side: open_tags(place, storage_options) for side, place in given.items() if place is not None}
