"""Random streams and Polya-Gamma draws against exact moments and slow exact draws; also run without the JIT."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config
from scipy import stats

from pairsym_dask.kernels import polya_gamma as pg
from pairsym_dask.kernels.accelerate import compiled
from pairsym_dask.kernels.simd import keep, pointer
from pairsym_dask.kernels.streams import begin_stream, draw_gammas, normal, poisson, stream_key, uniform

N = 2_000 if config.DISABLE_JIT else 200_000
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # streams count modulo 2**64


@compiled
def fill(kind, key, row, parameter, out):
    words = np.empty(2, np.uint64)
    stream = pointer(words)
    begin_stream(stream, key, row)
    for k in range(out.size):
        if kind == 0:
            out[k] = uniform(stream)
        elif kind == 1:
            out[k] = normal(stream)
        else:
            out[k] = poisson(stream, parameter)
    keep(words)


def drawn(kind, parameter=0.0, seed=0, row=0, n=N):
    out = np.empty(n)
    fill(kind, stream_key(seed, 1, 2), row, parameter, out)
    return out


def test_streams_are_uniform_in_value_pairs_and_low_bits():
    u = drawn(0)
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    cells = np.histogram2d(u[:-1:2], u[1::2], bins=8, range=[[0, 1], [0, 1]])[0].ravel()
    assert stats.chisquare(cells).pvalue > 1e-3
    low = (u * 2.0**52).astype(np.int64) & 15
    assert stats.chisquare(np.bincount(low, minlength=16)).pvalue > 1e-3


def test_streams_of_neighbouring_rows_sweeps_purposes_and_seeds_are_unrelated():
    n = N // 10
    words = {}
    for seed, sweep, purpose, row in [(0, 1, 2, 0), (0, 1, 2, 1), (0, 2, 2, 0), (0, 1, 3, 0), (1, 1, 2, 0)]:
        out = np.empty(n)
        fill(0, stream_key(seed, sweep, purpose), row, 0.0, out)
        words[seed, sweep, purpose, row] = out
    table = np.array(list(words.values()))
    correlation = np.corrcoef(table) - np.eye(len(table))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(n)
    first = np.array([drawn(0, row=row, n=1)[0] for row in range(n)])  # the first numbers of consecutive rows
    assert stats.kstest(first, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 4.5 / np.sqrt(n)


def test_normal_numbers_are_normal():
    assert stats.kstest(drawn(1), "norm").pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.0, 0.3, 3.0, 9.9, 10.1, 40.0, 3000.0])
def test_poisson_numbers_have_their_distribution(rate):
    x = drawn(2, rate, seed=5, n=N // 2).astype(int)
    if rate == 0:
        assert not x.any()
        return
    edges = np.unique(stats.poisson.ppf(np.linspace(0.01, 0.99, 25), rate).astype(int))
    expected = np.diff(np.r_[0, stats.poisson.cdf(edges, rate), 1]) * x.size
    found = np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1)
    assert stats.chisquare(found, expected).pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.2, 1.0, 2.5, 400.0])
def test_gamma_numbers_have_their_distribution(shape):
    out = np.empty(N // 2)
    draw_gammas(stream_key(3, 0, 0), 0, np.full((out.size, 1), shape), out[:, None])
    assert stats.kstest(out, "gamma", (shape,)).pvalue > 1e-3


def polya_gammas(trials, energy, n=N, seed=1):
    out = np.empty(n)
    pg.draw_polya_gammas(stream_key(seed, 0, 0), np.full(n, trials), np.full(n, float(energy)), out)
    return out


def sums_of_gammas(trials, energy, n, terms=300):
    """PolyaGamma(b, z) by its definition, an infinite sum of Gamma(b) numbers, cut with its mean put back."""
    rng = np.random.default_rng(9)
    weights = 1 / (2 * np.pi**2 * ((np.arange(terms) + 0.5) ** 2 + (energy / (2 * np.pi)) ** 2))
    total = np.zeros(n)
    for weight in weights:
        total += weight * rng.gamma(trials, size=n)
    return total + trials * (pg.moments(float(energy))[0] - weights.sum())


@pytest.mark.parametrize("energy", [0.0, 0.01, -1.0, 3.0, 3.2, -7.0, 20.0, 60.0])
@pytest.mark.parametrize("trials", [1, 3, 33, 500])
def test_polya_gamma_numbers_have_exact_mean_and_variance(trials, energy):
    n = N // min(trials, 10)
    x = polya_gammas(trials, energy, n)
    mean, variance = pg.moments(float(energy))
    assert abs(x.mean() - trials * mean) < 4.5 * np.sqrt(trials * variance / n)
    spread = np.std((x - x.mean()) ** 2) / np.sqrt(n)
    assert abs(x.var() - trials * variance) < 4.5 * spread
    assert x.min() > 0


@pytest.mark.parametrize(("trials", "energy"), [(1, 0.0), (1, 1.5), (1, 3.1), (1, 3.2), (1, 8.0), (2, 0.5), (7, -2.0)])
def test_polya_gamma_numbers_are_distributed_as_sums_of_gammas(trials, energy):
    n = N // 10
    x = polya_gammas(trials, energy, n, seed=2)
    assert stats.ks_2samp(x, sums_of_gammas(trials, energy, n)).pvalue > 1e-3


def test_moments_agree_where_their_two_formulas_meet():
    for low, high in zip(pg.moments(0.05 - 1e-9), pg.moments(0.05 + 1e-9), strict=True):
        assert low == pytest.approx(high, rel=1e-9)


def test_the_share_beyond_falls_with_the_energy_so_that_its_cells_bound_it():
    z = np.linspace(0, 9, 2000)
    share = pg.beyond_share(z)
    assert (np.diff(share) < 0).all()
    assert share == pytest.approx([pg._exact_share(each) for each in z], rel=1e-9)


@pytest.mark.parametrize("energy", [np.nan, np.inf, 1e30])
def test_an_energy_that_is_no_number_does_not_hang(energy):
    x = polya_gammas(1, energy, 3)
    assert np.isnan(x).all() if np.isnan(energy) else (x < 1e-4).all()
