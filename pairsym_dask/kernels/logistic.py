"""exp, lambda and log sigma of eight numbers, as polynomials that stay in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accelerate import inlined
from .simd import (
    add,
    div,
    fma,
    fnma,
    is_single,
    minimum,
    mul,
    number,
    pow2,
    rint,
    splat,
    sqrt,
    sub,
)

_EXPM1 = np.array([1.0 / float(np.prod(np.arange(1, k + 1, dtype=np.float64))) for k in range(1, 15)])
_ATANH = np.array([1.0 / (2 * k + 1) for k in range(17)])
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453
_MACKAY = np.pi / 8


def moderated(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """x such that sigma(x) is about E[sigma(a)] of a normal energy a (MacKay, 1992): nearer to 0 the less is known."""
    return np.asarray(mean / np.sqrt(1 + _MACKAY * variance))


@inlined
def moderate(mean: Any, variance: Any, like: Any) -> Any:
    """`moderated` of eight energies."""
    return div(mean, sqrt(fma(splat(number(like, _MACKAY)), variance, splat(number(like, 1.0)))))


@inlined
def exp_minus(x: Any, like: Any) -> Any:
    """exp(-x) and 1 - exp(-x) of a vector x >= 0, the second without cancellation near zero."""
    zero, one = splat(number(like, 0.0)), splat(number(like, 1.0))
    single = is_single(like)
    x = minimum(x, splat(number(like, 80.0 if single else 700.0)))
    n = rint(mul(x, splat(number(like, _LOG2_E))))
    r = fma(n, splat(number(like, _LN_2)), sub(zero, x))  # exp(-x) = 2^-n exp(r), |r| <= ln(2)/2
    p = zero
    for k in range(6 if single else 12, -1, -1):
        p = fma(p, r, splat(number(like, _EXPM1[k])))
    p = mul(p, r)
    scale = pow2(sub(zero, n))
    return fma(scale, p, scale), fnma(scale, p, sub(one, scale))


@inlined
def two_lambda(x: Any, e: Any, one_minus_e: Any, like: Any) -> Any:
    """2 lambda(x) = tanh(x/2) / (2x)."""
    return div(one_minus_e, mul(add(splat(number(like, 1.0)), e), mul(splat(number(like, 2.0)), x)))


@inlined
def log_sigmoid(e: Any, like: Any) -> Any:
    """log sigma(x) = -log(1 + e) with e = exp(-x) in [0, 1], as -2 atanh(e / (2 + e))."""
    s = div(e, add(splat(number(like, 2.0)), e))
    square = mul(s, s)
    p = splat(number(like, 0.0))
    for k in range(7 if is_single(like) else 16, -1, -1):
        p = fma(p, square, splat(number(like, _ATANH[k])))
    return mul(mul(splat(number(like, -2.0)), s), p)
