"""Simulated releases and what servers make of them, in one pass. Twin of `SeededNoise.release`, bit by bit."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import math

import numpy as np

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import part, rounded, rounded_part
from pgfl.simulate.numba_lanes import (
    lanes_of,
    load,
    load_first,
    nothing,
    product_rounded,
    spread,
    store,
    store_first,
    total,
)
from pgfl.simulate.numba_normals import draw_next, draw_rest, stand_before


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
    if not (len(sigma) == len(clients) == len(normals) and _all_fit(clients, sigma, model)):
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
    if not (len(sigma) == len(clients) and _all_fit(clients, sigma, model)):
        return False
    unused, server, drawn = np.empty(means.shape[1]), -1, 0
    for k in clients:
        if servers[k] != server:
            if server >= 0:
                draw_rest(streams[server], drawn, unused, rows)
            server, drawn = servers[k], 0
            stand_before(streams[server], block, within, unused, rows)
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
            scale, share = spread(sigma[i]), spread(shares[pair, 0] if last else one)
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
            stand_before(streams[server], block, within, noise, rows)
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
def _all_fit(clients: Array, sigma: Array, model: Array) -> bool:
    """Whether all models are finite (0·w is 0 of no other number), and all deviations finite and above 0."""
    dimension, lanes, models = model.shape[1], lanes_of(model), model.reshape(-1)
    fits, zeros, zero = True, nothing(models), spread(model.dtype.type(0.0))
    for i in range(len(clients)):
        at, fits = clients[i] * dimension, fits and 0.0 < sigma[i] < math.inf
        if dimension < lanes:
            for f in range(at, at + dimension):
                fits &= abs(models[f]) < math.inf
        else:
            for b in range(0, dimension, lanes):
                zeros = zeros + zero * load(models, at + min(b, dimension - lanes))
    return fits and total(zeros) == 0.0
