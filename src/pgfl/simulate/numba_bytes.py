"""Rows of whole numbers up to 255 times one number per row, such as images: an eighth of the memory.

A client's rows are read from memory in every round in which it takes part, which takes longer than to multiply them.
Registers without a number are left out, as in `numba_zeros`. Twins of `rows_times` and `add_rows`:

    X v = diag(s) (B v),    Xᵀ a = Bᵀ (s a).

They equal the products with whole rows up to rounding, so whose rows are kept as bytes depends on the client's own rows
alone: no bit of a result depends on other clients, on the batch or on the processes.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import numpy as np

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined
from pgfl.simulate.numba_lanes import AT_ONCE, BYTES, load, load_bytes, nothing, spread, store, store_sums
from pgfl.simulate.numba_zeros import WORTH, holds_a_number, registers_of

LARGEST = 255
LONG = 16  # registers of a row, from which on rows are looked at
CLOSE = 4  # units in the last place that a number may be away from its byte times s

InBytes = tuple[Array, Array, Array, Array, Array]
"""Whose rows they are, where each row's registers begin, where each of them stands in a spaced vector, the bytes, and s
of each row."""


def as_bytes(features: Array, first: Array, counts: Array) -> InBytes | None:
    """The rows of clients of whom all are bytes times one number per row, and mostly zeros; None if nobody's are."""
    rows, lanes = len(features), BYTES // features.itemsize
    if features.shape[1] < LONG * lanes:
        return None
    whose, begins = np.zeros(len(counts), dtype=bool), np.zeros(rows + 1, dtype=np.int64)
    scale = np.zeros(rows, dtype=features.dtype)
    _look(features, first, counts, lanes, whose, begins, scale)
    if not whose.any():
        return None
    np.cumsum(begins, out=begins)
    places, values = np.empty(begins[-1], dtype=np.int32), np.empty(begins[-1] * lanes, dtype=np.uint8)
    _copy(features, begins, scale, lanes, places, values)
    return whose, begins, places, values, scale


@compiled
def _look(features: Array, first: Array, counts: Array, lanes: int, whose: Array, begins: Array, scale: Array) -> None:
    """Decide for each client, up to its first row that is no bytes; note s and the number of registers of each row."""
    dimension = features.shape[1]
    most, numbers = WORTH * ((dimension + lanes - 1) // lanes), np.empty(dimension, features.dtype)
    for k in range(len(counts)):
        start, stop, kept, suited = first[k], first[k] + counts[k], 0, True
        for row in range(start, stop):
            scale[row] = _scale(features[row], numbers)
            suited = scale[row] > 0.0
            if not suited:
                break
            begins[row + 1] = registers_of(features, row, lanes)
            kept += begins[row + 1]
        whose[k] = suited and kept <= most * counts[k]
        if not whose[k]:
            begins[start + 1 : stop + 1] = 0


@inlined
def _scale(row: Array, numbers: Array) -> float:
    """s of a row of bytes times s; 0 of another row. No number grows, so a bound on the row's norm holds for both."""
    found, largest, tiny = 0, 0.0, np.finfo(row.dtype).eps
    for x in row:
        if x != 0.0:
            numbers[found] = x
            found, largest = found + 1, max(largest, x)
    for steps in range(LARGEST, 0, -1):
        unit, least = largest / steps, largest
        for x in numbers[:found]:
            n = np.rint(x / unit)
            if not (n >= 1.0 and abs(n * unit - x) <= CLOSE * tiny * x):
                least = 0.0
                break
            least = min(least, x / n)
        if least > 0.0:
            return least * (1.0 - tiny)
    return 0.0 if found else 1.0


@compiled
def _copy(features: Array, begins: Array, scale: Array, lanes: int, places: Array, values: Array) -> None:
    dimension = features.shape[1]
    for row in range(len(features)):
        found = begins[row]
        for b in range(0, dimension if found < begins[row + 1] else 0, lanes):
            f = min(b, dimension - lanes)
            if holds_a_number(features, row, f, lanes):
                places[found] = b
                for lane in range(lanes):
                    values[found * lanes + lane] = np.uint8(np.rint(features[row, f + lane] / scale[row]))
                found += 1


@inlined
def byte_rows_times(kept: InBytes, start: int, rows: int, vector: Array, lanes: int, out: Array) -> None:
    """out = X v of the rows from `start` on, and of a spaced v whose repeated numbers are zeros."""
    scale, last = kept[4], start + rows - 1
    for r in range(0, rows, AT_ONCE):
        one = start + r
        a, b = _row_times(kept, one, vector, lanes), _row_times(kept, min(one + 1, last), vector, lanes)
        c, d = _row_times(kept, min(one + 2, last), vector, lanes), _row_times(kept, min(one + 3, last), vector, lanes)
        store_sums(out, r, a, b, c, d)
    for r in range(rows):
        out[r] *= scale[start + r]


@inlined
def _row_times(kept: InBytes, row: int, vector: Array, lanes: int) -> Array:
    """The products of one row, register by register, not yet added up: four sums, or each would wait for the last."""
    _, begins, places, values, _ = kept
    start, stop = begins[row], begins[row + 1]
    whole = stop - (stop - start) % AT_ONCE
    t, u, v, w = nothing(vector), nothing(vector), nothing(vector), nothing(vector)
    for e in range(start, whole, AT_ONCE):
        at = e * lanes
        t = t + load_bytes(vector, values, at) * load(vector, places[e])
        u = u + load_bytes(vector, values, at + lanes) * load(vector, places[e + 1])
        v = v + load_bytes(vector, values, at + 2 * lanes) * load(vector, places[e + 2])
        w = w + load_bytes(vector, values, at + 3 * lanes) * load(vector, places[e + 3])
    for e in range(whole, stop):
        t = t + load_bytes(vector, values, e * lanes) * load(vector, places[e])
    return (t + u) + (v + w)


@inlined
def add_byte_rows(kept: InBytes, start: int, rows: int, moves: Array, lanes: int, vector: Array) -> None:
    """v += Xᵀ a of a spaced v and the rows from `start` on."""
    _, begins, places, values, scale = kept
    for r in range(rows):
        a = spread(moves[r] * scale[start + r])
        for e in range(begins[start + r], begins[start + r + 1]):
            store(vector, places[e], load(vector, places[e]) + a * load_bytes(vector, values, e * lanes))
