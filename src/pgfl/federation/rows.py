"""Rows of a table as `core.row_encoding` reads them: one column at a time, as numbers or as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import Floats, Ints
from pgfl.errors import DataError
from pgfl.federation.columns import FALSE, TRUE, Texts
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.frames import Table, TableSource, open_table
from pgfl.suggestions import nearest, quoted

if TYPE_CHECKING:
    import polars as pl


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
        """How many rows there are."""
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
        needed = [column.name for column in encoding.columns]
        self.table.require(*needed)
        known = {*needed, encoding.target.name, *encoding.unused, *optional}
        for name in self.columns:
            if name not in known:
                raise self.table.error(
                    f"{self.table.label} has a column {quoted(name)} that the model's own table lacks"
                    f"{nearest(name, needed)}; rename or remove it."
                )

    def numbers(self, name: str) -> Floats:
        """A column as numbers, NaN where a cell is empty; a cell that is no number is refused."""
        series = self._series(name)
        values = self._chosen(self.table.as_floats(series))
        if not np.isfinite(values).all():
            self._refuse_words(name, series, values)
        return values

    def texts(self, name: str) -> Texts:
        """A column as text without surrounding blanks, None where a cell is empty."""
        cells = np.empty(len(self), dtype=object)
        cells[:] = self._of_rows(self.table.as_text(self._series(name))).to_list()
        return cells

    def refuse(self, row: int, complaint: str) -> DataError:
        """The error that reports what is wrong in a row, counted from 0 among these rows."""
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
    """How to declare a column of text."""
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
    """A name as a key of a TOML file.

    >>> toml_key("age"), toml_key("blood pressure")
    ('age', '"blood pressure"')
    """
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if bare else json.dumps(name, ensure_ascii=False)
