"""Tables from whatever holds them: a csv or parquet file, or a pandas, polars or Arrow table in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from pgfl.array_types import AnyArray
from pgfl.data.frames import Table, TableFile
from pgfl.did_you_mean import kind_of
from pgfl.errors import DataError

if TYPE_CHECKING:
    import polars as pl


class ArrowTable(Protocol):
    """A table of another library, by the Arrow PyCapsule interface: pyarrow, pandas, polars, duckdb, …"""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with the table's columns."""
        ...


Cells: TypeAlias = Sequence[object] | AnyArray
TableSource: TypeAlias = "str | os.PathLike[str] | ArrowTable | pl.LazyFrame | Mapping[str, Cells] | Table"
"""The path of a csv or parquet file, a pandas or polars DataFrame, an Arrow table, or columns by name."""

_KINDS = "the path of a csv or parquet file, a pandas or polars DataFrame, an Arrow table or a dict of columns"


def open_table(source: TableSource) -> Table:
    """The table that a path, a frame or a dict of columns holds.

    >>> sorted(open_table({"age": [40, 50], "sex": ["f", "m"]}).columns)
    ['age', 'sex']
    >>> open_table([[1.0, 2.0]])
    Traceback (most recent call last):
    pgfl.errors.DataError: A list is no table; give the path of a csv or parquet file, a pandas or polars DataFrame, \
an Arrow table or a dict of columns.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | os.PathLike):
        return TableFile(source)
    frame = _frame(source)
    return Table(frame, frame.collect_schema().names())


def _frame(source: object) -> pl.LazyFrame:
    import polars as pl

    if isinstance(source, pl.LazyFrame):
        return source
    if isinstance(source, pl.DataFrame):
        return source.lazy()
    if _is_pandas(source):
        return _named([(name, _pandas_cells(source[name])) for name in _unique(source.columns)])  # type: ignore[index,attr-defined]
    if isinstance(source, Mapping):
        return _named(list(source.items()))
    if hasattr(source, "__arrow_c_stream__") and type(source).__name__ != "Series":
        try:
            return pl.DataFrame(source).lazy()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
            raise DataError(
                f"The {type(source).__name__} cannot be read as a table ({error}); give {_KINDS}."
            ) from None
    unnamed = ": it has no column names (see Federation.from_clients)" if isinstance(source, np.ndarray) else ""
    found = kind_of(source)
    raise DataError(f"{found[0].upper()}{found[1:]} is no table{unnamed}; give {_KINDS}.")


def _is_pandas(source: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, pandas.DataFrame)


def _unique(names: Any) -> list[object]:
    listed = list(names)
    for name in listed:
        if listed.count(name) > 1:
            raise DataError(f"The table has two columns named {str(name)!r}; rename or remove one.")
    return listed


def _pandas_cells(column: Any) -> Cells:
    """Numbers as an array; anything else as a list with None for missing cells, so that pyarrow is not needed."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return np.asarray(column)
    return [None if missing else cell for cell, missing in zip(column.tolist(), column.isna(), strict=True)]


def _named(columns: Sequence[tuple[object, Cells]]) -> pl.LazyFrame:
    import polars as pl

    series = []
    for number, (name, cells) in enumerate(columns, start=1):
        if not str(name).strip():
            raise DataError(f"Column {number} of the table has no name; name it, or remove the column.")
        if isinstance(cells, str) or not hasattr(cells, "__len__"):
            raise DataError(f"Column {str(name)!r} of the table is {type(cells).__name__}; give a list of cells.")
        try:
            plain = cells.tolist() if isinstance(cells, np.ndarray) and cells.dtype == object else cells
            series.append(pl.Series(str(name), plain, strict=False))
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"Column {str(name)!r} of the table cannot be read ({error}); give one kind.") from None
    lengths = {len(cells) for cells in series}
    if len(lengths) > 1:
        raise DataError(
            f"The columns of the table have {min(lengths)} to {max(lengths)} cells; make them equally long."
        )
    return pl.LazyFrame(series)
