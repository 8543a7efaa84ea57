"""Products of gathered rows with one vector, eight rows at a time, each with a register of its own."""

from __future__ import annotations

from typing import Any

from numba import config

from .accelerate import inlined
from .simd import LANES, fma, get, load_wide, number, reduce8, splat_wide, store, wide_lanes

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def fold(a: Any) -> Any:
        return a.reshape(-1, LANES).sum(0)

else:
    from llvmlite import ir
    from numba.extending import intrinsic

    from .simd_llvm import FLAGS, Vec

    @intrinsic
    def fold(typing_context, a):  # type: ignore[no-untyped-def]
        """A wide vector's halves added up, where it has two."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            if a.lanes == LANES:
                return args[0]
            index = ir.VectorType(ir.IntType(32), LANES)
            low, high = (
                builder.shuffle_vector(args[0], args[0], ir.Constant(index, [*range(first, first + LANES)]))
                for first in (0, LANES)
            )
            return builder.fadd(low, high, flags=FLAGS)

        return Vec(a.scalar)(a), codegen


# fmt: off


@inlined
def span_of(factors: int) -> int:
    """K rounded up to whole wide vectors of either type; never more than a table's row."""
    return (factors + 15) // 16 * 16


@inlined
def dots(table: Any, places: Any, n: int, vector: Any, v: int, span: int, out: Any) -> None:
    """out[q] = table[places[q]:] . vector[v:] over `span` numbers for q < n; places come in eights, out too."""
    zero = splat_wide(number(table, 0.0))
    lanes = wide_lanes(table)
    for q in range(0, n, LANES):
        o0, o1, o2, o3 = get(places, q), get(places, q + 1), get(places, q + 2), get(places, q + 3)
        o4, o5, o6, o7 = get(places, q + 4), get(places, q + 5), get(places, q + 6), get(places, q + 7)
        a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
        if n - q > LANES // 2:
            for k in range(0, span, lanes):
                x = load_wide(vector, v + k)
                a0, a1 = fma(x, load_wide(table, o0 + k), a0), fma(x, load_wide(table, o1 + k), a1)
                a2, a3 = fma(x, load_wide(table, o2 + k), a2), fma(x, load_wide(table, o3 + k), a3)
                a4, a5 = fma(x, load_wide(table, o4 + k), a4), fma(x, load_wide(table, o5 + k), a5)
                a6, a7 = fma(x, load_wide(table, o6 + k), a6), fma(x, load_wide(table, o7 + k), a7)
        else:
            for k in range(0, span, lanes):
                x = load_wide(vector, v + k)
                a0, a1 = fma(x, load_wide(table, o0 + k), a0), fma(x, load_wide(table, o1 + k), a1)
                a2, a3 = fma(x, load_wide(table, o2 + k), a2), fma(x, load_wide(table, o3 + k), a3)
        store(out, q, reduce8(fold(a0), fold(a1), fold(a2), fold(a3), fold(a4), fold(a5), fold(a6), fold(a7)))
