"""A vector register as a Numba type: 64 bytes, which are eight numbers in double and sixteen in single precision.

LLVM vectorises a loop over d numbers too, but computes up to 31 of them one by one where d is no multiple of 32. With
this type the last vector can overlap the one before instead. Processors with narrower registers take several for each.
"""

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, no-untyped-def, untyped-decorator"
from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

BYTES = 64
AT_ONCE = 4
"""How many vectors `store_sums` adds up at once."""

_FLAGS = ("contract",)  # a·b + c is rounded once; nothing is reordered
_WORD = ir.IntType(32)
_INDEX = ir.IntType(64)


class Lanes(types.Type):
    """As many numbers as fit."""

    def __init__(self, scalar: types.Float) -> None:
        self.scalar, self.count = scalar, BYTES * 8 // scalar.bitwidth
        super().__init__(name=f"Lanes({scalar})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes) -> None:
        number = manager.lookup(lanes.scalar).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.count))


@intrinsic
def load(typing, array, at):
    """array[at : at + lanes] of a flat array, unchecked."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, given):
        place = _place(context, builder, array, given, context.get_value_type(lanes))
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return lanes(array, types.intp), code


@intrinsic
def store(typing, array, at, lanes):
    """array[at : at + lanes] = lanes, unchecked."""

    def code(context, builder, signature, given):
        _put(context, builder, array, given, given[2])
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes), code


@intrinsic
def spread(typing, number):
    """One number in all lanes."""
    lanes = Lanes(number)

    def code(context, builder, signature, given):
        return _repeated(builder, context.get_value_type(lanes), given[0])

    return lanes(number), code


@intrinsic
def nothing(typing, array):
    """Zeros of an array's type."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, given):
        return ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count)

    return lanes(array), code


@intrinsic
def later(typing, lanes, first):
    """The lanes from the `first` on, and zeros before."""

    def code(context, builder, signature, given):
        kept = _compared(builder, ">=", lanes, given[1])
        return builder.select(kept, given[0], ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count))

    return lanes(lanes, types.intp), code


@intrinsic
def earlier(typing, lanes, end):
    """The lanes before the `end`, and zeros from there on."""

    def code(context, builder, signature, given):
        kept = _compared(builder, "<", lanes, given[1])
        return builder.select(kept, given[0], ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count))

    return lanes(lanes, types.intp), code


@intrinsic
def store_first(typing, array, at, lanes, count):
    """The first `count` lanes to array[at : at + count], and nothing beyond."""

    def code(context, builder, signature, given):
        vector = context.get_value_type(lanes)
        place = _place(context, builder, array, given, vector)
        kind = ir.FunctionType(ir.VoidType(), [vector, place.type, _WORD, ir.VectorType(ir.IntType(1), lanes.count)])
        name = f"llvm.masked.store.v{lanes.count}f{lanes.scalar.bitwidth}.p0"
        size = ir.Constant(_WORD, lanes.scalar.bitwidth // 8)
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [given[2], place, size, _compared(builder, "<", lanes, given[3])])
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes, types.intp), code


@intrinsic
def total(typing, lanes):
    """The sum of all lanes."""

    def code(context, builder, signature, given):
        vector, count = given[0], lanes.count
        while count > 1:
            count //= 2
            halves = (list(range(start, start + count)) for start in (0, count))
            low, high = (ir.Constant(ir.VectorType(_WORD, count), places) for places in halves)
            vector = builder.fadd(
                builder.shuffle_vector(vector, vector, low), builder.shuffle_vector(vector, vector, high), flags=_FLAGS
            )
        return builder.extract_element(vector, ir.Constant(_WORD, 0))

    return lanes.scalar(lanes), code


@intrinsic
def prefetch(typing, array, at):
    """Ask for the cache line of array[at], which need not exist."""

    def code(context, builder, signature, given):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        numbers = context.make_array(array)(context, builder, given[0]).data
        place = builder.bitcast(builder.gep(numbers, [given[1]]), byte)
        builder.call(function, [place, ir.Constant(_WORD, 0), ir.Constant(_WORD, 3), ir.Constant(_WORD, 1)])
        return context.get_dummy_value()

    return types.none(array, types.intp), code


@intrinsic
def store_sums(typing, array, at, a, b, c, d):
    """array[at : at + 4] = (Σa, Σb, Σc, Σd): adding up four vectors together takes half as long as one by one."""

    def code(context, builder, signature, given):
        count = a.count

        def folded(x, y, left, right):
            halves = (ir.Constant(ir.VectorType(_WORD, len(places)), places) for places in (left, right))
            return builder.fadd(*(builder.shuffle_vector(x, y, places) for places in halves), flags=_FLAGS)

        evens = [place for i in range(0, count, 2) for place in (i, count + i)]
        odds = [place + 1 for place in evens]
        ab, cd = folded(given[2], given[3], evens, odds), folded(given[4], given[5], evens, odds)
        pairs = [place for i in range(0, count, 4) for place in (i, i + 1, count + i, count + i + 1)]
        sums = folded(ab, cd, pairs, [place + 2 for place in pairs])
        while count > AT_ONCE:
            count //= 2
            sums = folded(sums, sums, list(range(count)), list(range(count, 2 * count)))
        _put(context, builder, array, given, sums)
        return context.get_dummy_value()

    return types.none(array, types.intp, a, a, a, a), code


@intrinsic
def power_of_two(typing, exponent):
    """2ⁿ of an integer −1022 ≤ n ≤ 1023, made from its bits, which LLVM can do in all lanes of a register at once."""

    def code(context, builder, signature, given):
        biased = builder.add(given[0], ir.Constant(_INDEX, 1023))
        return builder.bitcast(builder.shl(biased, ir.Constant(_INDEX, 52)), ir.DoubleType())

    return types.float64(types.int64), code


def _operation(name: str):
    @intrinsic
    def operation(typing, left, right):
        def code(context, builder, signature, given):
            return getattr(builder, name)(*given, flags=_FLAGS)

        return left(left, right), code

    return operation


_added, _subtracted, _multiplied = _operation("fadd"), _operation("fsub"), _operation("fmul")


def _are_lanes(*values) -> bool:
    return all(isinstance(value, Lanes) for value in values)


@overload(operator.add)
def _add(left, right):
    return (lambda left, right: _added(left, right)) if _are_lanes(left, right) else None


@overload(operator.sub)
def _subtract(left, right):
    return (lambda left, right: _subtracted(left, right)) if _are_lanes(left, right) else None


@overload(operator.mul)
def _multiply(left, right):
    return (lambda left, right: _multiplied(left, right)) if _are_lanes(left, right) else None


def _place(context, builder, array, given, vector):
    numbers = context.make_array(array)(context, builder, given[0]).data
    return builder.bitcast(builder.gep(numbers, [given[1]]), vector.as_pointer())


def _put(context, builder, array, given, vector) -> None:
    builder.store(vector, _place(context, builder, array, given, vector.type), align=array.dtype.bitwidth // 8)


def _compared(builder, sign, lanes, place):
    """In which lanes the number of the lane compares so with a place."""
    index = ir.VectorType(_INDEX, lanes.count)
    return builder.icmp_signed(sign, ir.Constant(index, list(range(lanes.count))), _repeated(builder, index, place))


def _repeated(builder, vector, number):
    unknown = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(unknown, number, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, unknown, ir.Constant(ir.VectorType(_WORD, vector.count), [0] * vector.count))
