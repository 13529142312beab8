"""Ridge rounds in which everyone takes part, on rows that were turned: every row is a problem by itself.

With the eigenvectors V of XXᵀ, a client's loss is that of the rows VᵀX and the targets Vᵀy, and these rows are
orthogonal: XXᵀ and its inverse are diagonal. So the D × D product of `numba_coordinates` vanishes, and a round reads
each row once: it is multiplied by the model, its coordinate moves, and it is added to the pair's sum while it is in the
nearest cache. The coordinates are those of the turned rows, of which the kernel needs a copy: see `memory.COPIED`.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined
from pgfl.simulate.numba_coordinates import move_pair
from pgfl.simulate.numba_factors import Problems
from pgfl.simulate.numba_lanes import (
    AT_ONCE,
    BYTES,
    earlier,
    lanes_of,
    load,
    load_first,
    nothing,
    spread,
    spread_lane,
    store,
    store_first,
    sums_of,
    total,
)
from pgfl.simulate.numba_margins import FIXED, RIDGE

SWEEPS = 30  # D × D matrices need six to eight; what is left after the last is counted by the certificate


class Turned(NamedTuple):
    """The turned rows and the coordinates of all clients and pairs; where a client's begin stands in `first`."""

    first: Array
    rows: Array  # VᵀX, client by client in the order of the pairs, with zeros up to whole registers
    target: Array  # Vᵀy, one number per row
    size: Array  # λ, the squared length of the row
    gain: Array  # κ/(1 + κλ), which is κ(I + κXXᵀ)⁻¹
    dual: Array  # b, one number per row
    model: Array  # e, one number per row
    drift: Array  # per client, a bound on what its rows' being not quite orthogonal has done, in the model
    shrinkage: Array  # 1 − s, per pair
    lag: Array  # u − w_{q,s}, one row per pair
    centre: Array  # s(w_{q,s} + u) of the last round, one row per pair


def turned(problems: Problems, clients: Array, rows: Array, shrinkage: Array, server_models: Array) -> Turned:
    """The turned rows of some clients, in `rows` of zeros, and the coordinates of zero duals and models.

    The certificate of `problems` then counts what the turned rows get wrong, too.
    """
    dtype, room = server_models.dtype, BYTES // server_models.itemsize
    first = np.cumsum(problems.counts) - problems.counts
    target, size, gain, b, e = np.zeros((5, len(rows) + room), dtype)
    turn(clients, tuple(problems), first, rows, target, size, gain)
    drift = np.zeros(len(problems.counts), dtype)
    pairs = (shrinkage, -server_models, np.zeros_like(server_models))
    return Turned(first, rows, target, size, gain, b, e, drift, *pairs)


@compiled
def turn(
    clients: Array, fields: tuple[Array, ...], first: Array, rows: Array, target: Array, size: Array, gain: Array
) -> None:
    """Turn every client's rows until they are orthogonal (Jacobi's rotations, of two rows at a time).

    The error of the stored gain G is that of `numba_factors.factor`, now of rows that may be a little oblique:
    ‖(I + κXXᵀ)G/κ − I‖.
    """
    problems = Problems(*fields)
    counts, features, dimension, width = problems.counts, problems.features, problems.features.shape[1], rows.shape[1]
    most = 0
    for k in clients:
        most = max(most, counts[k])
    work, y = np.zeros(most * width), np.zeros(most)
    for k in clients:
        count, start, begin, square = counts[k], problems.first[k], first[k], 0.0
        for r in range(count):
            y[r] = problems.targets[start + r]
            for f in range(dimension):
                work[r * width + f] = features[start + r, f]
                square += work[r * width + f] ** 2
        for _ in range(SWEEPS):
            oblique = False
            for i in range(1, count):
                for j in range(i):
                    oblique |= _made_orthogonal(work, i * width, j * width, width, y, i, j, 2.0**-52 * square)
            if not oblique:
                break
        kappa = FIXED[RIDGE] / (count * problems.modulus[k])
        for r in range(count):
            own = begin + r
            target[own] = y[r]
            for f in range(width):
                rows[own, f] = work[r * width + f]
                work[r * width + f] = rows[own, f]
            size[own] = _product(work, r * width, r * width, width)
            gain[own] = kappa / (1.0 + kappa * size[own])
        excess = 0.0
        for i in range(count):
            for j in range(count):
                off = _product(work, i * width, j * width, width) * gain[begin + j]
                off += gain[begin + j] / kappa - 1.0 if i == j else 0.0
                excess += off * off
        problems.slack[k] = max(problems.slack[k], 0.5 * np.sqrt(kappa * excess))


@inlined
def _product(x: Array, one: int, two: int, width: int) -> float:
    """The product of two rows."""
    lanes, found = lanes_of(x), nothing(x)
    for f in range(0, width, lanes):
        found = found + load(x, one + f) * load(x, two + f)
    return total(found)


@inlined
def _made_orthogonal(x: Array, one: int, two: int, width: int, y: Array, i: int, j: int, limit: float) -> bool:
    """Turn two rows and their targets by the angle that makes the rows' product zero, unless it is within the limit."""
    cross, lanes = _product(x, one, two, width), lanes_of(x)
    if not abs(cross) > limit:
        return False
    ratio = (_product(x, two, two, width) - _product(x, one, one, width)) / (2.0 * cross)
    tangent = (1.0 if ratio >= 0.0 else -1.0) / (abs(ratio) + np.sqrt(1.0 + ratio * ratio))
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    sine = cosine * tangent
    c, s = spread(cosine), spread(sine)
    for f in range(0, width, lanes):
        v, w = load(x, one + f), load(x, two + f)
        store(x, one + f, c * v - s * w)
        store(x, two + f, s * v + c * w)
    y[i], y[j] = cosine * y[i] - sine * y[j], sine * y[i] + cosine * y[j]
    return True


@compiled
def orthogonal_phase(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    kept: tuple[Array, ...],
    server_models: Array,
    errors: Array,
    means: Array,
    shares: Array,
) -> None:
    """As `coordinate_phase`, of turned rows; a pair's rows lie side by side."""
    problems, own = Problems(*fields), Turned(*kept)
    x, width, dimension, counts = own.rows.reshape(-1), own.rows.shape[1], means.shape[1], problems.counts
    models, lags, centres = server_models.reshape(-1), own.lag.reshape(-1), own.centre.reshape(-1)
    pair_means, lanes, one, most = means.reshape(-1), lanes_of(x), problems.rho.dtype.type(1.0), 0
    for place in range(len(bounds) - 1):
        if bounds[place] < bounds[place + 1]:
            last = clients[bounds[place + 1] - 1]
            most = max(most, own.first[last] + counts[last] - own.first[clients[bounds[place]]])
    received, sums, squares = np.zeros(width, x.dtype), np.zeros(width, x.dtype), np.zeros(most + lanes, x.dtype)
    for place in range(len(bounds) - 1):
        if bounds[place] == bounds[place + 1]:
            means[place] = 0.0
            continue
        pair, last = first_pair + place, clients[bounds[place + 1] - 1]
        at, end = own.first[clients[bounds[place]]], own.first[last] + counts[last]
        lose, keep = own.shrinkage[pair], one - own.shrinkage[pair]
        move_pair(models, lags, centres, pair * dimension, keep, lose, dimension)
        for f in range(0, dimension, lanes):
            store(received, f, load_first(centres, pair * dimension + f, dimension - f))
            store(sums, f, nothing(x))
        for r in range(at, end, AT_ONCE):
            _four_rows(own, x, width, r, end, keep, lose, received, squares, r - at, sums)
        for i in range(bounds[place], bounds[place + 1]):
            _certify(problems, own, clients[i], at, lose, squares, errors, i)
        scale = spread(-shares[place, 0])
        for f in range(0, dimension, lanes):
            mean = load(sums, f) * scale - load_first(lags, pair * dimension + f, dimension - f)
            store_first(pair_means, place * dimension + f, mean, dimension - f)


@inlined
def _four_rows(
    own: Turned,
    x: Array,
    width: int,
    r: int,
    end: int,
    keep: float,
    lose: float,
    received: Array,
    squares: Array,
    place: int,
    sums: Array,
) -> None:
    """r = y − x·s(w_{q,s} + u) − sλb and a = κr/(1 + κλ); then e = sb + a and b ← (1 − s)b − a, and sums += Σ b x.

    Where fewer than four rows are left, the last one stands in for the others, with b = 0.
    """
    lanes, last, left = lanes_of(x), end - 1, min(AT_ONCE, end - r)
    one, two = r * width, min(r + 1, last) * width
    three, four = min(r + 2, last) * width, min(r + 3, last) * width
    p, q, s, t = nothing(x), nothing(x), nothing(x), nothing(x)
    for f in range(0, width, lanes):
        v = load(received, f)
        p, q = p + load(x, one + f) * v, q + load(x, two + f) * v
        s, t = s + load(x, three + f) * v, t + load(x, four + f) * v
    kept, lost, b = spread(keep), spread(lose), load(own.dual, r)
    away = load(own.target, r) - (sums_of(p, q, s, t) + kept * (load(own.size, r) * b))
    a = load(own.gain, r) * away
    new = earlier(lost * b - a, left)
    store_first(squares, place, away * away, left)
    store_first(own.model, r, kept * b + a, left)
    store_first(own.dual, r, new, left)
    p, q, s, t = spread_lane(new, 0), spread_lane(new, 1), spread_lane(new, 2), spread_lane(new, 3)
    for f in range(0, width, lanes):
        added = load(sums, f) + p * load(x, one + f)
        added = added + q * load(x, two + f)
        added = added + s * load(x, three + f)
        store(sums, f, added + t * load(x, four + f))


@inlined
def _certify(
    problems: Problems, own: Turned, k: int, at: int, lose: float, squares: Array, errors: Array, i: int
) -> None:
    """What the turned rows get wrong in the model of one client, now and since earlier rounds."""
    rows, begin, square, lanes = problems.counts[k], own.first[k] - at, nothing(squares), lanes_of(squares)
    for r in range(0, rows, lanes):
        square = square + earlier(load(squares, begin + r), rows - r)
    wrong = problems.slack[k] * np.sqrt(total(square))
    errors[i] = wrong + own.drift[k]
    own.drift[k] = lose * own.drift[k] + wrong
