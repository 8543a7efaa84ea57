"""The random graph model of Paquet and Koenigstein, "One-class collaborative filtering with random graphs" (2013).

Items that a user has *considered* are her items, which she liked, and as many others, which she did not: edges of a
hidden graph, drawn by the items' popularity. A considered item is liked with probability sigma(u_i.v_j + b_i + b_j).
Every sweep draws a new hidden graph and computes the variational updates that would be right for it; natural
parameters of q are averaged over sweeps with a falling step, which is a stochastic natural gradient of the bound
averaged over graphs. q is fully factorised, the logistic terms are bounded by Jaakkola and Jordan's bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ..answers.predict import Symbols, energy, sigma_of
from ..kernels.accelerate import compiled
from ..options import one_of, positive_number, seed, whole_number
from ..store.counts import Counts
from .base import Density, draw_item, is_seen, steps

START_SCALE = 0.1
DRAWS = 64  # of an item, before a user is taken to have nearly every popular item


@dataclass(eq=False)
class RandomGraph(Density):
    """Likes among considered items, by variational Bayes over sampled graphs of considered ones.

    `ranking` is "like", by sigma(x_ij) alone, or "pop*like", times the item's popularity rate. `tau`, `tau_b` are prior
    precisions of traits and biases; sweep t = 0, 1, .. is averaged in with step (1 + t)^-decay. A pair counts once.
    With either ranking p(j | i) is that of a considered and liked item, the rate times sigma(x_ij), normalised.
    """

    factors: int = 20
    ranking: str = "like"
    sweeps: int = 50
    tau: float = 1.0
    tau_b: float = 1.0
    decay: float = 0.6
    random_state: int = 0

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        one_of("ranking", self.ranking, ("like", "pop*like"))
        whole_number("sweeps", self.sweeps, least=0)
        positive_number("tau", self.tau)
        positive_number("tau_b", self.tau_b)
        positive_number("decay", self.decay, zero=True)
        seed(self.random_state)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        rng = np.random.default_rng(self.random_state)
        liked = scipy.sparse.csr_matrix((np.ones(pairs.nnz), pairs.indices, pairs.indptr), pairs.shape)
        # One imagined consideration an item, so that an item nobody has had can still be considered.
        degree = np.bincount(pairs.indices, minlength=pairs.shape[1]) + 1.0
        rate = degree / degree.sum()
        users, items = (_start(n, self.factors, rng) for n in pairs.shape)
        for t in steps("random graph", self.sweeps, "sweep", progress):
            # +1 for a liked item, -1 for one that was considered only.
            graph = (liked - draw_graph(liked, rate, rng)).tocsr()
            step = (1 + t) ** -self.decay
            for own, other, edges in ((users, items, graph), (items, users, graph.T.tocsr())):
                _update_rows(
                    edges.indptr, edges.indices, edges.data, own.mean, own.variance, own.bias, own.bias_variance,
                    other.mean, other.variance, other.bias, other.bias_variance, self.tau, self.tau_b, step,
                )  # fmt: skip
        self._users, self._items, self._rate = users, items, rate

    def _score(self, positions: np.ndarray) -> np.ndarray:
        like = sigma_of(*energy(self._users.take(positions), self._items))
        return like * self._rate if self.ranking == "pop*like" else like

    def conditionals(self, positions: np.ndarray) -> np.ndarray:
        p = sigma_of(*energy(self._users.take(positions), self._items)) * self._rate
        return np.asarray(p / p.sum(1, keepdims=True))


def _start(n: int, factors: int, rng: np.random.Generator) -> Symbols:
    """Means near zero, which itself is a fixed point; variances one."""
    return Symbols(START_SCALE * rng.standard_normal((n, factors)), np.ones((n, factors)), np.zeros(n), np.ones(n))


def draw_graph(liked: scipy.sparse.csr_matrix, rate: np.ndarray, rng: np.random.Generator) -> scipy.sparse.csr_matrix:
    """A hidden graph: for each user as many unseen items as seen ones, or all that are left, by popularity."""
    seen = np.diff(liked.indptr)
    indptr = np.concatenate([[0], np.cumsum(np.minimum(seen, liked.shape[1] - seen))])
    indices = np.empty(indptr[-1], np.int64)
    _draw_rows(rng, liked.indptr, liked.indices, rate, np.cumsum(rate), indptr, indices)
    graph = scipy.sparse.csr_matrix((np.ones(indices.size), indices, indptr), liked.shape)
    graph.sort_indices()
    return graph


@compiled
def _draw_rows(rng: Any, indptr: Any, indices: Any, rate: Any, cumulative: Any, out_indptr: Any, out: Any) -> None:
    """Fill each row of `out` with unseen items, one after the other by their rates, none twice."""
    items = rate.size
    owner = np.full(items, -1)  # the last user an item was drawn for
    for i in range(indptr.size - 1):
        start, stop = indptr[i], indptr[i + 1]
        for p in range(out_indptr[i], out_indptr[i + 1]):
            found = -1
            for _ in range(DRAWS):
                item = draw_item(rng, cumulative)
                if owner[item] != i and not is_seen(indices, start, stop, item):
                    found = item
                    break
            if found < 0:
                # Nearly everything is taken: draw from what is left.
                left = 0.0
                for item in range(items):
                    if owner[item] != i and not is_seen(indices, start, stop, item):
                        left += rate[item]
                point = rng.random() * left
                for item in range(items):
                    if owner[item] != i and not is_seen(indices, start, stop, item):
                        found = item
                        point -= rate[item]
                        if point < 0:
                            break
            owner[found] = i
            out[p] = found


@compiled
def _update_rows(
    indptr: Any, indices: Any, sign: Any, mean: Any, variance: Any, bias: Any, bias_variance: Any,
    other_mean: Any, other_variance: Any, other_bias: Any, other_bias_variance: Any,
    tau: float, tau_b: float, step: float,
) -> None:  # fmt: skip
    """Update q of every row's bias and traits, one after the other, by a step towards the optimum for this graph.

    With w_ij = 2 lambda(xi_ij), the factor of u_ik has the optimal natural parameters
        precision         tau + sum_j w_ij (m_jk^2 + v_jk)
        precision * mean  sum_j m_jk (sign_ij/2 - w_ij (a_ij - m_ik m_jk))
    and the bias the same with m_jk = 1 and v_jk = 0; energies a_ij follow every change of a mean.
    """
    factors = mean.shape[1]
    longest = 0
    for i in range(indptr.size - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    a, w = np.empty(longest), np.empty(longest)
    m, v = np.empty((factors, longest)), np.empty((factors, longest))
    for i in range(indptr.size - 1):
        first, n = indptr[i], indptr[i + 1] - indptr[i]
        for p in range(n):
            j = indices[first + p]
            energy, energy_variance = bias[i] + other_bias[j], bias_variance[i] + other_bias_variance[j]
            for k in range(factors):
                m[k, p], v[k, p] = other_mean[j, k], other_variance[j, k]
                energy += mean[i, k] * m[k, p]
                energy_variance += mean[i, k] ** 2 * v[k, p] + variance[i, k] * (m[k, p] ** 2 + v[k, p])
            xi = np.sqrt(energy**2 + energy_variance)  # above 0: variances are
            a[p], w[p] = energy, np.tanh(xi / 2) / (2 * xi)

        precision, product = tau_b, 0.0
        for p in range(n):
            precision += w[p]
            product += sign[first + p] / 2 - w[p] * (a[p] - bias[i])
        old = bias[i]
        bias[i], bias_variance[i] = _blend(old, bias_variance[i], precision, product, step)
        for p in range(n):
            a[p] += bias[i] - old

        for k in range(factors):
            precision, product = tau, 0.0
            old = mean[i, k]
            for p in range(n):
                precision += w[p] * (m[k, p] ** 2 + v[k, p])
                product += m[k, p] * (sign[first + p] / 2 - w[p] * (a[p] - old * m[k, p]))
            mean[i, k], variance[i, k] = _blend(old, variance[i, k], precision, product, step)
            for p in range(n):
                a[p] += (mean[i, k] - old) * m[k, p]


@compiled
def _blend(mean: float, variance: float, precision: float, product: float, step: float) -> tuple[float, float]:
    """Mean and variance after a step of the natural parameters 1/variance and mean/variance."""
    new_precision = (1 - step) / variance + step * precision
    new_product = (1 - step) * mean / variance + step * product
    return new_product / new_precision, 1 / new_precision
