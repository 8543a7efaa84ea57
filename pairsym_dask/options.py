"""What people may give for an option, checked in one way: whole numbers, numbers within limits, words."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from .errors import InputError

SEEDS = 2**64  # seeds are below this


def whole_number(name: str, value: Any, least: int | None = None, below: int | None = None) -> int:
    """A whole number as an int, also 10.0 and numpy's; True, "ten" and 2.5 are none.

    >>> whole_number("n", 10.0, least=1)
    10
    """
    if not _is_number(value) or not math.isfinite(value) or int(value) != value:
        raise InputError(f"{name} must be a whole number{_limits(least, below)}, not {value!r}")
    whole = int(value)
    if (least is not None and whole < least) or (below is not None and whole >= below):
        raise InputError(f"{name} must be a whole number{_limits(least, below)}, not {value!r}")
    return whole


def _limits(least: int | None, below: int | None) -> str:
    words = [] if least is None else [f"at least {least}"]
    if below is not None:
        words.append("below 2**64" if below == SEEDS else f"below {below}")
    return ", " + " and ".join(words) if words else ""


def seed(value: Any, name: str = "random_state") -> int:
    """A seed of the generators."""
    return whole_number(name, value, least=0, below=SEEDS)


def positive_number(name: str, value: Any, *, zero: bool = False) -> float:
    """A finite number above 0, or from 0 on, as a float."""
    if not _is_number(value) or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise InputError(f"{name} must be a finite number {'from 0 on' if zero else 'above 0'}, not {value!r}")
    return float(value)


def fraction(name: str, value: Any, example: str = "", *, ends: bool = False) -> float:
    """A number between 0 and 1, or from 0 to 1, as a float; `example` follows the limits in the error."""
    inside = _is_number(value) and (0 <= value <= 1 if ends else 0 < value < 1)
    if not inside:
        raise InputError(
            f"{name} must be a number {'from 0 to 1' if ends else 'between 0 and 1'}{example}, not {value!r}"
        )
    return float(value)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return value


def truth(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
