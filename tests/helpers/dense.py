"""A slow, dense float64 reference of Algorithm 1: every sum of the paper, over all I x J pairs.

Nothing here is cached, split into observed and background, or gathered into statistics: that is what the
package does, and what this file is there to check. The paper's slips (design.md, section 2) are mended.

Shapes: I users, J items, K traits; `counts` is c_ij, a dense (I, J) array. D = sum of c_ij, D' = censored_ratio * D.
Only user steps are written out; an item step is the user step of the mirrored state and the transposed counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma, expit, gammaln, logsumexp, xlogy

SMALLEST_DIVISOR = 1e-12  # of xi*: below it every pair with any weight is observed, and xi* says nothing


@dataclass
class DenseState:
    """q(theta) and xi*, all float64. A side without biases has bias 0 and bias precision inf (variance 0)."""

    user_mean: np.ndarray  # (I, K)
    user_precision: np.ndarray  # (I, K)
    user_bias: np.ndarray  # (I,)
    user_bias_precision: np.ndarray  # (I,)
    user_selection: np.ndarray  # (I,) Dirichlet parameter alpha_i of q(pi)
    user_background: np.ndarray  # (I,) s, sums to one
    item_mean: np.ndarray  # (J, K)
    item_precision: np.ndarray  # (J, K)
    item_bias: np.ndarray  # (J,)
    item_bias_precision: np.ndarray  # (J,)
    item_selection: np.ndarray  # (J,) Dirichlet parameter beta_j of q(psi)
    item_background: np.ndarray  # (J,) t, sums to one
    xi_star: float
    temperature: float = 1.0  # posterior variances are temperature / precision
    prior_users: np.ndarray | float = 0.0  # means of the priors, (I, K); see `dense_tags`
    bias_prior_users: np.ndarray | float = 0.0  # (I,)
    prior_items: np.ndarray | float = 0.0
    bias_prior_items: np.ndarray | float = 0.0


# ---- the whole algorithm ----


@dataclass(frozen=True)
class Levers:
    """What departs from the paper; as it stands here, nothing does."""

    prior_growth: float = 0.0  # nu
    background_users: float = 1.0  # beta_u
    background_items: float = 1.0  # beta_v
    temperature: float = 1.0  # T


def discounted(counts, discount) -> np.ndarray:
    """c_ij (c_i c_j)^-w, scaled to the same sum."""
    weighed = np.zeros_like(counts)
    seen = counts > 0
    activity = np.outer(counts.sum(axis=1), counts.sum(axis=0))
    weighed[seen] = counts[seen] * activity[seen] ** -discount
    return weighed * (counts.sum() / weighed.sum())


def dense_start(
    counts, *, user_mean, item_mean, censored_ratio, alpha=1.0, biases=True, selection="bayes", levers=None
) -> DenseState:
    """The state before the first sweep, from given trait means (I, K) and (J, K)."""
    levers = levers or Levers()
    users, items = counts.shape
    bias_precision = 1.0 if biases else np.inf
    state = DenseState(
        user_mean=np.array(user_mean, dtype=np.float64),
        user_precision=np.ones(np.shape(user_mean)),
        user_bias=np.zeros(users),
        user_bias_precision=np.full(users, bias_precision),
        user_selection=np.empty(users),
        user_background=np.full(users, 1 / users),
        item_mean=np.array(item_mean, dtype=np.float64),
        item_precision=np.ones(np.shape(item_mean)),
        item_bias=np.zeros(items),
        item_bias_precision=np.full(items, bias_precision),
        item_selection=np.empty(items),
        item_background=np.full(items, 1 / items),
        xi_star=1.0,
        temperature=levers.temperature,
    )
    if selection == "counts":
        state = counted_background(state, counts, alpha=alpha, levers=levers)
    state = step_user_selection(state, counts, censored_ratio=censored_ratio, alpha=alpha)
    return step_item_selection(state, counts, censored_ratio=censored_ratio, alpha=alpha)


def counted_background(state, counts, *, alpha, levers) -> DenseState:
    """s_i ~ (alpha + c_i)^beta_u and t_j ~ (alpha + c_j)^beta_v."""
    s, t = (
        (alpha + counts.sum(axis=1)) ** levers.background_users,
        (alpha + counts.sum(axis=0)) ** levers.background_items,
    )
    return replace(state, user_background=s / s.sum(), item_background=t / t.sum())


def prior_precisions(state, counts, *, censored_ratio, tau_u, tau_v, levers) -> tuple[np.ndarray, np.ndarray]:
    """tau (n_i / 100)^nu with n_i = c_i + D' s_i, for users (I, 1) and items (J, 1)."""
    censored = censored_ratio * counts.sum()
    n_i = counts.sum(axis=1) + censored * state.user_background
    n_j = counts.sum(axis=0) + censored * state.item_background
    grown = [tau * (n / 100) ** levers.prior_growth for tau, n in ((tau_u, n_i), (tau_v, n_j))]
    return grown[0][:, None], grown[1][:, None]


def dense_sweep(
    state, counts, *, censored_ratio, tau_u, tau_v, tau_b, alpha=1.0, biases=True, selection="bayes", levers=None
) -> DenseState:
    """One sweep of Algorithm 1; `state` is left as it is."""
    tau_u, tau_v = prior_precisions(
        state, counts, censored_ratio=censored_ratio, tau_u=tau_u, tau_v=tau_v, levers=levers or Levers()
    )
    state = step_user_selection(state, counts, censored_ratio=censored_ratio, alpha=alpha)
    state = step_item_selection(state, counts, censored_ratio=censored_ratio, alpha=alpha)

    xi = dense_xi(state, counts)
    state = step_user_background(state, xi, selection=selection)
    if biases:
        state = step_user_bias(state, counts, xi, censored_ratio=censored_ratio, tau_b=tau_b)
    state = step_user_traits(state, counts, xi, censored_ratio=censored_ratio, tau_u=tau_u)

    if selection != "counts":
        state = step_xi_star(state, counts)

    xi = dense_xi(state, counts)
    state = step_item_background(state, xi, selection=selection)
    if biases:
        state = step_item_bias(state, counts, xi, censored_ratio=censored_ratio, tau_b=tau_b)
    state = step_item_traits(state, counts, xi, censored_ratio=censored_ratio, tau_v=tau_v)
    return step_xi_star(state, counts) if selection == "counts" else state


def dense_bound(
    state, counts, *, censored_ratio, tau_u, tau_v, tau_b, alpha=1.0, biases=True, selection="bayes", levers=None
) -> float:
    """The bound L of the state, with the best xi_ij on observed pairs; of a cold posterior, entropies count T times.

    `selection` does not enter the bound; it is taken so that one dict of settings serves the sweep and the bound.
    """
    tau_u, tau_v = prior_precisions(
        state, counts, censored_ratio=censored_ratio, tau_u=tau_u, tau_v=tau_v, levers=levers or Levers()
    )
    return dense_bound_at(
        state,
        counts,
        dense_xi(state, counts),
        censored_ratio=censored_ratio,
        tau_u=tau_u,
        tau_v=tau_v,
        tau_b=tau_b,
        alpha=alpha,
        biases=biases,
    )


# ---- moments of the energy, predictions ----


def dense_energy(state) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance under q of a_ij = u_i.v_j + b_i + b_j, each (I, J)."""
    m_u, m_v = state.user_mean[:, None, :], state.item_mean[None, :, :]
    T = state.temperature
    var_u, var_v = T / state.user_precision[:, None, :], T / state.item_precision[None, :, :]
    # E[a_ij] = sum_k E[u_ik] E[v_jk] + E[b_i] + E[b_j]
    mean = (m_u * m_v).sum(axis=2) + state.user_bias[:, None] + state.item_bias[None, :]
    # Var[u v] = E[u^2] E[v^2] - E[u]^2 E[v]^2, multiplied out so that nothing cancels
    product_variance = m_u**2 * var_v + var_u * m_v**2 + var_u * var_v
    variance = product_variance.sum(axis=2) + T / state.user_bias_precision[:, None] + T / state.item_bias_precision
    return mean, variance


def dense_sigma(state) -> np.ndarray:
    """sigma(x_ij), the probability that pair (i, j) is shown once selected, (I, J)."""
    mean, variance = dense_energy(state)
    # x_ij = mu_ij / (1 + pi sigma_ij^2 / 8)^(1/2)   (MacKay)
    return expit(mean / np.sqrt(1 + np.pi * variance / 8))


def dense_conditional(state, user) -> np.ndarray:
    """p(j | i) over all items for the user of that row, (J,); eq. (prediction)."""
    # p(j | i) = sigma(x_ij) E[psi_j] / sum_j' sigma(x_ij') E[psi_j']
    joint = dense_sigma(state)[user] * state.item_selection / state.item_selection.sum()
    return joint / joint.sum()


# ---- logistic bound ----


def lambda_of(xi):
    """lambda(xi) = (sigma(xi) - 1/2) / (2 xi) = tanh(xi/2) / (4 xi), and its limit 1/8 at 0."""
    xi = np.asarray(xi, dtype=np.float64)
    safe = np.where(xi == 0, 1.0, xi)
    return np.where(xi == 0, 0.125, np.tanh(safe / 2) / (4 * safe))


def log_sigma(x):
    """log sigma(x) = -log(1 + exp(-x)), stable for both signs."""
    return -np.logaddexp(0, -x)


def dense_xi(state, counts) -> np.ndarray:
    """Every pair's xi, (I, J): the best one where c_ij > 0, the shared xi* elsewhere."""
    mean, variance = dense_energy(state)
    # xi_ij^2 = E[a_ij^2]   (locallogistic)
    return np.where(counts > 0, np.sqrt(mean**2 + variance), state.xi_star)


def dense_log_logistic(state, xi, sign) -> np.ndarray:
    """E_q of the logarithm of the bound on sigma(sign * a_ij), (I, J); Omega_ij of the paper is the one of sign -1."""
    mean, variance = dense_energy(state)
    # log sigma(xi) - lambda(xi) (E[a^2] - xi^2) +- E[a]/2 - xi/2
    return log_sigma(xi) - lambda_of(xi) * (mean**2 + variance - xi**2) + sign * mean / 2 - xi / 2


# ---- steps: each maximises the bound over one thing, with xi and all else fixed ----


def expected_log(selection) -> np.ndarray:
    """E[log pi_i] under a Dirichlet of these parameters."""
    return digamma(selection) - digamma(selection.sum())


def censored_counts(state, counts, censored_ratio) -> np.ndarray:
    """sum_d' E[y_d'i z_d'j] = D' s_i t_j, (I, J)."""
    return censored_ratio * counts.sum() * np.outer(state.user_background, state.item_background)


def step_user_selection(state, counts, *, censored_ratio, alpha) -> DenseState:
    # alpha_i = alpha_0 + c_i + D' s_i
    censored = censored_ratio * counts.sum()
    return replace(state, user_selection=alpha + counts.sum(axis=1) + censored * state.user_background)


def step_user_background(state, xi, *, selection) -> DenseState:
    if selection == "counts":  # fixed from the start
        return state
    log_s = expected_log(state.user_selection)
    if selection == "bayes":  # "constant": the messages sum_j t_j Omega_ij are one number, which normalises away
        # s_i proportional to exp(E[log pi_i] + sum_j t_j Omega_ij)   (multinomial)
        log_s = log_s + dense_log_logistic(state, xi, sign=-1) @ state.item_background
    return replace(state, user_background=np.exp(log_s - logsumexp(log_s)))


def step_user_bias(state, counts, xi, *, censored_ratio, tau_b) -> DenseState:
    lam = lambda_of(xi)
    censored = censored_counts(state, counts, censored_ratio)
    # E[u_i^T v_j + b_j]
    rest = state.user_mean @ state.item_mean.T + state.item_bias
    # rho_i = sum_j 2 lambda_ij (c_ij + D' s_i t_j) + tau_b
    rho = (2 * lam * (counts + censored)).sum(axis=1) + tau_b
    # nu_i = sum_j c_ij (1/2 - 2 lambda_ij E[u_i^T v_j + b_j])
    #      + sum_j D' s_i t_j (-1/2 - 2 lambda_ij E[u_i^T v_j + b_j])
    nu = (counts * (0.5 - 2 * lam * rest) + censored * (-0.5 - 2 * lam * rest)).sum(axis=1)
    nu += tau_b * state.bias_prior_users
    return replace(state, user_bias=nu / rho, user_bias_precision=rho)


def step_user_traits(state, counts, xi, *, censored_ratio, tau_u) -> DenseState:
    lam = lambda_of(xi)
    tau_u = np.broadcast_to(np.ravel(tau_u), len(state.user_mean))
    censored = censored_counts(state, counts, censored_ratio)
    # E[v_j v_j^T]
    second_moment = np.array([np.outer(v, v) for v in state.item_mean])
    second_moment += np.array([np.diag(state.temperature / precision) for precision in state.item_precision])
    prior = np.broadcast_to(state.prior_users, state.user_mean.shape)
    mean, precision = np.empty_like(state.user_mean), np.empty_like(state.user_precision)
    for i in range(len(mean)):
        # P_i = sum_j 2 lambda_ij (c_ij + D' s_i t_j) E[v_j v_j^T] + tau_u I   (Pi)
        weight = 2 * lam[i] * (counts[i] + censored[i])
        P = (weight[:, None, None] * second_moment).sum(axis=0) + tau_u[i] * np.eye(mean.shape[1])
        # m_i = sum_j (c_ij (1/2 - 2 lambda_ij E[b_i + b_j])
        #            + D' s_i t_j (-1/2 - 2 lambda_ij E[b_i + b_j])) E[v_j]   (mp)
        b = state.user_bias[i] + state.item_bias
        pull = counts[i] * (0.5 - 2 * lam[i] * b) + censored[i] * (-0.5 - 2 * lam[i] * b)
        m = (pull[:, None] * state.item_mean).sum(axis=0)
        # the full-covariance optimum has mean P_i^-1 m_i; its closest factorised q has precisions diag(P_i)
        mean[i] = np.linalg.solve(P, m + tau_u[i] * prior[i])
        precision[i] = np.diag(P)
    return replace(state, user_mean=mean, user_precision=precision)


def step_xi_star(state, counts) -> DenseState:
    mean, variance = dense_energy(state)
    weight = np.where(counts > 0, 0.0, np.outer(state.user_background, state.item_background))
    if weight.sum() < SMALLEST_DIVISOR:
        return state
    # xi*^2 = sum_{(i,j) not in G} s_i t_j E[a_ij^2] / sum_{(i,j) not in G} s_i t_j   (xi)
    return replace(state, xi_star=float(np.sqrt((weight * (mean**2 + variance)).sum() / weight.sum())))


# ---- the items' steps, mirrored ----


def mirrored(state) -> DenseState:
    """The same state with users called items and items called users."""
    return DenseState(
        user_mean=state.item_mean,
        user_precision=state.item_precision,
        user_bias=state.item_bias,
        user_bias_precision=state.item_bias_precision,
        user_selection=state.item_selection,
        user_background=state.item_background,
        item_mean=state.user_mean,
        item_precision=state.user_precision,
        item_bias=state.user_bias,
        item_bias_precision=state.user_bias_precision,
        item_selection=state.user_selection,
        item_background=state.user_background,
        xi_star=state.xi_star,
        temperature=state.temperature,
        prior_users=state.prior_items,
        bias_prior_users=state.bias_prior_items,
        prior_items=state.prior_users,
        bias_prior_items=state.bias_prior_users,
    )


def step_item_selection(state, counts, *, censored_ratio, alpha) -> DenseState:
    return mirrored(step_user_selection(mirrored(state), counts.T, censored_ratio=censored_ratio, alpha=alpha))


def step_item_background(state, xi, *, selection) -> DenseState:
    return mirrored(step_user_background(mirrored(state), xi.T, selection=selection))


def step_item_bias(state, counts, xi, *, censored_ratio, tau_b) -> DenseState:
    return mirrored(step_user_bias(mirrored(state), counts.T, xi.T, censored_ratio=censored_ratio, tau_b=tau_b))


def step_item_traits(state, counts, xi, *, censored_ratio, tau_v) -> DenseState:
    return mirrored(step_user_traits(mirrored(state), counts.T, xi.T, censored_ratio=censored_ratio, tau_u=tau_v))


# ---- the bound ----


def gaussian_terms(mean, precision, tau, temperature=1.0) -> float:
    """sum of E_q[log p(x)] - T E_q[log q(x)] for p = N(0, 1/tau) and q = N(mean, T/precision)."""
    variance = temperature / precision
    # E_q[log p] = log(tau / 2 pi)/2 - tau (mean^2 + variance)/2
    expected_log_p = 0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * (mean**2 + variance)
    # -E_q[log q] = log(2 pi e variance)/2; T times that vanishes with T
    entropy = temperature * 0.5 * np.log(2 * np.pi * np.e * variance) if temperature > 0 else 0.0
    return float((expected_log_p + entropy).sum())


def expected_log_dirichlet(parameters, expected_log_probability) -> float:
    """E_q of the log density of a Dirichlet: log Gamma(sum a) - sum log Gamma(a_i) + sum (a_i - 1) E[log pi_i]."""
    normaliser = gammaln(parameters.sum()) - gammaln(parameters).sum()
    return float(normaliser + ((parameters - 1) * expected_log_probability).sum())


def dirichlet_terms(selection, alpha) -> float:
    """E_q[log p(pi)] - E_q[log q(pi)]."""
    log_pi = expected_log(selection)
    prior = np.full_like(selection, alpha)
    return expected_log_dirichlet(prior, log_pi) - expected_log_dirichlet(selection, log_pi)


def dense_bound_at(state, counts, xi, *, censored_ratio, tau_u, tau_v, tau_b, alpha=1.0, biases=True) -> float:
    """The bound L of the state at any xi (I, J), one line of eq. (thefulljoint) after the other."""
    D_censored = censored_ratio * counts.sum()
    s, t = state.user_background, state.item_background
    # sum_ij c_ij E[log bound on sigma(a_ij)]
    bound = (counts * dense_log_logistic(state, xi, sign=+1)).sum()
    # sum_ij D' s_i t_j E[log bound on sigma(-a_ij)]
    bound += (censored_counts(state, counts, censored_ratio) * dense_log_logistic(state, xi, sign=-1)).sum()
    # sum_i (c_i + D' s_i) E[log pi_i] + sum_j (c_j + D' t_j) E[log psi_j]
    bound += ((counts.sum(axis=1) + D_censored * s) * expected_log(state.user_selection)).sum()
    bound += ((counts.sum(axis=0) + D_censored * t) * expected_log(state.item_selection)).sum()
    # E[log p] - E[log q] of u, v, b, pi, psi
    bound += gaussian_terms(state.user_mean - state.prior_users, state.user_precision, tau_u, state.temperature)
    bound += gaussian_terms(state.item_mean - state.prior_items, state.item_precision, tau_v, state.temperature)
    if biases:
        own, its = state.user_bias - state.bias_prior_users, state.item_bias - state.bias_prior_items
        bound += gaussian_terms(own, state.user_bias_precision, tau_b, state.temperature)
        bound += gaussian_terms(its, state.item_bias_precision, tau_b, state.temperature)
    bound += dirichlet_terms(state.user_selection, alpha)
    bound += dirichlet_terms(state.item_selection, alpha)
    # -sum_d' E[log q(y_d')] - sum_d' E[log q(z_d')] = -D' sum_i s_i log s_i - D' sum_j t_j log t_j
    bound -= D_censored * (xlogy(s, s).sum() + xlogy(t, t).sum())
    return float(bound)
