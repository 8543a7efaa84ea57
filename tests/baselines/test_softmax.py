"""Softmax: its gradient, its likelihood, symmetric pairs, its limits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse

import pairsym_dask as ps
from pairsym_dask.baselines import SoftmaxMAP, softmax


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("room", [softmax.BLOCK, 8 * 5 * 2])
def test_softmax_gradient_is_exact(biases: bool, symmetric: bool, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "BLOCK", room)  # the second room holds two users at a time
    rng = np.random.default_rng(0)
    dense = rng.poisson(1.0, (5, 5)).astype(float)
    if symmetric:
        dense += dense.T
    model = SoftmaxMAP(factors=2, tau=0.7, biases=biases, symmetric=symmetric)
    parameters = rng.normal(size=(5 if symmetric else 10) * (2 + biases))
    pairs = scipy.sparse.csr_matrix(dense)

    u, v, b_u, b_v = model._split(parameters, 5)
    a = u @ v.T + b_u[:, None] + b_v
    expected = (dense * (a - np.log(np.exp(a).sum()))).sum() - 0.35 * (parameters**2).sum()
    value, gradient = model._objective(parameters, pairs, dense.sum())
    assert value == pytest.approx(-expected, rel=1e-12)
    numeric = scipy.optimize.approx_fprime(parameters, lambda x: model._objective(x, pairs, dense.sum())[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, atol=2e-4)


def test_softmax_does_not_overflow_on_great_energies() -> None:
    model = SoftmaxMAP(factors=1)
    pairs = scipy.sparse.csr_matrix(np.ones((3, 2)))
    value, gradient = model._objective(np.linspace(-60, 60, 10), pairs, 6.0)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_softmax_without_shrinkage_reproduces_the_counts(tmp_path: Path) -> None:
    dense = np.array([[4.0, 1, 7], [2, 9, 3], [5, 5, 1], [1, 2, 8]])
    model = SoftmaxMAP(factors=3, tau=1e-5, tolerance=1e-14, iterations=2000)
    model.fit(ps.ingest(scipy.sparse.csr_matrix(dense), tmp_path / "c.zarr"))
    assert model.converged
    np.testing.assert_allclose(model.scores(range(4)), dense / dense.sum(1, keepdims=True), atol=2e-3)


def test_softmax_conditional_sums_to_one_under_the_items_labels(counts: ps.Counts) -> None:
    model = SoftmaxMAP(factors=2, iterations=20).fit(counts)
    p = model.conditional("user 010")
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p.index.tolist() == counts.item_ids.tolist()
    np.testing.assert_array_equal(p.to_numpy(), model.scores(["user 010"])[0])


def test_softmax_symmetric_ties_both_sides(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    upper = np.triu(rng.poisson(0.6, (12, 12)), 1)
    counts = ps.ingest(scipy.sparse.csr_matrix(upper + upper.T), tmp_path / "c.zarr")
    model = SoftmaxMAP(factors=2, symmetric=True).fit(counts)
    a = model._user_traits @ model._item_traits.T + model._item_bias
    joint = np.exp(a + model._item_bias[:, None])
    np.testing.assert_allclose(joint, joint.T, rtol=1e-12)
    np.testing.assert_allclose(model.scores(range(12)), joint / joint.sum(1, keepdims=True), rtol=1e-10)
    # With next to no shrinkage, what is not tied fits better: u_i.u_j alone cannot give every symmetric matrix.
    free = SoftmaxMAP(factors=2, tau=1e-3).fit(counts)
    tied = SoftmaxMAP(factors=2, tau=1e-3, symmetric=True).fit(counts)
    assert free.log_posterior > tied.log_posterior


def test_softmax_symmetric_needs_the_same_labels(counts: ps.Counts) -> None:
    with pytest.raises(ps.InputError, match="same labels on both sides"):
        SoftmaxMAP(symmetric=True).fit(counts)


def test_softmax_refuses_what_is_too_large(counts: ps.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CELLS", 2399)
    with pytest.raises(ps.InputError, match=r"60 x 40 = 2,400 pairs; at most 2,399"):
        SoftmaxMAP().fit(counts)


@pytest.mark.slow
@pytest.mark.skipif("PAIRSYM_DATA" not in os.environ, reason="PAIRSYM_DATA does not say where the co-author pairs are")
def test_paired_symbols_finds_a_symmetric_solution_of_symmetric_counts(tmp_path: Path) -> None:
    """At the paper's settings, with nothing that forces it: energies m_i.m_j and m_j.m_i come together."""
    counts = ps.ingest(
        pd.read_parquet(Path(os.environ["PAIRSYM_DATA"]) / "nips-coauthors.parquet"),
        tmp_path / "coauthors.zarr",
        user="author",
        item="coauthor",
        count="count",
    )
    assert counts.user_ids.tolist() == counts.item_ids.tolist()
    model = ps.PairedSymbols(factors=5, censored_ratio=1, tau_u=1, tau_v=1, biases=False, selection="bayes")

    def asymmetry(sweeps: int) -> float:
        model.fit(counts, tmp_path / "model.zarr", sweeps=sweeps, progress=False)
        state = model.to_xarray()
        energy = state.user_mean.to_numpy() @ state.item_mean.to_numpy().T
        assert np.abs(energy).max() > 1  # a solution that says something
        return float(np.linalg.norm(energy - energy.T) / np.linalg.norm(energy))

    start, end = asymmetry(5), asymmetry(60)
    assert end < 0.01
    assert end < start / 10
