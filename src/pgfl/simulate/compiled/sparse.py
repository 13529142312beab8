"""Rows in the form that suits them: dense, without their zeros, or as bytes; and products with whichever it is."""

from __future__ import annotations

import numpy as np

from pgfl.arrays import Array
from pgfl.simulate.compiled.cache import compiled, inlined
from pgfl.simulate.compiled.lanes import (
    AT_ONCE,
    BYTES,
    broadcast,
    load,
    load_bytes,
    mask_before,
    store,
    store_sums,
    zeros,
)
from pgfl.simulate.compiled.products import add_rows, rows_times

# mypy: disable-error-code="no-any-return"


SPARSE_SHARE = 0.5  # share of registers that hold a number below which leaving out the others pays off
SAMPLED_ROWS = 1000  # rows that decide whether the others are looked at

Kept = tuple[Array, Array, Array]
"""Where each row's registers begin, where each of them stands in a padded vector, and their numbers."""


def sparse_rows(features: Array) -> Kept | None:
    """Return the registers of all rows that hold a number; None where too few would be left out."""
    begins = _begins(features) if mostly_zeros(features) else None
    if begins is None:
        return None
    lanes = BYTES // features.itemsize
    places, values = np.empty(begins[-1], dtype=np.int32), np.empty(begins[-1] * lanes, dtype=features.dtype)
    _copy(features, lanes, places, values)
    return begins, places, values


def mostly_zeros(features: Array) -> bool:
    """Return whether the first rows are sparse enough to scan the others."""
    return _begins(features[:SAMPLED_ROWS]) is not None


def _begins(features: Array) -> Array | None:
    """Return where each row's registers that hold a number begin; None where too few would be left out."""
    (rows, dimension), lanes = features.shape, BYTES // features.itemsize
    if dimension < lanes:
        return None
    begins = np.zeros(rows + 1, dtype=np.int64)
    _count(features, lanes, begins)
    return None if begins[-1] > SPARSE_SHARE * -(-dimension // lanes) * rows else begins


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
            if has_nonzero(features, row, f, lanes):
                places[found] = b
                values[found * lanes : (found + 1) * lanes] = features[row, f : f + lanes]
                found += 1


@inlined
def registers_of(features: Array, row: int, lanes: int) -> int:
    """Return how many registers of a row hold a number."""
    dimension, found = features.shape[1], 0
    for b in range(0, dimension, lanes):
        found += has_nonzero(features, row, min(b, dimension - lanes), lanes)
    return found


@inlined
def has_nonzero(features: Array, row: int, f: int, lanes: int) -> bool:
    """Return whether the register that begins with the number f of a row is not all zeros."""
    found = False
    for lane in range(f, f + lanes):
        found |= features[row, lane] != 0.0
    return found


@inlined
def kept_rows_times(kept: Kept, start: int, rows: int, vector: Array, lanes: int, out: Array) -> None:
    """out = X v of the rows from `start` on, and of a padded v whose repeated numbers are zeros."""
    last = start + rows - 1
    for r in range(0, rows, AT_ONCE):
        one = start + r
        a, b = _row_times(kept, one, vector, lanes), _row_times(kept, min(one + 1, last), vector, lanes)
        c, d = _row_times(kept, min(one + 2, last), vector, lanes), _row_times(kept, min(one + 3, last), vector, lanes)
        store_sums(out, r, a, b, c, d)


@inlined
def _row_times(kept: Kept, row: int, vector: Array, lanes: int) -> Array:
    """Return the products of one row, register by register, not yet added up."""
    begins, places, values = kept
    total = zeros(values)
    for e in range(begins[row], begins[row + 1]):
        total = total + load(values, e * lanes) * load(vector, places[e])
    return total


@inlined
def add_kept_rows(kept: Kept, start: int, rows: int, moves: Array, lanes: int, vector: Array) -> None:
    """v += Xᵀ a of a padded v and the rows from `start` on."""
    begins, places, values = kept
    for r in range(rows):
        a = broadcast(moves[r])
        for e in range(begins[start + r], begins[start + r + 1]):
            store(vector, places[e], load(vector, places[e]) + a * load(values, e * lanes))


# mypy: disable-error-code="no-any-return"


LARGEST = 255
LONG = 16  # registers of a row, from which on rows are looked at
CLOSE = 4  # units in the last place that a number may be away from its byte times s

ByteRows = tuple[Array, Array, Array, Array, Array]
"""Whose rows they are, where each row's registers begin, where each of them stands in a padded vector, the bytes, and s
of each row."""


def byte_rows(features: Array, first: Array, counts: Array) -> ByteRows | None:
    """Return the byte form of the clients whose rows are mostly zeros and multiples of one number; None if none are."""
    rows, lanes = len(features), BYTES // features.itemsize
    if features.shape[1] < LONG * lanes:
        return None
    whose, begins = np.zeros(len(counts), dtype=bool), np.zeros(rows + 1, dtype=np.int64)
    scale = np.zeros(rows, dtype=features.dtype)
    _inspect(features, first, counts, lanes, whose, begins, scale)
    if not whose.any():
        return None
    np.cumsum(begins, out=begins)
    places, values = np.empty(begins[-1], dtype=np.int32), np.empty(begins[-1] * lanes, dtype=np.uint8)
    _copy_bytes(features, begins, scale, lanes, places, values)
    return whose, begins, places, values, scale


@compiled
def _inspect(
    features: Array, first: Array, counts: Array, lanes: int, whose: Array, begins: Array, scale: Array
) -> None:
    """Decide for each client, up to its first row that is no bytes; note s and the number of registers of each row."""
    dimension = features.shape[1]
    most, numbers = SPARSE_SHARE * ((dimension + lanes - 1) // lanes), np.empty(dimension, features.dtype)
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
def _copy_bytes(features: Array, begins: Array, scale: Array, lanes: int, places: Array, values: Array) -> None:
    dimension = features.shape[1]
    for row in range(len(features)):
        found = begins[row]
        for b in range(0, dimension if found < begins[row + 1] else 0, lanes):
            f = min(b, dimension - lanes)
            if has_nonzero(features, row, f, lanes):
                places[found] = b
                for lane in range(lanes):
                    values[found * lanes + lane] = np.uint8(np.rint(features[row, f + lane] / scale[row]))
                found += 1


@inlined
def byte_rows_times(kept: ByteRows, start: int, rows: int, vector: Array, lanes: int, out: Array) -> None:
    """out = X v of the rows from `start` on, and of a padded v whose repeated numbers are zeros."""
    scale, last = kept[4], start + rows - 1
    for r in range(0, rows, AT_ONCE):
        one = start + r
        a, b = _bytes_by(kept, one, vector, lanes), _bytes_by(kept, min(one + 1, last), vector, lanes)
        c, d = _bytes_by(kept, min(one + 2, last), vector, lanes), _bytes_by(kept, min(one + 3, last), vector, lanes)
        store_sums(out, r, a, b, c, d)
    for r in range(rows):
        out[r] *= scale[start + r]


@inlined
def _bytes_by(kept: ByteRows, row: int, vector: Array, lanes: int) -> Array:
    """Return the products of one row, not yet added up, in four sums: with one, each addition waits for the last."""
    _, begins, places, values, _ = kept
    start, stop = begins[row], begins[row + 1]
    whole = stop - (stop - start) % AT_ONCE
    t, u, v, w = zeros(vector), zeros(vector), zeros(vector), zeros(vector)
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
def add_byte_rows(kept: ByteRows, start: int, rows: int, moves: Array, lanes: int, vector: Array) -> None:
    """v += Xᵀ a of a padded v and the rows from `start` on."""
    _, begins, places, values, scale = kept
    for r in range(rows):
        a = broadcast(moves[r] * scale[start + r])
        for e in range(begins[start + r], begins[start + r + 1]):
            store(vector, places[e], load(vector, places[e]) + a * load_bytes(vector, values, e * lanes))


Forms = tuple[Kept | None, ByteRows | None]
"""What is kept beside the whole rows: rows without their zeros, and rows as bytes."""


def choose_forms(features: Array, first: Array, counts: Array) -> Forms:
    """Return the byte form where rows allow it, else the sparse form, else neither."""
    in_bytes = byte_rows(features, first, counts)
    return sparse_rows(features) if in_bytes is None else None, in_bytes


@inlined
def products_with(
    x: Array, forms: Forms, k: int, start: int, rows: int, vector: Array, once: Array, dimension: int, lanes: int,
    out: Array,
) -> None:  # fmt: skip
    """out = X v of client k, whose rows begin at `start`, and a padded v; `once` gets v without what it repeats."""
    _products(x, forms[0], forms[1], k, start, rows, vector, once, dimension, lanes, out)


@inlined
def add_products_with(
    x: Array, forms: Forms, k: int, start: int, rows: int, moves: Array, dimension: int, lanes: int, vector: Array
) -> None:
    """v += Xᵀ a of client k, whose rows begin at `start`, and a padded v."""
    _add_products(x, forms[0], forms[1], k, start, rows, moves, dimension, lanes, vector)


@inlined
def _products(
    x: Array, kept: Kept | None, in_bytes: ByteRows | None, k: int, start: int, rows: int, vector: Array, once: Array,
    dimension: int, lanes: int, out: Array,
) -> None:  # fmt: skip
    """What is None is left out when this is compiled, if nothing else is asked in the same condition."""
    if in_bytes is not None:
        if in_bytes[0][k]:
            _zero_repeats(vector, dimension, lanes, once)
            byte_rows_times(in_bytes, start, rows, once, lanes, out)
        else:
            rows_times(x, start * dimension, rows, vector, dimension, lanes, out)
    elif kept is not None:
        _zero_repeats(vector, dimension, lanes, once)
        kept_rows_times(kept, start, rows, once, lanes, out)
    else:
        rows_times(x, start * dimension, rows, vector, dimension, lanes, out)


@inlined
def _add_products(
    x: Array, kept: Kept | None, in_bytes: ByteRows | None, k: int, start: int, rows: int, moves: Array, dimension: int,
    lanes: int, vector: Array,
) -> None:  # fmt: skip
    if in_bytes is not None:
        if in_bytes[0][k]:
            add_byte_rows(in_bytes, start, rows, moves, lanes, vector)
        else:
            add_rows(x, start * dimension, rows, moves, dimension, lanes, vector)
    elif kept is not None:
        add_kept_rows(kept, start, rows, moves, lanes, vector)
    else:
        add_rows(x, start * dimension, rows, moves, dimension, lanes, vector)


@inlined
def _zero_repeats(vector: Array, dimension: int, lanes: int, once: Array) -> None:
    """A padded vector, with zeros for the numbers that its last register repeats."""
    whole = dimension - dimension % lanes
    once[:] = vector
    if whole < dimension:
        store(once, whole, mask_before(load(vector, whole), whole - dimension + lanes))
