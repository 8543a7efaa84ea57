"""Sums of outer products with a patch of the result in registers: what a row of pairs costs most.

A patch is eight rows by some vectors; how many and how wide is fixed when compiling, so its sums never leave the
registers until all products are in. With NUMBA_DISABLE_JIT=1 the same names are numpy functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config

from .accelerate import inlined
from .simd import LANES, WIDEST, wide_lanes

ROWS = 8

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _patch(vectors: int, wide: bool) -> Any:
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

    from .simd_llvm import FLAGS, Vec, broadcast, wide_vector

    def _patch(vectors: int, wide: bool) -> Any:
        @intrinsic
        def add_outer(typing_context, work, z, wz, n, width, out, o, pitch, fresh):  # type: ignore[no-untyped-def]
            """Add sum_p work[wz + p width + r] work[z + p width + c] to out[o + r pitch + c], r < 8, c < the patch.

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
                        left = broadcast(builder, builder.load(builder.gep(source, [at], inbounds=True)), vector)
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


add_outer_three, add_outer_two, add_outer_one = (_patch(vectors, True) for vectors in (3, 2, 1))
add_outer_narrow = _patch(1, False)


# fmt: off


@inlined
def stride_of(width: int) -> int:
    """Numbers from one row of scratch to the next: whole cache lines."""
    return (width + WIDEST - 1) // WIDEST * WIDEST


@inlined
def add_panel(
    work: Any, z: int, wz: int, n: int, stride: int, first: int, width: int, out: Any, o: int, pitch: int, fresh: bool
) -> None:
    """Add sum_p work[wz + p stride + r] work[z + p stride + c] to out[o + r pitch + c - first] for eight rows r.

    Columns c go from `first` to `width`.
    """
    wide = wide_lanes(work)
    c = first
    while c + 3 * wide <= width:
        add_outer_three(work, z + c, wz, n, stride, out, o + c - first, pitch, fresh)
        c += 3 * wide
    if c + 2 * wide <= width:
        add_outer_two(work, z + c, wz, n, stride, out, o + c - first, pitch, fresh)
        c += 2 * wide
    elif c + wide <= width:
        add_outer_one(work, z + c, wz, n, stride, out, o + c - first, pitch, fresh)
        c += wide
    if c < width:
        add_outer_narrow(work, z + c, wz, n, stride, out, o + c - first, pitch, fresh)


@inlined
def add_triangle(
    work: Any, z: int, wz: int, n: int, stride: int, used: int, width: int, out: Any, o: int, fresh: bool
) -> None:
    """Add sum_p (W z)_p z_p^T to the packed triangle at `out[o:]`; panels from row `used` on are left alone."""
    for panel in range(0, used, LANES):
        pitch = width - panel
        add_panel(work, z, wz + panel, n, stride, panel, width, out, o, pitch, fresh)
        o += LANES * pitch
