"""Claims about the dense reference itself: it climbs its bound, each step is a maximum, the bound is a bound."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from helpers import dense
from helpers.dense import (
    DenseState,
    dense_bound,
    dense_bound_at,
    dense_conditional,
    dense_energy,
    dense_sigma,
    dense_start,
    dense_sweep,
    dense_xi,
    lambda_of,
    log_sigma,
    mirrored,
)
from scipy.special import expit, gammaln, log_expit, logsumexp

PAPER = {"censored_ratio": 1.0, "tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0}
# all different, so that no mix-up hides
UNLIKE = {"censored_ratio": 2.5, "tau_u": 0.1, "tau_v": 0.4, "tau_b": 0.2, "alpha": 0.7}
SETTINGS = [PAPER, UNLIKE, {**UNLIKE, "biases": False}]


def sparse_counts(seed, users=9, items=7):
    rng = np.random.default_rng(seed)
    return rng.poisson(3.0, (users, items)) * (rng.random((users, items)) < 0.35).astype(float)


def edge_counts():
    """Counts of awkward shapes and sizes, by name."""
    rng = np.random.default_rng(1)
    empty_row, empty_column = sparse_counts(2), sparse_counts(3)
    empty_row[4] = 0
    empty_column[:, 2] = 0
    return {
        "single user": np.array([[1.0, 0.0, 3.0, 2.0]]),
        "single item": np.array([[2.0], [0.0], [1.0]]),
        "single pair": np.array([[4.0]]),
        "every pair observed": 1.0 + rng.poisson(1.0, (6, 5)),
        "empty row": empty_row,
        "empty column": empty_column,
        "counts in the thousands": 2000 * sparse_counts(4),
        "fractional counts": (0.01 + rng.random((6, 5))) * (rng.random((6, 5)) < 0.5),
        "no pair at all": np.zeros((3, 2)),
    }


EDGES = edge_counts()


def start(counts, settings, seed=0, traits=3, scale=0.5):
    rng = np.random.default_rng(seed)
    users, items = counts.shape
    return dense_start(
        counts,
        user_mean=scale * rng.standard_normal((users, traits)),
        item_mean=scale * rng.standard_normal((items, traits)),
        **{key: settings[key] for key in ("censored_ratio", "alpha", "biases") if key in settings},
    )


def after_sweeps(counts, settings, sweeps=2, seed=0):
    state = start(counts, settings, seed)
    for _ in range(sweeps):
        state = dense_sweep(state, counts, **settings)
    return state


def steps(counts, settings):
    """Every step of a sweep as (name, function of state and xi), in the order of Algorithm 1."""
    ratio = {"censored_ratio": settings["censored_ratio"]}
    alpha = settings.get("alpha", 1.0)
    tau_b, tau_u, tau_v = settings["tau_b"], settings["tau_u"], settings["tau_v"]
    sweep = [
        ("user_selection", lambda q, _: dense.step_user_selection(q, counts, **ratio, alpha=alpha)),
        ("item_selection", lambda q, _: dense.step_item_selection(q, counts, **ratio, alpha=alpha)),
        ("user_background", lambda q, xi: dense.step_user_background(q, xi, selection="bayes")),
        ("user_bias", lambda q, xi: dense.step_user_bias(q, counts, xi, **ratio, tau_b=tau_b)),
        ("user_traits", lambda q, xi: dense.step_user_traits(q, counts, xi, **ratio, tau_u=tau_u)),
        ("xi_star", lambda q, _: dense.step_xi_star(q, counts)),
        ("item_background", lambda q, xi: dense.step_item_background(q, xi, selection="bayes")),
        ("item_bias", lambda q, xi: dense.step_item_bias(q, counts, xi, **ratio, tau_b=tau_b)),
        ("item_traits", lambda q, xi: dense.step_item_traits(q, counts, xi, **ratio, tau_v=tau_v)),
    ]
    return [step for step in sweep if settings.get("biases", True) or not step[0].endswith("bias")]


def slack(bound):
    """How far a bound may fall by rounding alone."""
    return 1e-10 * max(1.0, abs(bound))


# ---- the bound climbs ----


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("settings", SETTINGS)
def test_bound_never_falls(settings, seed):
    counts = sparse_counts(seed)
    state = start(counts, settings, seed)
    bound = first = dense_bound(state, counts, **settings)
    for sweep in range(50):
        state = dense_sweep(state, counts, **settings)
        before, bound = bound, dense_bound(state, counts, **settings)
        assert bound >= before - slack(before), f"sweep {sweep}"
    assert bound > first + 1


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", EDGES)
def test_bound_never_falls_on_edge_shapes(name, settings):
    counts = EDGES[name]
    state = start(counts, settings)
    bound = dense_bound(state, counts, **settings)
    for sweep in range(15):
        state = dense_sweep(state, counts, **settings)
        before, bound = bound, dense_bound(state, counts, **settings)
        assert np.isfinite(bound)
        assert bound >= before - slack(before), f"sweep {sweep}"


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("counts", [sparse_counts(0), sparse_counts(5), *EDGES.values()])
def test_every_step_alone_raises_the_bound(counts, settings):
    state = start(counts, settings)
    for _ in range(3):
        for name, step in steps(counts, settings):
            xi = dense_xi(state, counts)
            before = dense_bound(state, counts, **settings)
            state = step(state, xi)
            assert dense_bound(state, counts, **settings) >= before - slack(before), name


def test_steps_in_order_are_the_sweep():
    """In a sweep xi is that of the half-sweep's beginning, so the steps get it so."""
    counts, settings = sparse_counts(6), UNLIKE
    state = begun = after_sweeps(counts, settings)
    for name, step in steps(counts, settings):
        if name in ("user_selection", "xi_star", "item_background"):
            xi = dense_xi(state, counts)
        state = step(state, xi)
    swept = dense_sweep(begun, counts, **settings)
    for field in fields(DenseState):
        np.testing.assert_array_equal(getattr(state, field.name), getattr(swept, field.name))


# ---- each step is a maximum of the bound, xi fixed ----


def shifted(bound, state, name, row, direction=1.0):
    """The bound as a function of h, where h times direction is added to a row."""

    def along(h):
        values = getattr(state, name).copy()
        values[row] += h * direction
        return bound(replace(state, **{name: values}))

    return along


def scaled(bound, state, name, row, direction=1.0, total=None):
    """The bound as a function of h, where a row is multiplied by exp(h times direction), then all to a total."""

    def along(h):
        values = getattr(state, name).copy()
        values[row] *= np.exp(h * direction)
        if total is not None:
            values *= total / values.sum()
        return bound(replace(state, **{name: values}))

    return along


def assert_peak(bound, step=1e-3):
    """bound(h), a number for each small h, is greatest at h = 0, and not merely near it."""
    top, left, right = bound(0.0), bound(-step), bound(step)
    assert left < top
    assert right < top
    # the vertex of the parabola through the three lies within 1% of a step from h = 0
    assert abs(right - left) < 0.02 * (2 * top - left - right)


def at_fixed_xi(counts, settings, side, updates):
    """A state after these of a side's updates, and the bound at the xi they were given."""
    state = after_sweeps(counts, settings)
    xi = dense_xi(state, counts)
    by_name = dict(steps(counts, settings))
    for update in updates:
        state = by_name[f"{side}_{update}"](state, xi)
    return state, lambda q: dense_bound_at(q, counts, xi, **settings)


@pytest.mark.parametrize("side", ["user", "item"])
def test_traits_are_a_maximum(side):
    state, bound = at_fixed_xi(sparse_counts(7), UNLIKE, side, ["bias", "traits"])
    rows, traits = getattr(state, f"{side}_mean").shape
    rng = np.random.default_rng(0)
    for row in range(rows):
        for direction in [*np.eye(traits), rng.standard_normal(traits)]:
            assert_peak(shifted(bound, state, f"{side}_mean", row, direction))
            assert_peak(scaled(bound, state, f"{side}_precision", row, direction))


@pytest.mark.parametrize("side", ["user", "item"])
def test_biases_are_a_maximum(side):
    state, bound = at_fixed_xi(sparse_counts(8), UNLIKE, side, ["bias"])
    for row in range(len(getattr(state, f"{side}_bias"))):
        assert_peak(shifted(bound, state, f"{side}_bias", row))
        assert_peak(scaled(bound, state, f"{side}_bias_precision", row))


@pytest.mark.parametrize("side", ["user", "item"])
def test_background_is_a_maximum_on_the_simplex(side):
    state, bound = at_fixed_xi(sparse_counts(9), UNLIKE, side, ["background"])
    background = getattr(state, f"{side}_background")
    assert background.sum() == pytest.approx(1, abs=1e-14)
    for row in range(len(background)):
        assert_peak(scaled(bound, state, f"{side}_background", row, total=1.0))


@pytest.mark.parametrize("side", ["user", "item"])
def test_selection_is_a_maximum(side):
    state, bound = at_fixed_xi(sparse_counts(10), UNLIKE, side, ["selection"])
    for row in range(len(getattr(state, f"{side}_selection"))):
        assert_peak(scaled(bound, state, f"{side}_selection", row))


def test_xi_star_is_a_maximum():
    counts = sparse_counts(11)
    state = dense.step_xi_star(after_sweeps(counts, UNLIKE), counts)
    assert_peak(lambda h: dense_bound(replace(state, xi_star=state.xi_star * np.exp(h)), counts, **UNLIKE))


def test_xi_of_an_observed_pair_is_a_maximum():
    counts = sparse_counts(12)
    state = after_sweeps(counts, UNLIKE)
    xi = dense_xi(state, counts)

    def along(i, j):
        pair = np.zeros_like(xi)
        pair[i, j] = 1
        return lambda h: dense_bound_at(state, counts, xi * np.exp(h * pair), **UNLIKE)

    for i, j in np.argwhere(counts > 0):
        assert_peak(along(i, j))


# ---- the bound is a bound ----


def log_evidence(counts, *, censored_ratio, tau_u, tau_v, tau_b, alpha=1.0, biases=True):
    """log p(data) of one user, a few items and one trait, all assignments of the D' censored pairs summed out.

    Given u and b_i the energies of different items are independent Gaussians, so that Gauss-Hermite nodes do the rest.
    """
    counts = counts[0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    log_weights = np.log(weights / weights.sum())
    bias_variance = 1 / tau_b if biases else 0.0
    u, b = (grid.ravel() for grid in np.meshgrid(nodes / np.sqrt(tau_u), nodes * np.sqrt(bias_variance)))
    log_weight_ub = np.add.outer(log_weights, log_weights).ravel()
    energy = b[:, None] + np.sqrt(u**2 / tau_v + bias_variance)[:, None] * nodes  # a_j at (u, b_i), by node
    terms = []
    for items in product(range(len(counts)), repeat=round(censored_ratio * counts.sum())):
        censored = np.bincount(items, minlength=len(counts))
        # log integral of prod_j psi_j^(c_j + c'_j) under Dirichlet(alpha)
        pairs = counts + censored
        log_selection = gammaln(alpha * len(counts)) - gammaln(alpha * len(counts) + pairs.sum())
        log_selection += (gammaln(alpha + pairs) - gammaln(alpha)).sum()
        # log integral of prod_j sigma(a_j)^c_j sigma(-a_j)^c'_j
        log_shown = sum(
            logsumexp(c * log_expit(energy) + n * log_expit(-energy) + log_weights, axis=1)
            for c, n in zip(counts, censored, strict=True)
        )
        terms.append(log_selection + logsumexp(log_shown + log_weight_ub))
    return logsumexp(terms)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(
    ("counts", "ratio"), [([[3.0]], 1.0), ([[2.0, 1.0]], 1.0), ([[1.0, 0.0]], 2.0), ([[1.0, 0.0, 1.0]], 1.0)]
)
def test_bound_stays_just_below_the_exact_evidence(counts, ratio, biases):
    counts = np.array(counts)
    # tight priors: there the factorised Gaussians are nearly right, and a lost constant of the bound would show
    settings = {"censored_ratio": ratio, "tau_u": 20.0, "tau_v": 15.0, "tau_b": 10.0, "alpha": 0.8, "biases": biases}
    state = start(counts, settings, traits=1, scale=0.1)
    for _ in range(60):
        state = dense_sweep(state, counts, **settings)
    gap = log_evidence(counts, **settings) - dense_bound(state, counts, **settings)
    assert 0 <= gap < 0.5


# ---- energy, predictions, small functions ----


@pytest.mark.parametrize("settings", SETTINGS)
def test_energy_moments_are_those_of_the_products(settings):
    """E[a^2] = tr E[u u^T] E[v v^T] + 2 E[b_i + b_j] E[u^T v] + E[(b_i + b_j)^2], pair by pair."""
    counts = sparse_counts(13)
    state = after_sweeps(counts, settings)
    mean, variance = dense_energy(state)
    for i, j in np.ndindex(counts.shape):
        u, v = state.user_mean[i], state.item_mean[j]
        uu = np.outer(u, u) + np.diag(1 / state.user_precision[i])
        vv = np.outer(v, v) + np.diag(1 / state.item_precision[j])
        b = state.user_bias[i] + state.item_bias[j]
        bb = b**2 + 1 / state.user_bias_precision[i] + 1 / state.item_bias_precision[j]
        assert mean[i, j] == pytest.approx(u @ v + b, rel=1e-12)
        assert mean[i, j] ** 2 + variance[i, j] == pytest.approx(np.trace(uu @ vv) + 2 * b * (u @ v) + bb, rel=1e-12)


@pytest.mark.parametrize("name", EDGES)
def test_conditional_sums_to_one(name):
    counts = EDGES[name]
    state = after_sweeps(counts, UNLIKE)
    for user in range(len(counts)):
        conditional = dense_conditional(state, user)
        assert conditional.shape == counts.shape[1:]
        assert conditional.min() > 0
        assert conditional.sum() == pytest.approx(1, abs=1e-14)


def test_conditional_is_popularity_where_the_energies_are_equal():
    state = after_sweeps(sparse_counts(20), {**UNLIKE, "biases": False})
    flat = replace(state, item_mean=np.zeros_like(state.item_mean))
    popularity = state.item_selection / state.item_selection.sum()
    np.testing.assert_allclose(dense_conditional(flat, 3), popularity, rtol=1e-14)


def test_conditionals_of_two_items_are_as_their_sigmas_and_popularities():
    state = after_sweeps(sparse_counts(20), UNLIKE)
    conditional, sigma = dense_conditional(state, 3), dense_sigma(state)[3]
    ratio = sigma[0] * state.item_selection[0] / (sigma[5] * state.item_selection[5])
    assert conditional[0] / conditional[5] == pytest.approx(ratio, rel=1e-13)


def test_sigma_is_near_the_logistic_gaussian_integral():
    state = after_sweeps(sparse_counts(21), UNLIKE)
    mean, variance = dense_energy(state)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    integral = expit(mean[..., None] + np.sqrt(variance)[..., None] * nodes) @ (weights / weights.sum())
    assert abs(dense_sigma(state) - integral).max() < 0.02  # MacKay's approximation, no more


def test_uncertain_energies_are_drawn_towards_a_half():
    state = after_sweeps(sparse_counts(14), UNLIKE)
    sure = replace(state, user_precision=state.user_precision * 1e6, item_precision=state.item_precision * 1e6)
    assert (abs(dense_sigma(state) - 0.5) < abs(dense_sigma(sure) - 0.5)).all()


def test_start_is_as_promised():
    counts = sparse_counts(15)
    state = start(counts, UNLIKE)
    users, items = counts.shape
    censored = UNLIKE["censored_ratio"] * counts.sum()
    np.testing.assert_allclose(state.user_selection, 0.7 + counts.sum(axis=1) + censored / users)
    np.testing.assert_allclose(state.item_selection, 0.7 + counts.sum(axis=0) + censored / items)
    assert state.xi_star == 1
    assert {*state.user_background, *state.user_bias, *state.item_bias_precision} == {1 / users, 0.0, 1.0}


def test_sweep_leaves_its_state_alone():
    counts = sparse_counts(16)
    state, twin = (start(counts, UNLIKE) for _ in range(2))
    dense_sweep(state, counts, **UNLIKE)
    for field in fields(DenseState):
        np.testing.assert_array_equal(getattr(state, field.name), getattr(twin, field.name))


def test_bound_is_the_same_for_mirrored_data():
    counts = sparse_counts(17)
    state = after_sweeps(counts, UNLIKE)
    swapped = {**UNLIKE, "tau_u": UNLIKE["tau_v"], "tau_v": UNLIKE["tau_u"]}
    bound = dense_bound(state, counts, **UNLIKE)
    assert dense_bound(mirrored(state), counts.T, **swapped) == pytest.approx(bound, rel=1e-13)


def test_without_biases_there_are_none():
    counts = sparse_counts(18)
    state = after_sweeps(counts, {**UNLIKE, "biases": False})
    assert not state.user_bias.any()
    assert not state.item_bias.any()
    assert np.isinf(state.user_bias_precision).all()
    assert np.isinf(state.item_bias_precision).all()


def test_constant_selection_follows_the_dirichlet_alone():
    counts = sparse_counts(19)
    state = after_sweeps(counts, {**UNLIKE, "selection": "constant"})
    for selection, background in [
        (state.user_selection, state.user_background),
        (state.item_selection, state.item_background),
    ]:
        weights = np.exp(dense.expected_log(selection))
        np.testing.assert_allclose(background, weights / weights.sum(), rtol=1e-13)


def test_xi_star_is_kept_where_every_pair_is_observed():
    counts = EDGES["every pair observed"]
    assert after_sweeps(counts, UNLIKE).xi_star == 1


def test_logistic_functions_hold_at_the_ends():
    assert lambda_of(0.0) == 0.125
    assert lambda_of(1e-9) == pytest.approx(0.125, rel=1e-15)
    assert lambda_of(1e6) == pytest.approx(0.25e-6)
    assert log_sigma(-1e4) == -1e4
    assert log_sigma(1e4) == 0
    assert log_sigma(0.0) == pytest.approx(-np.log(2))
