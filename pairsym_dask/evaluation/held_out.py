"""Held-out pairs as they are given, checked, and as positions in the training store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..pairs.frames import as_frame
from ..pairs.parts import Columns
from ..store.counts import Counts

UNKNOWN = ("error", "skip")


def read_held_out(
    held_out: Any, counts: Counts, user: Any = "user", item: Any = "item", unknown: str = "error"
) -> pd.DataFrame:
    """Pairs of a frame under the names user and item; with `unknown="skip"` only those whose symbols the store has."""
    if unknown not in UNKNOWN:
        raise InputError(f'unknown must be "error" or "skip", not {unknown!r}')
    frame = as_frame(held_out, Columns(user, item, None))
    if frame is None:
        raise InputError(f"held_out must be a frame with columns {user} and {item}, not a {type(held_out).__name__}")
    held_out = frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()
    missing = [str(name) for name in (user, item) if name not in held_out.columns]
    if missing:
        there = ", ".join(map(str, held_out.columns)) or "none"
        raise InputError(
            f"held_out lacks the column {' and '.join(missing)}; its columns are {there}; name them with "
            "user= and item= (--user, --item)"
        )
    if held_out.empty:
        raise InputError("held_out holds no pairs: there is nothing to evaluate")
    pairs = pd.DataFrame({"user": held_out[user], "item": held_out[item]})
    for name in ("user", "item"):
        empty = pairs[name].isna().to_numpy()
        if empty.any():
            row = int(empty.argmax())
            whose = f" (user {pairs['user'].iloc[row]!r})" if name == "item" else ""
            raise InputError(f"held_out has no {name} in row {row}{whose}")
    if unknown == "skip":
        known = (counts.find("users", pairs["user"].to_numpy()) >= 0) & (
            counts.find("items", pairs["item"].to_numpy()) >= 0
        )
        if not known.any():
            raise InputError(f"{counts.path} knows both symbols of none of the {len(pairs)} held-out pairs")
        pairs = pairs[known]
    return pairs


@dataclass(frozen=True)
class HeldOutPairs:
    """Held-out pairs as positions in the training store, sorted by user; `order` leads back to the given rows."""

    user: np.ndarray  # int64
    item: np.ndarray  # int64
    order: np.ndarray

    @staticmethod
    def read(held_out: pd.DataFrame, counts: Counts) -> HeldOutPairs:
        """Positions of pairs that `read_held_out` gave; a pair that is there twice is an error."""
        try:
            user = counts.positions("users", held_out["user"].to_numpy())
            item = counts.positions("items", held_out["item"].to_numpy())
        except InputError as error:
            raise InputError(f'{error}; leave held-out pairs of unknown symbols out with unknown="skip"') from None
        order = np.lexsort((item, user))
        pairs = HeldOutPairs(user[order].astype(np.int64), item[order].astype(np.int64), order)
        again = (np.diff(pairs.user) == 0) & (np.diff(pairs.item) == 0)
        if again.any():
            row = held_out.iloc[order[int(again.argmax()) + 1]]
            raise InputError(f"held_out holds the pair ({row['user']!r}, {row['item']!r}) more than once")
        return pairs

    def given(self, values: np.ndarray) -> np.ndarray:
        """Values of the sorted pairs (last axis), in the order of the given frame."""
        out = np.empty_like(values)
        out[..., self.order] = values
        return out
