"""What is known of a table after a look at all of it: its columns, and who is where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pgfl.core.row_encoding import PlaceColumns
from pgfl.data.id_columns import FEWEST_ROWS

Kind = Literal["number", "boolean", "category", "text", "mixed", "other"]
"""A `mixed` column holds numbers beside other text, `other` dates or lists."""
MOST_LABELS = 10


@dataclass(frozen=True)
class ColumnFacts:
    """One column: its kind, range or most frequent texts, and how its values are spread.

    `strays` are examples of the cells of a mixed column that are no numbers, and `stray_rows` says how many there are.
    """

    name: str
    kind: Kind
    missing: int
    distinct: int
    low: float | None = None
    high: float | None = None
    whole: bool = False
    frequent: tuple[tuple[str, int], ...] = ()
    histogram: tuple[int, ...] = ()
    looks_like_id: bool = False
    strays: tuple[str, ...] = ()
    stray_rows: int = 0

    @property
    def empty(self) -> bool:
        """Whether no cell holds anything."""
        return self.distinct == 0

    @property
    def constant(self) -> bool:
        """Whether all cells that are not empty are equal."""
        return self.distinct <= 1

    @property
    def labels(self) -> tuple[str, ...]:
        """All its texts, numbers by size and words by spelling; only of a column with few of them."""
        words = [word for word, _ in self.frequent]
        try:
            return tuple(sorted(words, key=float))
        except ValueError:
            return tuple(sorted(words))


@dataclass(frozen=True)
class PlaceFacts:
    """Who is where: the clients and rows of every server and cluster."""

    columns: PlaceColumns
    clients: int
    servers: tuple[str, ...]
    clusters: tuple[str, ...]
    rows_per_client: tuple[int, float, int]
    clients_by_cluster_and_server: tuple[tuple[int, ...], ...]
    small_clients: int


@dataclass(frozen=True)
class TableFacts:
    """A table at a glance. These are exact figures of records."""

    label: str
    rows: int
    columns: tuple[ColumnFacts, ...]
    places: PlaceFacts | None
    target: str | None
    warnings: tuple[str, ...] = field(default=())
    named: PlaceColumns | None = None  # the columns of places, also where what they hold is contradictory

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> ColumnFacts:
        """The facts of one column."""
        return next(column for column in self.columns if column.name == name)

    @property
    def features(self) -> tuple[ColumnFacts, ...]:
        """The columns that are neither the target nor name where a row belongs."""
        taken = {self.target, *(self.named.names if self.named else ())}
        return tuple(column for column in self.columns if column.name not in taken)


def is_label(target: ColumnFacts) -> bool:
    """Whether a target looks like labels rather than like a measurement: words, or few whole numbers."""
    few = target.whole and target.distinct <= MOST_LABELS and target.distinct < FEWEST_ROWS
    return target.kind in ("boolean", "category") or (target.kind == "number" and few)
