"""Kernels against plain numpy, compiled; `test_without_jit.py` runs this file with NUMBA_DISABLE_JIT=1 too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.dense import lambda_of, log_sigma
from helpers.sides import (
    DTYPES,
    background_of,
    growth_of,
    make_pairs,
    make_side,
    no_pull,
    plain_moments,
    plain_update,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from pairsym_dask.kernels import logistic as functions
from pairsym_dask.kernels import moments as whole_rows
from pairsym_dask.kernels import rows as kernels
from pairsym_dask.kernels.accelerate import compiled
from pairsym_dask.kernels.layout import WHOLE, padded_width, row_offsets, side_by_side, statistics_size
from pairsym_dask.kernels.simd import load, load_turned, pointer, reduce8, store

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}


@compiled
def scalar_functions(x, lam, log):
    for k in range(0, x.size, 8):
        v = load(pointer(x), k)
        e, rest = functions.exp_minus(v, pointer(x))
        store(pointer(lam), k, functions.two_lambda(v, e, rest, pointer(x)))
        store(pointer(log), k, functions.log_sigmoid(e, pointer(x)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_lambda_and_log_sigmoid_are_exact_to_rounding(dtype):
    x = np.concatenate([np.logspace(-7, 2.5, 792), [0.1, 0.3, 1, 2, 5, 20, 80, 300]]).astype(dtype)
    lam, log = np.empty_like(x), np.empty_like(x)
    scalar_functions(x, lam, log)
    eps = np.finfo(dtype).eps
    wide = x.astype(np.float64)
    assert np.abs(lam / (2 * lambda_of(wide)) - 1).max() < 8 * eps
    assert np.abs(log - log_sigma(wide)).max() < 4 * eps


@compiled
def shuffles(x, sums, turned):
    p = pointer(x)
    rows = (load(p, 0), load(p, 8), load(p, 16), load(p, 24), load(p, 32), load(p, 40), load(p, 48), load(p, 56))
    store(pointer(sums), 0, reduce8(*rows))
    columns = load_turned(p, 0, 8)
    for k in range(8):
        store(pointer(turned), 8 * k, columns[k])


@pytest.mark.parametrize("dtype", DTYPES)
def test_eight_sums_and_the_transpose(dtype):
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(dtype)
    sums, turned = np.empty(8, dtype), np.empty(64, dtype)
    shuffles(x.reshape(-1), sums, turned)
    assert np.allclose(sums, x.sum(1), atol=1e-5)
    assert (turned.reshape(8, 8) == x.T).all()


@settings(max_examples=5 if config.DISABLE_JIT else 40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 10 if config.DISABLE_JIT else 21),
    columns=st.integers(1, 20 if config.DISABLE_JIT else 90),
    factors=st.sampled_from([1, 2, 5, 6, 7, 14, 20, 23]),
    density=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    biases=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_update_of_rows_whole_and_from_partial_statistics(seed, rows, columns, factors, density, biases, dtype):
    rng = np.random.default_rng(seed)
    own, its = make_side(rng, rows, factors, dtype), make_side(rng, columns, factors, dtype)
    if not biases:
        for side in (own, its):
            side["b"][:], side["w"][:] = 0, 0
            stride, width = 2 * padded_width(factors), padded_width(factors)
            side["table"][factors + 1 :: stride] = 0
            side["table"][width + factors :: stride] = 0
    dense, indptr, indices, counts = make_pairs(rng, rows, columns, density)
    censored, star, tau = rng.uniform(0.1, 20, rows), 0.21, rng.uniform(0.2, 0.5, rows).astype(dtype)
    wanted = plain_update(own, its, dense, censored, star, tau, 0.7, biases)
    base = background_of(its, factors)[0].packed.astype(dtype)
    width, offsets = padded_width(factors), row_offsets(padded_width(factors))

    def empty():
        return kernels.Values(*(np.empty(shape, dtype) for shape in ((rows, factors), (rows, factors), rows, rows)))

    pairs = kernels.Pairs(indptr[:-1], indptr[1:], indices, counts)
    terms = kernels.Terms(factors, offsets, censored, star, base, tau, 0.7, biases, False, no_pull(dtype))
    got = empty()
    kernels.update_rows(pairs, kernels.OtherSide(WHOLE, its["table"]), own["table"], terms, got)
    # The same from tables in pieces, statistics gathered and solved.
    stats = np.zeros((rows, statistics_size(factors)), dtype)
    step = 16
    tables = [its["table"][c * 2 * width : (c + step) * 2 * width].copy() for c in range(0, columns, step)]
    table, parts = side_by_side(0, step, tables)
    others = kernels.OtherSide(parts, table)
    kernels.add_statistics(pairs, others, own["table"], width, factors, censored, star, False, stats)
    pieces = empty()
    kernels.solve_statistics(stats, own["table"], terms, pieces)
    for one, two, three in zip(got, pieces, wanted, strict=True):
        finite = np.isfinite(three)
        scale = np.abs(three[finite]).max(initial=1.0)
        for array in (one, two):
            assert (np.isfinite(array) == finite).all()
            assert np.abs(array[finite] - three[finite]).max(initial=0) / scale < 50 * TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_selection_statistics_are_the_sums_over_observed_pairs(dtype):
    rng = np.random.default_rng(5)
    own, its = make_side(rng, 13, 9, dtype), make_side(rng, 150, 9, dtype)
    dense, indptr, indices, counts = make_pairs(rng, 13, 150, 0.5)
    a, xi = plain_moments(own, its)
    value, seen = log_sigma(xi) - xi / 2, dense > 0
    wanted = np.stack(
        [seen @ its["t"], (seen * value) @ its["t"], (seen * xi**2) @ its["t"], (dense * (value + a / 2)).sum(1)], 1
    )
    out = np.zeros((13, 4))
    pairs, others = kernels.Pairs(indptr[:-1], indptr[1:], indices, counts), kernels.OtherSide(WHOLE, its["table"])
    kernels.select_rows(pairs, others, own["table"], padded_width(9), 9, False, out)
    assert np.abs(out / wanted - 1).max() < TOLERANCE[dtype]


@pytest.mark.parametrize("factors", [1, 6, 20])
def test_background_is_the_weighted_sum_over_all_symbols(factors):
    rng = np.random.default_rng(factors)
    own, its = make_side(rng, 11, factors, np.float64), make_side(rng, 40, factors, np.float64)
    background, moments = background_of(its, factors)
    t = its["t"]
    wanted = (its["mean"] * t[:, None]).T @ its["mean"] + np.diag(t @ its["v"])
    assert np.allclose(background.precision, wanted, rtol=1e-13)
    assert np.allclose(background.dagger, (t * its["b"]) @ its["mean"], rtol=1e-12)
    assert np.allclose([background.nu, background.kappa], [t @ its["b"], t @ (its["b"] ** 2 + its["w"])], rtol=1e-13)
    growth = growth_of(its)
    sums = [np.log(its["v"]).sum(), (growth @ its["mean"] ** 2).sum(), (growth @ its["v"]).sum()]
    sums += [part.sum() for part in (np.log(its["w"]), its["b"] ** 2, its["w"])]
    assert np.allclose(moments, sums)
    a, xi = plain_moments(own, its)
    out = np.empty((11, 2))
    whole_rows.background_moments(own["table"], 11, factors, background.square.reshape(-1), background.variances, out)
    assert np.allclose(out, np.stack([xi**2 @ t, a @ t], 1), rtol=1e-12)


def test_a_kernel_keeps_its_scratch_while_other_threads_allocate():
    """Numba frees a local array after its last use; a pointer to it then points into another thread's memory."""
    rng = np.random.default_rng(1)
    factors = 5
    own, its = make_side(rng, 64, factors, np.float64), make_side(rng, 50, factors, np.float64)
    _, indptr, indices, counts = make_pairs(rng, 64, 50, 0.4)
    base = background_of(its, factors)[0].packed
    offsets = row_offsets(padded_width(factors))

    def update(_):
        out = kernels.Values(np.empty((64, factors)), np.empty((64, factors)), np.empty(64), np.empty(64))
        terms = kernels.Terms(
            factors, offsets, np.ones(64), 0.2, base, np.full(64, 0.3), 0.7, True, False, no_pull(np.float64)
        )
        pairs = kernels.Pairs(indptr[:-1], indptr[1:], indices, counts)
        kernels.update_rows(pairs, kernels.OtherSide(WHOLE, its["table"]), own["table"], terms, out)
        return out[0].tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(update, range(200)))) == 1
