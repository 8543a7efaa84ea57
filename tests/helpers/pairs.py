"""Frames of pairs, and everything that a counts store must say about them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse


def make_frame(pairs=1500, users=90, items=40, seed=0, labels="text"):
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, users, pairs), (items * rng.random(pairs) ** 2).astype(int)
    if labels == "text":
        user, item = [f"u{k}" for k in user], [f"straße {k}" for k in item]
    else:
        user = user * 1_000_003 - 40_000_000
    return pd.DataFrame({"user": user, "item": item, "n": rng.integers(1, 4, pairs)})


def add_up(frame):
    """The reference: what a store of these pairs must hold."""
    return frame[frame["n"] > 0].groupby(["user", "item"], observed=True)["n"].sum()


def check(counts, expected):
    """Everything a store says, against sums by (user, item)."""
    users = sorted(set(expected.index.get_level_values("user")))
    items = sorted(set(expected.index.get_level_values("item")))
    assert counts.user_ids.tolist() == users
    assert counts.item_ids.tolist() == items
    dense = expected.unstack(fill_value=0).reindex(index=users, columns=items).to_numpy()
    check_dense(counts, dense)


def check_dense(counts, dense):
    assert counts.shape == dense.shape
    assert counts.nnz == (dense > 0).sum()
    np.testing.assert_array_equal(counts.to_scipy().toarray(), dense)
    np.testing.assert_allclose(counts.marginal("users"), dense.sum(1), rtol=1e-13)
    np.testing.assert_allclose(counts.marginal("items"), dense.sum(0), rtol=1e-13)
    assert counts.total == pytest.approx(dense.sum(), rel=1e-13)
    for side, matrix in (("users", dense), ("items", dense.T)):
        cut = counts.cuts[side]
        for block in range(cut.blocks):
            for group in range(cut.groups):
                rows, columns = slice(*cut.row_range(block)), slice(*cut.column_range(group))
                tile, wanted = counts.read_tile(side, block, group), scipy.sparse.csr_matrix(matrix[rows, columns])
                np.testing.assert_array_equal(tile.indptr, wanted.indptr)
                np.testing.assert_array_equal(tile.indices, wanted.indices + columns.start)
                np.testing.assert_array_equal(tile.counts, wanted.data)
