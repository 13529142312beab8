"""NumPy's normal numbers, compiled: the same Philox streams and the same ziggurat, bit by bit, at a fifth of the time.

NumPy asks for every word and every normal number through a function pointer. Here the words of sixteen counters are
made together, one counter per lane of a register. Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
Ziggurat: Marsaglia and Tsang, "The ziggurat method for generating random variables".
"""

# mypy: disable-error-code="arg-type, assignment, misc, no-any-return, no-untyped-call, no-untyped-def, return-value"
# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined, rounded_part

ROUNDS = 10
FIRST, SECOND = 0xD2E7470EE14C6C93, 0xCA5A826395121157  # multipliers
STEP, OTHER_STEP = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # of the key from round to round
LAYERS, SIGNED_LAYERS, MAGNITUDE = np.uint64(0xFF), np.uint64(0x1FF), np.uint64(0x000FFFFFFFFFFFFF)
ONE, EIGHT, NINE, ELEVEN = np.uint64(1), np.uint64(8), np.uint64(9), np.uint64(11)
SIGNED_WIDTHS = np.concatenate([wi_double, -wi_double])
UNIT = 1.0 / 2**53
TOGETHER = (
    16  # counters whose words are made together: while one register of eight waits for a product, another goes on
)
AHEAD = 4 * TOGETHER  # the words that these have, which a stream's state begins with

# What else a stream's state has: its next word and the number of its last counter; its two keys, its server and its
# block of rounds (or round), which decide all words; and at which round of the block it stands.
POSITION, COUNT, KEY, OTHER_KEY, SERVER, BLOCK, WITHIN = range(AHEAD, AHEAD + 7)
NOWHERE = np.uint64(2**64 - 1)


def streams_of(keys: Array, servers: Array) -> Array:
    """The states of the streams of (key, server, block) of all servers, before they are drawn from."""
    states = np.zeros((len(servers), WITHIN + 1), np.uint64)
    states[:, KEY], states[:, OTHER_KEY] = keys.T
    states[:, SERVER], states[:, BLOCK] = servers, NOWHERE
    return states


@inlined
def stand_before(stream: Array, block: int, within: int, out: Array, rows: int) -> None:
    """Bring a stream to where a round of a block begins; mostly it stands there. `out` is written over.

    A block's rounds share the stream, and each of them has `rows` vectors as long as `out`. A round before the one at
    which the stream stands begins anew.
    """
    if stream[BLOCK] != np.uint64(block) or stream[WITHIN] > np.uint64(within):
        _begin(stream, block)
    while stream[WITHIN] < np.uint64(within):
        draw_rest(stream, 0, out, rows)


@inlined
def draw_rest(stream: Array, drawn: int, out: Array, rows: int) -> None:
    """Draw what is left of a round of which some vectors are `drawn`, for nothing but to stand before the next one."""
    for _ in range(drawn, rows):
        draw_next(stream, out)
    stream[WITHIN] += ONE


@compiled
def fill_rows(streams: Array, servers: Array, bounds: Array, round: int, out: Array) -> None:
    """out[bounds[i] : bounds[i + 1]] = the beginning of the stream of the i-th of some servers for a round."""
    for s in range(len(servers)):
        stream = streams[servers[s]]
        _begin(stream, round)
        draw_next(stream, out[bounds[s] : bounds[s + 1]].reshape(-1))
        stream[WITHIN] += ONE


@inlined
def _begin(stream: Array, block: int) -> None:
    stream[POSITION], stream[COUNT] = np.uint64(AHEAD), np.uint64(0)
    stream[BLOCK], stream[WITHIN] = np.uint64(block), np.uint64(0)


@rounded_part
def draw_next(stream: Array, out: Array) -> None:
    """out = the stream's next normal numbers, by rejection from 256 layers; nearly always the first word decides."""
    done, place = np.uint64(0), stream[POSITION]
    while done < len(out):
        if place == AHEAD:
            _refill(stream)
            place = np.uint64(0)
        many = min(np.uint64(len(out)) - done, np.uint64(AHEAD) - place)
        decided = _decided_at_once(stream, place, many, out, done)
        done, place = done + decided, place + decided
        if decided < many:
            layer, size, x = _candidate(stream[place])
            stream[POSITION] = place + ONE
            out[done] = _decided(layer, size, x, stream)
            done, place = done + ONE, stream[POSITION]
    stream[POSITION] = place


@inlined
def _decided_at_once(words: Array, place: int, many: int, out: Array, at: int) -> int:
    """The numbers of `many` words, up to the first that does not decide by itself; returns how many these are."""
    for i in range(many):
        layer, size, x = _candidate(words[place + i])
        if size >= ki_double[layer]:
            return i
        out[at + i] = x
    return many


@inlined
def _candidate(word: int) -> tuple[int, int, float]:
    """A layer, a size within it, and the number that they stand for, whose sign is the bit above the layer's."""
    size = (word >> NINE) & MAGNITUDE
    return np.int64(word & LAYERS), size, np.float64(np.int64(size)) * SIGNED_WIDTHS[np.int64(word & SIGNED_LAYERS)]


@rounded_part
def _decided(layer: int, size: int, x: float, stream: Array) -> float:
    """The number itself if it lies below the density, or else one from the following words."""
    while size >= ki_double[layer]:
        if layer == 0:
            return _tail(stream, size)
        below = (fi_double[layer - 1] - fi_double[layer]) * _uniform(stream)
        if below + fi_double[layer] < np.exp(-0.5 * x * x):
            return x
        layer, size, x = _candidate(_word(stream))
    return x


@rounded_part
def _tail(stream: Array, size: int) -> float:
    """A normal number beyond the lowest layer."""
    while True:
        x = -ziggurat_nor_inv_r * np.log1p(-_uniform(stream))
        y = -np.log1p(-_uniform(stream))
        if y + y > x * x:
            return -(ziggurat_nor_r + x) if (size >> EIGHT) & ONE else ziggurat_nor_r + x


@inlined
def _uniform(stream: Array) -> float:
    return np.float64(_word(stream) >> ELEVEN) * UNIT


@inlined
def _word(stream: Array) -> int:
    """The stream's next word."""
    if stream[POSITION] == np.uint64(AHEAD):
        _refill(stream)
    word = stream[stream[POSITION]]
    stream[POSITION] += ONE
    return word


@rounded_part
def _refill(stream: Array) -> None:
    """The stream's next words, from the counters (1, 0, server, block), (2, 0, server, block) and so on."""
    _philox(stream, stream[COUNT], stream[SERVER], stream[BLOCK], stream[KEY], stream[OTHER_KEY])
    stream[COUNT] += np.uint64(TOGETHER)
    stream[POSITION] = np.uint64(0)


@intrinsic
def _philox(typing, out, count, server, block, key, other):
    """The words of the counters after `count`, at the beginning of an array."""
    lanes, places = ir.VectorType(ir.IntType(64), TOGETHER), ir.VectorType(ir.IntType(32), TOGETHER)

    def code(context, builder, signature, given):
        def everywhere(word):
            unknown = ir.Constant(lanes, ir.Undefined)
            first = builder.insert_element(unknown, word, ir.Constant(places.element, 0))
            return builder.shuffle_vector(first, unknown, ir.Constant(places, [0] * TOGETHER))

        last, c, d, left, right = map(everywhere, given[1:])
        a, b = builder.add(last, ir.Constant(lanes, list(range(1, TOGETHER + 1)))), _constant(lanes, 0)
        for _ in range(ROUNDS):
            high, low = _product(builder, FIRST, a)
            over, under = _product(builder, SECOND, c)
            a, b = builder.xor(builder.xor(over, b), left), under
            c, d = builder.xor(builder.xor(high, d), right), low
            left, right = builder.add(left, _constant(lanes, STEP)), builder.add(right, _constant(lanes, OTHER_STEP))
        words = _interleaved(builder, _interleaved(builder, a, b, 1), _interleaved(builder, c, d, 1), 2)
        place = context.make_array(out)(context, builder, given[0]).data
        builder.store(words, builder.bitcast(place, words.type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.none(out, *(types.uint64,) * 5), code


def _product(builder, factor, words):
    """The upper and the lower words of products with a factor; the upper ones from products of halves."""
    lanes = words.type
    half, lower_half = _constant(lanes, 32), _constant(lanes, 2**32 - 1)
    low, high = builder.and_(words, lower_half), builder.lshr(words, half)
    factor_low, factor_high = _constant(lanes, factor % 2**32), _constant(lanes, factor >> 32)
    one = builder.add(builder.mul(low, factor_high), builder.lshr(builder.mul(low, factor_low), half))
    two = builder.add(builder.mul(high, factor_low), builder.and_(one, lower_half))
    upper = builder.add(builder.mul(high, factor_high), builder.lshr(one, half))
    return builder.add(upper, builder.lshr(two, half)), builder.mul(words, _constant(lanes, factor))


def _constant(lanes, number):
    return ir.Constant(lanes, [number] * lanes.count)


def _interleaved(builder, left, right, together):
    """`together` words of the one, as many of the other, and so on."""
    count = left.type.count
    order = [
        start + i for place in range(0, count, together) for start in (place, count + place) for i in range(together)
    ]
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))
