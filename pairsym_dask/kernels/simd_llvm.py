"""The vectors of `simd` as LLVM instructions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 8

# Products and sums may be fused, nothing else: the order of operations is the one written here, and
# reassociation would bring back cancellations that `logistic.exp_minus` avoids.
FLAGS = ("contract", "nsz")
_INDEX = ir.IntType(32)


class Vec(types.Type):
    """Some numbers of one floating-point type."""

    def __init__(self, scalar: types.Float, lanes: int = LANES) -> None:
        self.scalar, self.lanes = scalar, lanes
        super().__init__(name=f"Vec({scalar} x {lanes})")


def wide_vector(scalar: types.Float) -> Vec:
    return Vec(scalar, 512 // scalar.bitwidth)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        element = dmm.lookup(fe_type.scalar).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.lanes))


class Pointer(types.Type):
    """Address of numbers of one type."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"Pointer({dtype})")


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Pointer) -> None:
        super().__init__(dmm, fe_type, dmm.lookup(fe_type.dtype).get_data_type().as_pointer())


@intrinsic
def pointer(typing_context, array):  # type: ignore[no-untyped-def]
    """Address of a C-contiguous array's first number."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return Pointer(array.dtype)(array), codegen


@intrinsic
def aligned(typing_context, array):  # type: ignore[no-untyped-def]
    """Address of an array's first number on a cache line; the array must be `WIDEST` numbers longer than used."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        number = ir.IntType(64)
        up = builder.add(builder.ptrtoint(data, number), ir.Constant(number, 63))
        return builder.inttoptr(builder.and_(up, ir.Constant(number, -64)), data.type)

    return Pointer(array.dtype)(array), codegen


@intrinsic
def keep(typing_context, array):  # type: ignore[no-untyped-def]
    """Does nothing; an array lives at least until here."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.get_dummy_value()

    return types.void(array), codegen


@intrinsic
def number(typing_context, array, value):  # type: ignore[no-untyped-def]
    """A number as the type that a pointer points to."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.cast(builder, args[1], signature.args[1], array.dtype)

    return array.dtype(array, value), codegen


@intrinsic
def is_single(typing_context, array):  # type: ignore[no-untyped-def]
    """Whether a pointer points to float32; known when compiling."""
    single = array.dtype == types.float32

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.get_constant(types.boolean, single)

    return types.boolean(array), codegen


def _element(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.gep(args[0], [context.cast(builder, args[1], signature.args[1], types.intp)], inbounds=True)


def _address(context: Any, builder: Any, signature: Any, args: Any, vector_type: Any) -> Any:
    return builder.bitcast(_element(context, builder, signature, args), vector_type.as_pointer())


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INDEX, len(lanes)), lanes))


def broadcast(builder: Any, number: Any, vector: Any) -> Any:
    """A number in all lanes."""
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_INDEX, 0))
    return _shuffle(builder, first, empty, [0] * vector.count)


@intrinsic
def wide_lanes(typing_context, array):  # type: ignore[no-untyped-def]
    """Lanes of a wide vector of what a pointer points to; known when compiling."""
    lanes = wide_vector(array.dtype).lanes

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return context.get_constant(types.intp, lanes)

    return types.intp(array), codegen


def _loader(kind: Any) -> Any:
    @intrinsic
    def operation(typing_context, array, start):  # type: ignore[no-untyped-def]
        vector = kind(array.dtype)

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            address = _address(context, builder, signature, args, context.get_value_type(vector))
            return builder.load(address, align=array.dtype.bitwidth // 8)

        return vector(array, start), codegen

    return operation


load, load_wide = _loader(Vec), _loader(wide_vector)


@intrinsic
def store(typing_context, array, start, value):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        address = _address(context, builder, signature, args, args[2].type)
        builder.store(args[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, start, value), codegen


def _broadcaster(kind: Any) -> Any:
    @intrinsic
    def operation(typing_context, number):  # type: ignore[no-untyped-def]
        vector = kind(number)

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return broadcast(builder, args[0], context.get_value_type(vector))

        return vector(number), codegen

    return operation


splat, splat_wide = _broadcaster(Vec), _broadcaster(wide_vector)


@intrinsic
def fma(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fadd(builder.fmul(args[0], args[1], flags=FLAGS), args[2], flags=FLAGS)

    return a(a, b, c), codegen


@intrinsic
def fnma(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fsub(args[2], builder.fmul(args[0], args[1], flags=FLAGS), flags=FLAGS)

    return a(a, b, c), codegen


def _binary(instruction: str) -> Any:
    @intrinsic
    def operation(typing_context, a, b):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return getattr(builder, instruction)(args[0], args[1], flags=FLAGS)

        return a(a, b), codegen

    return operation


add, sub, mul, div = (_binary(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


def _unary(name: str) -> Any:
    @intrinsic
    def operation(typing_context, a):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            kind = args[0].type
            full_name = f"llvm.{name}.v{a.lanes}f{a.scalar.bitwidth}"
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), full_name)
            return builder.call(function, args)

        return a(a), codegen

    return operation


sqrt, rint = _unary("sqrt"), _unary("rint")


def _choose(comparison: str) -> Any:
    @intrinsic
    def operation(typing_context, a, b):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            # Written so that a NaN in `a` is kept.
            keep_b = builder.fcmp_ordered(comparison, args[0], args[1])
            return builder.select(keep_b, args[1], args[0])

        return a(a, b), codegen

    return operation


maximum, minimum = _choose("<"), _choose(">")


@intrinsic
def where_negative(typing_context, x, a, b):  # type: ignore[no-untyped-def]
    """`a` in lanes where x is below zero, `b` elsewhere."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        below = builder.fcmp_ordered("<", args[0], ir.Constant(args[0].type, [0.0] * LANES))
        return builder.select(below, args[1], args[2])

    return a(x, a, b), codegen


@intrinsic
def pow2(typing_context, n):  # type: ignore[no-untyped-def]
    """2 to the power n, for whole n within the normal exponent range, through the exponent bits."""
    bits, mantissa, bias = (32, 23, 127) if n.scalar == types.float32 else (64, 52, 1023)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        whole = ir.VectorType(ir.IntType(bits), LANES)
        exponent = builder.add(builder.fptosi(args[0], whole), ir.Constant(whole, [bias] * LANES))
        return builder.bitcast(builder.shl(exponent, ir.Constant(whole, [mantissa] * LANES)), args[0].type)

    return n(n), codegen


@intrinsic
def mantissa(typing_context, a):  # type: ignore[no-untyped-def]
    """m in a = m 2^e with 1 <= m < 2, for float64 numbers above zero."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        whole = ir.VectorType(ir.IntType(64), LANES)
        bits = builder.and_(builder.bitcast(args[0], whole), ir.Constant(whole, [2**52 - 1] * LANES))
        return builder.bitcast(builder.or_(bits, ir.Constant(whole, [1023 * 2**52] * LANES)), args[0].type)

    return a(a), codegen


@intrinsic
def exponent(typing_context, a):  # type: ignore[no-untyped-def]
    """e in a = m 2^e with 1 <= m < 2, for float64 numbers above zero."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        whole = ir.VectorType(ir.IntType(64), LANES)
        bits = builder.lshr(builder.bitcast(args[0], whole), ir.Constant(whole, [52] * LANES))
        return builder.sitofp(builder.sub(bits, ir.Constant(whole, [1023] * LANES)), args[0].type)

    return a(a), codegen


@intrinsic
def widen(typing_context, a):  # type: ignore[no-untyped-def]
    wide = Vec(types.float64)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        if a.scalar == types.float64:
            return args[0]
        return builder.fpext(args[0], context.get_value_type(wide))

    return wide(a), codegen


@intrinsic
def hsum(typing_context, a):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        vector, step = args[0], LANES // 2
        while step:
            turned = _shuffle(builder, vector, vector, [(k + step) % LANES for k in range(LANES)])
            vector, step = builder.fadd(vector, turned, flags=FLAGS), step // 2
        return builder.extract_element(vector, ir.Constant(_INDEX, 0))

    return a.scalar(a), codegen


@intrinsic
def reduce8(typing_context, a, b, c, d, e, f, g, h):  # type: ignore[no-untyped-def]
    """The sums of eight vectors as one vector: a butterfly of 14 shuffles, not 8 horizontal sums."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        def halve(vectors: list[Any], step: int) -> list[Any]:
            half = len(vectors) // 2
            out = []
            for x, y in zip(vectors[:half], vectors[half:], strict=True):
                low = [k if not k & step else LANES + k - step for k in range(LANES)]
                high = [k + step if not k & step else LANES + k for k in range(LANES)]
                out.append(builder.fadd(_shuffle(builder, x, y, low), _shuffle(builder, x, y, high), flags=FLAGS))
            return out

        # Lane k of the result holds the sum of vector k: bit 2 of k is decided first, bit 0 last.
        return halve(halve(halve(list(args), 4), 2), 1)[0]

    return a(a, b, c, d, e, f, g, h), codegen


@intrinsic
def load_turned(typing_context, array, start, pitch):  # type: ignore[no-untyped-def]
    """Eight rows of eight numbers, `pitch` apart, as eight columns.

    Rows k and k + 4 are put side by side by loading halves, so that two rounds of shuffles within quarters remain.
    """
    result = types.UniTuple(Vec(array.dtype), LANES)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        half = ir.VectorType(context.get_value_type(array.dtype), LANES // 2)
        first, step = (context.cast(builder, args[k], signature.args[k], types.intp) for k in (1, 2))

        def load_half(row: int, column: int) -> Any:
            at = builder.add(first, builder.mul(step, context.get_constant(types.intp, row)))
            at = builder.add(at, context.get_constant(types.intp, column))
            address = builder.bitcast(builder.gep(args[0], [at], inbounds=True), half.as_pointer())
            return builder.load(address, align=array.dtype.bitwidth // 8)

        columns = []
        for c in (0, 4):
            rows = [_shuffle(builder, load_half(r, c), load_half(r + 4, c), list(range(LANES))) for r in range(4)]
            low, high = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
            for pattern in (low, high):
                x, y = (_shuffle(builder, rows[r], rows[r + 1], pattern) for r in (0, 2))
                columns.append(_shuffle(builder, x, y, [0, 1, 8, 9, 4, 5, 12, 13]))
                columns.append(_shuffle(builder, x, y, [2, 3, 10, 11, 6, 7, 14, 15]))
        return context.make_tuple(builder, signature.return_type, columns)

    return result(array, start, pitch), codegen


@intrinsic
def get(typing_context, array, i):  # type: ignore[no-untyped-def]
    """array[i] for an i that is known to be inside and not negative."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.load(_element(context, builder, signature, args))

    return array.dtype(array, i), codegen


@intrinsic
def put(typing_context, array, i, number):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        value = context.cast(builder, args[2], signature.args[2], array.dtype)
        builder.store(value, _element(context, builder, signature, args))
        return context.get_dummy_value()

    return types.void(array, i, number), codegen


@intrinsic
def prefetch(typing_context, array, i):  # type: ignore[no-untyped-def]
    """Ask for the cache line of array[i] ahead of its use."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.bitcast(_element(context, builder, signature, args), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, _INDEX, _INDEX, _INDEX])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(ir.Constant(_INDEX, number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, i), codegen
