"""The columns of a finished run as declarations, so that another table becomes the same features."""

from __future__ import annotations

from pgfl.core.declarations import INDICATOR, REFUSE, Column
from pgfl.core.encoded_columns import BooleanColumn, CategoryColumn, FeatureColumn, NumberColumn
from pgfl.core.row_encoding import RowEncoding


def kept_columns(encoding: RowEncoding) -> dict[str, Column]:
    """One declaration per column that has one; bounds and categories that were computed from rows are stated.

    >>> from pgfl.core.encoded_columns import TargetColumn
    >>> kept_columns(RowEncoding((NumberColumn("age", (20.0, 80.0)),), TargetColumn("ill", labels=("no", "yes"))))
    {'age': Column(bounds=(20.0, 80.0)), 'ill': Column(labels=('no', 'yes'))}
    """
    declared = {column.name: _declaration(column) for column in encoding.columns}
    declared[encoding.target.name] = Column(bounds=encoding.target.bounds, labels=encoding.target.labels)
    return {name: column for name, column in declared.items() if column != Column()}


def _declaration(column: FeatureColumn) -> Column:
    if isinstance(column, CategoryColumn):
        missing = INDICATOR if column.missing else REFUSE if column.fill is None else column.fill
        return Column(categories=column.categories, other=column.other, missing=missing)
    assert isinstance(column, NumberColumn | BooleanColumn)
    constant = INDICATOR if column.indicator else REFUSE if column.fill is None else column.fill
    if isinstance(column, BooleanColumn):
        return Column(boolean=True, missing=constant)
    return Column(bounds=column.bounds, missing=constant)
