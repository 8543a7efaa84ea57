"""Rows in memory, whatever holds them, as a pandas or arrow frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..errors import InputError
from .parts import Columns

NEW_USER = "new user"  # the label of whoever is given as a plain list of items


def as_frame(source: Any, columns: Columns) -> pd.DataFrame | pa.Table | pa.RecordBatch | None:
    """A frame of a dict of columns, a list of tuples or anything with arrow's stream protocol; None for all else.

    Frames of pandas and arrow come back as they are; polars, DuckDB relations and record-batch readers are streams, of
    which the wanted columns are kept.
    """
    if isinstance(source, (pd.DataFrame, pa.Table, pa.RecordBatch)):
        return source
    if isinstance(source, Mapping):
        return _of_columns(source)
    if isinstance(source, (list, tuple)) and source and all(isinstance(row, tuple) for row in source):
        return _of_rows(source, columns)
    if hasattr(source, "__arrow_c_stream__"):
        return _of_stream(source, columns)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):  # a lazy frame of polars
        return _of_stream(source.collect(), columns)
    return None


def items_of_one_user(source: Any, columns: Columns) -> Any:
    """A plain list of item labels as a frame of one new user; all else as it is."""
    if isinstance(source, (pd.Series, pd.Index, np.ndarray)) and source.ndim == 1:
        source = source.tolist()
    elif hasattr(source, "to_list"):  # a series of polars
        source = source.to_list()
    if not isinstance(source, (list, tuple, set, frozenset)) or not source:
        return source
    if not all(isinstance(label, (str, int, np.integer)) for label in source):
        return source
    return pd.DataFrame({columns.user: [NEW_USER] * len(source), columns.item: list(source)})


def _of_columns(source: Mapping[Any, Any]) -> pd.DataFrame:
    for name, values in source.items():
        if not pd.api.types.is_list_like(values):
            raise InputError(
                f"a dict of columns holds a list a column, not {values!r} as column {name!r}; "
                "dicts that are rows become a frame by pd.DataFrame(rows)"
            )
    try:
        return pd.DataFrame(dict(source))
    except ValueError as error:
        raise InputError(f"a dict of columns holds lists of the same length: {error}") from None


def _of_rows(rows: Any, columns: Columns) -> pd.DataFrame:
    widths = {len(row) for row in rows}
    forms = [[columns.user, columns.item], [columns.user, columns.item, columns.count or "count"]]
    if columns.time is not None:
        forms = [[*form, columns.time] for form in forms]
    by_width = {len(form): form for form in forms}
    if len(widths) > 1 or not widths <= set(by_width):
        found = " and ".join(map(str, sorted(widths)))
        words = " or ".join(f"({', '.join(map(str, form))})" for form in forms)
        raise InputError(f"a list of tuples holds {words}, not tuples of {found}")
    return pd.DataFrame.from_records(rows, columns=by_width[widths.pop()])


def _of_stream(source: Any, columns: Columns) -> pa.Table:
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid:
        raise InputError(
            f"a {type(source).__name__} is one column, not a table; give a frame with columns {columns.user!r} and "
            f"{columns.item!r}"
        ) from None
    columns.check(reader.schema.names, "the frame")
    kept = [name for name in reader.schema.names if name in (*columns.names, "count")]
    batches = [batch.select(kept) for batch in reader]
    return pa.Table.from_batches(batches, pa.schema([reader.schema.field(name) for name in kept]))
