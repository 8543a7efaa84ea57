"""Energies of listed pairs, straight from the posteriors of both sides: no row is copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import compiled
from .simd import LANES, fma, hsum, load, mul, number, pointer, splat

# fmt: off


def energies_of(users: Any, items: Any, user: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a_ij for rows user[k] of `users` with rows item[k] of `items`."""
    dtype = np.result_type(users.mean, items.mean)
    mean, variance = np.empty(user.size, dtype), np.empty(user.size, dtype)
    sides = [
        [np.ascontiguousarray(each, dtype) for each in (side.mean, side.variance, side.bias, side.bias_variance)]
        for side in (users, items)
    ]
    _add_up(*sides[0], *sides[1], user, item, mean, variance)
    return mean, variance


@compiled
def _add_up(
    m: Any, v: Any, b: Any, w: Any, its_m: Any, its_v: Any, its_b: Any, its_w: Any, user: Any, item: Any, mean: Any,
    variance: Any,
) -> None:
    """a = m_i.m_j + b_i + b_j, var = sum (m_i^2 + v_i) v_j + v_i m_j^2 + w_i + w_j."""
    factors = m.shape[1]
    whole = factors // LANES * LANES
    m_, v_, its_m_, its_v_ = pointer(m), pointer(v), pointer(its_m), pointer(its_v)
    for p in range(user.size):
        i, j = user[p], item[p]
        a = splat(number(m_, 0.0))
        x = a
        for k in range(0, whole, LANES):
            one, two = load(m_, i * factors + k), load(its_m_, j * factors + k)
            one_v, two_v = load(v_, i * factors + k), load(its_v_, j * factors + k)
            a = fma(one, two, a)
            x = fma(fma(one, one, one_v), two_v, fma(mul(two, two), one_v, x))
        mean_, variance_ = hsum(a), hsum(x)
        for k in range(whole, factors):
            mean_ += m[i, k] * its_m[j, k]
            variance_ += (m[i, k] * m[i, k] + v[i, k]) * its_v[j, k] + v[i, k] * its_m[j, k] * its_m[j, k]
        mean[p] = mean_ + b[i] + its_b[j]
        variance[p] = variance_ + w[i] + its_w[j]
