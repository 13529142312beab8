"""Ridge rounds in which everyone takes part, on rows made orthogonal: every row is a problem by itself.

With the eigenvectors V of XXᵀ, a client's loss is that of the rows VᵀX and the targets Vᵀy, and these rows are
orthogonal: XXᵀ and its inverse are diagonal. So the D × D product of `compiled.coordinates` vanishes, and a round loads
each row once: it is multiplied by the model, its coordinate moves, and it is added to the pair's sum while it is in
registers. The coordinates are those of the orthogonal rows, of which the kernel needs a copy; `memory` says when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pgfl.arrays import Array
from pgfl.simulate.compiled.blocks import PAGE, aligned
from pgfl.simulate.compiled.cache import compiled, inlined
from pgfl.simulate.compiled.coordinates import move_pair
from pgfl.simulate.compiled.factors import Problems
from pgfl.simulate.compiled.lanes import (
    BYTES,
    broadcast,
    broadcast_like,
    lanes_of,
    load,
    load_first,
    load_like,
    mask_after,
    store,
    store_first,
    total,
    zeros,
    zeros_in,
)
from pgfl.simulate.compiled.margins import FIXED, RIDGE

# mypy: disable-error-code="no-any-return"


SWEEPS = 30  # D × D matrices need six to eight; what is left after the last is counted by the certificate


class OrthogonalRows(NamedTuple):
    """The orthogonal rows and the coordinates of all clients and pairs; where a client's begin stands in `first`."""

    first: Array
    rows: Array  # VᵀX, client by client in the order of the pairs, with zeros up to 1, 2, 4, … registers
    target: Array  # Vᵀy, one number per row
    size: Array  # λ, the squared length of the row
    gain: Array  # κ/(1 + κλ), which is κ(I + κXXᵀ)⁻¹
    square: Array  # r² of the last round, one number per row
    dual: Array  # b, one number per row
    model: Array  # e, one number per row
    drift: Array  # per client, a bound on what its rows' being not quite orthogonal has done, in the model
    shrinkage: Array  # 1 − s, per pair
    lag: Array  # u − w_{q,s}, one row per pair
    centre: Array  # s(w_{q,s} + u) of the last round, one row per pair

    @property
    def registers(self) -> tuple[int, ...]:
        """As many places as a row has registers, for the compiler, which knows a tuple's length."""
        return (0,) * (self.rows.shape[1] * self.rows.itemsize // BYTES)


def orthogonal_rows(
    problems: Problems,
    blocks: list[Array],
    rows: Array,
    shrinkage: Array,
    server_models: Array,
    each: Callable[..., Iterator[None]] = map,
) -> OrthogonalRows:
    """Return the orthogonal rows of all clients of some blocks, in `rows` of zeros, and zero coordinates.

    The certificate of `problems` then counts what the orthogonal rows get wrong, too. `each` goes through the blocks.
    """
    dtype, room = server_models.dtype, BYTES // server_models.itemsize
    first = np.cumsum(problems.counts) - problems.counts
    target, size, gain, square, b, e = (aligned((len(rows) + room,), dtype, PAGE // 8 * i) for i in range(1, 7))
    list(each(lambda clients: orthogonalise(clients, tuple(problems), first, rows, target, size, gain), blocks))
    drift = np.zeros(len(problems.counts), dtype)
    pairs = (shrinkage, -server_models, np.zeros_like(server_models))
    return OrthogonalRows(first, rows, target, size, gain, square, b, e, drift, *pairs)


@compiled
def orthogonalise(
    clients: Array, fields: tuple[Array, ...], first: Array, rows: Array, target: Array, size: Array, gain: Array
) -> None:
    """Turn every client's rows until they are orthogonal (Jacobi's rotations, of two rows at a time).

    The error of the stored gain G is that of `compiled.factors.factor`, now of rows that may be a little oblique:
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
    """Return the product of two rows."""
    lanes, found = lanes_of(x), zeros(x)
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
    c, s = broadcast(cosine), broadcast(sine)
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
    registers: tuple[int, ...],
) -> None:
    """As `coordinate_phase`, of orthogonal rows, which have as many registers as the tuple has places.

    r = y − x·s(w_{q,s} + u) − sλb and a = κr/(1 + κλ); then e = s b + a, and b ← (1 − s)b − a. The rows of a pair lie
    side by side.
    """
    problems, own = Problems(*fields), OrthogonalRows(*kept)
    x, width, dimension, counts = own.rows.reshape(-1), own.rows.shape[1], means.shape[1], problems.counts
    models, lags, centres = server_models.reshape(-1), own.lag.reshape(-1), own.centre.reshape(-1)
    pair_means, lanes, one = means.reshape(-1), lanes_of(x), problems.rho.dtype.type(1.0)
    received, sums = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
    for place in range(len(bounds) - 1):
        if bounds[place] == bounds[place + 1]:
            means[place] = 0.0
            continue
        pair, last = first_pair + place, clients[bounds[place + 1] - 1]
        at, lose, keep = pair * dimension, own.shrinkage[pair], one - own.shrinkage[pair]
        for f in range(0, dimension, lanes):
            store(
                received, f, move_pair(models, lags, centres, at + f, dimension - f, broadcast(keep), broadcast(lose))
            )
        added = zeros_in(registers, x)
        centre = load_like(added, received, 0)
        for r in range(own.first[clients[bounds[place]]], own.first[last] + counts[last]):
            row, b = load_like(added, x, r * width), own.dual[r]
            away = own.target[r] - (total(row * centre) + keep * own.size[r] * b)
            a = own.gain[r] * away
            own.square[r] = away * away
            own.model[r] = keep * b + a
            own.dual[r] = lose * b - a
            added = added + broadcast_like(added, lose * b - a) * row
        store(sums, 0, added)
        scale = broadcast(-shares[place, 0])
        for f in range(0, dimension, lanes):
            mean = load(sums, f) * scale - load_first(lags, at + f, dimension - f)
            store_first(pair_means, place * dimension + f, mean, dimension - f)
    for place in range(len(bounds) - 1):
        for i in range(bounds[place], bounds[place + 1]):
            _certify(problems, own, clients[i], own.shrinkage[first_pair + place], errors, i)


@inlined
def _certify(problems: Problems, own: OrthogonalRows, k: int, lose: float, errors: Array, i: int) -> None:
    """What the orthogonal rows get wrong in the model of one client, now and since earlier rounds."""
    rows, square, lanes = problems.counts[k], zeros(own.square), lanes_of(own.square)
    for r in range(0, rows, lanes):
        square = square + mask_after(load(own.square, own.first[k] + r), rows - r)
    wrong = problems.slack[k] * np.sqrt(total(square))
    errors[i] = wrong + own.drift[k]
    own.drift[k] = lose * own.drift[k] + wrong
