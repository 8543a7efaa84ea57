"""Conjugate gradients in a fit: the same fixed point as solved systems, a bound that never falls, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.stores import fitted_arrays, make_store, random_counts, reference

import pairsym_dask as ps
from pairsym_dask.settings import Settings
from pairsym_dask.store import cuts as cuts_module
from pairsym_dask.sweep import fit as fit_module
from pairsym_dask.sweep import plan as plan_module
from pairsym_dask.sweep.plan import choose_solver

SETTINGS = {
    "factors": 6, "selection": "counts", "prior_growth": 1.0, "background_users": 1.0, "background_items": 1.0,
    "temperature": 1.0, "discount": 0.0, "censored_ratio": 5.0, "tau_u": 0.1, "tau_v": 0.1, "dtype": "float64",
}  # fmt: skip


def fit(counts, path, solver, monkeypatch, sweeps=5, **settings):
    options = settings.pop("options", {})
    with monkeypatch.context() as patch:
        patch.setattr(plan_module, "choose_solver", lambda *shape: solver)
        model = ps.PairedSymbols(**{**SETTINGS, **settings})
        return model.fit(counts, path, sweeps=sweeps, progress=False, **options)


@pytest.fixture(params=["gathered, many users", "gathered, many items", "at hand"])
def counts(request, tmp_path, monkeypatch):
    """Stores whose short side is gathered from parts, over several blocks, and one whose pairs are all at hand."""
    if request.param != "at hand":
        monkeypatch.setattr(cuts_module, "LONG_BLOCK", 64)
        monkeypatch.setattr(cuts_module, "SHORT_BLOCK", 32)
        monkeypatch.setattr(plan_module, "TABLES", 20_000)
        monkeypatch.setattr(plan_module, "STATISTICS", 10_000)
    shape = (90, 400) if "items" in request.param else (400, 90)
    return make_store(random_counts(*shape, 0.15, seed=2), tmp_path / "counts.zarr")


@pytest.mark.slow
def test_many_steps_give_the_solved_systems(counts, tmp_path, monkeypatch):
    solved = fit(counts, tmp_path / "solved.zarr", "cholesky", monkeypatch)
    monkeypatch.setattr(plan_module, "STEPS", 40)
    stepped = fit(counts, tmp_path / "stepped.zarr", "gradients", monkeypatch)
    one, two = fitted_arrays(solved), fitted_arrays(stepped)
    for path, array in one.items():
        assert np.abs(array - two[path]).max() <= 1e-7 * np.abs(array).max(), path
    assert stepped.history["elbo"].iloc[-1] == pytest.approx(solved.history["elbo"].iloc[-1], rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "lever"),
    [
        ("gathered, many users", {}),
        ("gathered, many users", {"biases": False}),
        ("gathered, many items", {"temperature": 0.0}),
        ("gathered, many items", {"discount": 0.5, "temperature": 0.3}),
        ("at hand", {}),
        ("at hand", {"temperature": 0.0}),
    ],
    indirect=["counts"],
)
def test_the_bound_never_falls_over_fifty_sweeps(counts, lever, tmp_path, monkeypatch):
    model = fit(counts, tmp_path / "model.zarr", "gradients", monkeypatch, sweeps=50, **lever)
    bound = model.history["elbo"].to_numpy()
    assert (np.diff(bound) >= -1e-10 * np.abs(bound[1:])).all()


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_twenty_sweeps_gain_what_solved_systems_gain(temperature, tmp_path, monkeypatch):
    """On pairs with something to learn; on noise the two wander to different optima."""
    counts = ps.simulate(tmp_path / "counts.zarr", users=900, items=150, pairs=30_000, factors=3, random_state=1)
    bounds = {
        solver: fit(
            counts, tmp_path / f"{solver}.zarr", solver, monkeypatch, sweeps=20, temperature=temperature
        ).history["elbo"].to_numpy()
        for solver in ("gradients", "cholesky")
    }  # fmt: skip
    solved = bounds["cholesky"]
    assert abs(bounds["gradients"][-1] - solved[-1]) <= 1e-3 * (solved[-1] - solved[0])


@pytest.mark.cluster
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_bits_do_not_depend_on_threads_memory_or_processes(counts, temperature, tmp_path, monkeypatch, cluster):
    from distributed import Client

    def bits(name, **options):
        how = {"dtype": "float32", "temperature": temperature}
        model = fit(counts, tmp_path / name, "gradients", monkeypatch, sweeps=2, options=options, **how)
        return {path: array.tobytes() for path, array in fitted_arrays(model).items()}

    first = bits("one.zarr", threads=1)
    plan = plan_module.Plan.make(counts, Settings(**SETTINGS), "gradients, xi* last")
    assert bits("two.zarr", threads=3) == first
    assert bits("small.zarr", memory=plan.peak_bytes(1)) == first  # nothing is kept: weights are made again

    def exchange(values):
        """Give a worker the small cuts of this process; what it had."""
        import importlib

        before = {key: getattr(importlib.import_module(key[0]), key[1]) for key in values}
        for (module, name), value in values.items():
            setattr(importlib.import_module(module), name, value)
        return before

    names = ((cuts_module, "LONG_BLOCK"), (cuts_module, "SHORT_BLOCK"), (plan_module, "TABLES"))
    small = {(module.__name__, name): getattr(module, name) for module, name in (*names, (plan_module, "STATISTICS"))}
    with Client(cluster) as client:
        usual = next(iter(client.run(exchange, small).values()))
        try:
            assert bits("cluster.zarr", client=client) == first
        finally:
            client.run(exchange, usual)


@pytest.mark.slow
def test_a_store_goes_on_with_the_solver_it_began_with(counts, tmp_path, monkeypatch):
    path = tmp_path / "model.zarr"
    fit(counts, path, "gradients", monkeypatch, sweeps=1)
    model = fit(counts, path, "cholesky", monkeypatch, sweeps=2)
    assert model._fitted.record["solver"] == "gradients, xi* last"


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cholesky", "gradients"])
def test_a_store_that_began_with_xi_star_between_the_halves_goes_on_so(counts, solver, tmp_path, monkeypatch):
    """Such were all stores before xi* came last."""
    how = {"temperature": 0.0, "sweeps": 3}
    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "solver_of", lambda store: solver)
        whole = fit(counts, tmp_path / "whole.zarr", solver, monkeypatch, **how)
        fit(counts, tmp_path / "model.zarr", solver, monkeypatch, **{**how, "sweeps": 1})
    model = fit(counts, tmp_path / "model.zarr", solver, monkeypatch, **how)
    assert model._fitted.record["solver"] == solver
    for path, array in fitted_arrays(whole).items():
        assert array.tobytes() == fitted_arrays(model)[path].tobytes(), path
    new = fit(counts, tmp_path / "new.zarr", solver, monkeypatch, **how)
    assert new._fitted.scalar("xi_star") != whole._fitted.scalar("xi_star")


def test_large_k_takes_steps_and_small_k_solves():
    assert choose_solver(20, 632_000, 5_500_000) == "cholesky"
    assert choose_solver(256, 632_000, 5_500_000) == "gradients"
    assert choose_solver(32, 632_000, 5_500_000) == "cholesky"
    assert choose_solver(32, 632_000, 5_500_000, plan_module.COLD) == "gradients"
    assert choose_solver(1, 10, 10) == "cholesky"
    assert choose_solver(8, 3, 1) == "cholesky"  # small systems are solved exactly, however few the pairs


@pytest.mark.parametrize("factors", [6, 40])
def test_turned_axes_change_no_energy_and_no_bound(counts, factors, tmp_path, monkeypatch):
    """With steps enough either way solves the systems; turned, a cold fit is the same model on other axes."""
    monkeypatch.setattr(plan_module, "FEW_STEPS", (60, 60))

    def fitted(name):
        return fit(counts, tmp_path / name, "gradients", monkeypatch, sweeps=4, temperature=0.0, factors=factors)

    turned = fitted("turned.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(plan_module.Plan, "turns", lambda plan, settings: False)
        plain = fitted("plain.zarr")
    one, two = fitted_arrays(turned), fitted_arrays(plain)
    assert not np.allclose(one["items/mean"], two["items/mean"])  # it did turn
    energies = [q["users/mean"] @ q["items/mean"].T + q["items/bias"] for q in (one, two)]
    assert np.abs(energies[0] - energies[1]).max() <= 1e-7 * np.abs(energies[1]).max()
    assert np.allclose(one["users/bias"], two["users/bias"], rtol=1e-7, atol=1e-9)
    assert turned.history["elbo"].to_numpy() == pytest.approx(plain.history["elbo"].to_numpy(), rel=1e-10)
    assert turned._fitted.scalar("xi_star") == pytest.approx(plain._fitted.scalar("xi_star"), rel=1e-8)


@pytest.mark.parametrize("shape", [(60, 25), (25, 60)])
def test_cold_steps_equal_the_dense_reference_whichever_side_comes_first(shape, tmp_path, monkeypatch):
    """The longer side is updated first: energies, biases, xi* and the bound of the reference in that order."""
    dense = random_counts(*shape, 0.3, seed=4)
    monkeypatch.setattr(plan_module, "FEW_STEPS", (60, 60))
    levers = {"temperature": 0.0, "background_users": 0.3, "background_items": 0.6, "tau_v": 0.2, "factors": 4}
    counts = make_store(dense, tmp_path / "counts.zarr")
    model = fit(counts, tmp_path / "model.zarr", "gradients", monkeypatch, sweeps=3, **levers)
    assert model._fitted.record["solver"].endswith("items first") == (shape[0] < shape[1])
    state, bound = reference(dense, model, 3)
    q = fitted_arrays(model)
    wanted = state.user_mean @ state.item_mean.T
    assert np.abs(q["users/mean"] @ q["items/mean"].T - wanted).max() <= 1e-7 * np.abs(wanted).max()
    for side, bias in (("users", state.user_bias), ("items", state.item_bias)):
        assert np.allclose(q[f"{side}/bias"], bias, rtol=1e-7, atol=1e-9)
    assert model._fitted.scalar("xi_star") == pytest.approx(state.xi_star, rel=1e-8)
    assert model.history["elbo"].iloc[-1] == pytest.approx(bound, rel=1e-10)


@pytest.mark.slow
def test_a_store_that_began_with_users_first_goes_on_so(tmp_path, monkeypatch):
    """Such were stores of many items before the longer side came first."""
    counts = make_store(random_counts(90, 300, 0.15, seed=2), tmp_path / "counts.zarr")
    how = {"temperature": 0.0, "dtype": "float32"}
    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "solver_of", lambda store: "gradients, xi* last")
        whole = fit(counts, tmp_path / "whole.zarr", "gradients", monkeypatch, sweeps=3, **how)
        fit(counts, tmp_path / "model.zarr", "gradients", monkeypatch, sweeps=1, **how)
    model = fit(counts, tmp_path / "model.zarr", "gradients", monkeypatch, sweeps=3, **how)
    assert model._fitted.record["solver"] == "gradients, xi* last"
    for path, array in fitted_arrays(whole).items():
        assert array.tobytes() == fitted_arrays(model)[path].tobytes(), path


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(300, 90), (90, 300)])
def test_a_store_that_began_with_three_steps_goes_on_so(shape, tmp_path, monkeypatch):
    """Such were stores of cold fits before few steps were found to be enough."""
    counts = make_store(random_counts(*shape, 0.15, seed=2), tmp_path / "counts.zarr")
    how = {"temperature": 0.0, "dtype": "float32"}
    name = "gradients, xi* last" + (", items first" if shape[0] < shape[1] else "")
    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "solver_of", lambda store: name)
        whole = fit(counts, tmp_path / "whole.zarr", "gradients", monkeypatch, sweeps=3, **how)
        fit(counts, tmp_path / "model.zarr", "gradients", monkeypatch, sweeps=1, **how)
    model = fit(counts, tmp_path / "model.zarr", "gradients", monkeypatch, sweeps=3, **how)
    new = fit(counts, tmp_path / "new.zarr", "gradients", monkeypatch, sweeps=3, **how)
    assert model._fitted.record["solver"] == name
    assert new._fitted.record["solver"] == name.replace(",", ", few steps,", 1)
    for path, array in fitted_arrays(whole).items():
        assert array.tobytes() == fitted_arrays(model)[path].tobytes(), path
    assert not np.array_equal(fitted_arrays(whole)["users/mean"], fitted_arrays(new)["users/mean"])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(300, 90), (90, 300)])
def test_a_cold_fit_on_turned_axes_has_the_same_bits_resumed(shape, tmp_path, monkeypatch):
    counts = make_store(random_counts(*shape, 0.15, seed=2), tmp_path / "counts.zarr")
    how = {"temperature": 0.0, "dtype": "float32"}
    whole = fit(counts, tmp_path / "whole.zarr", "gradients", monkeypatch, sweeps=4, **how)
    for sweeps in (1, 2, 4):
        resumed = fit(counts, tmp_path / "resumed.zarr", "gradients", monkeypatch, sweeps=sweeps, **how)
    for path, array in fitted_arrays(whole).items():
        assert array.tobytes() == fitted_arrays(resumed)[path].tobytes(), path
