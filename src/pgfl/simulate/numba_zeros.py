"""Rows that are mostly zeros, such as images: only the registers that hold a number are kept, one after the other.

Products with them have the same bits as the products with whole rows, `rows_times` and `add_rows`: what is left out
would have added zero. So it makes no difference to a result which rows are kept in this form.
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import numpy as np

from pgfl.array_types import Array
from pgfl.simulate.numba_compiled import compiled, inlined
from pgfl.simulate.numba_lanes import AT_ONCE, BYTES, load, nothing, spread, store, store_sums

WORTH = 0.5  # share of registers that hold a number below which leaving out the others pays off
LOOKED_AT = 1000  # rows that decide whether the others are looked at

Kept = tuple[Array, Array, Array]
"""Where each row's registers begin, where each of them stands in a spaced vector, and their numbers."""


def without_zeros(features: Array) -> Kept | None:
    """The registers of all rows that hold a number; None where too few would be left out."""
    begins = _begins(features) if may_be_left_out(features) else None
    if begins is None:
        return None
    lanes = BYTES // features.itemsize
    places, values = np.empty(begins[-1], dtype=np.int32), np.empty(begins[-1] * lanes, dtype=features.dtype)
    _copy(features, lanes, places, values)
    return begins, places, values


def may_be_left_out(features: Array) -> bool:
    """Whether the first rows are such that the others are looked at, too."""
    return _begins(features[:LOOKED_AT]) is not None


def _begins(features: Array) -> Array | None:
    """Where each row's registers that hold a number begin; None where too few would be left out."""
    (rows, dimension), lanes = features.shape, BYTES // features.itemsize
    if dimension < lanes:
        return None
    begins = np.zeros(rows + 1, dtype=np.int64)
    _count(features, lanes, begins)
    return None if begins[-1] > WORTH * -(-dimension // lanes) * rows else begins


@compiled
def _count(features: Array, lanes: int, begins: Array) -> None:
    for row in range(len(features)):
        begins[row + 1] = begins[row] + registers_of(features, row, lanes)


@compiled
def _copy(features: Array, lanes: int, places: Array, values: Array) -> None:
    dimension, found = features.shape[1], 0
    for row in range(len(features)):
        for b in range(0, dimension, lanes):
            f = min(b, dimension - lanes)
            if holds_a_number(features, row, f, lanes):
                places[found] = b
                values[found * lanes : (found + 1) * lanes] = features[row, f : f + lanes]
                found += 1


@inlined
def registers_of(features: Array, row: int, lanes: int) -> int:
    """How many registers of a row hold a number."""
    dimension, found = features.shape[1], 0
    for b in range(0, dimension, lanes):
        found += holds_a_number(features, row, min(b, dimension - lanes), lanes)
    return found


@inlined
def holds_a_number(features: Array, row: int, f: int, lanes: int) -> bool:
    """Whether the register that begins with the number f of a row is not all zeros."""
    found = False
    for lane in range(f, f + lanes):
        found |= features[row, lane] != 0.0
    return found


@inlined
def kept_rows_times(kept: Kept, start: int, rows: int, vector: Array, lanes: int, out: Array) -> None:
    """out = X v of the rows from `start` on, and of a spaced v whose repeated numbers are zeros."""
    last = start + rows - 1
    for r in range(0, rows, AT_ONCE):
        one = start + r
        a, b = _row_times(kept, one, vector, lanes), _row_times(kept, min(one + 1, last), vector, lanes)
        c, d = _row_times(kept, min(one + 2, last), vector, lanes), _row_times(kept, min(one + 3, last), vector, lanes)
        store_sums(out, r, a, b, c, d)


@inlined
def _row_times(kept: Kept, row: int, vector: Array, lanes: int) -> Array:
    """The products of one row, register by register, not yet added up."""
    begins, places, values = kept
    total = nothing(values)
    for e in range(begins[row], begins[row + 1]):
        total = total + load(values, e * lanes) * load(vector, places[e])
    return total


@inlined
def add_kept_rows(kept: Kept, start: int, rows: int, moves: Array, lanes: int, vector: Array) -> None:
    """v += Xᵀ a of a spaced v and the rows from `start` on."""
    begins, places, values = kept
    for r in range(rows):
        a = spread(moves[r])
        for e in range(begins[start + r], begins[start + r + 1]):
            store(vector, places[e], load(vector, places[e]) + a * load(values, e * lanes))
