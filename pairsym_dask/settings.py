"""Settings of a model, checked once; the ground every room stands on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from .errors import InputError

SIDES = ("users", "items")
POPULARITY = 0.35  # exponent of the ranking; docs/study.md has the evidence for this and for the settings below


def other(side: str) -> str:
    """The side that a side is paired with.

    >>> other("users")
    'items'
    """
    return "items" if side == "users" else "users"


@dataclass(frozen=True)
class Settings:
    """What decides the numbers of a fit, together with the counts; checked once, here."""

    factors: int = 20
    censored_ratio: float = 5.0
    tau_u: float = 0.1
    tau_v: float = 0.1
    tau_b: float = 0.1
    alpha: float = 1.0
    biases: bool = True
    selection: str = "constant"
    dtype: str = "float32"
    random_state: int = 0

    def __post_init__(self) -> None:
        for name in ("factors", "random_state"):
            value = getattr(self, name)
            if isinstance(value, bool) or not _is_whole(value):
                raise InputError(f"{name} must be a whole number, not {value!r}")
            object.__setattr__(self, name, int(value))
        if self.factors < 1:
            raise InputError(f"factors must be at least 1, not {self.factors}")
        if self.random_state < 0:
            raise InputError(f"random_state must be 0 or more, not {self.random_state}")
        for name in ("censored_ratio", "tau_u", "tau_v", "tau_b", "alpha"):
            value = getattr(self, name)
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise InputError(f"{name} must be a number, not {value!r}") from None
            if not (math.isfinite(number) and number > 0):
                raise InputError(f"{name} must be a finite number above 0, not {value!r}")
            object.__setattr__(self, name, number)
        if self.selection not in ("bayes", "constant"):
            raise InputError(f'selection must be "bayes" or "constant", not {self.selection!r}')
        dtype = getattr(self.dtype, "__name__", None) or str(self.dtype)
        if dtype not in ("float32", "float64"):
            raise InputError(f'dtype must be "float32" or "float64", not {self.dtype!r}')
        object.__setattr__(self, "dtype", dtype)
        if not isinstance(self.biases, bool):
            raise InputError(f"biases must be True or False, not {self.biases!r}")

    def tau(self, side: str) -> float:
        return self.tau_u if side == "users" else self.tau_v

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _is_whole(value: Any) -> bool:
    try:
        return int(value) == value
    except (TypeError, ValueError, OverflowError):
        return False
