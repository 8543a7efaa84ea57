"""Counts, settings and states that claims about the dense reference are tried on."""

import numpy as np

from helpers import dense
from helpers.dense import (
    dense_start,
    dense_sweep,
)

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
