"""How a row of a table becomes features and a target. It is part of a model: a prediction encodes rows as training did.

Bounds, categories and labels are public: they are stated by people or, without privacy, read once from training rows
and then kept. So is everything that follows from them, such as the largest norm of an encoded row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pgfl.array_types import Bools, Floats
from pgfl.errors import DataError

Texts = NDArray[np.object_]
Bound = tuple[float, float]
INTERCEPT, OTHER, MISSING = "intercept", "other", "missing"
TRUE, FALSE = ("true", "yes", "1", "t", "y"), ("false", "no", "0", "f", "n")


class Rows(Protocol):
    """Rows of a table, read one column at a time."""

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def numbers(self, name: str) -> Floats:
        """A column as numbers, NaN where a cell is empty; a cell that is no number is a `DataError`."""
        ...

    def texts(self, name: str) -> Texts:
        """A column as text without surrounding blanks, None where a cell is empty."""
        ...

    def refuse(self, row: int, complaint: str) -> DataError:
        """The error that reports what is wrong in a row, counted from 0."""
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

    def encode(self, rows: Rows) -> Floats:
        """Its features, one row per row of the table."""
        ...


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, scaled from `bounds` to [−1, 1] and clipped there; taken as they are where there are no bounds.

    An empty cell becomes `fill`, a value in the table's unit; without one it is refused. With `indicator` one more
    feature is 1 where the cell was empty.
    """

    kind: ClassVar[str] = "number"
    name: str
    bounds: Bound | None = None
    fill: float | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's own name, and that of the indicator."""
        return (self.name, f"{self.name}={MISSING}") if self.indicator else (self.name,)

    @property
    def squared_norm(self) -> float | None:
        """1 for the scaled number and 1 for the indicator."""
        return None if self.bounds is None else 1.0 + self.indicator

    def encode(self, rows: Rows) -> Floats:
        """The scaled numbers, and 1 where one was missing."""
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
class CategoryColumn:
    """One feature per category, 1 for the row's own; with `other`, one more for every unknown text.

    An empty cell is refused unless `missing` is true, which gives it a feature of its own.
    """

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    other: bool = False
    missing: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`column=category`, one per category."""
        extra = [OTHER] * self.other + [MISSING] * self.missing
        return tuple(f"{self.name}={value}" for value in [*self.categories, *extra])

    @property
    def squared_norm(self) -> float | None:
        """Exactly one feature is 1."""
        return 1.0

    def encode(self, rows: Rows) -> Floats:
        """One column per category."""
        values = rows.texts(self.name)
        place = {value: number for number, value in enumerate(self.categories)}
        empty = _empty_cells(values)
        if empty.any() and not self.missing:
            raise _empty(rows, empty, self.name)
        numbers = np.array([place.get(value, -1) for value in values], dtype=np.int64)
        unknown = (numbers < 0) & ~empty
        if unknown.any() and not self.other:
            row = int(np.argmax(unknown))
            raise rows.refuse(
                row,
                f"column '{self.name}' holds '{values[row]}', which is not one of its categories "
                f"({_listed(self.categories)}); correct it, or add it to the categories, or set other = true.",
            )
        numbers[unknown] = len(self.categories)
        numbers[empty] = len(self.feature_names) - 1
        return np.asarray(numbers[:, None] == np.arange(len(self.feature_names)), dtype=float)


@dataclass(frozen=True)
class BooleanColumn:
    """Truth values as 0 and 1. An empty cell becomes `fill`; without one it is refused."""

    kind: ClassVar[str] = "boolean"
    name: str
    fill: bool | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's own name, and that of the indicator."""
        return (self.name, f"{self.name}={MISSING}") if self.indicator else (self.name,)

    @property
    def squared_norm(self) -> float | None:
        """1 for the truth value and 1 for the indicator."""
        return 1.0 + self.indicator

    def encode(self, rows: Rows) -> Floats:
        """0 and 1."""
        values = rows.texts(self.name)
        empty = _empty_cells(values)
        if empty.any() and self.fill is None:
            raise _empty(rows, empty, self.name)
        truth = np.full(len(values), float(bool(self.fill)))
        for row, value in enumerate(values):
            if value is None:
                continue
            word = value.lower().removesuffix(".0")
            if word not in TRUE and word not in FALSE:
                raise rows.refuse(row, f"column '{self.name}' holds '{value}'; a boolean is true or false, 1 or 0.")
            truth[row] = word in TRUE
        return np.column_stack([truth, empty]) if self.indicator else truth[:, None]


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
        """The targets that a model is trained on."""
        if self.labels is None:
            values = rows.numbers(self.name)
            if np.isnan(values).any():
                raise _empty(rows, np.isnan(values), self.name)
            return values if self.bounds is None else scaled(values, self.bounds)
        texts = rows.texts(self.name)
        place = {label: float(number) for number, label in enumerate(self.labels)}
        for row, value in enumerate(texts):
            if value not in place:
                raise rows.refuse(
                    row, f"column '{self.name}' holds {value!r}; its labels are {_listed(self.labels)}; correct it."
                )
        return np.array([place[value] for value in texts])

    def decode(self, values: Floats) -> Floats:
        """Predicted numbers in the table's unit."""
        if self.bounds is None:
            return values
        middle, half = _centre(self.bounds)
        return middle + half * values

    @property
    def unit(self) -> float:
        """How many of the table's units an encoded target of 1 stands for."""
        return 1.0 if self.bounds is None else _centre(self.bounds)[1]


@dataclass(frozen=True)
class RowEncoding:
    """Everything that is done to a row before a model sees it, except clipping to `x_norm`.

    >>> columns = (NumberColumn("age", (20.0, 80.0)), CategoryColumn("sex", ("f", "m")))
    >>> encoding = RowEncoding(columns, TargetColumn("y"))
    >>> encoding.feature_names
    ('age', 'sex=f', 'sex=m', 'intercept')
    >>> encoding.x_norm
    1.7320508075688772
    >>> RowEncoding.from_json(encoding.to_json()) == encoding
    True
    """

    columns: tuple[FeatureColumn, ...]
    target: TargetColumn
    intercept: bool = True

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature, the intercept last."""
        names = [name for column in self.columns for name in column.feature_names]
        return (*names, INTERCEPT) if self.intercept else tuple(names)

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return len(self.feature_names)

    @property
    def x_norm(self) -> float | None:
        """A bound on the norm of every encoded row that follows from the declarations; None if one is unbounded."""
        squares = [column.squared_norm for column in self.columns]
        if any(square is None for square in squares):
            return None
        return float(np.sqrt(sum(square for square in squares if square is not None) + self.intercept))

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The columns that have no bounds."""
        return tuple(column.name for column in self.columns if column.squared_norm is None)

    def encode(self, rows: Rows) -> Floats:
        """The features of all rows."""
        parts = [column.encode(rows) for column in self.columns]
        return np.concatenate([*parts, np.ones((len(rows), 1))] if self.intercept else parts, axis=1)

    def to_json(self) -> dict[str, Any]:
        """A description that JSON can hold; `from_json` reads it back."""
        return {
            "columns": [{"kind": kind_of(column), **asdict(column)} for column in self.columns],  # type: ignore[call-overload]
            "target": asdict(self.target),
            "intercept": self.intercept,
        }

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> RowEncoding:
        """The encoding that `to_json` described."""
        kinds: dict[str, Any] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn, BooleanColumn)}
        columns = []
        for column in description["columns"]:
            own = dict(column)
            columns.append(kinds[own.pop("kind")](**_frozen(own)))
        return cls(tuple(columns), TargetColumn(**_frozen(description["target"])), bool(description["intercept"]))


def kind_of(column: FeatureColumn) -> Literal["number", "category", "boolean"]:
    """The kind of a column."""
    return column.kind  # type: ignore[attr-defined,no-any-return]


def scaled(values: Floats, bounds: Bound) -> Floats:
    """Numbers from [low, high] to [−1, 1]; those outside are clipped."""
    middle, half = _centre(bounds)
    return np.clip((values - middle) / half, -1.0, 1.0)


def _centre(bounds: Bound) -> tuple[float, float]:
    """The middle of an interval and half its length."""
    low, high = bounds
    return low + 0.5 * (high - low), 0.5 * (high - low)


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _empty_cells(values: Texts) -> Bools:
    return np.array([value is None for value in values], dtype=bool)


def _empty(rows: Rows, missing: Bools, name: str) -> DataError:
    return rows.refuse(int(np.argmax(missing)), f"column '{name}' is empty; fill it, or declare what missing means.")


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
