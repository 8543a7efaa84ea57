"""The user's own table of items, joined to answers and asked for by category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..store.counts import Counts

TITLE = "title"  # the column of plain titles


def read_titles(titles: Any) -> pd.DataFrame:
    """A table of items, a row an item, indexed by label.

    `titles` is a dict or a Series of titles by item label, or a frame with the labels in its column item or its index.

    >>> read_titles({"go": "Go, the game"}).loc["go"].to_dict()
    {'title': 'Go, the game'}
    """
    if isinstance(titles, Mapping):
        table = pd.Series(dict(titles), name=TITLE, dtype=object).to_frame()
    elif isinstance(titles, pd.Series):
        table = titles.to_frame(TITLE)
    elif isinstance(titles, pd.DataFrame):
        table = titles.set_index("item") if "item" in titles.columns else titles
    else:
        raise InputError(
            f"titles must be a dict or a Series by item, or a frame with a column item, not a {type(titles).__name__}"
        )
    if table.index.has_duplicates:
        twice = table.index[table.index.duplicated()].tolist()[0]
        raise InputError(f"titles must have one row an item: {twice!r} has several")
    return table


def with_titles(answer: pd.DataFrame, titles: Any) -> pd.DataFrame:
    """An answer with the columns of a table of items after its column item; empty where the table lacks one."""
    table = read_titles(titles)
    clash = [str(name) for name in table.columns if name in answer.columns]
    if clash:
        raise InputError(f"titles has columns that the answer has already: {', '.join(clash)}; rename them")
    rows = table.reindex(answer["item"].to_numpy())
    at = list(answer.columns).index("item") + 1
    for k, name in enumerate(table.columns):
        answer.insert(at + k, name, rows[name].to_numpy())
    return answer


def items_where(counts: Counts, titles: Any, where: Any) -> np.ndarray:
    """Positions of the items whose columns have wanted values; `where` has a value, or a list of them, by column."""
    if titles is None:
        raise InputError("where goes by columns of titles: give titles, a frame with a row an item")
    if not isinstance(where, Mapping) or not where:
        raise InputError(f'where must have values by column of titles, such as {{"genre": "jazz"}}, not {where!r}')
    table = read_titles(titles)
    mask = np.ones(len(table), bool)
    for name, values in where.items():
        if name not in table.columns:
            raise InputError(f"titles has no column {name!r}; it has {', '.join(map(str, table.columns))}")
        wanted = [values] if isinstance(values, str) or not hasattr(values, "__iter__") else list(values)
        mask &= table[name].isin(wanted).to_numpy()
    if not mask.any():
        words = " and ".join(f"{name} {values!r}" for name, values in where.items())
        raise InputError(f"titles has no item with {words}")
    found = counts.find("items", table.index[mask].to_numpy())
    return found[found >= 0]
