"""The vectors of `simd` as plain numpy functions, where pointers are arrays: for NUMBA_DISABLE_JIT=1."""

from __future__ import annotations

from typing import Any

import numpy as np

LANES = 8


def pointer(array: Any) -> Any:
    return array.reshape(-1)


def aligned(array: Any) -> Any:
    return array.reshape(-1)


def keep(array: Any) -> None:
    pass


def number(array: Any, value: Any) -> Any:
    return array.dtype.type(value)


def is_single(array: Any) -> bool:
    return bool(array.itemsize == 4)


def load(array: Any, start: int) -> Any:
    return array[start : start + LANES].copy()


def wide_lanes(array: Any) -> int:
    return int(64 // array.itemsize)


def load_wide(array: Any, start: int) -> Any:
    return array[start : start + wide_lanes(array)].copy()


def store(array: Any, start: int, vector: Any) -> None:
    array[start : start + vector.size] = vector


def splat(number: Any) -> Any:
    return np.full(LANES, number, dtype=np.asarray(number).dtype)


def splat_wide(number: Any) -> Any:
    number = np.asarray(number)
    return np.full(wide_lanes(number), number, dtype=number.dtype)


def fma(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def fnma(a: Any, b: Any, c: Any) -> Any:
    return c - a * b


def add(a: Any, b: Any) -> Any:
    return a + b


def sub(a: Any, b: Any) -> Any:
    return a - b


def mul(a: Any, b: Any) -> Any:
    return a * b


def div(a: Any, b: Any) -> Any:
    return a / b


def sqrt(a: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.sqrt(a)


def maximum(a: Any, b: Any) -> Any:
    return np.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    return np.minimum(a, b)


def rint(a: Any) -> Any:
    return np.rint(a)


def where_negative(x: Any, a: Any, b: Any) -> Any:
    return np.where(x < 0, a, b)


def pow2(n: Any) -> Any:
    return np.exp2(n)


def mantissa(a: Any) -> Any:
    return 2 * np.frexp(a)[0]


def exponent(a: Any) -> Any:
    return np.frexp(a)[1] - 1.0


def widen(a: Any) -> Any:
    return a.astype(np.float64)


def hsum(a: Any) -> Any:
    return a.sum()


def reduce8(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    return np.array([v.sum() for v in (a, b, c, d, e, f, g, h)], dtype=a.dtype)


def load_turned(array: Any, start: int, pitch: int) -> Any:
    rows = [array[start + k * pitch : start + k * pitch + LANES] for k in range(LANES)]
    return tuple(np.array(rows).T.copy())


def get(array: Any, i: Any) -> Any:
    return array[i]


def put(array: Any, i: Any, number: Any) -> None:
    array[i] = number


def prefetch(array: Any, i: int) -> None:
    pass
