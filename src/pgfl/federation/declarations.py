"""What a user declares about a column of a table: one set of rules, for a config's [data.columns] and for `Column`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Literal, TypeAlias, TypeGuard

from pgfl.errors import ConfigError
from pgfl.federation.columns import MISSING, OTHER, plain_text
from pgfl.maps import KNOTS
from pgfl.suggestions import nearest, quoted, shown

DATA, REFUSE, INDICATOR = "data", "refuse", "indicator"
FromData: TypeAlias = Literal["data"]
KINDS = ("bounds", "categories", "boolean", "labels")
EXAMPLES = {"bounds": "[18, 90]", "categories": '["f", "m"]', "labels": '["healthy", "ill"]'}


@dataclass(frozen=True)
class Column:
    """How a column of a table becomes features, or the target.

    A number with `bounds` is scaled from them to [−1, 1], and clipped there. Text with `categories` becomes one feature
    per category, and with `other` one more for every unknown text. A `boolean` column becomes 0 and 1. `labels` are the
    values of a target that is text, numbered from 0. `missing` says what an empty cell means: "refuse" it, a constant,
    or "indicator", which gives it a feature of its own. With `knots` a number with bounds becomes that many hat
    functions, equally spaced between them, so that the model can follow a curve. The word "data" instead of bounds,
    categories or labels computes them from the training rows; privacy does not allow that.

    >>> Column(bounds=(18, 90)), Column(categories=["f", "m"]).categories
    (Column(bounds=(18.0, 90.0)), ('f', 'm'))
    >>> Column(bounds=(90, 18))
    Traceback (most recent call last):
    pgfl.errors.ConfigError: `bounds` must be two numbers, the lower one first; got [90, 18].
    """

    bounds: tuple[float, float] | FromData | None = None
    categories: Sequence[object] | FromData | None = None
    boolean: bool = False
    labels: Sequence[object] | FromData | None = None
    other: bool | None = None
    missing: float | str | bool = REFUSE
    knots: int | None = None

    def __post_init__(self) -> None:
        for key in ("bounds", "categories", "labels"):
            if hasattr(value := getattr(self, key), "tolist"):  # an array, or a column of a data frame
                object.__setattr__(self, key, value.tolist())
        for key in ("categories", "labels"):
            if _is_list(value := getattr(self, key)):
                object.__setattr__(self, key, tuple(map(cell_text, value)))
        if _is_list(self.bounds) and not _bounds_problem(self):
            object.__setattr__(self, "bounds", tuple(map(float, self.bounds or ())))
        if found := _problem(self):
            raise ConfigError(found)

    def __repr__(self) -> str:
        return f"Column({', '.join(f'{key}={value!r}' for key, value in self.stated().items())})"

    def stated(self) -> dict[str, object]:
        """Return what differs from the defaults: the table that a config states."""
        return {own.name: value for own in fields(self) if (value := getattr(self, own.name)) != own.default}

    @property
    def from_data(self) -> str | None:
        """The key that is to be computed from training rows, if there is one."""
        return next((key for key in ("bounds", "categories", "labels") if getattr(self, key) == DATA), None)

    @classmethod
    def of(cls, values: object, where: str = "") -> Column:
        """Return a declaration as it is, or from a table of a config; messages name keys with `where` before them.

        >>> Column.of({"bound": (1, 2)}, "data.columns.age")
        Traceback (most recent call last):
        pgfl.errors.ConfigError: Unknown key `data.columns.age.bound` (did you mean bounds?); see `Column`.
        """
        if isinstance(values, cls):
            return values
        example = "{ bounds = [18, 90] }"
        if not isinstance(values, Mapping):
            raise ConfigError(f"`{where or 'columns'}` must be a table, as in {example}; got {shown(values)}.")
        known = [own.name for own in fields(cls)]
        for key in values:
            if key not in known:
                full = f"{where}.{key}" if where else key
                raise ConfigError(f"Unknown key `{full}`{nearest(key, known)}; see `Column`.")
        try:
            return cls(**{str(key): value for key, value in values.items()})
        except ConfigError as error:
            raise ConfigError(str(error).replace("`", f"`{where}." if where else "`", 1)) from None


def cell_text(value: object) -> object:
    """Return a category or label as the text that its cells hold: a whole number loses its point, as in a table.

    >>> cell_text(1.0), cell_text("1.0"), cell_text(" f "), cell_text(True)
    ('1', '1', 'f', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Real) and math.isfinite(value):
        return str(int(float(value))) if float(value).is_integer() else str(value)
    return plain_text(value.strip()) if isinstance(value, str) else value


def _problem(column: Column) -> str | None:
    """Return what is wrong with a declaration, as a sentence."""
    checks = (_kind_problem, _bounds_problem, _words_problem, _other_problem, _missing_problem, _knots_problem)
    return next((found for check in checks if (found := check(column))), None)


def _kind_problem(column: Column) -> str | None:
    for key in ("boolean", "other"):
        value = getattr(column, key)
        if not isinstance(value, bool) and (key, value) != ("other", None):
            return f"`{key}` must be true or false; got {shown(value)}."
    given = [key for key in KINDS if getattr(column, key) not in (None, False)]
    return f"`{given[0]}` and {given[1]} exclude each other; keep one of them." if len(given) > 1 else None


def _bounds_problem(column: Column) -> str | None:
    bounds = column.bounds
    if bounds is None or bounds == DATA:
        return None
    given = list(bounds) if _is_list(bounds) else []
    numbers = [float(value) for value in given if _is_number(value)]
    if len(numbers) == len(given) == 2 and numbers[0] < numbers[1]:
        return None
    got = f"[{', '.join(f'{value:g}' for value in numbers)}]" if len(numbers) == 2 else shown(bounds)
    return f"`bounds` must be two numbers, the lower one first; got {got}."


def _words_problem(column: Column) -> str | None:
    for key, least in (("categories", 1), ("labels", 2)):
        words = getattr(column, key)
        if words is None or words == DATA:
            continue
        if not _is_list(words) or not all(isinstance(word, str) and word for word in words):
            return f"`{key}` must be a list of texts, as in {EXAMPLES[key]}; got {shown(words)}."
        if len(words) < least:
            return f"`{key}` must hold at least {least} texts; got {len(words)}."
        if len(set(words)) < len(words):
            twice = next(word for word in words if list(words).count(word) > 1)
            return f"`{key}` holds {quoted(twice)} twice; remove one."
    return None


def _other_problem(column: Column) -> str | None:
    words = column.categories or ()
    if column.other is not None and column.categories is None:
        return "`other` belongs to categories; give them, or remove it."
    if column.other and OTHER in words:
        return f"`other` = true has the name of a category {quoted(OTHER)}; rename the category or leave `other` out."
    if column.missing == INDICATOR and MISSING in words:
        return f'`missing` = "indicator" has the name of a category {quoted(MISSING)}; rename the category.'
    return None


def _missing_problem(column: Column) -> str | None:
    value = column.missing
    if value == REFUSE or (value == INDICATOR and column.labels is None):
        return None
    if column.labels is not None:
        return '`missing` must be "refuse" for a column with labels; a row without a target cannot be used.'
    if column.boolean:
        return None if isinstance(value, bool) else _wanted(value, "true, false")
    if column.categories is not None:
        known = column.categories == DATA or value in column.categories
        return None if isinstance(value, str) and known else _wanted(value, "one of the categories")
    if not _is_number(value):
        return _wanted(value, "a number")
    bounds = column.bounds
    if isinstance(bounds, tuple) and not bounds[0] <= float(value) <= bounds[1]:
        return f"`missing` = {value} lies outside the bounds; give a number within them."
    return None


def _knots_problem(column: Column) -> str | None:
    if column.knots is None:
        return None
    if isinstance(column.knots, bool) or not isinstance(column.knots, int) or not KNOTS[0] <= column.knots <= KNOTS[1]:
        return f"`knots` must be a whole number from {KNOTS[0]} to {KNOTS[1]}; got {shown(column.knots)}."
    return None if column.bounds is not None else "`knots` lie between bounds; give bounds, or remove it."


def _wanted(value: object, constant: str) -> str:
    return f'`missing` must be "refuse", "indicator" or {constant}; got {shown(value)}.'


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
