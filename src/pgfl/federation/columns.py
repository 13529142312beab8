"""The columns of a table, what their cells mean, and the features that each becomes.

Bounds, categories and labels are public constants of the encoding; nothing is learned from other rows.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import AnyFloats, Bools, Floats
from pgfl.errors import DataError
from pgfl.maps import Group, Groups
from pgfl.suggestions import quoted

Texts = NDArray[np.object_]
Bound = tuple[float, float]
TRUE, FALSE = ("true", "yes", "1", "t", "y"), ("false", "no", "0", "f", "n")
_WHOLE_WITH_POINT = re.compile(r"[-+]?\d+\.0+")


def scaled(values: Floats, bounds: Bound) -> Floats:
    """Numbers from [low, high] to [−1, 1]; those outside are clipped."""
    middle, half = centre(bounds)
    return np.clip((values - middle) / half, -1.0, 1.0)


def centre(bounds: Bound) -> tuple[float, float]:
    """Return the middle of an interval and half its length."""
    low, high = bounds
    return low + 0.5 * (high - low), 0.5 * (high - low)


def empty_cells(values: Texts) -> Bools:
    """Return where a column of text has no cell."""
    return np.array([value is None for value in values], dtype=bool)


def plain_text(text: str) -> str:
    """Return a category or label as it is compared: a whole number has no point, however a program has written it.

    >>> plain_text("1.0"), plain_text("1.50"), plain_text("007"), plain_text("v1.0")
    ('1', '1.50', '007', 'v1.0')
    """
    return text.partition(".")[0] if _WHOLE_WITH_POINT.fullmatch(text) else text


def truth_value(text: str) -> bool | None:
    """Return what a cell of a boolean column means; None if it is neither true nor false.

    >>> truth_value("Yes"), truth_value("0.0"), truth_value("2")
    (True, False, None)
    """
    word = text.lower().removesuffix(".0")
    return word in TRUE if word in TRUE or word in FALSE else None


OTHER, MISSING = "other", "missing"
FILL_OR_DECLARE = 'fill it, remove the row, or train with empty cells declared, as in missing = "indicator"'


class Rows(Protocol):
    """Rows of a table, read one column at a time."""

    def __len__(self) -> int:
        """Return how many rows there are."""
        ...

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers, NaN where a cell is empty; a cell that is no number is a `DataError`."""
        ...

    def texts(self, name: str) -> Texts:
        """Return a column as text without surrounding blanks, None where a cell is empty."""
        ...

    def refuse(self, row: int, complaint: str) -> DataError:
        """Return the error that reports what is wrong in a row, counted from 0."""
        ...


class FeatureColumn(Protocol):
    """A column of the table, and the features that it becomes."""

    @property
    def name(self) -> str:
        """The column's name in the table."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature."""
        ...

    @property
    def squared_norm(self) -> float | None:
        """The largest squared norm of its features in one row; None if it is unbounded."""
        ...

    @property
    def cells(self) -> tuple[str, ...]:
        """The names of the table's columns that it reads."""
        ...

    @property
    def groups(self) -> Groups:
        """What a row map may know about its features."""
        ...

    def encode(self, rows: Rows) -> Floats | Bools:
        """Its features, one row per row of the table; those that are 0 or 1 may be truth values."""
        ...


@dataclass(frozen=True)
class _OneCell(ABC):
    """What columns have in common that read one cell of a row."""

    name: str

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature."""

    @property
    @abstractmethod
    def squared_norm(self) -> float | None:
        """The largest squared norm of its features in one row; None if it is unbounded."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Its own."""
        return (self.name,)

    @property
    def groups(self) -> Groups:
        """One, of all its features."""
        return (Group(self.name, self.feature_names, self.squared_norm),)


@dataclass(frozen=True)
class NumberColumn(_OneCell):
    """Numbers, scaled from `bounds` to [−1, 1] and clipped there; taken as they are where there are no bounds.

    An empty cell becomes `fill`, a value in the table's unit; without one it is refused. With `indicator` one more
    feature is 1 where the cell was empty. With `knots` the scaled number becomes that many hats (see `Hats`).
    """

    kind: ClassVar[str] = "number"
    bounds: Bound | None = None
    fill: float | None = None
    indicator: bool = False
    knots: int | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's own name, and that of the indicator."""
        return _with_indicator(self.name, self.indicator)

    @property
    def squared_norm(self) -> float | None:
        """1 for a scaled number; where one is missing, that of what is filled in, and 1 for the indicator."""
        if self.bounds is None:
            return None
        filled = float(scaled(np.array([self.fill or 0.0]), self.bounds)[0])
        return max(1.0, filled**2 + self.indicator)

    @property
    def groups(self) -> Groups:
        """One: a scaled number, where there are bounds."""
        scaled = self.bounds is not None
        return (Group(self.name, self.feature_names, self.squared_norm, scaled, self.knots if scaled else None),)

    def encode(self, rows: Rows) -> Floats:
        """Return the scaled numbers, and 1 where one was missing."""
        values = rows.numbers(self.name)
        missing = np.isnan(values)
        if missing.any():
            if self.fill is None:
                raise _empty(rows, missing, self.name)
            values = np.where(missing, self.fill, values)
        if self.bounds is not None:
            values = scaled(values, self.bounds)
        return np.column_stack([values, missing]) if self.indicator else values[:, None].astype(float)


@dataclass(frozen=True)
class CategoryColumn(_OneCell):
    """One feature per category, 1 for the row's own; with `other`, one more for every unknown text.

    An empty cell becomes the category `fill`, or has a feature of its own if `missing` is true; else it is refused.
    """

    kind: ClassVar[str] = "category"
    categories: tuple[str, ...]
    other: bool = False
    missing: bool = False
    fill: str | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`column=category`, one per category."""
        extra = [OTHER] * self.other + [MISSING] * self.missing
        return tuple(f"{self.name}={value}" for value in [*self.categories, *extra])

    @property
    def squared_norm(self) -> float | None:
        """Exactly one feature is 1."""
        return 1.0

    def encode(self, rows: Rows) -> Bools:
        """Return one column per category."""
        values = rows.texts(self.name)
        empty = empty_cells(values)
        if empty.any() and not self.missing and self.fill is None:
            raise _empty(rows, empty, self.name)
        place: dict[str | None, int] = {value: number for number, value in enumerate(self.categories)}
        place |= {} if self.fill is None else {None: place[self.fill]}
        number_of = {
            value: place.get(value if value is None else plain_text(value), -1) for value in set(values.tolist())
        }
        numbers = np.array([number_of[value] for value in values], dtype=np.int64)
        unknown = (numbers < 0) & ~empty
        if unknown.any() and not self.other:
            row = int(np.argmax(unknown))
            raise rows.refuse(
                row,
                f"column {quoted(self.name)} holds {quoted(values[row])}, which is not one of its categories "
                f"({_listed(self.categories)}); correct it, add it to the categories, or set other = true.",
            )
        numbers[unknown] = len(self.categories)
        if self.missing:
            numbers[empty] = len(self.feature_names) - 1
        return np.asarray(numbers[:, None] == np.arange(len(self.feature_names)))


@dataclass(frozen=True)
class BooleanColumn(_OneCell):
    """Truth values as 0 and 1. An empty cell becomes `fill`; without one it is refused."""

    kind: ClassVar[str] = "boolean"
    fill: bool | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's own name, and that of the indicator."""
        return _with_indicator(self.name, self.indicator)

    @property
    def squared_norm(self) -> float | None:
        """1 for the truth value, or that of what is filled in and 1 for the indicator."""
        return max(1.0, float(bool(self.fill)) + self.indicator)

    def encode(self, rows: Rows) -> Floats:
        """0 and 1."""
        values = rows.texts(self.name)
        empty = empty_cells(values)
        if empty.any() and self.fill is None:
            raise _empty(rows, empty, self.name)
        truth_of = {value: truth_value(value) for value in set(values.tolist()) - {None}} | {None: bool(self.fill)}
        wrong = np.array([truth_of[value] is None for value in values], dtype=bool)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise rows.refuse(
                row, f"column {quoted(self.name)} holds {quoted(values[row])}; a boolean is true or false, 1 or 0."
            )
        truth = np.array([truth_of[value] for value in values], dtype=float)
        return np.column_stack([truth, empty]) if self.indicator else truth[:, None]


@dataclass(frozen=True)
class ArrayColumn:
    """Numbers without names of their own, side by side: a row of an array, or with `shape` the pixels of an image.

    With `bounds` they are clipped there and scaled: to [−1, 1], or to [0, 1] if they are pixels.
    """

    kind: ClassVar[str] = "array"
    name: str
    length: int
    bounds: Bound | None = None
    shape: tuple[int, int] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name and a number from 1."""
        return tuple(f"{self.name}-{number}" for number in range(1, self.length + 1))

    @property
    def cells(self) -> tuple[str, ...]:
        """As its features are called."""
        return self.feature_names

    @property
    def squared_norm(self) -> float | None:
        """1 for every number that has bounds."""
        return None if self.bounds is None else float(self.length)

    @property
    def groups(self) -> Groups:
        """The image, or every number by itself."""
        if self.shape is not None:
            return (Group(self.name, self.feature_names, self.squared_norm, shape=self.shape),)
        scaled = self.bounds is not None
        return tuple(Group(name, (name,), 1.0 if scaled else None, scaled) for name in self.feature_names)

    def encode(self, rows: Rows) -> Floats:
        """Return the numbers, scaled."""
        values = np.column_stack([rows.numbers(name) for name in self.cells])
        if np.isnan(values).any():
            row = int(np.argmax(np.isnan(values).any(axis=1)))
            raise rows.refuse(row, "there is a value that is not a finite number; remove or fill it.")
        return self.scale(values)

    def scale(self, values: AnyFloats) -> Floats:
        """Return numbers or pixels as a map sees them."""
        wide = values.astype(np.float64, copy=False)
        if self.bounds is None:
            return wide
        low, high = self.bounds
        return np.clip((wide - low) / (high - low), 0.0, 1.0) if self.shape else scaled(wide, self.bounds)


@dataclass(frozen=True)
class TargetColumn:
    """The target: numbers, scaled from `bounds` to [−1, 1] where they are given, or labels as text, numbered from 0."""

    name: str
    bounds: Bound | None = None
    labels: tuple[str, ...] | None = None

    @property
    def y_bound(self) -> float | None:
        """The largest size of an encoded target; None if it is unbounded."""
        if self.labels is not None:
            return float(max(len(self.labels) - 1, 1))
        return None if self.bounds is None else 1.0

    def encode(self, rows: Rows) -> Floats:
        """Return the targets that a model is trained on."""
        if self.labels is None:
            values = rows.numbers(self.name)
            if np.isnan(values).any():
                raise _empty(rows, np.isnan(values), self.name, "fill it or remove the row")
            return values if self.bounds is None else scaled(values, self.bounds)
        texts = rows.texts(self.name)
        place = {label: float(number) for number, label in enumerate(self.labels)}
        number_of = {value: place.get(value and plain_text(value)) for value in set(texts.tolist())}
        for row, value in enumerate(texts):
            if number_of[value] is None:
                found = "is empty" if value is None else f"holds {quoted(value)}"
                raise rows.refuse(
                    row, f"column {quoted(self.name)} {found}; its labels are {_listed(self.labels)}; correct it."
                )
        return np.array([number_of[value] for value in texts], dtype=float)

    def decode(self, values: Floats) -> Floats:
        """Predicted numbers in the table's unit."""
        if self.bounds is None:
            return values
        middle, half = centre(self.bounds)
        return middle + half * values

    @property
    def unit(self) -> float:
        """How many of the table's units an encoded target of 1 stands for."""
        return 1.0 if self.bounds is None else centre(self.bounds)[1]


def kind_of(column: FeatureColumn) -> Literal["number", "category", "boolean", "array"]:
    """Return the kind of a column."""
    return column.kind  # type: ignore[attr-defined,no-any-return]


def _with_indicator(name: str, indicator: bool) -> tuple[str, ...]:
    return (name, f"{name}={MISSING}") if indicator else (name,)


def _empty(rows: Rows, missing: Bools, name: str, advice: str = FILL_OR_DECLARE) -> DataError:
    """Return a cell that is empty, or holds a word that means so."""
    row = int(np.argmax(missing))
    cell = rows.texts(name)[row]
    found = "is empty" if cell is None else f"holds {quoted(cell)}, which is not a finite number"
    return rows.refuse(row, f"column {quoted(name)} {found}; {advice}.")


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
