"""How a worker's allocator deals with large arrays.

Dask's nannies set `MALLOC_TRIM_THRESHOLD_`, which has glibc fetch every array above 128 KiB from the system and give it
back at once: a sweep of many blocks then waits for pages to be zeroed again and again. Without that setting, as in a
driver, glibc learns to keep arrays of up to 32 MiB. While a fit has tasks in a worker, it keeps them there, too.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_LARGEST = 32 * 2**20  # as glibc's own DEFAULT_MMAP_THRESHOLD_MAX; it trims from twice as much on
_SMALLEST = 128 * 2**10


@cache
def _glibc() -> Any:
    """The C library where a nanny has told it to give memory back, None anywhere else."""
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    if not told.isdecimal() or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def keep_memory() -> None:
    """Let arrays of up to 32 MiB be used again."""
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP, _LARGEST)
        library.mallopt(_TRIM, 2 * _LARGEST)


def give_memory_back() -> None:
    """Do again as the nanny has said, now and from now on."""
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP, _SMALLEST)
        library.mallopt(_TRIM, int(os.environ["MALLOC_TRIM_THRESHOLD_"]))
        library.malloc_trim(0)
