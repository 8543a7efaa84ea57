"""Shifts of selection against bias: what they propose, and that pairs are weighed as their likelihood has it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.toy import REPEATS, Toy
from scipy import stats
from scipy.special import expit

from pairsym_dask.kernels import shifts
from pairsym_dask.kernels.random import alias_table
from pairsym_dask.kernels.streams import stream_key

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # streams count modulo 2**64


def steps_of(sweep, counts, selection):
    out = np.full(counts.size, np.nan)
    shifts.propose_shifts(stream_key(1, sweep, 0), stream_key(1, sweep, 1), 0, counts, selection, out)
    return out


def test_steps_are_in_twos_whose_selection_together_stays():
    rng = np.random.default_rng(0)
    counts, selection = rng.integers(0, 50, 9).astype(float), rng.gamma(1.0, size=9)
    partners = set()
    for sweep in range(40):
        steps = steps_of(sweep, counts, selection)
        new = selection * np.exp(-steps)
        assert new.sum() == pytest.approx(selection.sum(), rel=1e-12)
        moved = np.flatnonzero(steps)
        assert moved.size == 8
        assert np.sign(steps[moved]).sum() == 0
        for one in moved:
            close = [k for k in moved if abs(selection[[one, k]].sum() - new[[one, k]].sum()) < 1e-12]
            partners |= {(int(one), int(k)) for k in close if k != one}
    assert len(partners) == 9 * 8  # everybody meets everybody


def test_steps_are_as_likely_back_as_forth():
    """The change of the log odds is symmetric, and does not depend on where they are."""
    counts, changes = np.array([30.0, 4.0]), []
    for selection in (np.array([1.0, 1.0]), np.array([0.01, 3.0])):
        for sweep in range(REPEATS):
            steps = steps_of(sweep, counts, selection)
            changes.append(steps[1] - steps[0])
    one, two = np.reshape(changes, (2, -1))
    assert np.allclose(one, two)
    moved = one[one != 0]
    assert stats.kstest(moved, -moved).pvalue > 1e-3


@pytest.mark.parametrize("of_rows", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_average_to_the_ratio_of_likelihoods(of_rows, dtype):
    """Over censored pairs, E[exp weight] = prod (rate' / rate)^c exp(rate - rate') of c ~ Poisson(rate)."""
    toy = Toy(rate=2.0, dtype=dtype)
    steps = np.array([0.4, -0.5, 0.2, -0.1, 0.3])[: 5 if of_rows else 4]
    leans = np.array([1.3, 0.8, 1.0, 0.6, 1.1])[: 4 if of_rows else 5]
    most = np.exp(np.maximum(-steps, 0))
    rates, psi = toy.rates[:, 0] * most if of_rows else toy.rates[:, 0], toy.psi if of_rows else toy.psi * most
    kept, alias = alias_table(psi / psi.sum())
    found = np.empty((REPEATS, steps.size))
    for sweep in range(REPEATS):
        found[sweep] = 0
        shifts.weigh_shifts(
            stream_key(3, sweep, 0), 0, rates * psi.sum(), toy.indptr, toy.indices, toy.counts, kept, alias, toy.own,
            toy.table, toy.factors, steps, leans, of_rows, found[sweep],
        )  # fmt: skip
    t, g = (steps[:, None], leans) if of_rows else (steps, leans[:, None])
    before = toy.rates * toy.psi * expit(toy.energy)
    after = toy.rates * toy.psi * np.exp(-t) * expit(toy.energy + t * g)
    wanted = (toy.matrix * np.log(after / before) - (after - before)).sum(1 if of_rows else 0)
    drawn = np.exp(found - wanted)
    assert (np.abs(drawn.mean(0) - 1) < 4.5 * drawn.std(0) / np.sqrt(REPEATS) + 1e-5).all()


def test_weights_of_blocks_add_up_to_those_of_all_rows():
    toy = Toy(users=30, items=6, rate=20.0)
    steps = np.linspace(-0.3, 0.3, 6)

    def weigh(first, stop):
        out = np.zeros(6)
        shifts.weigh_shifts(
            stream_key(3, 1, 0), first, toy.rates[first:stop, 0], toy.indptr[first : stop + 1], toy.indices, toy.counts,
            toy.kept, toy.alias, toy.own[first * toy.width : stop * toy.width], toy.table, toy.factors, steps,
            np.ones(stop - first), False, out,
        )  # fmt: skip
        return out

    assert np.allclose(weigh(0, 30), weigh(0, 11) + weigh(11, 30), rtol=1e-12)


def test_steps_are_taken_by_the_ratio_of_weights_and_priors():
    """Both of two rows or none, as often as min(1, ratio)."""
    steps, bias = np.array([0.5, -0.7]), np.array([0.2, -1.0])
    weights, alpha, mean, precision = np.array([-0.2, 0.1]), 1.3, 0.1, 0.8
    taken = 0
    for sweep in range(REPEATS):
        out = steps.copy()
        shifts.accept_shifts(
            stream_key(5, sweep, 0), stream_key(5, sweep, 1), 0, out, weights, alpha, bias, mean, precision
        )
        if not steps_of_two(sweep):  # both rows stood alone in this sweep
            assert out.tolist() == steps.tolist()
            continue
        assert out.tolist() in ([0.0, 0.0], steps.tolist())
        taken += bool(out.any())
    log_prior = stats.norm(mean, precision**-0.5).logpdf
    ratio = (weights - alpha * steps + log_prior(bias + steps) - log_prior(bias)).sum()
    met = sum(steps_of_two(sweep) for sweep in range(REPEATS))
    assert taken / met == pytest.approx(min(1, np.exp(ratio)), abs=4.5 * 0.5 / np.sqrt(met))


def steps_of_two(sweep):
    shifts.propose_shifts(
        stream_key(5, sweep, 0), stream_key(5, sweep, 1), 0, np.ones(2), np.ones(2), out := np.empty(2)
    )
    return bool(out.any())
