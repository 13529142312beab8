"""NumPy's normal numbers compiled, bit by bit, and simulated releases with them. Twin of `SeededNoise.release`."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

from pgfl.arrays import AnyFloats, Array, Ints
from pgfl.simulate.compiled.cache import compiled, inlined, part, rounded, rounded_part
from pgfl.simulate.compiled.lanes import (
    broadcast,
    lanes_of,
    load,
    load_first,
    product_rounded,
    store,
    store_first,
    total,
    zeros,
)
from pgfl.simulate.layout import Layout
from pgfl.streams import Purpose, key_of

# mypy: disable-error-code="arg-type, assignment, misc, no-any-return, no-untyped-call, no-untyped-def, return-value"
# mypy: disable-error-code="untyped-decorator"


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
UNSET = np.uint64(2**64 - 1)


def streams_of(keys: Array, servers: Array) -> Array:
    """Return the states of the streams of (key, server, block) of all servers, before they are drawn from."""
    states = np.zeros((len(servers), WITHIN + 1), np.uint64)
    states[:, KEY], states[:, OTHER_KEY] = keys.T
    states[:, SERVER], states[:, BLOCK] = servers, UNSET
    return states


class ServerStreams:
    """The streams of all servers of a layout: kernels draw from `states`, and others have rows filled."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self._layout, self._seed = layout, seed

    @cached_property
    def states(self) -> Array:
        """The state of every server's stream, which drawing changes."""
        keys = [key_of(self._seed, run, Purpose.PRIVACY_NOISE) for run, _ in self._layout.server_keys]
        servers = [server for _, server in self._layout.server_keys]
        return streams_of(np.array(keys, dtype=np.uint64), np.array(servers, dtype=np.uint64))

    def __call__(self, servers: Ints, bounds: Ints, round: int, out: AnyFloats) -> None:
        """Fill out[bounds[i] : bounds[i + 1]] with the first numbers of the i-th server's stream of a round."""
        fill_rows(self.states, servers, bounds, round, out)


@inlined
def seek(stream: Array, block: int, within: int, out: Array, rows: int) -> None:
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
    """Write the numbers of `many` words up to the first that does not decide by itself; return how many they are."""
    for i in range(many):
        layer, size, x = _candidate(words[place + i])
        if size >= ki_double[layer]:
            return i
        out[at + i] = x
    return many


@inlined
def _candidate(word: int) -> tuple[int, int, float]:
    """Return a layer, a size within it, and the number that they stand for, whose sign is the bit above the layer's."""
    size = (word >> NINE) & MAGNITUDE
    return np.int64(word & LAYERS), size, np.float64(np.int64(size)) * SIGNED_WIDTHS[np.int64(word & SIGNED_LAYERS)]


@rounded_part
def _decided(layer: int, size: int, x: float, stream: Array) -> float:
    """Return the number itself if it lies below the density, or else one from the following words."""
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
    """Return a normal number beyond the lowest layer."""
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
    """Return the stream's next word."""
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
    """Write the words of the counters after `count` to the beginning of an array."""
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
    """Return the upper and the lower words of products with a factor; the upper ones from products of halves."""
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
    """`collective` words of the one, as many of the other, and so on."""
    count = left.type.count
    order = [
        start + i for place in range(0, count, together) for start in (place, count + place) for i in range(together)
    ]
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


# mypy: disable-error-code="no-any-return"


@rounded
def release_and_average(
    clients: Array,
    bounds: Array,
    sigma: Array,
    normals: Array,
    model: Array,
    dual: Array,
    shares: Array,
    released: Array,
    means: Array,
) -> bool:
    """w̃_k = w_k + σ_k z_k of those who take part, and the mean of their w̃_k − φ_k/ρ for every pair.

    The participants of the i-th pair are `clients[bounds[i] : bounds[i + 1]]`. False is a refusal: something is not as
    `SeededNoise.release` wants it, and nothing was written; it says what.
    """
    if not (len(sigma) == len(clients) == len(normals) and _all_finite(clients, sigma, model)):
        return False
    for place in range(len(bounds) - 1):
        mean = means[place]
        mean[:] = 0.0
        for i in range(bounds[place], bounds[place + 1]):
            k, scale = clients[i], sigma[i]
            for f in range(means.shape[1]):
                released[k, f] = model[k, f] + normals[i, f] * scale
                mean[f] += released[k, f] - dual[k, f]
        mean *= shares[place, 0]
    return True


@rounded
def draw_release_and_average(
    clients: Array,
    bounds: Array,
    sigma: Array,
    servers: Array,
    streams: Array,
    block: int,
    within: int,
    rows: int,
    model: Array,
    dual: Array,
    shares: Array,
    released: Array,
    means: Array,
) -> bool:
    """As `release_and_average`, with normal numbers drawn from each server's stream, to where releases will be.

    `servers` has the server of every client. `block`, `within` and `rows` are the round as `ServerNormals.place` has
    it: a block, the round within it, and how many vectors a server's stream has for it. The j-th participant of a
    server gets the j-th.
    """
    if not (len(sigma) == len(clients) and _all_finite(clients, sigma, model)):
        return False
    unused, server, drawn = np.empty(means.shape[1]), -1, 0
    for k in clients:
        if servers[k] != server:
            if server >= 0:
                draw_rest(streams[server], drawn, unused, rows)
            server, drawn = servers[k], 0
            seek(streams[server], block, within, unused, rows)
        draw_next(streams[server], released[k])
        drawn += 1
    if server >= 0:
        draw_rest(streams[server], drawn, unused, rows)
    _add_to_models_and_average(clients, bounds, sigma, model, dual, shares, released, means)
    return True


@rounded_part
def _add_to_models_and_average(
    clients: Array, bounds: Array, sigma: Array, model: Array, dual: Array, shares: Array, released: Array, means: Array
) -> None:
    """As `release_and_average`, in lanes, with each client's normal numbers where its release is to be."""
    dimension, lanes, one = means.shape[1], lanes_of(means), means.dtype.type(1.0)
    models, duals, made, sums = model.reshape(-1), dual.reshape(-1), released.reshape(-1), means.reshape(-1)
    whole, left = dimension - dimension % lanes, dimension % lanes
    for pair in range(len(bounds) - 1):
        means[pair] = 0.0
        for i in range(bounds[pair], bounds[pair + 1]):
            own, mean, last = clients[i] * dimension, pair * dimension, i == bounds[pair + 1] - 1
            scale, share = broadcast(sigma[i]), broadcast(shares[pair, 0] if last else one)
            for f in range(0, whole, lanes):
                release = load(models, own + f) + product_rounded(load(made, own + f), scale)
                contributed = load(sums, mean + f) + (release - load(duals, own + f))
                store(made, own + f, release)
                store(sums, mean + f, product_rounded(contributed, share))
            if left:
                own, mean = own + whole, mean + whole
                release = load_first(models, own, left) + product_rounded(load_first(made, own, left), scale)
                contributed = load_first(sums, mean, left) + (release - load_first(duals, own, left))
                store_first(made, own, release, left)
                store_first(sums, mean, product_rounded(contributed, share), left)


@rounded
def add_to_means_and_share(
    clients: Array,
    bounds: Array,
    places: Array,
    deviations: Array,
    servers: Array,
    streams: Array,
    block: int,
    within: int,
    rows: int,
    means: Array,
    released: Array,
) -> None:
    """Add noise to the means of the pairs at some `places`, and tell their contributors. Twin of `SeededPairNoise`.

    `servers` has the server of every pair; the rest is as in `draw_release_and_average`, for pairs.
    """
    noise, server, drawn = np.empty(means.shape[1]), -1, 0
    for j in range(len(places)):
        pair = places[j]
        if servers[pair] != server:
            if server >= 0:
                draw_rest(streams[server], drawn, noise, rows)
            server, drawn = servers[pair], 0
            seek(streams[server], block, within, noise, rows)
        draw_next(streams[server], noise)
        drawn += 1
        mean = means[pair]
        for f in range(len(mean)):
            mean[f] += noise[f] * deviations[j]
        for i in range(bounds[pair], bounds[pair + 1]):
            released[clients[i]] = mean
    if server >= 0:
        draw_rest(streams[server], drawn, noise, rows)


@part
def _all_finite(clients: Array, sigma: Array, model: Array) -> bool:
    """Return whether all models are finite (0·w is 0 of no other number), and all deviations finite and above 0."""
    dimension, lanes, models = model.shape[1], lanes_of(model), model.reshape(-1)
    fits, sums, zero = True, zeros(models), broadcast(model.dtype.type(0.0))
    for i in range(len(clients)):
        at, fits = clients[i] * dimension, fits and 0.0 < sigma[i] < math.inf
        if dimension < lanes:
            for f in range(at, at + dimension):
                fits &= abs(models[f]) < math.inf
        else:
            for b in range(0, dimension, lanes):
                sums = sums + zero * load(models, at + min(b, dimension - lanes))
    return fits and total(sums) == 0.0
