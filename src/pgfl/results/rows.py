"""Rows of an array, whose columns are a model's own in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import AnyArray, Floats
from pgfl.errors import DataError, ResultError
from pgfl.federation.columns import Texts
from pgfl.federation.encoding import RowEncoding


class ArrayRows:
    """Rows without column names: the first column is the first of `names`, and so on.

    >>> rows = ArrayRows([[40.0, "f"], [50.0, "m"]], ("age", "sex"))
    >>> rows.numbers("age").tolist(), rows.texts("sex").tolist()
    ([40.0, 50.0], ['f', 'm'])
    """

    columns: tuple[str, ...] = ()

    def __init__(self, values: ArrayLike, names: Sequence[str]) -> None:
        self.values, self._names = _two_dimensional(values), tuple(names)
        self._place = {name: number for number, name in enumerate(self._names)}

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.values)

    def check(self, encoding: RowEncoding, optional: Iterable[str] = ()) -> None:
        """Refuse an array that has another number of columns than the model."""
        if self.values.shape[1] != len(self._names):
            advice = ""
            if self.values.shape[1] == encoding.dimension:
                advice = "; if these are encoded features, pass encoded=True"
            raise DataError(
                f"The model takes {len(self._names)} columns per row ({_listed(self._names)}); "
                f"got {self.values.shape[1]}{advice}."
            )

    def matrix(self, width: int, what: str) -> Floats:
        """Return all rows as numbers; another number of columns is refused."""
        if self.values.shape[1] != width:
            raise ResultError(f"The model takes {width} {what} per row; got {self.values.shape[1]}.")
        return _floats(self.values)

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers, NaN where a cell is empty."""
        return _floats(self.values[:, self._place[name]])

    def texts(self, name: str) -> Texts:
        """Return a column as text, None where a cell is empty; a whole number is written without a decimal point."""
        cells = np.empty(len(self.values), dtype=object)
        cells[:] = [_text(value) for value in self.values[:, self._place[name]].tolist()]
        return cells

    def refuse(self, row: int, complaint: str) -> DataError:
        """Return the error that reports what is wrong in a row, counted from 0."""
        return DataError(f"The array, data row {row + 1}: {complaint}")


def _two_dimensional(values: ArrayLike) -> AnyArray:
    """Numbers or objects, N × columns; one row may be given as a flat list."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            array = np.asarray(values, dtype=object)
    except ValueError:
        raise DataError("The rows have unequal lengths; give a table with one row per sample.") from None
    rows = np.atleast_2d(array)
    if rows.ndim != 2 or not rows.size:
        raise DataError("The rows to predict must be a table with at least one row and one column.")
    return rows


def _floats(values: AnyArray) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("The array holds a value that is not a number; correct it, or pass a table.") from None


def _text(value: object) -> str | None:
    if value is None or value != value:
        return None
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return str(int(value) if whole else value).strip() or None  # type: ignore[call-overload]


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
