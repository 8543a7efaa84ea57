"""Symbols that are alike, users for an item, and factors for other programs; users are read a block at a time.

Measures of likeness. "cosine" is the cosine of the posterior mean traits. "model" is a correlation of energies: pick
a symbol of the other side at random; do its energies with the two go up and down together? With x = [traits, bias] of
the other side, S its covariance over that side and q, and y = [m, 1], the covariance is y_j^T S y_k and a variance
y_j^T S y_j + sum_k v_jk S_kk. It does not change when traits are rotated or rescaled, as a cosine does, and the more
uncertain a symbol is, the less it is like any other.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError
from ..run.execute import run_tasks
from ..settings import SIDES, other
from ..store.commit import Commit, read_rows
from ..store.counts import Counts
from .predict import Newcomers, Predictor, Symbols, beliefs, energy, labels_of, sigma_of
from .ranking import Ranking

LIKENESSES = ("cosine", "model")
Where = dict[str, Any]  # client= and threads= of run_tasks


def check_measure(measure: Any) -> None:
    if measure not in LIKENESSES:
        raise InputError(f"measure must be one of {', '.join(LIKENESSES)}, not {measure!r}")


def similar(
    predictor: Predictor, side: str, position: int, n: int, measure: str, new: Symbols | None = None, **where: Any
) -> pd.DataFrame:
    """The n symbols of a side that are most like one of them, itself left out, or like a new one: label, rank,
    similarity."""
    check_measure(measure)
    one = read_symbols(predictor, side, np.array([position])) if new is None else new
    covariance = covariance_of(predictor, other(side), where) if measure == "model" else None
    if side == "items":
        found = [_most_like(one, predictor.items, 0, covariance, position, n)]
    else:
        arguments = (one, covariance, position, n)
        found = over_users("similar-users", _similar_block, predictor.commit, predictor.counts, arguments, where)
    places, likeness = (np.concatenate(parts) for parts in zip(*found, strict=True))
    best = first_of(likeness, places, n)
    labels = predictor.counts.label_rows(side, places[best])
    return pd.DataFrame({side[:-1]: labels, "rank": np.arange(best.size) + 1, "similarity": likeness[best]})


def likeness_of(one: Symbols, others: Symbols, covariance: np.ndarray | None) -> np.ndarray:
    """Likeness of one symbol (a row) to others: the cosine, or the correlation of energies by a covariance."""
    mine, theirs = one.mean.astype(np.float64), others.mean.astype(np.float64)
    if covariance is None:
        product, sizes = theirs @ mine[0], np.linalg.norm(theirs, axis=1) * np.linalg.norm(mine)
    else:
        k = mine.shape[1]

        def variances(y: np.ndarray, symbols: Symbols) -> np.ndarray:
            return np.asarray(
                np.einsum("nk,kl,nl->n", y, covariance, y, optimize=True) + symbols.variance @ np.diag(covariance)[:k]
            )

        left, right = (np.hstack([m, np.ones((m.shape[0], 1))]) for m in (mine, theirs))
        product, sizes = right @ (covariance @ left[0]), np.sqrt(variances(right, others) * variances(left, one))
    return np.divide(product, sizes, out=np.zeros_like(product), where=sizes > 0)


def _most_like(
    one: Symbols, others: Symbols, first: int, covariance: np.ndarray | None, left_out: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and likeness of the n symbols of a block most like one; the block's rows begin at `first`."""
    likeness = likeness_of(one, others, covariance)
    places = np.arange(first, first + likeness.size)
    kept = places != left_out
    best = first_of(likeness[kept], places[kept], n)
    return places[kept][best], likeness[kept][best]


def first_of(values: np.ndarray, places: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n largest values, largest first, equal ones by place."""
    if values.size > 4 * n:  # sort few
        least = np.partition(values, values.size - n)[values.size - n]
        some = np.flatnonzero(values >= least)
        return some[np.lexsort((places[some], -values[some]))[:n]]
    return np.lexsort((places, -values))[:n]


def covariance_of(predictor: Predictor, side: str, where: Where) -> np.ndarray:
    """Covariance (K + 1, K + 1) of [traits, bias] over the symbols of a side and q, float64; kept."""
    if side not in predictor.covariances:
        if side == "items":
            sums = [_moments(predictor.items)]
        else:
            sums = over_users("sum-users", _moments_block, predictor.commit, predictor.counts, (), where)
        n, total, squares, variances = (sum(parts[1:], parts[0]) for parts in zip(*sums, strict=True))
        mean = total / n
        predictor.covariances[side] = squares / n - np.outer(mean, mean) + np.diag(variances / n)
    return predictor.covariances[side]


def _moments(symbols: Symbols) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    x = np.hstack([symbols.mean, symbols.bias[:, None]]).astype(np.float64)
    variances = np.hstack([symbols.variance.sum(0, np.float64), symbols.bias_variance.sum(dtype=np.float64)])
    return len(symbols), x.sum(0), x.T @ x, variances


def users_for(
    predictor: Predictor, item: int, n: int, exclude_seen: bool, popularity: float, interval: float,
    new: Symbols | None = None, users: Newcomers | None = None, **where: Any,
) -> pd.DataFrame:  # fmt: skip
    """The n users whom an item, of the store or `new`, suits best: user, rank, probability p(i | j), sigma, sd, low,
    high. `users` are some beside the store's."""
    one = predictor.items.take(np.array([item])) if new is None else new
    arguments = (one, item, n, exclude_seen, popularity)
    found = over_users("recommend-item", _users_block, predictor.commit, predictor.counts, arguments, where)
    if users is not None:
        places = predictor.counts.shape[0] + np.arange(users.labels.size)
        kept = np.ones(users.labels.size, bool)
        ranking = Ranking.of(predictor.commit.settings)
        found.append(_best_users(ranking, users.symbols, one, users.selection, places, kept, n, popularity))
    total = sum(part[-1] for part in found)
    places, score, selection, mean, variance = (np.concatenate(parts) for parts in list(zip(*found, strict=True))[:-1])
    best = first_of(score, places, n)
    belief = beliefs(mean[best], variance[best], interval)
    return pd.DataFrame(
        {
            "user": labels_of(predictor.counts, "users", places[best], users),
            "rank": np.arange(best.size) + 1,
            "probability": belief["sigma"] * selection[best] / total,
            **belief,
        }
    )


def export_factors(predictor: Predictor, side: str, path: str | os.PathLike[str] | None) -> np.ndarray:
    """Rows [m, b, 1] of users or [m, 1, b] of items: their inner products are the energies' posterior means."""
    _check_side(side)
    spec = predictor.commit.arrays[f"{side}/mean"]
    shape, dtype = (spec.shape[0], spec.shape[1] + 2), np.dtype(spec.dtype)
    out = np.empty(shape, dtype) if path is None else np.lib.format.open_memmap(path, "w+", dtype, shape)
    for first, rows in _factor_blocks(predictor, side):
        out[first : first + len(rows)] = rows
    if isinstance(out, np.memmap):
        out.flush()
    return out


def _factor_blocks(predictor: Predictor, side: str) -> Iterator[tuple[int, np.ndarray]]:
    """First row and rows of the blocks of a side."""
    spec = predictor.commit.arrays[f"{side}/mean"]
    rows, k = spec.shape
    for first in range(0, rows, spec.chunks[0]):
        symbols = read_symbols(predictor, side, np.arange(first, min(first + spec.chunks[0], rows)))
        out = np.empty((len(symbols), k + 2), spec.dtype)
        out[:, :k] = symbols.mean
        out[:, k], out[:, k + 1] = (symbols.bias, 1) if side == "users" else (1, symbols.bias)
        yield first, out


def export_table(predictor: Predictor, side: str, path: str | os.PathLike[str]) -> pd.DataFrame:
    """The same as a Parquet file with a row a symbol, its label and its vector, written block by block; its head."""
    _check_side(side)
    writer, head = None, None
    try:
        for first, rows in _factor_blocks(predictor, side):
            labels = pa.array(predictor.counts.some_labels(side, first, first + len(rows)))
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
            table = pa.table({side[:-1]: labels, "vector": vectors})
            writer = writer or pq.ParquetWriter(os.fspath(path), table.schema)
            writer.write_table(table)
            head = table.slice(0, 5).to_pandas() if head is None else head
    finally:
        if writer is not None:
            writer.close()
    assert head is not None  # a side has rows
    return head


def _check_side(side: Any) -> None:
    if side not in SIDES:
        raise InputError(f"side must be users or items, not {side!r}")


def read_symbols(predictor: Predictor, side: str, positions: np.ndarray) -> Symbols:
    return predictor.items.take(positions) if side == "items" else predictor.users(positions)


# Tasks, a block of users each ----------------------------------------------------------------------------------------


def over_users(
    name: str, task: Callable[..., Any], fitted: Any, counts: Counts, arguments: tuple[Any, ...], where: Where
) -> list[Any]:
    """What a task gives for every block of users; `fitted` is a commit, or those of all draws."""
    run, blocks = uuid.uuid4().hex[:12], range(counts.cuts["users"].blocks)
    return run_tasks([(f"{name}-{run}-{b}", task, (fitted, counts, b, *arguments)) for b in blocks], **where)


def _read_block(commit: Commit, counts: Counts, block: int) -> tuple[np.ndarray, Symbols]:
    positions = np.arange(*counts.cuts["users"].row_range(block))
    return positions, Symbols.read(commit, "users", positions)


def _similar_block(
    commit: Commit, counts: Counts, block: int, one: Symbols, covariance: np.ndarray | None, left_out: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    positions, users = _read_block(commit, counts, block)
    return _most_like(one, users, int(positions[0]), covariance, left_out, n)


def _moments_block(commit: Commit, counts: Counts, block: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    return _moments(_read_block(commit, counts, block)[1])


def _users_block(
    commit: Commit, counts: Counts, block: int, one: Symbols, item: int, n: int, exclude_seen: bool, popularity: float
) -> tuple[Any, ...]:
    """The n best users of a block for one item, which is at a position, or at -1 where the store has none of it."""
    positions, users = _read_block(commit, counts, block)
    selection = read_rows(commit, "users/selection", positions)
    kept = np.ones(positions.size, bool)
    if exclude_seen:
        tile = counts.rows("users", block)
        kept[np.searchsorted(tile.indptr, np.flatnonzero(tile.indices == item), "right") - 1] = False
    return _best_users(Ranking.of(commit.settings), users, one, selection, positions, kept, n, popularity)


def _best_users(
    ranking: Ranking, users: Symbols, one: Symbols, selection: np.ndarray, positions: np.ndarray, kept: np.ndarray,
    n: int, popularity: float,
) -> tuple[Any, ...]:  # fmt: skip
    """The n best users: positions, scores, selection, energies, and the sum of sigma * selection of all."""
    mean, variance = (values[:, 0] for values in energy(users, one))
    sigma = sigma_of(mean, variance).astype(np.float64)
    (score,) = ranking.scores(mean, variance, selection, (popularity,))
    places, score = positions[kept], score[kept]
    best = first_of(score, places, n)
    return places[best], score[best], selection[kept][best], mean[kept][best], variance[kept][best], sigma @ selection
