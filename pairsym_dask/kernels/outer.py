"""Sums of outer products with a tile of the result in registers: what a row of pairs costs most.

A tile is eight rows by some vectors; how many and how wide is fixed when compiling, so its sums never leave the
registers until all products are in. With NUMBA_DISABLE_JIT=1 the same names are numpy functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config

from .simd import LANES, wide_lanes

ROWS = 8

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _tile(vectors: int, wide: bool) -> Any:
        def add_outer(
            work: Any, z: int, wz: int, n: int, width: int, out: Any, o: int, pitch: int, fresh: bool
        ) -> None:
            columns = vectors * (wide_lanes(work) if wide else LANES)
            places = np.arange(n)[:, None] * width
            left, right = work[places + np.arange(wz, wz + ROWS)], work[places + np.arange(z, z + columns)]
            at = o + pitch * np.arange(ROWS)[:, None] + np.arange(columns)
            out[at] = (0 if fresh else out[at]) + left.T @ right

        return add_outer

else:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    from .simd import FLAGS, Vec, spread, wide_vector

    def _tile(vectors: int, wide: bool) -> Any:
        @intrinsic
        def add_outer(typing_context, work, z, wz, n, width, out, o, pitch, fresh):  # type: ignore[no-untyped-def]
            """Add sum_p work[wz + p width + r] work[z + p width + c] to out[o + r pitch + c], r < 8, c < the tile.

            What `out` holds counts as zero where it is `fresh`.
            """
            kind = wide_vector(work.dtype) if wide else Vec(work.dtype)
            bytes_ = work.dtype.bitwidth // 8

            def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
                def whole(k: int) -> Any:
                    return context.cast(builder, args[k], signature.args[k], types.intp)

                def constant(k: int) -> Any:
                    return context.get_constant(types.intp, k)

                def address(array: Any, at: Any) -> Any:
                    return builder.bitcast(builder.gep(array, [at], inbounds=True), vector.as_pointer())

                source, target = args[0], args[5]
                z, wz, n, width, o, pitch = (whole(k) for k in (1, 2, 3, 4, 6, 7))
                vector = context.get_value_type(kind)
                sums = [[cgutils.alloca_once(builder, vector) for _ in range(vectors)] for _ in range(ROWS)]
                for row in sums:
                    for cell in row:
                        builder.store(ir.Constant(vector, [0.0] * kind.lanes), cell)
                with cgutils.for_range(builder, n) as loop:
                    place = builder.mul(loop.index, width)
                    right = [
                        builder.load(
                            address(source, builder.add(builder.add(z, place), constant(c * kind.lanes))), align=bytes_
                        )
                        for c in range(vectors)
                    ]
                    for r, row in enumerate(sums):
                        at = builder.add(builder.add(wz, place), constant(r))
                        left = spread(builder, builder.load(builder.gep(source, [at], inbounds=True)), vector)
                        for cell, value in zip(row, right, strict=True):
                            product = builder.fmul(left, value, flags=FLAGS)
                            builder.store(builder.fadd(product, builder.load(cell), flags=FLAGS), cell)
                with builder.if_else(args[8]) as (new, more):
                    for branch, adds in ((new, False), (more, True)):
                        with branch:
                            for r, row in enumerate(sums):
                                start = builder.add(o, builder.mul(constant(r), pitch))
                                for c, cell in enumerate(row):
                                    place = address(target, builder.add(start, constant(c * kind.lanes)))
                                    total = builder.load(cell)
                                    if adds:
                                        total = builder.fadd(builder.load(place, align=bytes_), total, flags=FLAGS)
                                    builder.store(total, place, align=bytes_)
                return context.get_dummy_value()

            return types.void(work, z, wz, n, width, out, o, pitch, fresh), codegen

        return add_outer


add_outer_three, add_outer_two, add_outer_one = (_tile(vectors, True) for vectors in (3, 2, 1))
add_outer_narrow = _tile(1, False)
