"""Gradient steps of clients and the averages of servers, compiled. Twins of `gradient_step` and of the server rules."""

from __future__ import annotations

import numpy as np

from pgfl.arrays import Array
from pgfl.simulate.compiled.cache import compiled, inlined
from pgfl.simulate.compiled.factors import Problems
from pgfl.simulate.compiled.lanes import (
    AT_ONCE,
    broadcast,
    broadcast_like,
    lanes_of,
    load,
    load_padded,
    store,
    store_padded,
    total,
    zero_repeats,
    zeros,
    zeros_in,
)
from pgfl.simulate.compiled.margins import RIDGE, slope
from pgfl.simulate.compiled.products import add_padded, pack_padded, padded_zeros, scaled, unpack_padded
from pgfl.simulate.compiled.sparse import Forms, add_products_with, products_with

# mypy: disable-error-code="no-any-return"


@compiled
def gradient_phase(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    server_models: Array,
    model: Array,
    means: Array,
    shares: Array,
    averaged: bool,
    full_reach: float,
    full_records: int,
    steps: int,
    forms: Forms,
) -> None:
    """Gradient steps of those who take part from their server's model and, if `averaged`, the mean for every pair.

    The participants of the block's i-th pair are `clients[bounds[i] : bounds[i + 1]]`.
    """
    problems = Problems(*fields)
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    models, own_models, pair_means = server_models.reshape(-1), model.reshape(-1), means.reshape(-1)
    lanes, one = lanes_of(x), problems.rho.dtype.type(1.0)
    new, sums = padded_zeros(x, dimension, lanes), padded_zeros(x, dimension, lanes)
    once, most = padded_zeros(x, dimension, lanes), 1
    for k in clients:
        most = max(most, problems.counts[k])
    moves = np.empty(most + lanes, x.dtype)
    for place in range(len(bounds) - 1):
        own = (first_pair + place) * dimension
        sums[:] = 0.0
        for i in range(bounds[place], bounds[place + 1]):
            k = clients[i]
            start, rows, reach = problems.first[k], problems.counts[k], _reach(problems, k, full_reach, full_records)
            pack_padded(models, own, one, dimension, lanes, new)
            for _ in range(steps):
                products_with(x, forms, k, start, rows, new, once, dimension, lanes, moves)
                for r in range(rows):
                    moves[r] = _move(problems, k, start + r, moves[r], reach)
                scaled(new, _kept(problems, k, reach), lanes)
                add_products_with(x, forms, k, start, rows, moves, dimension, lanes, new)
            unpack_padded(new, one, dimension, lanes, own_models, k * dimension)
            if averaged:
                add_padded(new, dimension, lanes, sums)
        if averaged:
            unpack_padded(sums, shares[place, 0], dimension, lanes, pair_means, place * dimension)


@compiled
def gradient_phase_in_registers(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    server_models: Array,
    model: Array,
    means: Array,
    shares: Array,
    averaged: bool,
    full_reach: float,
    full_records: int,
    steps: int,
    registers: tuple[int, ...],
) -> None:
    """As `gradient_phase`, of whole rows that fit into as many registers as the tuple has places."""
    problems = Problems(*fields)
    x, dimension = problems.features.reshape(-1), problems.features.shape[1]
    models, own_models, pair_means = server_models.reshape(-1), model.reshape(-1), means.reshape(-1)
    for place in range(len(bounds) - 1):
        sums = zeros_in(registers, x)
        received = load_padded(sums, models, (first_pair + place) * dimension, dimension)
        for i in range(bounds[place], bounds[place + 1]):
            k, new = clients[i], received
            first, reach = problems.first[k], _reach(problems, k, full_reach, full_records)
            for _ in range(steps):
                once = zero_repeats(new, dimension)
                new = new * broadcast_like(new, _kept(problems, k, reach))
                for r in range(first, first + problems.counts[k]):
                    row = load_padded(new, x, r * dimension, dimension)
                    new = new + row * broadcast_like(new, _move(problems, k, r, total(row * once), reach))
            store_padded(own_models, k * dimension, new, dimension)
            sums = sums + new
        if averaged:
            mean = sums * broadcast_like(sums, shares[place, 0])
            store_padded(pair_means, place * dimension, mean, dimension)


@inlined
def _reach(problems: Problems, k: int, full_reach: float, full_records: int) -> float:
    """Return the length of a client's steps."""
    rows = problems.counts[k]
    return full_reach * rows / max(rows, full_records)


@inlined
def _kept(problems: Problems, k: int, reach: float) -> float:
    """Return what a step leaves of the model: 1 − 2ηλ/|C_s|."""
    return problems.rho.dtype.type(1.0 - reach * problems.ridge_penalty[k])


@inlined
def _move(problems: Problems, k: int, row: int, margin: float, reach: float) -> float:
    """Return how far a step goes along a row: −η ℓ′/D_k."""
    kind, target = problems.kind[k], problems.targets[row]
    bend = 2.0 * (margin - target) if kind == RIDGE else slope(kind, problems.kappa[k], margin, target)
    return problems.rho.dtype.type(-reach / problems.counts[k] * bend)


@compiled
def average_and_learn(
    mixing: tuple[Array, Array, Array],
    clusters: tuple[Array, Array, Array],
    published: Array,
    share: Array,
    averages: Array,
    out: Array,
) -> None:
    """ŵ_{q,s} = Σ_p a_{sp} w̃_{q,p}, then w_{q,s} = (1 − τ) ŵ_{q,s} + τ · (mean of ŵ_{r,s} over r ≠ q).

    `mixing` and `clusters` are sparse matrices (where rows begin, columns, values); `share` is τ for every pair, and
    `averages` gets ŵ.
    """
    dimension, lanes, one = out.shape[1], lanes_of(out), share.dtype.type(1.0)
    averaged, received, learned = averages.reshape(-1), published.reshape(-1), out.reshape(-1)
    indptr, columns, weights = mixing
    for pair in range(len(out)):
        _weighted(received, columns, weights, indptr[pair], indptr[pair + 1], dimension, lanes, averaged, pair)
    indptr, columns, weights = clusters
    for pair in range(len(out)):
        _weighted(averaged, columns, weights, indptr[pair], indptr[pair + 1], dimension, lanes, learned, pair)
        tau, at = share[pair], pair * dimension
        if dimension < lanes:
            for f in range(at, at + dimension):
                learned[f] = (one - tau) * averaged[f] + tau * learned[f]
            continue
        keep, learn, last = broadcast(one - tau), broadcast(tau), at + dimension - lanes
        end = load(learned, last)  # before the numbers that it shares with the one before are changed
        for f in range(at, last + 1, lanes):
            store(learned, f, keep * load(averaged, f) + learn * load(learned, f))
        store(learned, last, keep * load(averaged, last) + learn * end)


@inlined
def _weighted(
    values: Array,
    columns: Array,
    weights: Array,
    start: int,
    stop: int,
    dimension: int,
    lanes: int,
    out: Array,
    row: int,
) -> None:
    """out[row] = Σ_e weight_e · values[column_e], of rows that lie flat, four registers at a time."""
    at = row * dimension
    if dimension < lanes:
        for f in range(dimension):
            total = weights.dtype.type(0.0)
            for e in range(start, stop):
                total += weights[e] * values[columns[e] * dimension + f]
            out[at + f] = total
        return
    last = dimension - lanes
    for b in range(0, dimension, AT_ONCE * lanes):
        one, two = min(b, last), min(b + lanes, last)
        three, four = min(b + 2 * lanes, last), min(b + 3 * lanes, last)
        u, v, w, z = zeros(values), zeros(values), zeros(values), zeros(values)
        for e in range(start, stop):
            weight, begin = broadcast(weights[e]), columns[e] * dimension
            u, v = u + weight * load(values, begin + one), v + weight * load(values, begin + two)
            w, z = w + weight * load(values, begin + three), z + weight * load(values, begin + four)
        store(out, at + one, u)
        store(out, at + two, v)
        store(out, at + three, w)
        store(out, at + four, z)
