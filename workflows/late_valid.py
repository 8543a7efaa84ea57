"""The public split of gowalla with another validation part: the last ninth of each user's training list.

    python workflows/late_valid.py gowalla-public.parquet gowalla-late.parquet
    pairsym benchmark gowalla-late.parquet

A training list is in the order of visits: neighbours in it share more users than others do (the script prints by how
much), and popularity of its places rises along it. A validation part drawn at random sits on the same trips as the
training pairs around it; one from the end of the lists asks for what comes next. The test part stays what it is and is
not looked at; the pairs of the random validation part join the training part.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import scipy.sparse

PAIRS = 20_000  # compared


def late(frame: pd.DataFrame) -> pd.DataFrame:
    """Parts of a split, the validation part cut from the end of the training lists."""
    train = frame[frame["part"] == "train"]
    lists = train.groupby("user")
    size = lists["user"].transform("size")
    last = lists.cumcount() >= size - size // 9
    part = frame["part"].replace("valid", "train")
    part.loc[last[last].index] = "valid"
    return frame.assign(part=part)


def likeness(frame: pd.DataFrame, seed: int = 0) -> tuple[float, float]:
    """Mean cosine of two places' users: of neighbours in a training list, and of any two places of the same list."""
    train = frame[frame["part"] == "train"].reset_index(drop=True)
    user, item = (pd.factorize(train[name])[0] for name in ("user", "item"))
    matrix = scipy.sparse.csc_matrix((np.ones(len(train)), (user, item)))
    matrix = matrix @ scipy.sparse.diags(1 / np.sqrt(matrix.sum(0).A1))
    rng = np.random.default_rng(seed)
    at = rng.choice(np.flatnonzero(user[1:] == user[:-1]), PAIRS)
    first, stop = np.searchsorted(user, user[at]), np.searchsorted(user, user[at], "right")
    any_other = first + (at - first + rng.integers(1, stop - first)) % (stop - first)

    def mean(one: np.ndarray, other: np.ndarray) -> float:
        return float(matrix[:, item[one]].multiply(matrix[:, item[other]]).sum(0).mean())

    return mean(at, at + 1), mean(at, any_other)


def main(source: str, output: str) -> None:
    frame = pd.read_parquet(source)
    near, far = likeness(frame)
    print(f"likeness of neighbours in a list {near:.3f}, of any two of a list {far:.3f}")
    late(frame).to_parquet(output, index=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
