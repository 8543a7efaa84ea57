"""The sampler's kernels against plain numpy and enumerated probabilities; also run without the JIT."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.toy import REPEATS, Toy
from scipy import stats
from scipy.special import expit

from pairsym_dask.kernels import row_draws
from pairsym_dask.kernels.layout import row_offsets
from pairsym_dask.kernels.polya_gamma import moments
from pairsym_dask.kernels.streams import stream_key

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # streams count modulo 2**64


def rows_of(table, width, n):
    return table.reshape(-1, width)[:, :n].astype(float)


@pytest.mark.parametrize("components", [1, 3])
def test_thinned_counts_have_the_poisson_distribution_of_every_cell(components):
    """Chi-square over enumerated counts 0, 1, 2, 3+ of all 5 x 4 cells, against Poisson(M pi psi (1 - sigma))."""
    toy = Toy(components=components)
    rate = toy.offered * (1 - expit(toy.energy))
    found = np.zeros((5, 4, 4))
    for sweep in range(REPEATS):
        for i in range(5):
            _, pairs, _ = toy.their_pairs(sweep, slice(i, i + 1))
            found[i, np.arange(4), np.minimum(toy.censored_of(pairs, i), 3)] += 1
    pmf = stats.poisson.pmf(np.arange(3)[:, None, None], rate)
    expected = REPEATS * np.moveaxis(np.concatenate([pmf, 1 - pmf.sum(0, keepdims=True)]), 0, -1)
    enough = expected > 2
    statistic = ((found - expected) ** 2 / expected)[enough].sum()
    freedom = enough.sum() - 20
    assert stats.chi2.sf(statistic, freedom) > 1e-3


def test_thinned_counts_of_different_items_are_independent():
    toy = Toy(rate=4.0)
    row = int(np.argmax(toy.rates))
    joint = np.zeros((3, 3))
    one, two = np.argsort(-toy.psi * (1 - expit(toy.energy[row])))[:2]
    for sweep in range(REPEATS):
        _, pairs, _ = toy.their_pairs(sweep, slice(row, row + 1))
        censored = toy.censored_of(pairs, row)
        joint[min(censored[one], 2), min(censored[two], 2)] += 1
    joint = joint[joint.sum(1) > 0][:, joint.sum(0) > 0]
    assert stats.chi2_contingency(joint).pvalue > 1e-3


def test_pairs_choose_components_by_what_their_symbols_have_of_them():
    """Observed pairs by rate times chance; censored ones by rate, then a column by its chance, then by 1 - sigma."""
    toy = Toy(components=3, rate=6.0)
    found = np.zeros((4, 3))
    for sweep in range(REPEATS):
        found += toy.their_pairs(sweep, slice(2, 3))[1]
    parts = toy.rates[2] * toy.chances  # (items, components)
    expected = parts * (1 - expit(toy.energy[2]))[:, None]
    expected += toy.matrix[2][:, None] * parts / parts.sum(1, keepdims=True)
    spread = np.sqrt(expected / REPEATS)
    assert (np.abs(found / REPEATS - expected) < 4.5 * spread).all()


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_statistics_of_rows_and_of_columns_are_sums_over_the_same_draw(dtype, components):
    toy = Toy(dtype=dtype, rate=40.0, components=components)
    close = {"rtol": 2e-4, "atol": 2e-4} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-11}
    n = toy.factors + 2
    left, right = rows_of(toy.own, toy.width, n), rows_of(toy.table, toy.width, n)
    for i in range(5):
        theirs, pairs, totals = toy.their_pairs(3, slice(i, i + 1))
        censored = toy.censored_of(pairs, i)
        squares, linear = toy.square(theirs)
        omega = squares[:, n - 2, n - 2].astype(float)  # the coefficient of one times one
        kappa = (toy.matrix[i] - censored) / 2
        assert np.allclose(squares, omega[:, None, None] * np.outer(left[i], left[i]), **close)
        assert np.allclose(linear, kappa[:, None] * left[i], **close)
        own, mine, own_totals = toy.own_pairs(3, slice(i, i + 1))
        square, side = toy.square(own)
        assert np.allclose(square[0], np.einsum("j,ja,jb->ab", omega, right, right), **close)
        assert np.allclose(side[0], kappa @ right, **close)
        assert mine[0].tolist() == pairs.sum(0).tolist()
        assert censored.sum() == own_totals[2]
        assert own_totals.tolist() == totals.tolist()
        shown = (toy.matrix[i] * np.log(expit(toy.energy[i]) * (toy.offered[i] if components > 1 else 1))).sum()
        assert totals[0] == pytest.approx(shown, rel=1e-5 if dtype == "float32" else 1e-12)


def test_weights_of_a_pair_have_the_mean_of_their_trials():
    toy = Toy(rate=6.0)
    n = toy.factors + 2
    total, variance = np.zeros(4), np.zeros(4)
    for sweep in range(REPEATS // 4):
        stats_, pairs, _ = toy.their_pairs(sweep, slice(1, 2))
        omega = toy.square(stats_)[0][:, n - 2, n - 2]
        trials = pairs[:, 0]
        mean, spread = np.array([moments(a) for a in toy.energy[1]]).T
        total += omega - trials * mean
        variance += trials * spread
    assert (np.abs(total) < 4.5 * np.sqrt(variance)).all()


def test_sums_do_not_depend_on_how_columns_are_bundled_or_rows_blocked():
    toy = Toy(users=40, items=9, rate=30.0, dtype="float32", components=2)
    whole, pairs, totals = toy.their_pairs(1)
    parts = [toy.their_pairs(1, columns=slice(k, k + 3)) for k in range(0, 9, 3)]
    assert np.concatenate([part[0] for part in parts]).tobytes() == whole.tobytes()
    assert np.concatenate([part[1] for part in parts]).tolist() == pairs.tolist()
    assert all(part[2].tolist() == totals.tolist() for part in parts)
    own, mine, _ = toy.own_pairs(1)
    blocks = [toy.own_pairs(1, slice(k, k + 8)) for k in range(0, 40, 8)]
    assert np.concatenate([block[0] for block in blocks]).tobytes() == own.tobytes()
    assert np.concatenate([block[1] for block in blocks]).tolist() == mine.tolist()


def test_a_row_without_pairs_and_proposals_has_zero_statistics():
    toy = Toy()
    toy.rates[:] = 0.0
    toy.indptr[:] = 0
    own, pairs, totals = toy.own_pairs(0)
    assert not own.any()
    assert not pairs.any()
    assert not totals.any()


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_drawn_from_their_normal_posterior(dtype, biases, centred):
    factors, n = 3, REPEATS
    rng = np.random.default_rng(2)
    toy = Toy(dtype=dtype, rate=20.0)
    row = toy.own_pairs(5, slice(2, 3))[0]
    square, linear = (part[0].astype(float) for part in toy.square(row))
    prior = np.eye(factors + 1) + 0.2 * np.ones((factors + 1, factors + 1))
    right = rng.standard_normal(factors + 1)
    traits, bias = np.empty((n, factors)), np.empty(n)
    centre = rng.standard_normal(factors + 1) * centred
    failed = row_draws.draw_rows(
        stream_key(0, 0, 0),
        0,
        np.repeat(row, n, 0),
        row_offsets(toy.width),
        factors,
        biases,
        prior,
        right,
        np.tile(centre, (n, 1)) if centred else np.empty((0, 0)),
        traits,
        bias,
    )
    assert failed == -1
    k = factors + biases
    precision = (prior + square[:-1, :-1])[:k, :k]
    h = (right + linear[:-1] - (square[:-1, -1] if biases else 0))[:k] + prior[:k, :k] @ centre[:k]
    drawn = np.column_stack([traits, bias])[:, :k]
    covariance = np.linalg.inv(precision)
    factor = np.linalg.cholesky(precision)
    white = (drawn - covariance @ h) @ factor
    assert np.abs(white.mean(0)).max() < 4.5 / np.sqrt(n)
    assert np.abs(np.cov(white.T) - np.eye(k)).max() < 7 / np.sqrt(n)
    for column in white.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    if not biases:
        assert not bias.any()


def test_a_row_that_is_not_positive_definite_is_named():
    toy = Toy()
    stats_ = toy.own_pairs(0)[0]
    stats_[3] = np.nan
    failed = row_draws.draw_rows(
        stream_key(0, 0, 0), 0, stats_, row_offsets(toy.width), 3, True, np.eye(4), np.zeros(4), np.empty((0, 0)),
        np.empty((5, 3)), np.empty(5),
    )  # fmt: skip
    assert failed == 3


def test_moments_are_sums_of_products():
    rng = np.random.default_rng(0)
    traits, bias = rng.standard_normal((50, 4)).astype(np.float32), rng.standard_normal(50).astype(np.float32)
    x = np.column_stack([traits, bias, np.ones(50)]).astype(float)
    out = np.zeros((6, 6))
    row_draws.add_moments(traits, bias, out)
    assert np.allclose(np.triu(out), np.triu(x.T @ x), rtol=1e-12)
