"""How a row of a table becomes features and a target.

The encoding is part of a model, so that predictions do what training did. `TableRows` gives it a table's columns, one
at a time, as numbers or as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.arrays import AnyFloats, Bools, Floats, Ints
from pgfl.errors import DataError
from pgfl.federation.columns import (
    FALSE,
    TRUE,
    ArrayColumn,
    BooleanColumn,
    CategoryColumn,
    FeatureColumn,
    NumberColumn,
    Rows,
    TargetColumn,
    Texts,
    kind_of,
)
from pgfl.federation.frames import Table, TableSource, open_table
from pgfl.maps import OWN_KNOTS, Groups, RowMap, from_json, length, squared_norm, stages, to_json
from pgfl.suggestions import nearest, quoted

if TYPE_CHECKING:
    import polars as pl

INTERCEPT = "intercept"
MAP_OF_RECORDS = 'map = "auto"'
"""Among what was read from records: the choice of the row map."""
_BLOCK_NUMBERS = 1 << 20  # mapped at a time


@dataclass(frozen=True, eq=False)
class Part:
    """Arrays for some rows of a table: `order` lists them, counted from 0, as they are wanted."""

    features: AnyFloats
    targets: AnyFloats
    order: Ints

    def fill(self, into: AnyFloats, block: Floats | Bools, rows: Rows, name: str) -> None:
        """Copy the chosen rows of a block of features; what becomes infinite is refused."""
        with np.errstate(over="ignore"):
            into[:] = block[self.order]
        if not np.isfinite(into).all():
            row = int(self.order[~np.isfinite(into).all(axis=1)].min())
            problem = f"holds {quoted(rows.texts(name)[row])}, which is too large for {into.dtype}"
            raise rows.refuse(row, f"column {quoted(name)} {problem}; correct it or remove the row.")


@dataclass(frozen=True)
class PlaceColumns:
    """The columns that name a row's client, server and cluster; None where the training table had no such column."""

    client: str | None = "client"
    server: str | None = "server"
    cluster: str | None = "cluster"

    @property
    def names(self) -> tuple[str, ...]:
        """Those that the table has."""
        return tuple(name for name in (self.client, self.server, self.cluster) if name is not None)


@dataclass(frozen=True)
class RowEncoding:
    """Everything that is done to a row before a model sees it, except clipping to `x_norm`.

    The columns' features, as hats where a column has `knots`, go through the `maps` one after the other, and the
    intercept comes last. `places` and `ignored` name the other columns of the training table. `read_from_records` names
    the columns whose bounds, categories or labels were computed from training rows, which privacy does not allow.

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
    places: PlaceColumns = field(default_factory=PlaceColumns)
    ignored: tuple[str, ...] = ()
    read_from_records: tuple[str, ...] = ()
    maps: tuple[RowMap, ...] = ()

    @property
    def unused(self) -> tuple[str, ...]:
        """Columns of the training table that are neither features nor the target."""
        return (*self.places.names, *self.ignored)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature, the intercept last."""
        names = [name for group in self.groups for name in group.names]
        return (*names, INTERCEPT) if self.intercept else tuple(names)

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """The table's columns that are read, in the order in which an array gives them."""
        return tuple(name for column in self.columns for name in column.cells)

    @cached_property
    def _stages(self) -> tuple[tuple[tuple[RowMap, Groups], ...], Groups]:
        groups = tuple(group for column in self.columns for group in column.groups)
        return stages((*OWN_KNOTS, *self.maps) if any(group.knots for group in groups) else self.maps, groups)

    @property
    def is_plain(self) -> bool:
        """Whether features are those of the columns, without a map."""
        return not self.stages

    @property
    def is_additive(self) -> bool:
        """Whether every feature depends on one column only."""
        return all(one.additive for one, _ in self.stages)

    @property
    def stages(self) -> tuple[tuple[RowMap, Groups], ...]:
        """Every map that rows go through, with what is public about the rows that it is given."""
        return self._stages[0]

    @property
    def groups(self) -> Groups:
        """What is public about the mapped features, without the intercept."""
        return self._stages[1]

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return len(self.feature_names)

    @property
    def x_norm(self) -> float | None:
        """A bound on the norm of every encoded row that follows from the declarations; None if one is unbounded."""
        square = squared_norm(self.groups)
        return None if square is None else float(np.sqrt(square + self.intercept))

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The columns that have no bounds; none if a map has bounded what becomes of them."""
        if squared_norm(self.groups) is not None:
            return ()
        return tuple(column.name for column in self.columns if column.squared_norm is None)

    def of_number(self, name: str, scaled: Floats) -> tuple[slice, Floats]:
        """Return where the features of a column of numbers are, and what they are for numbers within [−1, 1].

        The maps must be additive, so that nothing depends on the other columns.
        """
        names = [column.name for column in self.columns]
        start = sum(len(column.feature_names) for column in self.columns[: names.index(name)])
        rows = np.zeros((len(scaled), sum(len(column.feature_names) for column in self.columns)))
        rows[:, start] = scaled
        mapped = np.empty((len(rows), self.dimension))
        self.map_into(rows, mapped)
        before = sum(group.size for group in self.groups[: names.index(name)])
        where = slice(before, before + self.groups[names.index(name)].size)
        return where, mapped[:, where]

    def encode(self, rows: Rows) -> Floats:
        """Return the features of all rows."""
        parts = [column.encode(rows) for column in self.columns]
        features = np.empty((len(rows), self.dimension))
        self.map_into(np.concatenate(parts, axis=1, dtype=float), features)
        return features

    def map_into(self, encoded: AnyFloats, into: AnyFloats) -> None:
        """Fill an array with mapped rows, some at a time, and the intercept; `encoded` holds the columns' features."""
        for start in range(0, len(encoded), step := self._rows_at_once):
            rows = encoded[start : start + step].astype(np.float64, copy=False)
            for one, groups in self.stages:
                rows = one.apply(rows, groups)
            into[start : start + step, : rows.shape[1]] = rows
        if self.intercept:
            into[:, -1] = 1.0

    @property
    def _rows_at_once(self) -> int:
        widest = max(self.dimension, *(length(groups) for _, groups in self.stages), 1)
        return max(1, _BLOCK_NUMBERS // widest)

    def encode_into(self, rows: Rows, *parts: Part) -> None:
        """Fill arrays with rows column by column, so that there is no second copy of all features.

        Several parts, such as training rows and test rows, are filled in one pass. A number that is too large for the
        arrays' type is refused.
        """
        target = self.target.encode(rows)[:, None]
        for part in parts:
            part.fill(part.targets[:, None], target, rows, self.target.name)
        if self.stages:
            width = sum(len(column.feature_names) for column in self.columns)
            encoded = [Part(np.empty((len(part.order), width)), part.targets, part.order) for part in parts]
            self._encode_columns(rows, *encoded)
            for part, columns in zip(parts, encoded, strict=True):
                self.map_into(columns.features, part.features)
        else:
            self._encode_columns(rows, *parts)
            for part in parts:
                if self.intercept:
                    part.features[:, -1] = 1.0

    def _encode_columns(self, rows: Rows, *parts: Part) -> None:
        start = 0
        for column in self.columns:
            block = column.encode(rows)
            for part in parts:
                part.fill(part.features[:, start : start + block.shape[1]], block, rows, column.name)
            start += block.shape[1]

    def to_json(self) -> dict[str, Any]:
        """Return a description that JSON can hold; `from_json` reads it back."""
        return {
            "columns": [{"kind": kind_of(column), **asdict(column)} for column in self.columns],  # type: ignore[call-overload]
            "target": asdict(self.target),
            "intercept": self.intercept,
            "places": asdict(self.places),
            "ignored": self.ignored,
            "read_from_records": self.read_from_records,
            "maps": to_json(self.maps),
        }

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> RowEncoding:
        """Return the encoding that `to_json` described."""
        kinds: dict[str, Any] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn, BooleanColumn, ArrayColumn)}
        columns = []
        for column in description["columns"]:
            own = dict(column)
            columns.append(kinds[own.pop("kind")](**_frozen(own)))
        return cls(
            tuple(columns),
            TargetColumn(**_frozen(description["target"])),
            bool(description["intercept"]),
            PlaceColumns(**description.get("places", {})),
            tuple(description.get("ignored", ())),
            tuple(description.get("read_from_records", ())),
            from_json(description.get("maps", ())),
        )


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


MISSING_WORDS = ("na", "nan", "n/a", "null", "none")
"""Words that mean an empty cell in a column of numbers; in a column of text they are text."""
_MOST_EXAMPLES = 3
_MOSTLY = 0.9  # a column with more words than this is text; with fewer, they are mistakes


def read_rows(table: TableSource) -> TableRows:
    """All rows of a table except blank lines; a table is a path, a data frame, an Arrow table or a dict of columns.

    >>> rows = read_rows({"age": [40, None], "sex": ["f", " m "]})
    >>> len(rows), rows.numbers("age").tolist(), rows.texts("sex").tolist()
    (2, [40.0, nan], ['f', 'm'])
    """
    opened = open_table(table)
    return TableRows(opened, np.flatnonzero(~opened.blank()))


class TableRows:
    """Some rows of a table, in the table's order; all of them if `rows` is None.

    `ahead` lists the columns in the order in which they will be asked for: a large csv file is then parsed once for
    several of them. A column in `undeclared` that holds text is refused with advice on how to declare it, by the key
    that stands there: `categories` or `labels`. It may also be meant as one of the keys in `unplaced`, such as
    `cluster`.
    """

    def __init__(
        self,
        table: Table,
        rows: Ints | None = None,
        *,
        ahead: Sequence[str] = (),
        undeclared: Mapping[str, str] | None = None,
        unplaced: Sequence[str] = (),
    ) -> None:
        self.table = table
        size = table.size
        self.rows = None if rows is None or len(rows) == size else rows
        self._length = size if self.rows is None else len(self.rows)
        self._ahead, self._undeclared, self._unplaced = tuple(ahead), dict(undeclared or {}), tuple(unplaced)
        self._coming = iter(table.series(self._ahead))
        self._next = 0

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self._length

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns, in its order."""
        return tuple(self.table.columns)

    def check(self, encoding: RowEncoding, optional: Iterable[str] = ()) -> None:
        """Refuse a table that lacks a feature of a model, or has a column that was not in the model's own table.

        The target and columns that the model does not use may be missing; `optional` names further columns that may
        be there.
        """
        needed = encoding.cells
        self.table.require(*needed)
        known = {*needed, encoding.target.name, *encoding.unused, *optional}
        for name in self.columns:
            if name not in known:
                raise self.table.error(
                    f"{self.table.label} has a column {quoted(name)} that the model's own table lacks"
                    f"{nearest(name, needed)}; rename or remove it."
                )

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers, NaN where a cell is empty; a cell that is no number is refused."""
        series = self._series(name)
        values = self._chosen(self.table.as_floats(series))
        if not np.isfinite(values).all():
            self._refuse_words(name, series, values)
        return values

    def texts(self, name: str) -> Texts:
        """Return a column as text without surrounding blanks, None where a cell is empty."""
        cells = np.empty(len(self), dtype=object)
        cells[:] = self._of_rows(self.table.as_text(self._series(name))).to_list()
        return cells

    def refuse(self, row: int, complaint: str) -> DataError:
        """Return the error that reports what is wrong in a row, counted from 0 among these rows."""
        return self.table.refuse(row if self.rows is None else int(self.rows[row]), complaint)

    def _series(self, name: str) -> pl.Series:
        """A column as it is; those in `ahead` are read in blocks, as long as they are asked for in that order."""
        if self._next < len(self._ahead) and self._ahead[self._next] == name:
            self._next += 1
            return next(self._coming)
        self.table.require(name)
        return next(self.table.series([name]))

    def _chosen(self, values: Floats) -> Floats:
        return values if self.rows is None else values[self.rows]

    def _of_rows(self, series: pl.Series) -> pl.Series:
        return series if self.rows is None else series.gather(self.rows)

    def _refuse_words(self, name: str, series: pl.Series, values: Floats) -> None:
        """Refuse the first cell that holds something other than a finite number; empty cells are no mistake."""
        suspect = np.flatnonzero(~np.isfinite(values))
        cells = self.table.as_text(self._of_rows(series)).gather(suspect).to_list()
        wrong = [
            (int(row), cell)
            for row, cell in zip(suspect, cells, strict=True)
            if cell is not None and cell.lower() not in MISSING_WORDS
        ]
        if not wrong:
            return
        row, cell = wrong[0]
        filled = len(values) - len(suspect) + len(wrong)
        if name in self._undeclared and len(wrong) > _MOSTLY * filled:
            words = list(dict.fromkeys(cell for _, cell in wrong))
            raise self.refuse(row, _advice(name, self._undeclared[name], words, self._unplaced))
        complaint = f"column {quoted(name)} holds {quoted(cell)}, which is not a finite number"
        raise self.refuse(row, f"{complaint}; correct it or remove the row.")


def _advice(name: str, key: str, cells: Sequence[str], unplaced: Sequence[str]) -> str:
    """Return how to declare a column of text."""
    examples = [quoted(cell)[1:-1] for cell in cells[:_MOST_EXAMPLES]]
    more = ", …" if len(cells) > _MOST_EXAMPLES else ""
    shown = ", ".join(f"'{example}'" for example in examples)
    if key == "categories" and {cell.lower() for cell in cells} <= {*TRUE, *FALSE}:
        declared = "boolean = true"
    else:
        declared = f"{key} = [{', '.join(json.dumps(example, ensure_ascii=False) for example in examples)}{more}]"
    instead = ", or leave it out with `ignore`" if key == "categories" else ""
    if unplaced and key == "categories":
        meant = " or ".join(f"{place} = {json.dumps(name, ensure_ascii=False)}" for place in unplaced)
        instead += f", or state {meant} if that is what it names"
    return (
        f"column {quoted(name)} holds text ({shown}{more}), not numbers; declare it in [data.columns], as in "
        f"{toml_key(name)} = {{ {declared} }}{instead}."
    )


def toml_key(name: str) -> str:
    """Return a name as a key of a TOML file.

    >>> toml_key("age"), toml_key("blood pressure")
    ('age', '"blood pressure"')
    """
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if bare else json.dumps(name, ensure_ascii=False)
