"""The bilinear softmax of eq. (softmax), with biases: p(i, j) proportional to exp(u_i.v_j + b_i + b_j), fitted by MAP.

Its normaliser and its gradient run over all I x J pairs, exactly: for small data only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.sparse
from tqdm import tqdm

from ..errors import InputError
from ..options import positive_number, seed, whole_number
from ..store.counts import Counts
from .base import Density

CELLS = 50_000_000  # users x items, at most
BLOCK = 2**18  # bytes of energies worked on together: they stay in the cache
START_SCALE = 0.1


@dataclass(eq=False)
class SoftmaxMAP(Density):
    """The softmax's point estimate under a Gaussian prior of precision `tau` on traits and biases, by L-BFGS.

    `symmetric` ties u_i = v_i and the biases, for counts whose two sides have the same labels. The search stops when
    the log posterior's relative change is within `tolerance`, or after `iterations`; `converged` tells which, and
    `log_posterior` where. Scores are p(j | i).
    """

    factors: int = 5
    tau: float = 1.0
    biases: bool = True
    symmetric: bool = False
    iterations: int = 1000
    tolerance: float = 1e-7
    random_state: int = 0

    def _check(self) -> None:
        whole_number("factors", self.factors, least=1)
        positive_number("tau", self.tau)
        for name in ("biases", "symmetric"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, not {getattr(self, name)!r}")
        whole_number("iterations", self.iterations, least=1)
        positive_number("tolerance", self.tolerance, zero=True)
        seed(self.random_state)

    def _learn(self, counts: Counts, pairs: scipy.sparse.csr_matrix, progress: bool) -> None:
        users, items = pairs.shape
        if users * items > CELLS:
            raise InputError(
                f"the softmax's gradient runs over all {users:,} x {items:,} = {users * items:,} pairs; "
                f"at most {CELLS:,} are allowed: take fewer symbols, or a system whose cost grows with observed pairs"
            )
        if self.symmetric and not np.array_equal(counts.user_ids, counts.item_ids):
            raise InputError(
                "symmetric=True needs the same labels on both sides, "
                f"but {counts.path} has {users:,} users and {items:,} items that are not the same"
            )
        # A row a symbol: traits, then the bias; users before items, or both at once.
        rows = users if self.symmetric else users + items
        start = np.random.default_rng(self.random_state).normal(0, START_SCALE, (rows, self.factors + self.biases))
        start[:, self.factors :] = 0
        # The curvature in a symbol's parameters grows with its count: steps in units of 1/sqrt(tau + c) need less than
        # half the iterations.
        marginal = [np.asarray(pairs.sum(axis)).ravel() for axis in (1, 0)]
        unit = (self.tau + (marginal[0] if self.symmetric else np.concatenate(marginal))) ** -0.5
        unit = np.repeat(unit, start.shape[1])
        pairs, total = pairs.astype(np.float64), float(marginal[0].sum())

        def scaled(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._objective(x * unit, pairs, total)
            return value, gradient * unit

        with tqdm(desc="softmax", unit="iteration", disable=not progress) as bar:
            found = scipy.optimize.minimize(
                scaled,
                start.ravel() / unit,
                method="L-BFGS-B",
                jac=True,
                callback=lambda intermediate_result: bar.update(),
                options={
                    "maxcor": 30,
                    "maxiter": self.iterations,
                    "maxfun": 4 * self.iterations,
                    "ftol": self.tolerance,
                    "gtol": 0.0,
                },
            )
        self.log_posterior = -float(found.fun)  # up to a constant of the prior
        self.converged = bool(found.success)  # and not stopped by the number of iterations
        self._user_traits, self._item_traits, _, self._item_bias = self._split(found.x * unit, users)

    def _split(self, parameters: np.ndarray, users: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Traits of users and items, biases of users and items."""
        table = parameters.reshape(-1, self.factors + self.biases)
        first, second = (table, table) if self.symmetric else (table[:users], table[users:])
        bias = [side[:, self.factors] if self.biases else np.zeros(len(side)) for side in (first, second)]
        return first[:, : self.factors], second[:, : self.factors], bias[0], bias[1]

    def _objective(
        self, parameters: np.ndarray, pairs: scipy.sparse.csr_matrix, total: float
    ) -> tuple[float, np.ndarray]:
        """Minus the log posterior and its exact gradient.

        log p = sum_ij c_ij a_ij - D log Z - tau/2 |parameters|^2; a block of users at a time, with energies shifted
        by the greatest one so far, so that no exponential overflows.
        """
        u, v, b_u, b_v = self._split(parameters, pairs.shape[0])
        one_u, one_v = np.ones(len(u)), np.ones(len(v))
        z_u, z_v = np.column_stack([u, one_u]), np.column_stack([v, one_v])
        left, right = np.column_stack([z_u, b_u]), np.column_stack([v, b_v, one_v]).T  # a = left @ right
        shift = -np.inf
        # Sums over w_ij = exp(a_ij - shift): of [v_j, 1] a user, of [u_i, 1] an item.
        of_users, of_items = np.zeros(z_u.shape), np.zeros(z_v.shape)
        step = max(1, BLOCK // (8 * len(v)))
        for first in range(0, len(u), step):
            part = slice(first, first + step)
            weight = left[part] @ right
            greatest = float(weight.max())
            if greatest > shift:
                of_users *= np.exp(shift - greatest)
                of_items *= np.exp(shift - greatest)
                shift = greatest
            weight -= shift
            np.exp(weight, out=weight)
            of_users[part] = weight @ z_v
            of_items += weight.T @ z_u[part]
        normaliser = float(of_users[:, -1].sum())
        observed = pairs @ z_v, pairs.T @ z_u
        energy = float((observed[0][:, :-1] * u).sum() + observed[0][:, -1] @ b_u + observed[1][:, -1] @ b_v)
        log_posterior = energy - total * (np.log(normaliser) + shift) - self.tau / 2 * float(parameters @ parameters)
        slopes = [
            (seen - total / normaliser * expected)[:, : self.factors + self.biases]
            for seen, expected in zip(observed, (of_users, of_items), strict=True)
        ]
        gradient = slopes[0] + slopes[1] if self.symmetric else np.concatenate(slopes)
        return -log_posterior, self.tau * parameters - gradient.ravel()

    def _score(self, positions: np.ndarray) -> np.ndarray:
        p = self._user_traits[positions] @ self._item_traits.T + self._item_bias
        p -= p.max(1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(1, keepdims=True)
        return np.asarray(p)

    def conditionals(self, positions: np.ndarray) -> np.ndarray:
        return self._score(positions)
