"""Federations of plain arrays through row maps."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from pgfl.arrays import AnyArray, AnyFloats, Ints
from pgfl.errors import DataError
from pgfl.federation.columns import ArrayColumn, TargetColumn
from pgfl.federation.encoding import PlaceColumns, RowEncoding
from pgfl.federation.federation import Federation, TestSet
from pgfl.maps import MapSource, RowMap, read_maps

ROWS_AT_ONCE = 4096
NO_PLACES = PlaceColumns(None, None, None)


def array_encoding(column: ArrayColumn, maps: tuple[RowMap, ...], intercept: bool) -> RowEncoding:
    """Return the encoding of rows that have no table."""
    return RowEncoding((column,), TargetColumn("y"), intercept, NO_PLACES, maps=maps)


def pixel_encoding(shape: tuple[int, int], maps: tuple[RowMap, ...], intercept: bool) -> RowEncoding:
    """Return the encoding of images whose pixels are numbers from 0 to 255."""
    return array_encoding(ArrayColumn("pixel", shape[0] * shape[1], (0.0, 255.0), shape), maps, intercept)


def mapped_rows(
    encoding: RowEncoding, rows: AnyArray, dtype: DTypeLike | None = None, *, order: Ints | None = None
) -> AnyFloats:
    """Return rows of an array as models see them, in the precision that they have or in another one.

    With `order` they are the rows of these numbers. Some are mapped at a time, so no second copy is in memory.
    """
    (column,) = encoding.columns
    assert isinstance(column, ArrayColumn)
    features = np.empty((len(rows) if order is None else len(order), encoding.dimension), dtype=dtype or rows.dtype)
    for start in range(0, len(features), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        encoding.map_into(column.scale(rows[block] if order is None else rows[order[block]]), features[block])
    return features


def mapped_federation(
    federation: Federation, source: MapSource, bounds: tuple[float, float] | None, intercept: bool
) -> Federation:
    """Return a federation of plain arrays with mapped rows; see `Federation.mapped`."""
    if federation.encoding is not None:
        raise DataError("These rows were encoded already; give the map where they are read, as Federation.read(map=…).")
    column = ArrayColumn("feature", federation.dimension, None if bounds is None else (bounds[0], bounds[1]))
    encoding = array_encoding(column, read_maps(source), intercept)
    tests = federation.tests and {
        name: TestSet(mapped_rows(encoding, test.features), test.targets, test.clients)
        for name, test in federation.tests.items()
    }
    return federation.replace(
        features=mapped_rows(encoding, federation.features),
        tests=tests,
        truth=None,
        encoding=encoding,
        generated=federation.generated,
    )
