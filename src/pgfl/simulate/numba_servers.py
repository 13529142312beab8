"""The servers' side of a round: averages over neighbours, then over clusters. Twin of `NeighbourhoodAverage`."""

from __future__ import annotations

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined
from pgfl.simulate.numba_lanes import AT_ONCE, load, nothing, spread, store
from pgfl.simulate.numba_products import lanes_of


@compiled
def averaged_and_learned(
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
        keep, learn, last = spread(one - tau), spread(tau), at + dimension - lanes
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
        u, v, w, z = nothing(values), nothing(values), nothing(values), nothing(values)
        for e in range(start, stop):
            weight, begin = spread(weights[e]), columns[e] * dimension
            u, v = u + weight * load(values, begin + one), v + weight * load(values, begin + two)
            w, z = w + weight * load(values, begin + three), z + weight * load(values, begin + four)
        store(out, at + one, u)
        store(out, at + two, v)
        store(out, at + three, w)
        store(out, at + four, z)
