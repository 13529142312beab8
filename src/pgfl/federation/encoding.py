"""How a row of a table becomes features and a target, which is part of a model: predictions do what training did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pgfl.arrays import AnyFloats, Bools, Floats, Ints
from pgfl.federation.columns import (
    BooleanColumn,
    CategoryColumn,
    FeatureColumn,
    NumberColumn,
    Rows,
    TargetColumn,
    kind_of,
)
from pgfl.suggestions import quoted

INTERCEPT = "intercept"


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

    `places` and `ignored` name the other columns of the training table. `read_from_records` names the columns whose
    bounds, categories or labels were computed from training rows, which privacy does not allow.

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

    @property
    def unused(self) -> tuple[str, ...]:
        """Columns of the training table that are neither features nor the target."""
        return (*self.places.names, *self.ignored)

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
        return np.concatenate([*parts, np.ones((len(rows), 1))] if self.intercept else parts, axis=1, dtype=float)

    def encode_into(self, rows: Rows, *parts: Part) -> None:
        """Fill arrays with rows column by column, so that there is no second copy of all features.

        Several parts, such as training rows and test rows, are filled in one pass. A number that is too large for the
        arrays' type is refused.
        """
        target = self.target.encode(rows)[:, None]
        for part in parts:
            part.fill(part.targets[:, None], target, rows, self.target.name)
        start = 0
        for column in self.columns:
            block = column.encode(rows)
            for part in parts:
                part.fill(part.features[:, start : start + block.shape[1]], block, rows, column.name)
            start += block.shape[1]
        if self.intercept:
            for part in parts:
                part.features[:, start] = 1.0

    def to_json(self) -> dict[str, Any]:
        """A description that JSON can hold; `from_json` reads it back."""
        return {
            "columns": [{"kind": kind_of(column), **asdict(column)} for column in self.columns],  # type: ignore[call-overload]
            "target": asdict(self.target),
            "intercept": self.intercept,
            "places": asdict(self.places),
            "ignored": self.ignored,
            "read_from_records": self.read_from_records,
        }

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> RowEncoding:
        """The encoding that `to_json` described."""
        kinds: dict[str, Any] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn, BooleanColumn)}
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
        )


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
