"""Draws with tags: Geweke's joint test, exact conditionals, the same bits however a chain runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import scipy.sparse
from helpers import sampling
from helpers.faults import all_bits
from helpers.sampling import State, draw_counts, draw_state, scaled_links, sweep, tiles_of
from helpers.stores import make_store, random_counts
from scipy import stats
from scipy.special import expit

import pairsym_dask as ps
from pairsym_dask.kernels.layout import padded_width
from pairsym_dask.sampler import tags as tags_module
from pairsym_dask.sampler.chain import sample
from pairsym_dask.sampler.diagnose import effective_draws
from pairsym_dask.sampler.halves import Drawn, Keys
from pairsym_dask.sampler.hyper import Prior
from pairsym_dask.sampler.plan import DrawPlan
from pairsym_dask.sampler.shifts import Slope, accept
from pairsym_dask.sampler.tags import DrawnTags, draw_effects
from pairsym_dask.settings import SIDES, Settings
from pairsym_dask.store.commit import Commit
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.tags import Tags
from pairsym_dask.store.verify import verify
from pairsym_dask.sweep import tag_prior
from pairsym_dask.sweep.tag_prior import gamma_prior

pytestmark = pytest.mark.draws

SETTINGS = Settings(factors=3, censored_ratio=2.0, inference="gibbs", random_state=11)
LINKS = {
    "users": np.array([[1.0, 0, 2], [0, 1, 0], [1, 1, 0], [0, 0, 0]]),  # the last one has no tags
    "items": np.array([[1.0, 0], [0.5, 1], [0, 1]]),
}


def features(state: State, counts: np.ndarray) -> np.ndarray:
    """Bounded functions of tags, and of what hangs on them."""
    a, found = state.energy(), []
    for side, tags in state.tags.items():
        drawn = getattr(state, side)
        found += [
            *np.tanh(tags.traits).mean(0),
            *(np.tanh(tags.traits) ** 2).mean(0),
            *np.tanh(np.log(tags.gamma)),
            np.tanh(np.abs(tags.traits).sum(1) * tags.gamma).mean(),
            np.tanh(tags.bias).mean(),
            (np.tanh(tags.bias) ** 2).mean(),
            np.tanh(tags.traits[0] @ drawn.traits[0]),
            np.tanh(tags.traits[-1] @ drawn.traits.mean(0)),
            np.tanh(tags.bias[0] * drawn.bias[0]),
            *(np.tanh(drawn.traits) ** 2).mean(0),
            np.tanh(drawn.bias).mean(),
        ]
    precision = np.linalg.slogdet(state.item_prior.precision)[1]
    return np.array(
        [*found, expit(a).mean(), np.tanh(precision / 4), min(counts.sum(), 12) / 12, np.tanh(counts * a).mean()]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"hyperpriors": False, "tau_u": 0.7, "tau_v": 1.5, "tau_b": 0.8}, marks=pytest.mark.long),
        {"hyperpriors": True},
        pytest.param({"hyperpriors": False, "tau_u": 1.0, "tau_v": 1.0, "biases": False}, marks=pytest.mark.long),
    ],
    ids=["fixed", "hyperpriors", "no-biases"],
)
def test_draws_from_the_prior_and_sweeps_with_fresh_counts_agree(options, monkeypatch):
    """Geweke's test, as in test_exact.py, with tags on both sides.

    gamma_f ~ Gamma(4 K, 4 K) in the place of Gamma(K/2, K/2), whose small values make effects without moments: a chain
    comes there seldom and stays for long, and no trace is worth what it seems to be.
    """
    for module in (tags_module, sampling):
        monkeypatch.setattr(module, "gamma_prior", lambda factors: 4.0 * factors)
    monkeypatch.setattr(tags_module, "threadpool_limits", lambda *_: nullcontext())  # takes longer than a sweep here
    settings = Settings(**{"factors": 2, "inference": "gibbs", "dtype": "float64", "random_state": 5} | options)
    weights = {side: scaled_links(links) for side, links in LINKS.items()}
    rng, n = np.random.default_rng(1), 12_000 if settings.hyperpriors else 6_000
    state = draw_state(4, 3, settings, rng, weights)
    apart = np.empty((n, features(state, np.zeros((4, 3))).size))
    chained = np.empty_like(apart)
    for k in range(n):
        fresh = draw_state(4, 3, settings, rng, weights)
        apart[k] = features(fresh, draw_counts(fresh, 14.0, rng))
        counts = draw_counts(state, 14.0, rng)
        chained[k] = features(state, counts)
        state = sweep(state, counts, 14.0, settings, k + 1)
    constant = apart.std(0) < 1e-12
    worth = np.array([effective_draws(trace) for trace in chained.T])
    error = np.sqrt(apart.var(0) / n + chained.var(0) / np.maximum(worth, 1))
    z = np.where(constant, 0.0, (chained.mean(0) - apart.mean(0)) / np.where(constant, 1.0, error))
    assert worth[~constant].min() > 80
    assert np.abs(z).max() < 4, np.round(z, 1)


def test_effects_given_rows_have_their_exact_normal_posterior(monkeypatch):
    """With many passes over the tags a draw is one of the joint posterior of all: a ridge regression written out."""
    monkeypatch.setattr(tags_module, "PASSES", 25)
    monkeypatch.setattr(tags_module, "threadpool_limits", lambda *_: nullcontext())
    settings = Settings(factors=2, inference="gibbs", dtype="float64", tau_b=0.8)
    rng, k, n = np.random.default_rng(0), 2, 1_500
    x = scaled_links((rng.random((12, 3)) < 0.6) * rng.uniform(0.5, 2.0, (12, 3)) + np.eye(12, 3))
    traits, bias = rng.standard_normal((12, k)), rng.standard_normal(12)
    prior = Prior(rng.standard_normal(k), np.array([[2.0, 0.8], [0.8, 1.0]]), 0.3, 1.7)
    gamma = rng.uniform(0.5, 3.0, 4)
    old = DrawnTags(rng.standard_normal((4, k)), rng.standard_normal(4), gamma)
    drawn = [
        draw_effects(
            Keys(3, number), settings, "items", tiles_of(x), old, prior, lambda axes: traits @ axes, bias,
            [slice(0, 1), slice(1, 2)],
        )
        for number in range(n)
    ]  # fmt: skip
    # vec(h) is normal with precision X^T X (x) Lambda + diag(gamma) (x) I
    precision = np.kron(x.T @ x, prior.precision) + np.kron(np.diag(gamma), np.eye(k))
    mean = np.linalg.solve(precision, (x.T @ (traits - prior.mean) @ prior.precision).ravel())
    white = (np.array([one.traits.ravel() for one in drawn]) - mean) @ np.linalg.cholesky(precision)
    assert np.abs(white.mean(0)).max() < 4.5 / np.sqrt(n)
    assert np.abs(np.cov(white.T) - np.eye(8)).max() < 6 / np.sqrt(n)
    precision = 1.7 * x.T @ x + 0.8 * np.eye(4)
    mean = np.linalg.solve(precision, 1.7 * x.T @ (bias - 0.3))
    white = (np.array([one.bias for one in drawn]) - mean) @ np.linalg.cholesky(precision)
    assert np.abs(white.mean(0)).max() < 4.5 / np.sqrt(n)
    assert np.abs(np.cov(white.T) - np.eye(4)).max() < 6 / np.sqrt(n)
    # gamma_f | h_f ~ Gamma(a + K/2, a + |h_f|^2 / 2)
    a = gamma_prior(k)
    scaled = np.array([one.gamma * (a + (one.traits**2).sum(1) / 2) for one in drawn])
    for column in scaled.T:
        assert stats.kstest(column, "gamma", args=(a + k / 2,)).pvalue > 1e-3


def test_steps_are_weighed_by_the_prior_about_what_tags_say():
    """Rows about their centres step as rows less their centres do about nothing; Geweke's test hardly sees it."""
    rng, n = np.random.default_rng(3), 400
    drawn = Drawn(rng.standard_normal((n, 3)), rng.standard_normal(n), np.ones(n))
    centres, own = rng.standard_normal((n, 4)), Prior(rng.standard_normal(3), 2.0 * np.eye(3), 0.2, 1.5)
    slope = Slope.make(own, Prior(rng.standard_normal(3), np.eye(3), 0.0, 1.0))
    settings = Settings(**SETTINGS.to_dict() | {"dtype": "float64"})
    steps, ratios, width = rng.standard_normal(n), 0.3 * rng.standard_normal(n), padded_width(3)

    def taken(rows: Drawn, *more: np.ndarray) -> np.ndarray:
        return accept(Keys(1, 1), settings, "items", 0, rows.table(width), steps, ratios, slope, *more)

    less = Drawn(drawn.traits - centres[:, :3], drawn.bias - centres[:, 3], drawn.selection)
    assert (taken(drawn, centres) == taken(less)).all()
    assert (taken(drawn, centres) != taken(drawn)).sum() > n / 20


# Through stores -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense() -> np.ndarray:
    return random_counts(300, 40, 0.2, seed=2)


@pytest.fixture(scope="module")
def folder(dense: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts and tags of both sides, as stores."""
    path = tmp_path_factory.mktemp("tagged")
    make_store(dense, path / "counts.zarr")
    for side, links in all_links(dense).items():
        ps.ingest_tags(scipy.sparse.csr_array(links), path / f"{side}.zarr")
    return path


def all_links(dense: np.ndarray) -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(7), {}
    for side, n in zip(SIDES, dense.shape, strict=True):
        found[side] = (rng.random((n, 6)) < 0.3) * rng.uniform(0.5, 3.0, (n, 6))
        found[side][3:6] = 0  # some have no tags
    return found


def stores_of(folder: Path, sides: tuple[str, ...] = SIDES) -> dict[str, Tags]:
    return {side: ps.open_tags(folder / f"{side}.zarr") for side in sides}


def run(folder: Path, path: Any, sweeps: int = 3, settings: Settings = SETTINGS, **options: Any) -> Commit:
    counts, tags = ps.open_counts(folder / "counts.zarr"), stores_of(folder)
    with dask.config.set(scheduler="synchronous"):
        given = {"burn": 0, "thin": 1, "tags": tags} | options
        return sample(counts, settings, ModelStore(path), sweeps=sweeps, **given)


@pytest.fixture(scope="module")
def reference(folder: Path) -> list[str]:
    run(folder, folder / "reference.zarr")
    return all_bits(folder / "reference.zarr")


def state_of(commit: Commit, weights: dict[str, np.ndarray]) -> State:
    def read(group: str, *names: str) -> list[np.ndarray]:
        return [commit.sealed.read_array(commit.arrays[f"{group}/{name}"]) for name in names]

    drawn = [Drawn(*read(side, "traits", "bias", "selection")) for side in SIDES]
    priors = [Prior.decode(commit.record["priors"][side], commit.settings.factors) for side in SIDES]
    tags = {side: DrawnTags(*read(f"{side[:-1]}_tags", "traits", "bias", "gamma")) for side in weights}
    return State(*drawn, *priors, tags, weights)


@pytest.mark.parametrize("hyperpriors", [True, False])
def test_blocks_and_stores_draw_what_one_block_in_memory_draws(dense, folder, tmp_path, monkeypatch, hyperpriors):
    settings = Settings(**SETTINGS.to_dict() | {"dtype": "float64", "hyperpriors": hyperpriors})
    monkeypatch.setattr(tag_prior, "RESIDUALS", 8 * 300)  # one trait at a time
    run(folder, tmp_path / "model.zarr", settings=settings, keep=1)
    commits = ModelStore(tmp_path / "model.zarr").commits()
    weights = {side: scaled_links(links) for side, links in all_links(dense).items()}
    state, block = state_of(commits[0], weights), DrawPlan.make(ps.open_counts(folder / "counts.zarr"), settings).blocks
    for number, commit in enumerate(commits[1:], 1):
        state = sweep(state, dense.astype(int), 3.0 * dense.sum(), settings, number, block["users"])
        found = state_of(commit, weights)
        for side in SIDES:
            for name in ("traits", "bias", "gamma"):
                wanted, got = getattr(state.tags[side], name), getattr(found.tags[side], name)
                assert np.abs(got - wanted).max() < 1e-7 * np.abs(wanted).max(), (number, side, name)
            wanted, got = getattr(state, side).traits, getattr(found, side).traits
            assert np.abs(got - wanted).max() < 1e-7 * np.abs(wanted).max()
        assert np.allclose(found.user_prior.precision, state.user_prior.precision, rtol=1e-7)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_draw_the_same_bits(folder, tmp_path, reference, threads):
    counts, store = ps.open_counts(folder / "counts.zarr"), ModelStore(tmp_path / "model.zarr")
    sample(counts, SETTINGS, store, sweeps=3, burn=0, thin=1, threads=threads, tags=stores_of(folder))
    assert all_bits(tmp_path / "model.zarr") == reference
    assert verify(tmp_path / "model.zarr").sound


@pytest.mark.cluster
def test_a_cluster_draws_tags_to_the_same_bits(folder, tmp_path, reference, cluster):
    from distributed import Client

    counts, store = ps.open_counts(folder / "counts.zarr"), ModelStore(tmp_path / "model.zarr")
    with Client(cluster) as client:
        sample(counts, SETTINGS, store, sweeps=3, burn=0, thin=1, client=client, tags=stores_of(folder))
    assert all_bits(tmp_path / "model.zarr") == reference


def test_a_chain_with_tags_goes_on_to_the_same_bits(folder, tmp_path, reference):
    run(folder, tmp_path / "model.zarr", sweeps=1)
    run(folder, tmp_path / "model.zarr")
    assert all_bits(tmp_path / "model.zarr") == reference


def test_tags_of_one_side_are_their_own(folder, tmp_path, reference):
    one = run(folder, tmp_path / "model.zarr", tags=stores_of(folder, ("items",)))
    assert {path.split("/")[0] for path in one.arrays} == {"users", "items", "item_tags"}
    bits = all_bits(tmp_path / "model.zarr")
    assert bits != reference


def test_tags_without_effects_change_nothing(folder, tmp_path, monkeypatch):
    """Effects that stay 0 leave a chain where it is without tags: prior means, moments and steps are the same bits."""
    plain = run(folder, tmp_path / "plain.zarr", tags=None)
    monkeypatch.setattr(tags_module, "draw_effects", lambda *given: given[4])
    tagged = run(folder, tmp_path / "tagged.zarr")
    for path, spec in plain.arrays.items():
        assert (tagged.sealed.read_array(spec) == plain.sealed.read_array(spec)).all(), path
    assert tagged.record["priors"] == plain.record["priors"]


def test_a_chain_begins_with_the_tags_of_its_start(folder, tmp_path):
    counts = ps.open_counts(folder / "counts.zarr")
    names = {"user_tags": folder / "users.zarr", "item_tags": folder / "items.zarr"}
    fitted = ps.PairedSymbols(factors=3, selection="constant").fit(
        counts, tmp_path / "fit.zarr", sweeps=8, progress=False, **names
    )
    chain = ps.PairedSymbols(factors=3, inference="gibbs")
    chain.fit(counts, tmp_path / "chain.zarr", sweeps=2, keep=1, start=fitted, progress=False, **names)
    first = ps.load(tmp_path / "chain.zarr", sweep=0)._fitted
    mean, precision = (
        fitted._fitted.sealed.read_array(fitted._fitted.arrays[f"item_tags/{name}"]) for name in ("mean", "precision")
    )
    started = first.sealed.read_array(first.arrays["item_tags/traits"])
    z = (started - mean) * np.sqrt(precision)[:, None]
    assert 0.3 < z.std() < 2.0
    assert np.abs(z).max() < 5
