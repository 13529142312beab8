"""Tables from a CSV or Parquet file or from a frame in memory, read some columns at a time."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, TypeAlias, cast

import numpy as np

from pgfl.arrays import AnyArray, Bools, Floats
from pgfl.errors import DataError
from pgfl.suggestions import kind_of, nearest, quoted

if TYPE_CHECKING:
    import polars as pl


_BLOCK_BYTES = 1 << 26
_BYTES_A_CELL = 16
_PARSED_ONCE_BYTES = 1 << 28
_DAMAGED = (OSError, EOFError, zlib.error)  # what reading a packed file that is cut off or broken may raise
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


class Table:
    """A table with named columns. Rows are counted from 1: `data row N` in every message.

    Names and cells lose the blanks around them. Text stays text until numbers are asked for, so the id `007` is not the
    id `7`; a whole number in a numeric column is the id `7`, never `7.0`. `label` is how messages call the table.
    """

    is_csv = False
    widths_known = True

    def __init__(self, scan: pl.LazyFrame, names: Sequence[str], label: str = "the table", first: int = 0) -> None:
        self.label, self._first = label, first
        self._scan = scan
        self.columns = self._checked(names)

    def require(self, *names: str, advice: str = "") -> None:
        """Refuse the table if it lacks one of these columns."""
        for name in names:
            if name not in self.columns:
                more = ", …" if len(self.columns) > 8 else ""
                listed = ", ".join(quoted(column)[1:-1] for column in islice(self.columns, 8)) + more
                meant = nearest(name, self.columns)
                raise self.error(
                    f"{self.label} has no column {quoted(name)}{meant}; it has {listed or 'none'}{advice}."
                )

    def error(self, sentence: str) -> DataError:
        """Return the error with this sentence, which may begin with the label."""
        return DataError(sentence[0].upper() + sentence[1:] if sentence.startswith("the table") else sentence)

    def refuse(self, row: int, complaint: str) -> DataError:
        """Return the error that reports what is wrong in a row; `row` counts from 0."""
        return self.error(f"{self.label}, data row {self._first + row + 1}: {complaint}")

    def texts(self, name: str) -> pl.Series:
        """Return a column as text without surrounding blanks; an empty cell is null."""
        return self.as_text(self._collect([name])[0])

    def series(self, names: Sequence[str]) -> Iterator[pl.Series]:
        """Columns as they are. Few are in memory at a time; a large csv file is parsed once for each block of them."""
        remaining = iter(names)
        width = 1
        while block := list(islice(remaining, width)):
            columns = self._collect(block)
            width = max(1, _BLOCK_BYTES // (_BYTES_A_CELL * max(len(columns[0]), 1)))
            yield from columns

    def numbers(self, names: Sequence[str]) -> Iterator[tuple[pl.Series, Floats]]:
        """Columns of numbers, each as it is in the table and as floats, with NaN where there is no number."""
        return ((series, self.as_floats(series)) for series in self.series(names))

    @cached_property
    def size(self) -> int:
        """How many rows there are, blank ones included."""
        return self.counts(())[0]

    def parts(self, rows: int) -> Iterator[Table]:
        """Consecutive parts of so many rows, each in memory only while it is used; messages keep the row numbers."""
        for start in range(0, self.size, rows):
            part = Table(self._read(self._scan.slice(start, rows)).lazy(), list(self.columns), self.label, start)
            part.is_csv = self.is_csv
            yield part

    def frame(self) -> pl.DataFrame:
        """Return all cells as they are, under the columns' names without blanks."""
        frame = self._read(self._scan)
        return frame.rename(dict(zip(frame.columns, self.columns, strict=True)))

    def counts(self, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return how many rows there are, and how many distinct cells each of these columns has."""
        import polars as pl

        distinct = [pl.nth(self.columns[name]).n_unique().alias(f"{i}") for i, name in enumerate(names)]
        rows, *found = self._read(self._scan.select(pl.len(), *distinct), engine="streaming").row(0)
        return rows, found

    def blank(self) -> Bools:
        """For every row, whether all its cells are empty: a blank line.

        This reads every cell, which is also how a line with too many of them is found (`widths_known`).
        """
        import polars as pl

        cells = pl.all().str.strip_chars().fill_null("") == "" if self.is_csv else pl.all().is_null()
        lazy = self._scan.select(pl.all_horizontal(cells).alias("blank"))
        return self._read(lazy, engine="streaming").to_series().to_numpy()

    def _checked(self, names: Sequence[str]) -> dict[str, int]:
        """Return where each column is, by its name without blanks."""
        positions: dict[str, int] = {}
        for position, name in enumerate(names):
            clean = name.strip()
            if not clean:
                raise DataError(
                    f"Column {position + 1} of {self.label} has no name; name it, or remove the column (pandas writes "
                    "its index so, unless index=False)."
                )
            if clean in positions:
                raise self.error(f"{self.label} has two columns named {quoted(clean)}; rename or remove one.")
            positions[clean] = position
        return positions

    def _collect(self, names: Sequence[str]) -> list[pl.Series]:
        import polars as pl

        frame = self._read(self._scan.select(pl.nth([self.columns[name] for name in names])))
        return [series.alias(name) for series, name in zip(frame.get_columns(), names, strict=True)]

    def _names(self, scan: pl.LazyFrame) -> list[str]:
        import polars as pl

        try:
            return scan.collect_schema().names()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise self._unreadable(error) from None

    def _read(self, lazy: pl.LazyFrame, engine: Literal["auto", "streaming"] = "auto") -> pl.DataFrame:
        import polars as pl

        try:
            return lazy.collect(engine=engine)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: BaseException) -> DataError:
        return self.error(f"{self.label} cannot be read ({_reason(error)}); repair it.")

    def as_text(self, series: pl.Series) -> pl.Series:
        """Cells as text without surrounding blanks; null where a cell is empty or NaN."""
        import polars as pl

        if series.dtype.is_nested() or series.dtype == pl.Binary:
            raise DataError(
                f"Column {quoted(series.name)} of {self.label} holds {_kind(series.dtype)}; it must hold text or "
                "numbers."
            )
        if series.dtype.is_float():
            whole = series.cast(pl.Float64).is_finite() & (series == series.floor()) & (series.abs() < 2**53)
            as_whole = series.cast(pl.Int64, strict=False).cast(pl.String)
            series = as_whole.zip_with(whole, series.fill_nan(None).cast(pl.String))
        text = series.cast(pl.String).str.strip_chars()
        return text.set(text == "", None)

    def as_floats(self, series: pl.Series) -> Floats:
        """Cells as floats, with NaN where there is no number."""
        import polars as pl

        text = series.dtype in (pl.String, pl.Categorical, pl.Enum)
        if not (text or series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
            raise DataError(
                f"Column {quoted(series.name)} of {self.label} holds {_kind(series.dtype)}; turn them into numbers, or "
                "leave the column out with `ignore`."
            )
        floats = (series.cast(pl.String) if text else series).cast(pl.Float64, strict=False)
        if text and floats.null_count():  # perhaps for blanks around a number
            floats = series.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        return floats.to_numpy()


class TableFile(Table):
    """A csv file, perhaps packed by gzip, or a parquet file, opened lazily."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.is_csv = self.path.name.lower().endswith((".csv", ".csv.gz"))
        if "://" in str(path):
            raise DataError(f"{path} is an address; download the table, and give the path of the file.")
        if self.path.is_dir():
            raise DataError(f"{self.path} is a folder; give a csv or parquet file.")
        if not self.path.exists():
            raise DataError(f"{self.path} does not exist; check the path.")
        if not self.is_csv and self.path.suffix.lower() != ".parquet":
            raise DataError(f"{self.path} must end in .csv, .csv.gz or .parquet, so that it is known what it is.")
        self.widths_known = not self.is_csv or self.path.stat().st_size <= _PARSED_ONCE_BYTES
        self.label = str(self.path)
        super().__init__(*self._open(), self.label)

    def _open(self) -> tuple[pl.LazyFrame, list[str]]:
        import polars as pl

        if self.path.stat().st_size == 0:
            raise DataError(f"{self.path} is empty; it needs a header and rows.")
        if not self.is_csv:
            scan = pl.scan_parquet(self.path, glob=False, hive_partitioning=False)
            return scan, self._names(scan)
        scan = pl.scan_csv(self.path, infer_schema=False, glob=False)
        header = _csv_header(self.path)
        if len(header) == 1 and (found := next((word for mark, word in SEPARATORS.items() if mark in header[0]), None)):
            raise DataError(
                f"{self.path} separates its columns by {found}; save it with commas between columns and points in "
                "numbers, or pass a DataFrame that pandas.read_csv has read with its `sep` and `decimal`."
            )
        if len(header) != len(self._names(scan)):
            raise DataError(f"The header of {self.path} cannot be read; it must be one line of names between commas.")
        if self.widths_known:
            scan = self._read(scan).lazy()
        return scan, header

    def _unreadable(self, error: BaseException) -> DataError:
        if self.is_csv:
            with suppress(*_DAMAGED):
                _look_for_bad_lines(self.path)
        kind = "csv" if self.is_csv else "parquet"
        return DataError(f"{self.path} cannot be read as {kind} ({_reason(error)}); save it again or repair it.")


def _reason(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["unknown reason"])[0].rstrip(".")


def _kind(dtype: pl.DataType) -> str:
    """Return what a column that is neither text nor numbers holds, in a word."""
    return "dates" if dtype.is_temporal() else "lists" if dtype.is_nested() else f"values of type {dtype}"


def _bytes_of(path: Path) -> BinaryIO:
    """Return a csv file, unpacked as it is read."""
    return cast("BinaryIO", gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def _csv_header(path: Path) -> list[str]:
    """Return the first line that is not blank, split as csv."""
    try:
        with io.TextIOWrapper(_bytes_of(path), encoding="utf-8-sig", newline="") as file:
            return next((row for row in csv.reader(file) if row), [])
    except UnicodeDecodeError:
        _look_for_bad_lines(path)
        raise
    except (csv.Error, *_DAMAGED) as error:
        raise DataError(f"The header of {path} cannot be read ({error}); repair it.") from None


def _look_for_bad_lines(path: Path) -> None:
    """Say which line of a csv file is not UTF-8 or has more cells than the header, if one is."""
    with _bytes_of(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                raise DataError(f"Line {number} of {path} is not UTF-8 text; save the file as UTF-8.") from None
    with io.TextIOWrapper(_bytes_of(path), encoding="utf-8-sig", newline="") as file:
        reader, width = csv.reader(file), 0
        try:
            for row in reader:
                width = width or len(row)
                if len(row) > width:
                    raise DataError(
                        f"Line {reader.line_num} of {path} has {len(row)} cells, but the header names {width} columns."
                    )
        except csv.Error as error:
            raise DataError(f"Line {reader.line_num} of {path} cannot be read ({error}); repair it.") from None


class ArrowTable(Protocol):
    """A table of another library, by the Arrow PyCapsule interface: pyarrow, pandas, polars, duckdb, …"""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with the table's columns."""
        ...


Cells: TypeAlias = Sequence[object] | AnyArray
TableSource: TypeAlias = "str | os.PathLike[str] | ArrowTable | pl.LazyFrame | Mapping[str, Cells] | Table"
"""The path of a csv or parquet file, a pandas or polars DataFrame, an Arrow table, or columns by name."""

_KINDS = "the path of a csv or parquet file, a pandas or polars DataFrame, an Arrow table or a dict of columns"


def open_table(source: TableSource) -> Table:
    """Return the table that a path, a frame or a dict of columns holds.

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
