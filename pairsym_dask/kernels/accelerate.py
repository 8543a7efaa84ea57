"""The one set of numba options, and where compiled kernels are kept between runs."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import xxhash
from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Options of kernels: no GIL, cached, IEEE division; fast arithmetic comes from `simd`."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return njit(**options)(function)
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = _cache_folder(before)  # type: ignore[attr-defined]
    try:
        from .kept_code import keep_by_types

        kernel = njit(cache=True, **options)(function)
        keep_by_types(kernel)
        return kernel
    except RuntimeError:
        _warn("no folder takes files, not even that of temporary ones")
    except (ImportError, AttributeError, TypeError):
        _warn(f"numba {numba.__version__} keeps compiled code in a way that pairsym_dask does not know")
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]
    return njit(**options)(function)


@cache
def _warn(why: str) -> None:
    warnings.warn(f"{why}: kernels are compiled anew in every process", stacklevel=2)


def inlined(function: Callable[..., Any]) -> Any:
    """Options of helpers that melt into their callers: an array's dozen fields are not passed call by call."""
    return njit(nogil=True, error_model="numpy", forceinline=True)(function)


def cache_folder() -> str:
    """Where compiled kernels are kept."""
    return _cache_folder(numba.config.CACHE_DIR)  # type: ignore[attr-defined]


def is_compiled(module: str) -> bool:
    """Whether kernels of a module of this package were compiled here before."""
    return any(Path(cache_folder()).glob(f"*/{module}.*.nbc"))


@cache
def _cache_folder(given: str) -> str:
    """A folder of this node that belongs to these very sources of the whole package.

    Numba looks only at the file of a kernel, not at those whose functions and constants melt into it: without the
    digest a change there would go on with old code.
    """
    package = Path(__file__).parents[1]
    sources = xxhash.xxh3_64()
    for path in sorted(package.rglob("*.py")):
        sources.update(f"{path.relative_to(package)}\n".encode())
        sources.update(path.read_bytes())
    name = f"pairsym_dask-{sources.hexdigest()}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for place in filter(None, (given, home, tempfile.gettempdir())):
        folder = os.path.join(place, name)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return given
