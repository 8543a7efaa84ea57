"""`ingest_tags`: links of symbols and tags into a tag store, by the way that pairs take."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..store.tags import Tags, open_tags
from .ingest import write_pairs
from .matrices import coordinates, is_matrix
from .parts import Columns, Reading


def ingest_tags(
    source: Any,
    path: str | os.PathLike[str],
    symbol: Any = "item",
    tag: Any = "tag",
    weight: Any = None,
    *,
    invalid: str = "error",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    client: Any = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Tags:
    """Make a tag store from links of symbols and tags.

    Parameters
    ----------
    source : path, frame, matrix, store or list
        A row a link, from all that `ingest` takes; a list joins several. Of a sparse matrix (symbols x tags) the
        entries are weights.
    path : path
        Where the store goes. The same links make the same store, however they come.
    symbol, tag : column names
        Whose tag, and which. With a matrix `symbol` and `tag` may be lists of the labels of its rows and columns, which
        are 0, 1, .. otherwise.
    weight : column name, optional
        Numbers above 0, such as a feature's value; without it each row weighs 1. Repeated links are added up. A fit
        scales the weights of a symbol so that their squares sum to one.
    invalid : {"error", "drop"}
        Rows without a symbol or a tag, or whose weight is missing, no number, infinite, negative or zero: an error that
        says how many there are of each kind and where the first ones stand, or left out, and the store's source says
        how many.
    separator, encoding : str, optional
        Of CSV files; found where they are not given.
    decimal : {".", ","}
        What stands before the decimals of weights.
    client : distributed.Client, optional
        Where tasks run; the current client, or else threads of this process.
    memory : int or str, optional
        Budget of a process, such as "2GiB"; half of what is free by default.
    threads : int, optional
        Tasks under way at a time; all cores by default.
    progress : bool
        Print a summary at the end.
    storage_options : dict, optional
        Options of fsspec for remote stores.

    Returns
    -------
    Tags
        The store, open.

    Examples
    --------
    >>> tags = ps.ingest_tags([("go", "board"), ("chess", "board"), ("bridge", "cards")], "games.zarr")
    >>> tags.shape, tags.nnz
    ((3, 2), 3)
    """
    if is_matrix(source):
        source, symbol, tag, weight = _links_of(source, symbol, tag)
    columns = Columns(symbol, tag, weight, Reading(invalid, separator, encoding, decimal), holds="tags")
    where = {"client": client, "threads": threads, "memory": memory, "progress": progress}
    return open_tags(write_pairs(source, path, columns, dict(storage_options or {}), **where).storage)


def _links_of(matrix: Any, symbol: Any, tag: Any) -> tuple[pd.DataFrame, str, str, str]:
    """A matrix as a frame of links, and the names of its columns."""
    rows, columns, weights, shape = coordinates(matrix)
    codes = {"symbol": rows, "tag": columns}
    for (name, place), given, n in zip(list(codes.items()), (symbol, tag), shape, strict=True):
        if isinstance(given, str) or not np.iterable(given):
            continue
        labels = np.asarray(list(given), None if all(isinstance(one, (int, np.integer)) for one in given) else object)
        if labels.size != n or pd.Index(labels).has_duplicates:
            raise InputError(
                f"{name} must hold {n} different labels, one for each {'row' if name == 'symbol' else 'column'} of the "
                f"matrix, not {labels.size} ({pd.Index(labels).nunique()} different ones)"
            )
        codes[name] = labels[place]
    stored = weights != 0  # a stored zero is no link
    frame = pd.DataFrame({**codes, "weight": weights})[stored]
    return frame.reset_index(drop=True), "symbol", "tag", "weight"
