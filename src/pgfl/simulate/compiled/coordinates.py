"""Ridge rounds in which everyone takes part: a client's dual and model as coordinates with respect to its own rows.

With s = ρ/m, the primal solution w_k = s(w_{q,s} + φ_k/ρ) + X_kᵀa and the dual update φ_k/ρ += w_{q,s} − w_k never
leave the span of the client's rows and a vector that is the same for all clients of a (server, cluster) pair:

    φ_k/ρ = u + X_kᵀb,    w_k = s(w_{q,s} + u) + X_kᵀe.

So a round reads a client's rows and D_k numbers more, and writes no vector of length d. The vectors are computed when
somebody asks for them. Twins: `equations.client_centre`, `contribution` and `client_dual_update`, and `RidgeSolver`.

This is the kernel of rows that stay where they lie, because there is no memory for another copy of them; those of
`compiled.orthogonal` take less time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pgfl.arrays import Array, Ints
from pgfl.simulate.compiled.cache import compiled, inlined
from pgfl.simulate.compiled.factors import Problems
from pgfl.simulate.compiled.lanes import (
    BYTES,
    broadcast,
    broadcast_like,
    lanes_of,
    load,
    load_first,
    load_like,
    load_padded,
    mask_after,
    prefetch,
    store,
    store_first,
    total,
    zero_repeats,
    zeros,
    zeros_in,
)
from pgfl.simulate.compiled.products import add_chosen_rows, chosen_rows_times, pack_padded, padded_zeros

# mypy: disable-error-code="no-any-return"


GROUP = 2**13  # bytes of rows that are worked on together, which stay in the nearest cache meanwhile
NEAR = 2**19  # bytes of rows that stay in the second cache
PER_ROW = ("dual", "image", "model")  # what coordinates have of each row, from round to round
Kept = TypeVar("Kept", bound=Any)


class Coordinates(NamedTuple):
    """The coordinates of all clients and pairs; where a client's begin stands in `first`."""

    first: Array
    row: Array  # where each number's row is in the features
    target: Array  # y of that row
    dual: Array  # b, one number per row
    image: Array  # X Xᵀb, one number per row, kept beside b instead of computed anew
    model: Array  # e, one number per row
    drift: Array  # per client, a bound on what the inverse's error has done to `image`, in the model
    shrinkage: Array  # 1 − s, per pair
    lag: Array  # u − w_{q,s}, one row per pair
    centre: Array  # s(w_{q,s} + u) of the last round, one row per pair
    server: Array  # of every pair


def initial_coordinates(
    first_rows: Ints, counts: Ints, targets: Array, shrinkage: Array, server_models: Array, servers: Ints
) -> Coordinates:
    """Return zero coordinates of clients whose rows begin at `first_rows`; arrays have room for a register."""
    room, ends = BYTES // server_models.itemsize, np.cumsum(counts)
    index = np.int32 if len(targets) < 2**31 else np.int64
    row = np.repeat((first_rows - ends + counts).astype(index), counts)
    row += np.arange(len(row), dtype=index)
    target = np.concatenate([targets[row], np.zeros(room, targets.dtype)])
    b, image, e = np.zeros((3, int(counts.sum()) + room), server_models.dtype)
    drift = np.zeros(len(counts), server_models.dtype)
    pairs = (shrinkage, -server_models, np.zeros_like(server_models), servers)
    return Coordinates(ends - counts, row, target, b, image, e, drift, *pairs)


def pack_coordinates(kept: Mapping[str, Array], counts: Ints, most: int) -> dict[str, Array]:
    """Arrays of one row per pair or client, for a checkpoint; a client's numbers of `most` rows lie side by side."""
    inside, numbers = np.arange(most) < counts[:, None], _per_row(kept)
    rows = np.zeros((len(numbers), *inside.shape), kept["dual"].dtype)
    for own, values in zip(rows, numbers, strict=True):
        own[inside] = values[: int(counts.sum())]
    return {
        "pairs_lag": kept["lag"],
        "pairs_centre": kept["centre"],
        "clients_rows": np.moveaxis(rows, 0, 1),
        "clients_drift": kept["drift"],
    }


def unpack_coordinates(arrays: Mapping[str, Array], like: Kept, counts: Ints) -> Kept | None:
    """Return the coordinates of `pack_coordinates`; None if there are none, or those of another kernel."""
    rows, numbers = np.moveaxis(arrays.get("clients_rows", np.zeros((0, 0, 0))), 1, 0), _per_row(like._asdict())
    if len(rows) != len(numbers):
        return None
    inside = np.arange(rows.shape[2]) < counts[:, None]
    for own, values in zip(rows, numbers, strict=True):
        values[: int(counts.sum())] = own[inside]
    return like._replace(lag=arrays["pairs_lag"], centre=arrays["pairs_centre"], drift=arrays["clients_drift"])


def _per_row(kept: Mapping[str, Array]) -> list[Array]:
    return [kept[name] for name in PER_ROW if name in kept]


@compiled
def coordinate_phase(
    clients: Array,
    bounds: Array,
    first_pair: int,
    fields: tuple[Array, ...],
    kept: tuple[Array, ...],
    server_models: Array,
    errors: Array,
    means: Array,
    shares: Array,
    registers: tuple[int, ...] | None,
) -> None:
    """ClientPrimalUpdate of everyone, and the mean of w_k − φ_k/ρ for every pair; the dual update but for w_{q,s}.

    a = κ(I + κXXᵀ)⁻¹r with r = y − s(X(w_{q,s} + u) + XXᵀb); then XXᵀa = r − a/κ. The dual update takes b to
    (1 − s)b − a and u to (1 − s)u − s w_{q,s} + the new w_{q,s}; what a client contributes is the new w_{q,s} minus the
    new φ_k/ρ.
    """
    problems, own = Problems(*fields), Coordinates(*kept)
    x, dimension, counts = problems.features.reshape(-1), problems.features.shape[1], problems.counts
    models, lags, centres, pair_means = (
        server_models.reshape(-1),
        own.lag.reshape(-1),
        own.centre.reshape(-1),
        means.reshape(-1),
    )
    lanes, one, together = lanes_of(x), problems.rho.dtype.type(1.0), GROUP // (dimension * x.itemsize)
    received, sums = padded_zeros(x, dimension, lanes), padded_zeros(x, dimension, lanes)
    room, prefetched = together, -1
    for k in clients:
        room = max(room, counts[k])
    image, away, move = np.zeros((3, room + 2 * lanes), x.dtype)
    for place in range(len(bounds) - 1):
        if bounds[place] == bounds[place + 1]:
            means[place] = 0.0
            continue
        pair = first_pair + place
        if own.server[pair] != prefetched:
            prefetched = own.server[pair]
            _prefetch_server(problems, own.server, pair, clients, bounds, place)
        lose, keep = own.shrinkage[pair], one - own.shrinkage[pair]
        for f in range(0, dimension, lanes):
            move_pair(models, lags, centres, pair * dimension + f, dimension - f, broadcast(keep), broadcast(lose))
        pack_padded(centres, pair * dimension, one, dimension, lanes, received)
        sums[:] = 0.0
        start = bounds[place]
        while start < bounds[place + 1]:
            at, rows, stop = own.first[clients[start]], counts[clients[start]], start + 1
            while stop < bounds[place + 1] and rows + counts[clients[stop]] <= together:
                rows += counts[clients[stop]]
                stop += 1
            _products(x, own.row, at, rows, received, dimension, lanes, registers, image)
            _residuals(own, at, rows, keep, lanes, image, away)
            for i in range(start, stop):
                _solve(problems, own, clients[i], at, lose, lanes, away, move, image, errors, i)
            _move_rows(own, at, rows, keep, lose, lanes, move, image)
            _add_products(x, own.row, at, rows, own.dual, dimension, lanes, registers, sums)
            start = stop
        _mean_of_pair(sums, -shares[place, 0], lags, pair * dimension, dimension, lanes, pair_means, place * dimension)


@inlined
def _prefetch_server(problems: Problems, servers: Array, pair: int, clients: Array, bounds: Array, place: int) -> None:
    """Read a server's rows in the order in which they lie, so that each of its pairs finds them near.

    The clients of a pair lie apart. Read pair by pair, their rows would be waited for: memory is read ahead only where
    it is read in order. Nothing is read if other rows lie between them, or if they would not stay.
    """
    x, dimension, stop = problems.features.reshape(-1), problems.features.shape[1], place
    while stop < len(bounds) - 1 and servers[pair + stop - place] == servers[pair]:
        stop += 1
    rows, begin, end = 0, problems.first[clients[bounds[place]]], 0
    for i in range(bounds[place], bounds[stop]):
        first, count = problems.first[clients[i]], problems.counts[clients[i]]
        rows, begin, end = rows + count, min(begin, first), max(end, first + count)
    if end - begin == rows and rows * dimension * x.itemsize <= NEAR:
        for f in range(begin * dimension, end * dimension, lanes_of(x)):
            prefetch(x, f)


@inlined
def _products(
    x: Array, chosen: Array, at: int, rows: int, vector: Array, dimension: int, lanes: int,
    registers: tuple[int, ...] | None, out: Array,
) -> None:  # fmt: skip
    """out = X v of the rows chosen[at : at + rows] and a padded v, which stays in registers if it fits into them."""
    if registers is None:
        chosen_rows_times(x, chosen, at, rows, vector, dimension, lanes, out)
    else:
        centre = zero_repeats(load_like(zeros_in(registers, x), vector, 0), dimension)
        for r in range(rows):
            out[r] = total(load_padded(centre, x, chosen[at + r] * dimension, dimension) * centre)


@inlined
def _add_products(
    x: Array, chosen: Array, at: int, rows: int, moves: Array, dimension: int, lanes: int,
    registers: tuple[int, ...] | None, vector: Array,
) -> None:  # fmt: skip
    """v += Xᵀ a of the same rows and the numbers moves[at : at + rows]."""
    if registers is None:
        add_chosen_rows(x, chosen, at, rows, moves, dimension, lanes, vector)
    else:
        added = load_like(zeros_in(registers, x), vector, 0)
        for r in range(at, at + rows):
            added = added + load_padded(added, x, chosen[r] * dimension, dimension) * broadcast_like(added, moves[r])
        store(vector, 0, added)


@inlined
def _residuals(own: Coordinates, at: int, rows: int, keep: float, lanes: int, image: Array, away: Array) -> None:
    """r = y − s(X(w_{q,s} + u) + XXᵀb) of a group of clients, from the first of the two products."""
    share = broadcast(keep)
    for r in range(0, rows, lanes):
        store(away, r, load(own.target, at + r) - (load(image, r) + share * load(own.image, at + r)))


@inlined
def _solve(
    problems: Problems,
    own: Coordinates,
    k: int,
    at: int,
    lose: float,
    lanes: int,
    away: Array,
    move: Array,
    image: Array,
    errors: Array,
    i: int,
) -> None:
    """a = κ(I + κXXᵀ)⁻¹r and XXᵀa = r − a/κ of one client, and its certificate.

    A register may reach into the numbers of the next client, which is computed after it and then writes its own.
    """
    rows, begin, where = problems.counts[k], own.first[k] - at, problems.at[k]
    stretch, square = broadcast(problems.rho.dtype.type(0.5 * rows * problems.modulus[k])), zeros(away)
    for r in range(0, rows, lanes):
        solved = load(problems.factors, where + r) * broadcast(away[begin])
        for j in range(1, rows):
            solved = solved + load(problems.factors, where + j * rows + r) * broadcast(away[begin + j])
        own_rows = mask_after(load(away, begin + r), rows - r)
        square = square + own_rows * own_rows
        store(move, begin + r, solved)
        store(image, begin + r, own_rows - solved * stretch)
    wrong = problems.slack[k] * np.sqrt(total(square))
    errors[i] = wrong + own.drift[k]
    own.drift[k] = lose * own.drift[k] + wrong


@inlined
def _move_rows(
    own: Coordinates, at: int, rows: int, keep: float, lose: float, lanes: int, move: Array, image: Array
) -> None:
    """e = s b + a, then b ← (1 − s) b − a and XXᵀb ← (1 − s) XXᵀb − XXᵀa, of a group of clients."""
    kept, lost = broadcast(keep), broadcast(lose)
    for r in range(0, rows, lanes):
        b, a, left = load(own.dual, at + r), load(move, r), rows - r
        store_first(own.model, at + r, kept * b + a, left)
        store_first(own.dual, at + r, lost * b - a, left)
        store_first(own.image, at + r, lost * load(own.image, at + r) - load(image, r), left)


@inlined
def move_pair(current: Array, lags: Array, centres: Array, at: int, count: int, kept: Array, lost: Array) -> Array:
    """s(w + u) of a register of a pair, which is kept, and u without the w that comes: (1 − s)u − s w."""
    w = load_first(current, at, count)
    u = load_first(lags, at, count) + w
    centre = kept * (w + u)
    store_first(centres, at, centre, count)
    store_first(lags, at, lost * u - kept * w, count)
    return centre


@inlined
def _mean_of_pair(
    sums: Array, scale: float, lags: Array, at: int, dimension: int, lanes: int, means: Array, place: int
) -> None:
    """mean = scale · Σ X_kᵀb − (u without the w that comes)."""
    if dimension < lanes:
        for f in range(dimension):
            means[place + f] = scale * sums[f] - lags[at + f]
        return
    factor = broadcast(scale)
    for b in range(0, dimension, lanes):
        f = min(b, dimension - lanes)
        store(means, place + f, load(sums, b) * factor - load(lags, at + f))


@compiled
def expand(
    clients: Array,
    pairs: Array,
    rows: Array,
    begins: Array,
    counts: Array,
    first: Array,
    shared: Array,
    own: Array,
    out: Array,
    first_out: int,
) -> None:
    """out_k = v + X_kᵀz for every client, with v of its pair and its own z; `out` begins with client `first_out`."""
    x, vectors, result, lanes = rows.reshape(-1), shared.reshape(-1), out.reshape(-1), lanes_of(rows)
    width, dimension = rows.shape[1], shared.shape[1]
    for k in clients:
        for f in range(0, dimension, lanes):
            left = dimension - f
            vector = load_first(vectors, pairs[k] * dimension + f, left)
            for r in range(counts[k]):
                vector = vector + broadcast(own[first[k] + r]) * load_first(x, (begins[k] + r) * width + f, left)
            store_first(result, (k - first_out) * dimension + f, vector, left)
