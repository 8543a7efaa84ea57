"""Memory as a number: budgets that people write, and sizes in words."""

from __future__ import annotations

import dask.utils
import psutil

from ..errors import InputError

MIB = 2**20


def parse_memory(memory: int | float | str | None) -> int | None:
    """Bytes from "192MiB", a number of bytes, or None."""
    if memory is None:
        return None
    try:
        number = dask.utils.parse_bytes(memory)
    except (ValueError, TypeError):
        raise InputError(f'memory must be a size such as "2GiB", not {memory!r}') from None
    if number <= 0:
        raise InputError(f"memory must be more than 0, not {memory!r}")
    return int(number)


def memory_budget(memory: int | float | str | None) -> int:
    """Bytes of a budget; where none is given, 70 % of what is free now."""
    budget = parse_memory(memory)
    return int(0.7 * psutil.virtual_memory().available) if budget is None else budget


def in_mib(number: int) -> str:
    """Whole mebibytes, rounded up, in words."""
    return f"{-(-number // MIB)} MiB"
