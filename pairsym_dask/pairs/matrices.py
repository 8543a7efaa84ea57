"""Sparse matrices as pairs: users x items, labels 0, 1, .., empty rows and columns kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InputError
from ..settings import SIDES
from ..store.counts import Counts
from ..store.cuts import long_side
from ..store.scratch import Scratch
from .assemble import Numbers, write_store
from .checks import WHOLE_LIMIT, check_numbers
from .runs import Piece, Side, group_pieces, make_ranges
from .writing import Stages


def is_matrix(source: Any) -> bool:
    return scipy.sparse.issparse(source) or type(source).__module__.split(".")[0] == "sparse"


def ingest_matrix(matrix: Any, stages: Stages, scratch: Scratch) -> Counts:
    users, items, numbers, shape = coordinates(matrix)
    scratch.make("parse")
    tasks = []
    for k, first in enumerate(range(0, numbers.size, stages.rows)):
        part = slice(first, first + stages.rows)
        tasks.append((scratch, f"parse/{k}", users[part], items[part], numbers[part]))
    results = stages.run("parse-pairs", put_coordinates, tasks)
    for result in results:
        if isinstance(result, InputError):
            raise result
    pieces = [piece for piece, _, _ in results if piece.counts.size]
    if not pieces:
        raise InputError("no pairs in the matrix")
    long = long_side(*shape)
    pairs = np.bincount(users if long == "users" else items, minlength=max(shape))
    exact = all(whole for _, whole, _ in results) and sum(total for _, _, total in results) < WHOLE_LIMIT
    runs = group_pieces(stages, scratch, long, pieces, make_ranges(pairs, stages.rows), exact)
    scratch.remove("parse")
    labels = dict(zip(SIDES, map(Numbers, shape), strict=True))
    return write_store(stages, scratch, shape, runs, labels, "a sparse matrix")


def coordinates(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Rows, columns and numbers of a sparse matrix's entries, and its shape."""
    if len(matrix.shape) != 2:
        raise InputError(f"a matrix of pairs has two dimensions, users x items, not {len(matrix.shape)}")
    if scipy.sparse.issparse(matrix):
        found = matrix.tocoo(copy=False)
        users, items, numbers = found.row, found.col, found.data
    else:
        found = matrix.asformat("coo")
        if found.fill_value != 0:
            raise InputError(f"a matrix of pairs must be 0 where nothing is stored, not {found.fill_value}")
        users, items, numbers = found.coords[0], found.coords[1], found.data
    if numbers.dtype.kind not in "biuf":
        raise InputError(f"counts must be numbers: the matrix holds {numbers.dtype}")
    return users, items, numbers.astype(np.uint8) if numbers.dtype.kind == "b" else numbers, matrix.shape


def put_coordinates(
    scratch: Scratch, key: str, users: np.ndarray, items: np.ndarray, numbers: np.ndarray
) -> tuple[Piece, bool, int] | InputError:
    """Task: check some entries of a matrix and put them aside."""
    try:
        counts = check_numbers(numbers, lambda k: f"entry ({users[k]}, {items[k]}) of the matrix")
    except InputError as error:
        return error
    kept = counts > 0
    counts = counts[kept]
    stored = scratch.write(key, users[kept].astype(np.uint32), items[kept].astype(np.uint32), counts)
    whole = counts.dtype.kind == "u"
    total = int(counts.sum(dtype=np.float64)) if whole else 0
    return Piece({"users": Side(stored[0]), "items": Side(stored[1])}, stored[2]), whole, total
