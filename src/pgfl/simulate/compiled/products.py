"""Products of one client's rows with vectors: where a round spends its time. Twins of `rows_times` and `times_rows`.

A vector of d numbers is worked on in lanes. *Padded*, it is cut into vectors of as many numbers as there are lanes; the
last one ends at d, and so repeats numbers of the one before. Vectors shorter than one register are taken as they are.
Arrays of one row per client or pair are given flat, with the place where the row begins.
"""

from __future__ import annotations

import numpy as np

from pgfl.arrays import Array
from pgfl.simulate.compiled.cache import inlined
from pgfl.simulate.compiled.lanes import (
    AT_ONCE,
    BYTES,
    broadcast,
    load,
    mask_after,
    mask_before,
    store,
    store_sums,
    total,
    zeros,
)

# mypy: disable-error-code="no-any-return"


MOST_REGISTERS = 8  # of a row: with it, the model and the step must stay in 32 registers


def registers_of(features: Array) -> tuple[int, ...] | None:
    """As many places as a row has registers, 1, 2, 4 or 8, for the compiler; None if it does not fill or fit them."""
    dimension, lanes, registers = features.shape[1], BYTES // features.itemsize, 1
    while registers * lanes < dimension:
        registers *= 2
    return (0,) * registers if lanes <= dimension and registers <= MOST_REGISTERS else None


@inlined
def padded_length(dimension: int, lanes: int) -> int:
    """Return the length of a padded vector; `add_rows` works on four registers at a time."""
    block = AT_ONCE * lanes
    return (dimension + block - 1) // block * block


@inlined
def padded_zeros(like: Array, dimension: int, lanes: int) -> Array:
    """Return a padded vector of zeros aligned to a cache line; else each register would lie in two lines."""
    length = padded_length(dimension, lanes)
    room = np.zeros(length + lanes, like.dtype)
    skipped = -room.ctypes.data % BYTES // room.itemsize
    return room[skipped : skipped + length]


@inlined
def pack_centre(
    models: Array, own: int, duals: Array, client: int, scale: float, dimension: int, lanes: int, out: Array
) -> None:
    """out = (w_{q,s} + φ_k/ρ)·ρ/m, padded; `equations.client_centre`."""
    if dimension < lanes:
        for f in range(dimension):
            out[f] = (models[own + f] + duals[client + f]) * scale
        return
    factor = broadcast(scale)
    for b in range(0, dimension, lanes):
        f = min(b, dimension - lanes)
        store(out, b, (load(models, own + f) + load(duals, client + f)) * factor)


@inlined
def pack_settled_centre(
    models: Array, own: int, duals: Array, client: int, own_models: Array, scale: float, dimension: int, lanes: int,
    out: Array,
) -> None:  # fmt: skip
    """φ_k/ρ += w_{q,s} − w_k, put off since the round before; then as `pack_centre`. Twin: `client_dual_update`."""
    if dimension < lanes:
        for f in range(dimension):
            duals[client + f] += models[own + f] - own_models[client + f]
            out[f] = (models[own + f] + duals[client + f]) * scale
        return
    factor, last = broadcast(scale), dimension - lanes
    end = load(duals, client + last)  # before the numbers that it shares with the one before are changed
    for f in range(0, last + 1, lanes):
        w = load(models, own + f)
        dual = load(duals, client + f) + (w - load(own_models, client + f))
        store(duals, client + f, dual)
        store(out, f, (w + dual) * factor)
    if dimension % lanes:
        w = load(models, own + last)
        dual = end + (w - load(own_models, client + last))
        store(duals, client + last, dual)
        store(out, dimension - dimension % lanes, (w + dual) * factor)


@inlined
def pack_padded(values: Array, at: int, scale: float, dimension: int, lanes: int, out: Array) -> None:
    """out = scale · v, padded."""
    if dimension < lanes:
        for f in range(dimension):
            out[f] = scale * values[at + f]
        return
    factor = broadcast(scale)
    for b in range(0, dimension, lanes):
        store(out, b, load(values, at + min(b, dimension - lanes)) * factor)


@inlined
def scaled(vector: Array, scale: float, lanes: int) -> None:
    """v = scale · v, of a padded v."""
    factor = broadcast(scale)
    for b in range(0, len(vector), lanes):
        store(vector, b, load(vector, b) * factor)


@inlined
def unpack_padded(vector: Array, scale: float, dimension: int, lanes: int, out: Array, at: int) -> None:
    """out[at : at + d] = scale · v, of a padded v."""
    if dimension < lanes:
        for f in range(dimension):
            out[at + f] = scale * vector[f]
        return
    factor = broadcast(scale)
    for b in range(0, dimension, lanes):
        store(out, at + min(b, dimension - lanes), load(vector, b) * factor)


@inlined
def four_rows_times(
    x: Array, begins: tuple[int, int, int, int], vector: Array, dimension: int, lanes: int, out: Array, place: int
) -> None:
    """out[place : place + 4] = the products of a padded v and the rows that begin there, of a register or more."""
    one, two, three, four = begins
    whole = dimension - dimension % lanes
    a, b, c, d = zeros(x), zeros(x), zeros(x), zeros(x)
    for f in range(0, whole, lanes):
        v = load(vector, f)
        a, b = a + load(x, one + f) * v, b + load(x, two + f) * v
        c, d = c + load(x, three + f) * v, d + load(x, four + f) * v
    if whole < dimension:
        f = dimension - lanes
        v = mask_before(load(vector, whole), whole - f)
        a, b = a + load(x, one + f) * v, b + load(x, two + f) * v
        c, d = c + load(x, three + f) * v, d + load(x, four + f) * v
    store_sums(out, place, a, b, c, d)


@inlined
def rows_times(x: Array, at: int, rows: int, vector: Array, dimension: int, lanes: int, out: Array) -> None:
    """out = X v of a padded v, four rows at a time; `out` has room for three numbers more.

    Where fewer than four rows are left, the last one stands in for the others: a branch would cost more.
    """
    if dimension < lanes:
        for r in range(rows):
            total = x[at + r * dimension] * vector[0]
            for f in range(1, dimension):
                total += x[at + r * dimension + f] * vector[f]
            out[r] = total
        return
    last = at + (rows - 1) * dimension
    for r in range(0, rows, AT_ONCE):
        one = at + r * dimension
        two, three, four = min(one + dimension, last), min(one + 2 * dimension, last), min(one + 3 * dimension, last)
        four_rows_times(x, (one, two, three, four), vector, dimension, lanes, out, r)


@inlined
def add_rows(x: Array, at: int, rows: int, moves: Array, dimension: int, lanes: int, vector: Array) -> None:
    """v += Xᵀ a of a padded v, which stays in four registers while the rows go by."""
    if dimension < lanes:
        for r in range(rows):
            for f in range(dimension):
                vector[f] += moves[r] * x[at + r * dimension + f]
        return
    last = dimension - lanes
    for b in range(0, dimension, AT_ONCE * lanes):
        one, two = at + min(b, last), at + min(b + lanes, last)
        three, four = at + min(b + 2 * lanes, last), at + min(b + 3 * lanes, last)
        v, w = load(vector, b), load(vector, b + lanes)
        y, z = load(vector, b + 2 * lanes), load(vector, b + 3 * lanes)
        for r in range(rows):
            a, row = broadcast(moves[r]), r * dimension
            v, w = v + a * load(x, one + row), w + a * load(x, two + row)
            y, z = y + a * load(x, three + row), z + a * load(x, four + row)
        store(vector, b, v)
        store(vector, b + lanes, w)
        store(vector, b + 2 * lanes, y)
        store(vector, b + 3 * lanes, z)


@inlined
def chosen_rows_times(
    x: Array, chosen: Array, at: int, rows: int, vector: Array, dimension: int, lanes: int, out: Array
) -> None:
    """As `rows_times`, of the rows chosen[at : at + rows], which need not lie side by side."""
    if dimension < lanes:
        for r in range(rows):
            own = chosen[at + r] * dimension
            total = x[own] * vector[0]
            for f in range(1, dimension):
                total += x[own + f] * vector[f]
            out[r] = total
        return
    last = at + rows - 1
    for r in range(at, at + rows, AT_ONCE):
        one, two = chosen[r] * dimension, chosen[min(r + 1, last)] * dimension
        three, four = chosen[min(r + 2, last)] * dimension, chosen[min(r + 3, last)] * dimension
        four_rows_times(x, (one, two, three, four), vector, dimension, lanes, out, r - at)


@inlined
def add_chosen_rows(
    x: Array, chosen: Array, at: int, rows: int, moves: Array, dimension: int, lanes: int, vector: Array
) -> None:
    """As `add_rows`, of the rows chosen[at : at + rows] and the numbers moves[at : at + rows]."""
    if dimension < lanes:
        for r in range(at, at + rows):
            for f in range(dimension):
                vector[f] += moves[r] * x[chosen[r] * dimension + f]
        return
    last = dimension - lanes
    for b in range(0, dimension, AT_ONCE * lanes):
        one, two = min(b, last), min(b + lanes, last)
        three, four = min(b + 2 * lanes, last), min(b + 3 * lanes, last)
        v, w = load(vector, b), load(vector, b + lanes)
        y, z = load(vector, b + 2 * lanes), load(vector, b + 3 * lanes)
        for r in range(at, at + rows):
            a, row = broadcast(moves[r]), chosen[r] * dimension
            v, w = v + a * load(x, one + row), w + a * load(x, two + row)
            y, z = y + a * load(x, three + row), z + a * load(x, four + row)
        store(vector, b, v)
        store(vector, b + lanes, w)
        store(vector, b + 2 * lanes, y)
        store(vector, b + 3 * lanes, z)


@inlined
def symmetric_times(matrix: Array, at: int, rows: int, vector: Array, lanes: int, out: Array) -> None:
    """out = A v of a symmetric A, whose j-th row is weighted by v_j; of long rows, four registers at a time.

    A register may reach past the end of its row: both arrays need room for one register more.
    """
    if rows <= 2 * lanes:
        for r in range(0, rows, lanes):
            total = load(matrix, at + r) * broadcast(vector[0])
            for j in range(1, rows):
                total = total + load(matrix, at + j * rows + r) * broadcast(vector[j])
            store(out, r, total)
        return
    last = rows - lanes
    for b in range(0, rows, AT_ONCE * lanes):
        one, two = min(b, last), min(b + lanes, last)
        three, four = min(b + 2 * lanes, last), min(b + 3 * lanes, last)
        u, v, w, z = zeros(matrix), zeros(matrix), zeros(matrix), zeros(matrix)
        for j in range(rows):
            a, row = broadcast(vector[j]), at + j * rows
            u, v = u + load(matrix, row + one) * a, v + load(matrix, row + two) * a
            w, z = w + load(matrix, row + three) * a, z + load(matrix, row + four) * a
        store(out, one, u)
        store(out, two, v)
        store(out, three, w)
        store(out, four, z)


@inlined
def add_contribution(vector: Array, duals: Array, client: int, dimension: int, lanes: int, sums: Array) -> None:
    """sums += w_k − φ_k/ρ, of a padded w_k to padded sums; `equations.contribution`."""
    if dimension < lanes:
        for f in range(dimension):
            sums[f] += vector[f] - duals[client + f]
        return
    for b in range(0, dimension, lanes):
        own = load(duals, client + min(b, dimension - lanes))
        store(sums, b, load(sums, b) + (load(vector, b) - own))


@inlined
def add_padded(vector: Array, dimension: int, lanes: int, sums: Array) -> None:
    """sums += w_k, both padded."""
    if dimension < lanes:
        for f in range(dimension):
            sums[f] += vector[f]
        return
    for b in range(0, dimension, lanes):
        store(sums, b, load(sums, b) + load(vector, b))


@inlined
def add_difference(left: Array, i: int, right: Array, j: int, dimension: int, lanes: int, out: Array, at: int) -> None:
    """out += u − v, of rows that lie flat."""
    if dimension < lanes:
        for f in range(dimension):
            out[at + f] += left[i + f] - right[j + f]
        return
    for b in range(0, dimension, lanes):
        f = min(b, dimension - lanes)
        store(out, at + f, load(out, at + f) + mask_before(load(left, i + f) - load(right, j + f), b - f))


@inlined
def residual(targets: Array, start: int, rows: int, image: Array, lanes: int) -> float:
    """Xc becomes y − Xc; returns ‖y − Xc‖². Both arrays need room for one register more."""
    square = zeros(image)
    for r in range(0, rows, lanes):
        away = mask_after(load(targets, start + r) - load(image, r), rows - r)
        store(image, r, away)
        square = square + away * away
    return total(square)
