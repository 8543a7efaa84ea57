"""Vectors for numba kernels: loads, stores and arithmetic that map to machine registers.

A vector holds eight numbers, a *wide* one 64 bytes: sixteen single or eight double numbers, a register of AVX-512.

Numba leaves vectorising to LLVM, which gives up on accumulators that live in arrays. A value of type
`Vec` is an LLVM vector, so accumulators stay in registers for as long as a kernel holds them in
local variables. A `Pointer` is an array's address without its reference count: an array that is passed to
a helper is counted up and down atomically at every call, which took half the time of a row. Numba frees a local
array after its last use, so whoever makes a pointer to one must `keep` the array until the pointer is done with.
With NUMBA_DISABLE_JIT=1 the same names are numpy functions, and pointers are arrays.
"""

from __future__ import annotations

from numba import config

LANES = 8
WIDEST = 16  # lanes of a wide vector of float32

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    from .simd_plain import *  # noqa: F403
else:
    from .simd_llvm import *  # type: ignore[assignment]  # noqa: F403
