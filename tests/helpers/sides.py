"""Random posteriors, tables and pairs for tests of kernels, and an update written out row by row."""

from __future__ import annotations

import numpy as np

from helpers.dense import lambda_of
from pairsym_dask.kernels import moments as whole_rows
from pairsym_dask.kernels import rows as kernels
from pairsym_dask.kernels.layout import empty_table, padded_width, statistics_size
from pairsym_dask.sweep.background import Background

DTYPES = (np.float32, np.float64)


def make_side(rng, n, factors, dtype):
    """Random posterior of n symbols, and its table."""
    mean = rng.standard_normal((n, factors)).astype(dtype)
    precision = rng.uniform(0.5, 3, (n, factors)).astype(dtype)
    bias, bias_precision = rng.standard_normal(n).astype(dtype), rng.uniform(0.5, 3, n).astype(dtype)
    weight = rng.dirichlet(np.ones(n))
    width = padded_width(factors)
    table = empty_table(n, width, dtype)
    kernels.fill_table(kernels.Values(mean, precision, bias, bias_precision), weight, 1.0, width, table)
    return {"mean": mean, "v": 1 / precision, "b": bias, "w": 1 / bias_precision, "t": weight, "table": table}


def make_pairs(rng, rows, columns, density):
    dense = (rng.random((rows, columns)) < density) * rng.integers(1, 9, (rows, columns))
    indptr = np.concatenate([[0], np.cumsum((dense > 0).sum(1))])
    row, column = np.nonzero(dense)
    return dense, indptr, column.astype(np.uint32), dense[row, column].astype(np.uint8)


def plain_moments(own, its):
    a = own["mean"].astype(float) @ its["mean"].T.astype(float) + own["b"][:, None] + its["b"]
    m2, n2 = own["mean"].astype(float) ** 2, its["mean"].astype(float) ** 2
    var = m2 @ its["v"].T + own["v"] @ (n2 + its["v"]).T + own["w"][:, None] + its["w"]
    return a, np.sqrt(a**2 + var)


def plain_update(own, its, dense, censored, star, tau, tau_b, biases):
    """design.md section 3, written out row by row."""
    _, xi = plain_moments(own, its)
    lam2 = 2 * lambda_of(xi)
    n, k = own["mean"].shape
    z = np.hstack([its["mean"].astype(float), np.ones((len(its["b"]), 1))])
    t, b_its = its["t"], its["b"].astype(float)
    out = [np.empty((n, k)), np.empty((n, k)), np.zeros(n), np.full(n, np.inf)]
    for i in range(n):
        seen = dense[i] > 0
        w = (
            np.where(seen, lam2[i] * (dense[i] + censored[i] * t) - star * censored[i] * t, 0.0)
            + star * censored[i] * t
        )
        g = (z * w[:, None]).T @ z
        h = z.T @ (dense[i] / 2 - w * b_its) - censored[i] / 2 * (z.T @ t)
        b = 0.0
        if biases:
            out[3][i] = g[k, k] + tau_b
            b = out[2][i] = (h[k] - g[k, :k] @ own["mean"][i]) / out[3][i]
        p = g[:k, :k] + np.diag(w @ its["v"]) + tau[i] * np.eye(k)
        out[0][i], out[1][i] = np.linalg.solve(p, h[:k] - b * g[k, :k]), np.diag(p)
    return out


def growth_of(its):
    """Growth of prior precisions, a number a row."""
    return np.linspace(0.5, 2, its["b"].size)


def background_of(its, factors):
    packed, moments = np.zeros(statistics_size(factors)), np.zeros(6)
    whole_rows.add_background(its["table"], its["b"].size, its["t"], growth_of(its), factors, False, packed, moments)
    return Background(factors, packed), moments


def no_pull(dtype):
    """Of rows whose prior means are 0."""
    return np.empty((0, 0), dtype)


def assert_near(values, wanted, tolerance):
    """Every array is finite where it should be, and there as wanted."""
    for one, two in zip(values, wanted, strict=True):
        finite = np.isfinite(two)
        scale = np.abs(two[finite]).max(initial=1.0)
        assert (np.isfinite(one) == finite).all()
        assert np.abs(one[finite] - two[finite]).max(initial=0) / scale < tolerance
