"""NumPy's normal numbers, compiled: the same Philox streams and the same ziggurat, bit by bit, at a third of the time.

NumPy asks for every word and every normal number through a function pointer. Philox: Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3". Ziggurat: Marsaglia and Tsang, "The ziggurat method for generating random variables".
"""

# mypy: disable-error-code="arg-type, assignment, misc, no-any-return, no-untyped-call, return-value, untyped-decorator"
from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined

ROUNDS = 10
FIRST, SECOND = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)  # multipliers
STEP, OTHER_STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)  # of the key from round to round
LAYERS, MAGNITUDE = np.uint64(0xFF), np.uint64(0x000FFFFFFFFFFFFF)
ONE, EIGHT, ELEVEN = np.uint64(1), np.uint64(8), np.uint64(11)
UNIT = 1.0 / 2**53
AHEAD = 64  # words that are made together: several blocks of four keep the processor busy
POSITION, COUNT = AHEAD, AHEAD + 1  # where a stream's state has its next word, and the number of its last four words
BLOCK, WITHIN = AHEAD + 2, AHEAD + 3  # and, where rounds share it, which block of rounds it is and the round it is at
NOWHERE = np.uint64(2**64 - 1)

ServerStreams = tuple[Array, Array, Array]
"""The key, the number and the state of every server's stream."""


def streams_of(keys: Array, servers: Array) -> ServerStreams:
    """The streams of (key, server, block) of all servers, before they are drawn from."""
    states = np.zeros((len(servers), WITHIN + 1), np.uint64)
    states[:, BLOCK] = NOWHERE
    return keys, servers, states


@inlined
def stand_before(streams: ServerStreams, server: int, block: int, within: int, out: Array, rows: int) -> None:
    """Bring a server's stream to where a round of a block begins; mostly it stands there. `out` is written over.

    A block's rounds share the stream, and each of them has `rows` vectors as long as `out`. A round before the one at
    which the stream stands begins anew.
    """
    state = streams[2][server]
    if state[BLOCK] != np.uint64(block) or state[WITHIN] > np.uint64(within):
        _begin(state)
        state[BLOCK], state[WITHIN] = np.uint64(block), np.uint64(0)
    while state[WITHIN] < np.uint64(within):
        draw_rest(streams, server, 0, out, rows)


@inlined
def draw_next(streams: ServerStreams, server: int, out: Array) -> None:
    """out = the next numbers of a server's stream."""
    keys, servers, states = streams
    state = states[server]
    _fill(out, state, keys[server, 0], keys[server, 1], servers[server], state[BLOCK])


@inlined
def draw_rest(streams: ServerStreams, server: int, drawn: int, out: Array, rows: int) -> None:
    """Draw what is left of a round of which some vectors are `drawn`, for nothing but to stand before the next one."""
    for _ in range(drawn, rows):
        draw_next(streams, server, out)
    streams[2][server, WITHIN] += ONE


@compiled
def fill_rows(keys: Array, servers: Array, bounds: Array, round: int, out: Array) -> None:
    """out[bounds[i] : bounds[i + 1]] = the beginning of the stream of (key, server, round) of the i-th server."""
    state = np.empty(COUNT + 1, np.uint64)
    for s in range(len(servers)):
        _begin(state)
        own = out[bounds[s] : bounds[s + 1]].reshape(-1)
        _fill(own, state, keys[s, 0], keys[s, 1], servers[s], np.uint64(round))


@inlined
def _begin(state: Array) -> None:
    state[POSITION], state[COUNT] = np.uint64(AHEAD), np.uint64(0)


@compiled
def _fill(out: Array, state: Array, key: int, other: int, server: int, round: int) -> None:
    """The stream's next normal numbers, by rejection from 256 layers; nearly always the first word decides."""
    place = np.int64(state[POSITION])
    for i in range(len(out)):
        if place == AHEAD:
            _refill(state, key, other, server, round)
            place = 0
        layer, size, x = _candidate(state[place])
        place += 1
        if size >= ki_double[layer]:
            state[POSITION] = np.uint64(place)
            x = _decided(layer, size, x, state, key, other, server, round)
            place = np.int64(state[POSITION])
        out[i] = x
    state[POSITION] = np.uint64(place)


@inlined
def _candidate(word: int) -> tuple[int, int, float]:
    """A layer, a size within it, and the number that they stand for."""
    layer, rest = np.int64(word & LAYERS), word >> EIGHT
    size = (rest >> ONE) & MAGNITUDE
    return layer, size, np.float64(np.int64(size)) * wi_double[layer] * (1.0 - 2.0 * np.float64(np.int64(rest & ONE)))


@compiled
def _decided(layer: int, size: int, x: float, state: Array, key: int, other: int, server: int, round: int) -> float:
    """The number itself if it lies below the density, or else one from the following words."""
    while size >= ki_double[layer]:
        if layer == 0:
            return _tail(state, key, other, server, round, size)
        below = (fi_double[layer - 1] - fi_double[layer]) * _uniform(state, key, other, server, round)
        if below + fi_double[layer] < np.exp(-0.5 * x * x):
            return x
        layer, size, x = _candidate(_word(state, key, other, server, round))
    return x


@compiled
def _tail(state: Array, key: int, other: int, server: int, round: int, size: int) -> float:
    """A normal number beyond the lowest layer."""
    while True:
        x = -ziggurat_nor_inv_r * np.log1p(-_uniform(state, key, other, server, round))
        y = -np.log1p(-_uniform(state, key, other, server, round))
        if y + y > x * x:
            return -(ziggurat_nor_r + x) if (size >> EIGHT) & ONE else ziggurat_nor_r + x


@inlined
def _uniform(state: Array, key: int, other: int, server: int, round: int) -> float:
    return np.float64(_word(state, key, other, server, round) >> ELEVEN) * UNIT


@inlined
def _word(state: Array, key: int, other: int, server: int, round: int) -> int:
    """The stream's next word."""
    if state[POSITION] == np.uint64(AHEAD):
        _refill(state, key, other, server, round)
    word = state[np.int64(state[POSITION])]
    state[POSITION] += ONE
    return word


@compiled
def _refill(state: Array, key: int, other: int, server: int, round: int) -> None:
    """The stream's next words, from the counters (1, 0, server, round), (2, 0, server, round) and so on."""
    for first in range(0, AHEAD, 4):
        state[COUNT] += ONE
        a, b, c, d = state[COUNT], np.uint64(0), server, round
        left, right = key, other
        for _ in range(ROUNDS):
            high, low = _product(FIRST, a)
            over, under = _product(SECOND, c)
            a, b, c, d = over ^ b ^ left, under, high ^ d ^ right, low
            left, right = left + STEP, right + OTHER_STEP
        state[first], state[first + 1], state[first + 2], state[first + 3] = a, b, c, d
    state[POSITION] = np.uint64(0)


@intrinsic
def _product(typing, left, right):  # type: ignore[no-untyped-def]
    """The upper and the lower word of a product of two words."""
    pair = types.UniTuple(types.uint64, 2)

    def code(context, builder, signature, given):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(word, wide) for word in given))
        upper = builder.lshr(product, ir.Constant(wide, 64))
        words = [builder.trunc(half, ir.IntType(64)) for half in (upper, product)]
        return context.make_tuple(builder, signature.return_type, words)

    return pair(types.uint64, types.uint64), code
