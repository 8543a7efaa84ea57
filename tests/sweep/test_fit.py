"""Algorithm 1 against the dense reference, whatever the shape, the blocks and the scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import dask
import numpy as np
import pytest
from helpers.stores import fitted_arrays, largest_difference, make_store, random_counts, reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pairsym_dask as ps
from pairsym_dask.store import cuts
from pairsym_dask.store.local import LocalStorage
from pairsym_dask.sweep import plan as plan_module
from pairsym_dask.sweep.shelf import SHELF, TABLES
from pairsym_dask.sweep.start import starting_normals

VARIANTS = {
    "the defaults": {},
    "constant messages": {"selection": "constant"},
    "without biases": {"biases": False, "selection": "constant"},
    "messages of the model": {"selection": "bayes"},
    "the paper's setting": {"censored_ratio": 1.0, "tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0, "selection": "bayes"},
}


def digest(model):
    return {path: array.tobytes() for path, array in fitted_arrays(model).items()} | {
        "elbo": [value.hex() for value in model.history["elbo"]]
    }


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-8), pytest.param("float32", 2e-3, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shape", [(300, 60), (50, 260)])
def test_five_sweeps_equal_the_dense_reference(tmp_path, variant, dtype, tolerance, shape):
    dense = random_counts(*shape, 0.15, seed=1)
    dense[3], dense[:, 5] = 0, 0  # a user and an item without pairs
    counts = make_store(dense, tmp_path / "counts.zarr")
    model = ps.PairedSymbols(factors=6, dtype=dtype, **VARIANTS[variant])
    model.fit(counts, tmp_path / "model.zarr", sweeps=5, progress=False)
    state, bound = reference(dense, model, 5)
    assert largest_difference(model, state) < tolerance
    assert abs(model.history["elbo"].iloc[-1] / bound - 1) < tolerance
    assert abs(model._fitted.scalar("xi_star") / state.xi_star - 1) < tolerance


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    users=st.integers(1, 40),
    items=st.integers(1, 40),
    factors=st.sampled_from([1, 3, 8]),
    density=st.sampled_from([0.05, 0.4, 1.1]),  # at 1.1 every pair is observed
    most=st.sampled_from([1, 5000]),
    selection=st.sampled_from(["bayes", "constant"]),
)
def test_any_shape_equals_the_dense_reference(tmp_path_factory, seed, users, items, factors, density, most, selection):
    folder = tmp_path_factory.mktemp("shape")
    dense = random_counts(users, items, density, seed, most)
    dense[0, 0] = 1.0
    model = ps.PairedSymbols(factors=factors, dtype="float64", random_state=seed, selection=selection)
    model.fit(make_store(dense, folder / "counts.zarr"), folder / "model.zarr", sweeps=2, progress=False)
    state, bound = reference(dense, model, 2)
    assert largest_difference(model, state) < 1e-8
    assert abs(model.history["elbo"].iloc[-1] / bound - 1) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-6)])
def test_bound_never_falls_over_fifty_sweeps(tmp_path, small, biases, dtype, tolerance):
    model = ps.PairedSymbols(factors=5, dtype=dtype, biases=biases, selection="bayes")
    bound = model.fit(small, tmp_path / "model.zarr", sweeps=50, progress=False).history["elbo"].to_numpy()
    assert (np.diff(bound) >= -tolerance * np.abs(bound[1:])).all()
    assert bound[-1] > bound[0]


def test_the_start_has_its_bound(tmp_path, small):
    model = ps.PairedSymbols(factors=3, dtype="float64").fit(small, tmp_path / "model.zarr", sweeps=0, progress=False)
    _, bound = reference(small.to_scipy().toarray().astype(float), model, 0)
    assert model.history["sweep"].tolist() == [0]
    assert model.history["elbo"].iloc[0] == pytest.approx(bound, rel=1e-10)


def test_the_start_does_not_depend_on_blocks():
    whole = starting_normals(7, "users", 0, 50, 6)
    parts = [starting_normals(7, "users", first, first + 10, 6) for first in range(0, 50, 10)]
    assert (whole == np.concatenate(parts)).all()
    assert abs(starting_normals(0, "items", 0, 20000, 5).std() - 1) < 0.02
    assert not (whole == starting_normals(7, "items", 0, 50, 6)).any()


@pytest.mark.cluster
def test_results_do_not_depend_on_scheduler_or_workers(tmp_path, small, cluster):
    from distributed import Client

    def fit(name, **options):
        model = ps.PairedSymbols(factors=4)
        return digest(model.fit(small, tmp_path / name, sweeps=3, progress=False, **options))

    results = {f"threads {n}": fit(f"threads{n}.zarr", threads=n) for n in (1, 2, 4)}
    with dask.config.set(scheduler="synchronous"):
        results["synchronous"] = fit("synchronous.zarr")
    with Client(cluster) as client:
        results["cluster, given"] = fit("given.zarr", client=client)
        results["cluster, current"] = fit("current.zarr")
        names = set(client.run_on_scheduler(_prefixes))
    assert {"update-users", "update-items", "gather-items", "finish-users"} <= names
    first = results["threads 1"]
    assert [name for name, result in results.items() if result != first] == []


def _prefixes(dask_scheduler):
    return list(dask_scheduler.task_prefixes)


@pytest.mark.slow
def test_results_agree_beyond_rounding_whatever_the_blocks(tmp_path, monkeypatch):
    dense = random_counts(500, 120, 0.1, seed=9)
    models = []
    for long, short, tables in ((32_768, 16_384, 2**26), (64, 32, 2**26), (48, 100, 2**26), (64, 32, 20_000)):
        monkeypatch.setattr(plan_module, "TABLES", tables)
        monkeypatch.setattr(cuts, "LONG_BLOCK", long)
        monkeypatch.setattr(cuts, "SHORT_BLOCK", short)
        folder = tmp_path / f"{long}-{short}-{tables}"
        counts = make_store(dense, folder / "counts.zarr")
        model = ps.PairedSymbols(factors=4, dtype="float64")
        models.append(model.fit(counts, folder / "model.zarr", sweeps=4, progress=False))
    assert len({model.counts.cuts["users"].blocks for model in models}) > 1
    one = fitted_arrays(models[0])
    for model in models[1:]:
        for path, array in fitted_arrays(model).items():
            assert np.abs(array - one[path]).max() <= 1e-9 * np.abs(one[path]).max(), path


def test_a_memory_budget_changes_no_bits(tmp_path, small):
    free = ps.PairedSymbols(factors=4).fit(small, tmp_path / "free.zarr", sweeps=2, progress=False)
    tight = ps.PairedSymbols(factors=4).fit(small, tmp_path / "tight.zarr", sweeps=2, progress=False, memory="90MiB")
    assert digest(free) == digest(tight)


def test_a_finished_fit_gives_its_memory_back(tmp_path, small):
    ps.PairedSymbols(factors=4).fit(small, tmp_path / "model.zarr", sweeps=2, progress=False)
    assert len(SHELF) == len(TABLES) == 0
    assert SHELF.nbytes == TABLES.nbytes == 0


def test_a_budget_too_small_is_refused_with_the_arithmetic(tmp_path, small):
    with pytest.raises(ps.MemoryBudgetError, match=r"budget of 1 MiB is too small: one task needs \d+ MiB.*at least"):
        ps.PairedSymbols(factors=64).fit(small, tmp_path / "model.zarr", sweeps=1, memory="1MiB", progress=False)
    assert not (tmp_path / "model.zarr").exists()


def test_tol_stops_and_stays_stopped(tmp_path, small):
    path = tmp_path / "model.zarr"
    model = ps.PairedSymbols(factors=3).fit(small, path, sweeps=100, tol=1e-3, progress=False)
    sweeps = len(model.history) - 1
    bound = model.history["elbo"].to_numpy()
    assert 2 <= sweeps < 100
    assert abs(bound[-1] - bound[-2]) <= 1e-3 * abs(bound[-1])
    again = ps.PairedSymbols(factors=3).fit(small, path, sweeps=100, tol=1e-3, progress=False)
    assert len(again.history) - 1 == sweeps


def test_callback_and_total_sweeps(tmp_path, small):
    path, calls = tmp_path / "model.zarr", []
    model = ps.PairedSymbols(factors=3)
    model.fit(small, path, sweeps=2, progress=False, callback=lambda *call: calls.append(call))
    model.fit(small, path, sweeps=5, progress=False, callback=lambda *call: calls.append(call))
    assert [call[0] for call in calls] == [1, 2, 3, 4, 5]
    assert [call[1] for call in calls] == model.history["elbo"].tolist()[1:]
    straight = ps.PairedSymbols(factors=3).fit(small, tmp_path / "straight.zarr", sweeps=5, progress=False)
    assert digest(straight) == digest(model)


def test_another_fit_into_the_same_store_is_refused_in_words(tmp_path, small):
    path = tmp_path / "model.zarr"
    ps.PairedSymbols(factors=3).fit(small, path, sweeps=1, progress=False)
    with pytest.raises(ps.StoreError, match=r"other settings: factors=4 \(was 3\)"):
        ps.PairedSymbols(factors=4).fit(small, path, sweeps=1, progress=False)
    other = make_store(random_counts(20, 20, 0.3), tmp_path / "other.zarr")
    with pytest.raises(ps.StoreError, match="other data"):
        ps.PairedSymbols(factors=3).fit(other, path, sweeps=1, progress=False)
    assert ps.load(path).history["sweep"].iloc[-1] == 1


FIT = """
import sys, pairsym_dask as ps
print("started", flush=True)
ps.PairedSymbols(factors=5).fit(sys.argv[1], sys.argv[2], sweeps=40, progress=False,
                                callback=lambda sweep, *_: print(sweep, flush=True))
"""


@pytest.mark.slow
def test_a_killed_fit_ends_with_the_same_bytes(tmp_path, small):
    whole = ps.PairedSymbols(factors=5).fit(small, tmp_path / "whole.zarr", sweeps=40, progress=False)
    path = tmp_path / "killed.zarr"
    command = [sys.executable, "-c", FIT, small.path, str(path)]
    for sweeps in (3, 9):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
            for line in process.stdout:
                if line.strip() == str(sweeps):
                    time.sleep(0.005 * sweeps)  # into the middle of the next sweep
                    process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    resumed = ps.PairedSymbols(factors=5).fit(small, path, sweeps=40, progress=False)
    assert digest(resumed) == digest(whole)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"factors": 0}, "factors must be a whole number, at least 1, not 0"),
        ({"factors": 2.5}, "factors must be a whole number"),
        ({"censored_ratio": -1}, "censored_ratio must be a finite number above 0"),
        ({"tau_u": float("nan")}, "tau_u must be a finite number above 0"),
        ({"selection": "both"}, "selection must be 'bayes' or 'constant'"),
        ({"dtype": "int8"}, "dtype must be"),
        ({"random_state": -1}, "random_state must be a whole number, at least 0"),
    ],
)
def test_bad_settings_are_one_clear_sentence(tmp_path, small, settings, words):
    with pytest.raises(ps.InputError, match=words):
        ps.PairedSymbols(**settings).fit(small, tmp_path / "model.zarr", progress=False)
    assert not (tmp_path / "model.zarr").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sweeps": -1}, "sweeps must be"),
        ({"sweeps": "ten"}, "sweeps must be a whole number, at least 0, not 'ten'"),
        ({"tol": 0}, "tol must be"),
        ({"memory": "much"}, "memory must be a size"),
    ],
)
def test_bad_options_are_one_clear_sentence(tmp_path, small, options, words):
    with pytest.raises(ps.InputError, match=words):
        ps.PairedSymbols().fit(small, tmp_path / "model.zarr", progress=False, **options)


def test_a_path_in_the_way_is_refused(tmp_path, small):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(ps.StoreError, match="not a sound model store"):
            ps.PairedSymbols().fit(small, tmp_path / name, progress=False)
    with pytest.raises(ps.StoreError):
        ps.PairedSymbols().fit(small, small.path, progress=False)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "mine"


def test_what_is_asked_for_ahead_is_read_later(tmp_path, monkeypatch):
    asked, read = set(), set()

    def watch(name, log):
        plain = getattr(LocalStorage, name)

        def run(self, key, *args, **options):
            log.add(key)
            return plain(self, key, *args, **options)

        monkeypatch.setattr(LocalStorage, name, run)

    watch("ask", asked)
    watch("read", read)
    monkeypatch.setattr(cuts, "LONG_BLOCK", 64)
    counts = make_store(random_counts(500, 120, 0.1, seed=9), tmp_path / "counts.zarr")
    ps.PairedSymbols(factors=4).fit(counts, tmp_path / "model.zarr", sweeps=2, progress=False, threads=2)
    assert asked
    assert asked <= read
