"""A chain through stores and graphs: the sweeps in memory, and the same bits however it runs, resumes or dies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from helpers.faults import FaultyDisk, all_bits, in_child, operations, quick_folder, tiny_counts, using
from helpers.sampling import State, sweep
from helpers.stores import make_store, random_counts

import pairsym_dask as ps
from pairsym_dask.errors import InputError, StoreError
from pairsym_dask.sampler import chain, plan
from pairsym_dask.sampler.chain import sample
from pairsym_dask.sampler.halves import Drawn
from pairsym_dask.sampler.hyper import Prior
from pairsym_dask.settings import SIDES, Settings
from pairsym_dask.store.commit import Commit
from pairsym_dask.store.counts import Counts
from pairsym_dask.store.model_store import ModelStore
from pairsym_dask.store.verify import verify

pytestmark = pytest.mark.draws

SETTINGS = Settings(factors=3, censored_ratio=2.0, inference="gibbs", random_state=11)
SWEEPS = 3


def run(counts: Counts, path: Any, sweeps: int = SWEEPS, settings: Settings = SETTINGS, **options: Any) -> Commit:
    """A small chain, tasks one after another in this thread."""
    with dask.config.set(scheduler="synchronous"):
        return sample(counts, settings, ModelStore(path), sweeps=sweeps, **{"burn": 0, "thin": 1} | options)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture(scope="module")
def counts(folder: Path) -> Counts:
    return tiny_counts(folder / "counts.zarr")


@pytest.fixture(scope="module")
def reference(folder: Path, counts: Counts) -> list[str]:
    """Bits of every sweep of an undisturbed chain."""
    run(counts, folder / "reference.zarr")
    return all_bits(folder / "reference.zarr")


def state_of(commit: Commit) -> State:
    def drawn(side: str) -> Drawn:
        return Drawn(
            *(commit.sealed.read_array(commit.arrays[f"{side}/{name}"]) for name in ("traits", "bias", "selection"))
        )

    priors = [Prior.decode(commit.record["priors"][side], commit.settings.factors) for side in SIDES]
    return State(drawn("users"), drawn("items"), *priors)


@pytest.mark.parametrize("hyperpriors", [True, False])
def test_blocks_and_shares_draw_what_one_block_in_memory_draws(tmp_path, hyperpriors):
    dense = random_counts(900, 40, 0.3, seed=2)
    counts = make_store(dense, tmp_path / "counts.zarr")
    settings = replace_settings(SETTINGS, dtype="float64", hyperpriors=hyperpriors)
    run(counts, tmp_path / "model.zarr", settings=settings, keep=1)
    commits = ModelStore(tmp_path / "model.zarr").commits()
    made = plan.DrawPlan.make(counts, settings)
    assert made.count("users") > 1
    state = state_of(commits[0])
    for number, commit in enumerate(commits[1:], 1):
        state = sweep(state, dense.astype(int), 3.0 * dense.sum(), settings, number, made.blocks["users"])
        found = state_of(commit)
        for side in SIDES:
            for name in ("traits", "bias", "selection"):
                wanted, got = getattr(getattr(state, side), name), getattr(getattr(found, side), name)
                assert np.abs(got - wanted).max() < 1e-7 * np.abs(wanted).max(), (number, side, name)
        assert np.allclose(found.user_prior.precision, state.user_prior.precision, rtol=1e-7)
        assert np.allclose(found.item_prior.mean, state.item_prior.mean, atol=1e-8)


def replace_settings(settings: Settings, **changes: Any) -> Settings:
    return Settings(**settings.to_dict() | changes)


@pytest.mark.filterwarnings("ignore:the chain has not settled")
def test_users_may_be_the_short_side(tmp_path):
    """Then items propose; the chain settles at the same posterior, so the likelihood's level is the same."""
    dense = random_counts(300, 25, 0.3, seed=5)
    levels = []
    for name, matrix in (("tall", dense), ("wide", dense.T)):
        counts = make_store(matrix, tmp_path / f"{name}.zarr")
        run(counts, tmp_path / f"{name}-model.zarr", sweeps=60, burn=30)
        commits = ModelStore(tmp_path / f"{name}-model.zarr").commits()
        levels.append([commit.scalar("log_likelihood") for commit in commits[30:]])
    means, spread = np.mean(levels, axis=1), np.std(levels)
    assert abs(means[0] - means[1]) < 4 * spread


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_draw_the_same_bits(tmp_path, counts, reference, threads):
    sample(counts, SETTINGS, ModelStore(tmp_path / "model.zarr"), sweeps=SWEEPS, burn=0, thin=1, threads=threads)
    assert all_bits(tmp_path / "model.zarr") == reference


def test_bundles_and_room_for_tiles_change_no_bits(tmp_path, monkeypatch):
    counts = make_store(random_counts(500, 200, 0.1, seed=1), tmp_path / "counts.zarr")
    monkeypatch.setattr(plan, "STATISTICS", 2**13)  # several blocks of the short side
    assert plan.DrawPlan.make(counts, SETTINGS).count("items") > 2
    run(counts, tmp_path / "bundled.zarr")
    make_room = chain.make_room
    monkeypatch.setattr(chain, "make_room", lambda *a: replace(make_room(*a), bundle=1, cache=0, tasks=1))
    run(counts, tmp_path / "single.zarr")
    assert all_bits(tmp_path / "single.zarr") == all_bits(tmp_path / "bundled.zarr")


def test_a_chain_goes_on_to_the_same_bits(tmp_path, counts, reference):
    run(counts, tmp_path / "model.zarr", sweeps=1)
    run(counts, tmp_path / "model.zarr", sweeps=SWEEPS)
    assert all_bits(tmp_path / "model.zarr") == reference


@pytest.mark.slow
def test_kills_at_any_operation_lose_no_sweep_and_change_no_bit(tmp_path, folder, counts, reference):
    total = len(operations(lambda: run(counts, folder / "counted.zarr")))
    struck = 0
    for k, at in enumerate(range(5, total, max(1, total // 12))):
        path = folder / f"killed-{k}.zarr"

        def work(path: Path = path, at: int = at) -> None:
            with using(FaultyDisk("before", at)):
                run(counts, path)

        struck += in_child(work) != 0
        run(counts, path)
        assert all_bits(path) == reference
    assert struck >= 10


@pytest.mark.long
def test_a_chain_killed_twenty_times_ends_with_the_same_bits(folder, counts):
    """SIGKILL at an operation taken at random, again and again, each time somewhere else on the way."""
    sweeps, rng, kills = 24, np.random.default_rng(0), 0
    run(counts, folder / "whole.zarr", sweeps=sweeps)
    path = folder / "hunted.zarr"
    while kills < 20:
        at = int(rng.integers(3, 60))

        def work(at: int = at) -> None:
            with using(FaultyDisk("before", at)):
                run(counts, path, sweeps=sweeps)

        status = in_child(work)
        assert status in (0, -9)
        if status == 0:
            break
        kills += 1
    assert kills == 20
    run(counts, path, sweeps=sweeps)
    assert all_bits(path) == all_bits(folder / "whole.zarr")


@pytest.mark.cluster
def test_a_cluster_draws_the_same_bits(tmp_path, counts, reference):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        sample(counts, SETTINGS, ModelStore(tmp_path / "model.zarr"), sweeps=SWEEPS, burn=0, thin=1, client=client)
    assert all_bits(tmp_path / "model.zarr") == reference


def test_another_seed_draws_others(tmp_path, counts, reference):
    run(counts, tmp_path / "model.zarr", settings=replace_settings(SETTINGS, random_state=12))
    assert not set(all_bits(tmp_path / "model.zarr")) & set(reference)


def test_thinned_sweeps_after_burn_in_are_kept_and_sound(tmp_path, counts):
    run(counts, tmp_path / "model.zarr", sweeps=10, burn=3, thin=3)
    store = ModelStore(tmp_path / "model.zarr")
    commits = store.commits()
    assert [commit.sweep for commit in commits if commit.record["draw"]] == [6, 9]
    assert [commit.sweep for commit in commits if store.is_there(commit)] == [6, 9, 10]
    assert verify(tmp_path / "model.zarr").sound


def test_a_chain_may_start_from_a_variational_fit(tmp_path, small):
    start = ps.PairedSymbols(factors=3).fit(small, tmp_path / "start.zarr", sweeps=5, progress=False)
    commit = start._fitted
    run(small, tmp_path / "warm.zarr", sweeps=1, start=commit)
    run(small, tmp_path / "cold.zarr", sweeps=1)
    warm, cold = (ModelStore(tmp_path / name).commits() for name in ("warm.zarr", "cold.zarr"))
    assert warm[1].scalar("log_likelihood") > cold[1].scalar("log_likelihood")
    mean = commit.sealed.read_array(commit.arrays["users/mean"])
    sd = commit.sealed.read_array(commit.arrays["users/precision"]) ** -0.5
    first = warm[0].sealed.read_array(warm[0].arrays["users/traits"])
    assert 0.9 < np.std((first - mean) / sd) < 1.1
    assert warm[0].record["start"]["digest"] == commit.record["digest"]
    with pytest.raises(StoreError, match="did not start from"):
        run(small, tmp_path / "cold.zarr", sweeps=2, start=commit)


def test_options_that_cannot_be_are_refused_in_one_sentence(tmp_path, counts, small):
    fractional = make_store(random_counts(20, 5, 0.5) * 0.5, tmp_path / "fractional.zarr")
    start = ps.PairedSymbols(factors=2).fit(small, tmp_path / "start.zarr", sweeps=1, progress=False)._fitted
    for path, call, words in [
        ("a", lambda path: run(fractional, path), "counts that are not whole numbers"),
        ("b", lambda path: run(counts, path, burn=3), "burn must be below sweeps"),
        ("c", lambda path: run(counts, path, thin=0), "thin must be a whole number, at least 1"),
        ("d", lambda path: run(counts, path, burn=-1), "burn must be a whole number, at least 0"),
        ("e", lambda path: run(counts, path, start=start), "start is a fit of other data"),
        ("f", lambda path: run(small, path, start=start), "start has 2 factors"),
    ]:
        with pytest.raises(InputError, match=words):
            call(tmp_path / path)
        assert not (tmp_path / path).exists()


def test_a_chain_that_is_not_finite_names_the_row_and_keeps_what_is_committed(tmp_path, counts, monkeypatch):
    run(counts, tmp_path / "model.zarr", sweeps=1)
    draw_own = chain.Passes.draw

    def spoiled(self, side, own, its, scale, prior, its_prior):
        return draw_own(self, side, own, its, scale, replace(prior, precision=prior.precision * np.nan), its_prior)

    monkeypatch.setattr(chain.Passes, "draw", spoiled)
    with pytest.raises(ps.NumericError, match=r"the draw of user 0 \(block 0 of the users\) in sweep 2 is not finite"):
        run(counts, tmp_path / "model.zarr", sweeps=2)
    monkeypatch.undo()
    assert run(counts, tmp_path / "model.zarr", sweeps=2).sweep == 2


def test_a_small_budget_is_refused_with_the_arithmetic(tmp_path, counts):
    with pytest.raises(ps.MemoryBudgetError, match="give at least"):
        run(counts, tmp_path / "model.zarr", memory="1MiB")


@pytest.mark.filterwarnings("ignore:the chain has not settled")
def test_progress_shows_how_settled_the_chain_is(tmp_path, counts, capsys):
    run(counts, tmp_path / "model.zarr", sweeps=30, progress=True)
    assert re.search(r"sweep 30.*R-hat \d\.\d\d, \d+ effective sweeps", capsys.readouterr().err)


def test_a_chain_whose_halves_disagree_is_warned_of(tmp_path, counts, monkeypatch):
    monkeypatch.setattr(chain, "SETTLED", 0.5)
    with pytest.warns(UserWarning, match=r"the chain has not settled: split R-hat is \d\.\d\d over 30 sweeps"):
        run(counts, tmp_path / "model.zarr", sweeps=30)
