"""What is asked of `recommend`, and how a posterior becomes a ranking: by its mean, an upper quantile, or a draw.

Every strategy ranks by (a probability of being shown) * E[psi]^popularity, or by odds (`ranking`). "mean" takes
sigma, the probability averaged over the posterior; "ucb" the upper end of its credible interval; "thompson" sigma(a)
with energies a drawn from q. E[psi] is not drawn: it says how often an item is offered, not how much it is liked, so
nothing is learned by exploring it, and as a ranking weight it is tempered by an exponent that no posterior belongs
to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..errors import InputError
from ..kernels.random import fill_normals_at
from ..kernels.streams import stream_key
from ..kernels.topn import left_sides
from ..options import fraction, seed, whole_number
from ..settings import POPULARITY, POPULARITY_OF_DRAWS

STRATEGIES = ("mean", "thompson", "ucb")
TASTES, WORLD = 32, 33  # streams of the generator: a user's own draws, and the items' as that user meets them

Bend = Callable[[np.ndarray, np.ndarray, slice, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Query:
    """How many items, which ones, ranked how; checked once."""

    n: int
    exclude_seen: bool = True
    candidates: np.ndarray | None = None  # item positions; all by default
    excluded: np.ndarray | None = None  # item positions
    popularity: float = POPULARITY
    strategy: str = "mean"
    random_state: int = 0
    interval: float = 0.9

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_n(self.n))
        object.__setattr__(self, "popularity", check_popularity(self.popularity))
        check_interval(self.interval)
        if self.strategy not in STRATEGIES:
            raise InputError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        object.__setattr__(self, "random_state", seed(self.random_state))

    def allowed(self, items: int) -> np.ndarray:
        """Mask (items + 1) of positions that may be recommended; the last one, of padding, may not."""
        mask = np.zeros(items + 1, bool)
        mask[np.arange(items) if self.candidates is None else self.candidates] = True
        if self.excluded is not None:
            mask[self.excluded] = False
        return mask


def sides(users: Any, numbers: np.ndarray, query: Query) -> tuple[np.ndarray, np.ndarray, Bend | None]:
    """Users' side of the energies' means and variances, and what makes ranked energies of them (None: the mean).

    A user's draw is a joint one over all items. Given u_i and b_i, the energies with different items are independent
    under q, with mean u_i.m_j + b_i + b_j and variance sum_k u_ik^2 v_jk + w_j: so K + 1 normals for the user and one
    an item are a draw of all its energies. They depend on random_state, the user's number and the item alone.
    """
    if query.strategy == "mean":
        return *left_sides(users), None
    if query.strategy == "ucb":
        z = deviations(query.interval)
        left, variance_side = (side.astype(np.float64) for side in left_sides(users))
        return left, variance_side, lambda mean, variance, rows, item: mean + z * np.sqrt(variance)
    factors = users.mean.shape[1]
    normals = normals_at(query.random_state, TASTES, numbers, np.arange(factors + 1))
    u = users.mean + np.sqrt(users.variance, dtype=np.float64) * normals[:, :factors]
    b = users.bias + np.sqrt(users.bias_variance, dtype=np.float64) * normals[:, factors]
    one, none = np.ones((len(users), 1)), np.zeros((len(users), 1))
    left, variance_side = np.hstack([u, one, b[:, None]]), np.hstack([u**2, np.zeros_like(u), one, none])

    def draw(mean: np.ndarray, variance: np.ndarray, rows: slice, item: np.ndarray) -> np.ndarray:
        return np.asarray(mean + np.sqrt(variance) * normals_at(query.random_state, WORLD, numbers[rows], item))

    return left, variance_side, draw


def normals_at(seed: int, stream: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Standard normals (rows, columns), each by seed, stream, row number and column number alone."""
    out = np.empty((rows.size, columns.size))
    with np.errstate(over="ignore"):  # the generator counts modulo 2**64
        fill_normals_at(np.uint64(seed), stream, rows.astype(np.uint64), columns.astype(np.uint64), out)
    return out


def draw_number(random_state: int, draws: int) -> int:
    """Which of some draws a random state takes: the same one for all users and items, so that it is a joint draw."""
    return int(stream_key(random_state, 0, TASTES) % np.uint64(draws))


def deviations(interval: float) -> float:
    """Standard deviations from the mean to the ends of a central interval.

    >>> round(deviations(0.9), 3)
    1.645
    """
    return float(ndtri((1 + interval) / 2))


def check_n(n: Any) -> int:
    """Length of a list."""
    return whole_number("n", n, least=1)


def check_exponent(popularity: float | None, draws: bool) -> float:
    """The exponent that is asked for, or that of the kind of posterior."""
    if popularity is None:
        return POPULARITY_OF_DRAWS if draws else POPULARITY
    return check_popularity(popularity)


def check_popularity(popularity: Any) -> float:
    """Exponent of popularity in a ranking."""
    return fraction("popularity", popularity, " (0 is taste alone, 1 the paper's ranking)", ends=True)


def check_interval(interval: Any) -> float:
    """What a credible interval holds of the posterior."""
    return fraction("interval", interval, ", such as 0.9")
