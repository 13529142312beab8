"""A vector register as a Numba type: 64 bytes, which are eight numbers in double and sixteen in single precision.

LLVM vectorises a loop over d numbers too, but computes up to 31 of them one by one where d is no multiple of 32. With
this type the last vector can overlap the one before instead. Processors with narrower registers take several for each.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

# mypy: disable-error-code="misc, no-any-return, no-untyped-call, no-untyped-def, untyped-decorator"


BYTES = 64
AT_ONCE = 4
"""How many vectors `store_sums` adds up at once."""

_FLAGS = ("contract",)  # a·b + c is rounded once; nothing is reordered
_WORD = ir.IntType(32)
_INDEX = ir.IntType(64)


class Lanes(types.Type):
    """As many numbers as fit into a register, or into several that are worked on as one."""

    def __init__(self, scalar: types.Float, registers: int = 1) -> None:
        self.scalar, self.count = scalar, registers * BYTES * 8 // scalar.bitwidth
        super().__init__(name=f"Lanes({scalar}, {registers})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes) -> None:
        number = manager.lookup(lanes.scalar).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.count))


@intrinsic
def lanes_of(typing, array):
    """Return how many numbers of an array a register holds: for the compiler a constant, which `itemsize` is not."""
    count = Lanes(array.dtype).count
    return types.intp(array), lambda context, builder, signature, given: ir.Constant(_INDEX, count)


@intrinsic
def load(typing, array, at):
    """array[at : at + lanes] of a flat array, unchecked."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, given):
        place = _place(context, builder, array, given, context.get_value_type(lanes))
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return lanes(array, types.intp), code


@intrinsic
def load_bytes(typing, like, array, at):
    """array[at : at + lanes] of bytes, as numbers of another array's type."""
    lanes = Lanes(like.dtype)

    def code(context, builder, signature, given):
        place = _place(context, builder, array, given[1:], ir.VectorType(ir.IntType(8), lanes.count))
        words = builder.zext(builder.load(place, align=1), ir.VectorType(_WORD, lanes.count))
        return builder.sitofp(words, context.get_value_type(lanes))

    return lanes(like, array, types.intp), code


@intrinsic
def load_first(typing, array, at, count):
    """array[at : at + count] in the first lanes, and zeros beyond, which is not read."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, given):
        vector = context.get_value_type(lanes)
        place = _place(context, builder, array, given, vector)
        return _masked(builder, "load", lanes, place, given[2], ir.Constant(vector, [0.0] * lanes.count))

    return lanes(array, types.intp, types.intp), code


@intrinsic
def prefetch(typing, array, at):
    """Load array[at] into the cache; the empty assembly keeps the compiler from removing the unused load."""

    def code(context, builder, signature, given):
        number = context.get_value_type(array.dtype)
        bits = ir.IntType(array.dtype.bitwidth)
        place = builder.bitcast(_place(context, builder, array, given, number), bits.as_pointer())
        builder.asm(ir.FunctionType(ir.VoidType(), [bits]), "", "r", [builder.load(place)], side_effect=True)
        return context.get_dummy_value()

    return types.none(array, types.intp), code


@intrinsic
def store(typing, array, at, lanes):
    """array[at : at + lanes] = lanes, unchecked."""

    def code(context, builder, signature, given):
        _put(context, builder, array, given, given[2])
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes), code


@intrinsic
def broadcast(typing, number):
    """Return one number in all lanes."""
    lanes = Lanes(number)

    def code(context, builder, signature, given):
        return _repeated(builder, context.get_value_type(lanes), given[0])

    return lanes(number), code


@intrinsic
def load_like(typing, lanes, array, at):
    """As `load`, as many numbers as some other lanes have."""

    def code(context, builder, signature, given):
        place = _place(context, builder, array, given[1:], context.get_value_type(lanes))
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return lanes(lanes, array, types.intp), code


@intrinsic
def broadcast_like(typing, lanes, number):
    """As `spread`, as many numbers as some other lanes have."""

    def code(context, builder, signature, given):
        return _repeated(builder, context.get_value_type(lanes), given[1])

    return lanes(lanes, lanes.scalar), code


@intrinsic
def zeros_in(typing, registers, array):
    """Return zeros of an array's type in several registers: as many as `registers`, a tuple, has places."""
    lanes = Lanes(array.dtype, len(registers))

    def code(context, builder, signature, given):
        return ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count)

    return lanes(registers, array), code


@intrinsic
def zeros(typing, array):
    """Return zeros of an array's type."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, given):
        return ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count)

    return lanes(array), code


@intrinsic
def mask_before(typing, lanes, first):
    """Return the lanes from the `first` on, and zeros before."""

    def code(context, builder, signature, given):
        kept = _compared(builder, ">=", lanes, given[1])
        return builder.select(kept, given[0], ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count))

    return lanes(lanes, types.intp), code


@intrinsic
def mask_after(typing, lanes, end):
    """Return the lanes before the `end`, and zeros from there on."""

    def code(context, builder, signature, given):
        kept = _compared(builder, "<", lanes, given[1])
        return builder.select(kept, given[0], ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count))

    return lanes(lanes, types.intp), code


@intrinsic
def store_first(typing, array, at, lanes, count):
    """Store the first `count` lanes in array[at : at + count], and nothing beyond."""

    def code(context, builder, signature, given):
        place = _place(context, builder, array, given, context.get_value_type(lanes))
        _masked(builder, "store", lanes, place, given[3], given[2])
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes, types.intp), code


@intrinsic
def load_padded(typing, lanes, array, at, dimension):
    """array[at : at + d] in as many registers as some other lanes have; those past the last d − lanes repeat it.

    A register holds no more than d numbers.
    """

    def code(context, builder, signature, given):
        register = context.get_value_type(Lanes(array.dtype))
        size = array.dtype.bitwidth // 8
        loaded = [
            builder.load(_place(context, builder, array, (given[1], place), register), align=size)
            for place in _padded_places(builder, lanes, given[2], given[3])
        ]
        return _side_by_side(builder, loaded)

    return lanes(lanes, array, types.intp, types.intp), code


@intrinsic
def store_padded(typing, array, at, lanes, dimension):
    """array[at : at + d] = lanes that `load_padded` has loaded, or what was made of them lane by lane."""

    def code(context, builder, signature, given):
        count = Lanes(array.dtype).count
        for i, place in enumerate(_padded_places(builder, lanes, given[1], given[3])):
            lane = ir.Constant(ir.VectorType(_WORD, count), list(range(i * count, (i + 1) * count)))
            _put(context, builder, array, (given[0], place), builder.shuffle_vector(given[2], given[2], lane))
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes, types.intp), code


@intrinsic
def zero_repeats(typing, lanes, dimension):
    """Lanes that `load_padded` has loaded, with zeros for the numbers that they repeat."""
    count = Lanes(lanes.scalar).count

    def code(context, builder, signature, given):
        index = ir.VectorType(_INDEX, lanes.count)
        ahead = ir.Constant(index, [place - 2 * (place % count) for place in range(lanes.count)])
        last = builder.sub(given[1], ir.Constant(_INDEX, count))
        kept = builder.icmp_signed("<=", ahead, _repeated(builder, index, last))
        return builder.select(kept, given[0], ir.Constant(context.get_value_type(lanes), [0.0] * lanes.count))

    return lanes(lanes, types.intp), code


@intrinsic
def total(typing, lanes):
    """Return the sum of all lanes."""

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


def _operation(name: str, flags=_FLAGS):
    @intrinsic
    def operation(typing, left, right):
        def code(context, builder, signature, given):
            return getattr(builder, name)(*given, flags=flags)

        return left(left, right), code

    return operation


_added, _subtracted, _multiplied = _operation("fadd"), _operation("fsub"), _operation("fmul")
product_rounded = _operation("fmul", ())
"""a·b, rounded before anything is added to it."""


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


def _padded_places(builder, lanes, at, dimension):
    """Yield where each register of padded lanes lies: d − lanes is the last place of all."""
    count = Lanes(lanes.scalar).count
    last = builder.sub(dimension, ir.Constant(_INDEX, count))
    for first in range(0, lanes.count, count):
        start = ir.Constant(_INDEX, first)
        yield builder.add(at, builder.select(builder.icmp_signed("<", start, last), start, last))


def _side_by_side(builder, registers):
    """Return two, four, eight, … registers as one vector."""
    while len(registers) > 1:
        size = registers[0].type.count
        places = ir.Constant(ir.VectorType(_WORD, 2 * size), list(range(2 * size)))
        registers = [
            builder.shuffle_vector(left, right, places)
            for left, right in zip(registers[::2], registers[1::2], strict=True)
        ]
    return registers[0]


def _put(context, builder, array, given, vector) -> None:
    builder.store(vector, _place(context, builder, array, given, vector.type), align=array.dtype.bitwidth // 8)


def _masked(builder, work, lanes, place, count, vector):
    """Emit a masked "load" or "store" of the first `count` lanes; of a load, `vector` has the other lanes."""
    mask = _compared(builder, "<", lanes, count)
    size = ir.Constant(_WORD, lanes.scalar.bitwidth // 8)
    given = [place, size, mask, vector] if work == "load" else [vector, place, size, mask]
    kind = ir.FunctionType(vector.type if work == "load" else ir.VoidType(), [one.type for one in given])
    name = f"llvm.masked.{work}.v{lanes.count}f{lanes.scalar.bitwidth}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)


def _compared(builder, sign, lanes, place):
    """In which lanes the number of the lane compares so with a place."""
    index = ir.VectorType(_INDEX, lanes.count)
    return builder.icmp_signed(sign, ir.Constant(index, list(range(lanes.count))), _repeated(builder, index, place))


def _repeated(builder, vector, number):
    unknown = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(unknown, number, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, unknown, ir.Constant(ir.VectorType(_WORD, vector.count), [0] * vector.count))
