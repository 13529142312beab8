"""The products with a client's rows, in whichever form they are kept: whole, without their zeros, or as bytes."""

from __future__ import annotations

from pgfl.array_types import Array
from pgfl.simulate.numba_bytes import InBytes, add_byte_rows, as_bytes, byte_rows_times
from pgfl.simulate.numba_compiled import inlined
from pgfl.simulate.numba_lanes import later, load, store
from pgfl.simulate.numba_products import add_rows, rows_times
from pgfl.simulate.numba_zeros import Kept, add_kept_rows, kept_rows_times, without_zeros

Forms = tuple[Kept | None, InBytes | None]
"""What is kept beside the whole rows: rows without their zeros, and rows as bytes."""


def forms_of(features: Array, first: Array, counts: Array) -> Forms:
    """Bytes of the clients whose rows are such; if nobody's are, all rows without their zeros, where that pays off."""
    in_bytes = as_bytes(features, first, counts)
    return without_zeros(features) if in_bytes is None else None, in_bytes


@inlined
def products_with(
    x: Array, forms: Forms, k: int, start: int, rows: int, vector: Array, once: Array, dimension: int, lanes: int,
    out: Array,
) -> None:  # fmt: skip
    """out = X v of client k, whose rows begin at `start`, and a spaced v; `once` gets v without what it repeats."""
    _products(x, forms[0], forms[1], k, start, rows, vector, once, dimension, lanes, out)


@inlined
def add_products_with(
    x: Array, forms: Forms, k: int, start: int, rows: int, moves: Array, dimension: int, lanes: int, vector: Array
) -> None:
    """v += Xᵀ a of client k, whose rows begin at `start`, and a spaced v."""
    _add_products(x, forms[0], forms[1], k, start, rows, moves, dimension, lanes, vector)


@inlined
def _products(
    x: Array, kept: Kept | None, in_bytes: InBytes | None, k: int, start: int, rows: int, vector: Array, once: Array,
    dimension: int, lanes: int, out: Array,
) -> None:  # fmt: skip
    """What is None is left out when this is compiled, if nothing else is asked in the same condition."""
    if in_bytes is not None:
        if in_bytes[0][k]:
            _without_repeats(vector, dimension, lanes, once)
            byte_rows_times(in_bytes, start, rows, once, lanes, out)
        else:
            rows_times(x, start * dimension, rows, vector, dimension, lanes, out)
    elif kept is not None:
        _without_repeats(vector, dimension, lanes, once)
        kept_rows_times(kept, start, rows, once, lanes, out)
    else:
        rows_times(x, start * dimension, rows, vector, dimension, lanes, out)


@inlined
def _add_products(
    x: Array, kept: Kept | None, in_bytes: InBytes | None, k: int, start: int, rows: int, moves: Array, dimension: int,
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
def _without_repeats(vector: Array, dimension: int, lanes: int, once: Array) -> None:
    """A spaced vector, with zeros for the numbers that its last register repeats."""
    whole = dimension - dimension % lanes
    once[:] = vector
    if whole < dimension:
        store(once, whole, later(load(vector, whole), whole - dimension + lanes))
