"""The dense reference with tags: every sum over symbols and tags written out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma, gammaln

from helpers.dense import Levers, dense_bound, dense_sweep, mirrored, prior_precisions
from pairsym_dask.sweep.tag_prior import gamma_prior


@dataclass
class DenseTags:
    """Tags of one side: weights (n, F), and q of their effects."""

    weights: np.ndarray  # x_jf, squares of a row sum to one
    mean: np.ndarray  # (F, K)
    precision: np.ndarray  # (F,)
    bias: np.ndarray
    bias_precision: np.ndarray
    gamma: np.ndarray


def start_tags(links: np.ndarray, factors: int, tau_b: float, biases: bool = True) -> DenseTags:
    """Tags before the first sweep, from weights as they are given (n, F)."""
    size = np.sqrt((links**2).sum(axis=1, keepdims=True))
    number = links.shape[1] + 1
    gamma = np.ones(number)
    weights = np.hstack([links / np.where(size > 0, size, 1.0), size > 0])
    return DenseTags(
        weights, np.zeros((number, factors)), gamma, np.zeros(number),
        np.full(number, tau_b if biases else np.inf), gamma,
    )  # fmt: skip


def with_priors(state, tags, counts, settings):
    """A state whose prior means are those of its tags, by side.

    The prior of v_j is N(0, 1/(tau_j - kappa)) times N(mu_j, 1/kappa), whose product has the mean kappa/tau_j mu_j.
    """
    taus, kappas = _taus(state, counts, settings), _kappas(counts, settings)
    for side, own in tags.items():
        share = (kappas[side] / taus[side])[:, None]
        priors = {f"prior_{side}": share * (own.weights @ own.mean), f"bias_prior_{side}": own.weights @ own.bias}
        state = replace(state, **priors)
    return state


def tagged_sweep(state, tags, counts, passes, **settings):
    """A sweep of Algorithm 1 with prior means, then an update of the tags of each side."""
    state = dense_sweep(with_priors(state, tags, counts, settings), counts, **settings)
    kappas = _kappas(counts, settings)
    updated = {}
    for side, own in tags.items():
        mine = state if side == "users" else mirrored(state)
        pull = np.full(len(own.weights), kappas[side])
        updated[side] = update(own, mine.user_mean, mine.user_bias, pull, settings, passes)
    return with_priors(state, updated, counts, settings), updated


def _taus(state, counts, settings):
    given = {name: settings[name] for name in ("censored_ratio", "tau_u", "tau_v")}
    taus = prior_precisions(state, counts, **given, levers=settings.get("levers") or Levers())
    return {side: np.ravel(tau) for side, tau in zip(("users", "items"), taus, strict=True)}


def _kappas(counts, settings):
    """What tags pull with: the prior precision of a symbol without pairs."""
    levers, censored = settings.get("levers") or Levers(), settings["censored_ratio"] * counts.sum()
    found = {}
    for axis, side in enumerate(("users", "items")):
        alpha, beta = settings["alpha"], getattr(levers, f"background_{side}")
        share = alpha**beta / ((alpha + counts.sum(axis=1 - axis)) ** beta).sum()
        found[side] = settings[f"tau_{'uv'[axis]}"] * (censored * share / 100) ** levers.prior_growth
    return found


def update(tags, mean, bias, tau, settings, passes):
    """The formulas of one tag after another."""
    x, h, e = tags.weights, tags.mean.copy(), tags.bias.copy()
    factors, tau_b = h.shape[1], settings["tau_b"]
    # gamma_f + sum_j tau_j x_jf^2
    precision = tags.gamma + (tau[:, None] * x**2).sum(axis=0)
    bias_precision = tau_b + tau_b * (x**2).sum(axis=0)
    for _ in range(passes):
        for f in [len(h) - 1, *range(len(h) - 1)]:  # the level, which all symbols with tags have, first
            others = np.arange(len(h)) != f
            # sum_j tau_j x_jf (E[v_j] - sum_{g != f} x_jg E[h_g]) / precision
            h[f] = (tau * x[:, f]) @ (mean - x[:, others] @ h[others]) / precision[f]
            if settings.get("biases", True):
                e[f] = tau_b * x[:, f] @ (bias - x[:, others] @ e[others]) / bias_precision[f]
    if not settings.get("biases", True):
        bias_precision = tags.bias_precision
    # (a0 + K/2) / (b0 + E|h_f|^2 / 2)
    a0 = b0 = gamma_prior(factors)
    gamma = (a0 + factors / 2) / (b0 + ((h**2).sum(axis=1) + factors / precision) / 2)
    return DenseTags(x, h, precision, e, bias_precision, gamma)


def tagged_bound(state, tags, counts, **settings):
    """The bound of a state with tags."""
    bound = dense_bound(with_priors(state, tags, counts, settings), counts, **settings)
    taus, kappas = _taus(state, counts, settings), _kappas(counts, settings)
    for side, own in tags.items():
        factors, tau_b = own.mean.shape[1], settings["tau_b"]
        # what the product of the two priors leaves: -kappa/2 (1 - kappa/tau_j) |mu_j|^2
        square = ((own.weights @ own.mean) ** 2).sum(axis=1)
        bound -= 0.5 * kappas[side] * ((1 - kappas[side] / taus[side]) @ square)
        # prior means vary: -kappa/2 Var[sum_f x_jf h_f], for each trait
        bound -= 0.5 * factors * kappas[side] * (own.weights**2 / own.precision).sum()
        a0 = b0 = gamma_prior(factors)
        shape = a0 + factors / 2
        rate = shape / own.gamma
        log_gamma = digamma(shape) - np.log(rate)
        for f in range(len(own.mean)):
            size = own.mean[f] @ own.mean[f] + factors / own.precision[f]
            # E[log p(h_f | gamma_f)] and the entropy of q(h_f)
            bound += factors / 2 * (log_gamma[f] - np.log(2 * np.pi)) - own.gamma[f] * size / 2
            bound += factors / 2 * np.log(2 * np.pi * np.e / own.precision[f])
            bound += expected_log_gamma(a0, b0, log_gamma[f], own.gamma[f])
            bound -= expected_log_gamma(shape, rate[f], log_gamma[f], own.gamma[f])
        if settings.get("biases", True):
            bound -= 0.5 * tau_b * (own.weights**2 / own.bias_precision).sum()
            square = own.bias**2 + 1 / own.bias_precision
            bound += (0.5 * np.log(tau_b / (2 * np.pi)) - 0.5 * tau_b * square).sum()
            bound += (0.5 * np.log(2 * np.pi * np.e / own.bias_precision)).sum()
    return bound


def expected_log_gamma(shape, rate, log_gamma, gamma):
    """E of the log density of a Gamma."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * log_gamma - rate * gamma
