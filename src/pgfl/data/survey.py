"""What a table holds, as a person wants to see it: columns, clients, servers, clusters, and what looks wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.row_encoding import PlaceColumns, truth_value
from pgfl.data.frames import Table
from pgfl.data.id_columns import FEWEST_ROWS, NEARLY_ALL, named_like_an_id, numbered_like_an_id
from pgfl.data.rows import MISSING_WORDS
from pgfl.data.sources import TableSource, open_table
from pgfl.data.table_places import Places, place_columns, read_places
from pgfl.did_you_mean import quoted
from pgfl.errors import DataError

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["number", "boolean", "category", "text", "other"]
BINS = 8
MOST_CATEGORIES = 30
FEW_ROWS = 5
RARE = 0.1
LOOKS_LIKE_ID = ("looks like an id; leave it out with `ignore`", "look like ids; leave them out with `ignore`")


@dataclass(frozen=True)
class ColumnFacts:
    """One column: its kind, range or most frequent texts, and how its values are spread."""

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
        taken = {self.target, *(self.places.columns.names if self.places else ())}
        return tuple(column for column in self.columns if column.name not in taken)


def survey(
    source: TableSource,
    *,
    target: str | None = None,
    client: str | None = None,
    server: str | None = None,
    cluster: str | None = None,
) -> TableFacts:
    """Look at all columns of a table, and at its clients, servers and clusters if it names them.

    >>> facts = survey({"client": ["a", "a", "b"], "age": [40, 50, None], "y": ["ill", "well", "ill"]}, target="y")
    >>> [(column.name, column.kind, column.missing) for column in facts.columns]
    [('client', 'category', 0), ('age', 'number', 1), ('y', 'category', 0)]
    >>> facts.places.rows_per_client
    (1, 1.5, 2)
    """
    table = open_table(source)
    if target is not None:
        table.require(target)
    target = target or ("y" if "y" in table.columns else None)
    filled = np.flatnonzero(~table.blank())
    if not len(filled):
        raise table.error(f"{table.label} has no rows below the header; add samples.")
    columns = tuple(column_facts(table, series.gather(filled)) for series in table.series(list(table.columns)))
    warnings: list[str] = []
    places = None
    try:
        names = place_columns(table, client, server, cluster)
        places = place_facts(read_places(table, names), names)
    except DataError as error:
        if any(name is not None and name not in table.columns for name in (client, server, cluster)):
            raise
        warnings.append(str(error))
    facts = TableFacts(table.label, len(filled), columns, places, target)
    return TableFacts(table.label, len(filled), columns, places, target, (*warnings, *_warnings(facts)))


def column_facts(table: Table, series: pl.Series) -> ColumnFacts:
    """What one column holds."""
    import polars as pl

    name, dtype = series.name, series.dtype
    if dtype.is_nested() or dtype == pl.Binary or dtype.is_temporal():
        return ColumnFacts(name, "other", series.null_count(), series.n_unique())
    texts = table.as_text(series)
    known = texts.drop_nulls()
    floats = table.as_floats(series)
    words = known.filter(known.str.to_lowercase().is_in(MISSING_WORDS).not_())
    numbers = floats[np.isfinite(floats)]
    if len(numbers) == len(words) and len(words):
        return _number_facts(name, dtype == pl.Boolean, numbers, len(texts) - len(words))
    counted = known.str.replace(r"^([-+]?\d+)\.0+$", "$1").value_counts(sort=True, name="count")
    distinct = len(counted)
    found = counted.sort(["count", name], descending=[True, False]).head(MOST_CATEGORIES)
    frequent = tuple((str(word), int(count)) for word, count in found.iter_rows())
    boolean = 1 <= distinct <= 4 and all(truth_value(word) is not None for word, _ in frequent)
    kind: Kind = "boolean" if boolean else "category" if distinct <= MOST_CATEGORIES else "text"
    unique = len(known) >= FEWEST_ROWS and distinct >= NEARLY_ALL * len(known)
    return ColumnFacts(
        name,
        kind,
        missing=len(texts) - len(known),
        distinct=distinct,
        frequent=frequent,
        histogram=tuple(count for _, count in frequent[:BINS]),
        looks_like_id=unique or named_like_an_id(name),
    )


def place_facts(places: Places, columns: PlaceColumns) -> PlaceFacts:
    """How many clients and rows are where."""
    counts = np.diff(places.offsets)
    together = np.zeros((len(places.clusters), len(places.servers)), dtype=np.int64)
    np.add.at(together, (places.client_cluster, places.client_server), 1)
    return PlaceFacts(
        columns,
        len(places.clients),
        places.servers,
        places.clusters,
        (int(counts.min()), float(np.median(counts)), int(counts.max())),
        tuple(map(tuple, together.tolist())),
        int((counts < FEW_ROWS).sum()),
    )


def _number_facts(name: str, boolean: bool, numbers: Floats, missing: int) -> ColumnFacts:
    values, counts = np.unique(numbers, return_counts=True)
    whole = bool(np.array_equal(values, np.floor(values)))
    kind: Kind = "boolean" if boolean or set(values.tolist()) == {0.0, 1.0} else "number"
    few = len(values) <= MOST_CATEGORIES and whole
    frequent = tuple((f"{value:.0f}", int(count)) for value, count in zip(values, counts, strict=True)) if few else ()
    with np.errstate(over="ignore"):
        spread = float(values[-1]) - float(values[0])
    histogram = np.histogram(numbers, bins=BINS)[0].tolist() if np.isfinite(spread) else []
    return ColumnFacts(
        name,
        kind,
        missing,
        len(values),
        low=float(values[0]),
        high=float(values[-1]),
        whole=whole,
        frequent=tuple(sorted(frequent, key=lambda item: -item[1])),
        histogram=tuple(int(count) for count in histogram),
        looks_like_id=named_like_an_id(name) or numbered_like_an_id(numbers),
    )


def _warnings(facts: TableFacts) -> list[str]:
    """What a person should look at before training."""
    features = facts.features
    found = [
        _named([column.name for column in features if column.looks_like_id], *LOOKS_LIKE_ID),
        _named(
            [column.name for column in features if column.constant],
            "is constant; it can be left out with `ignore`",
            "are constant; they can be left out with `ignore`",
        ),
        _named(
            [column.name for column in features if column.kind == "text" and not column.looks_like_id],
            "holds free text; leave it out with `ignore`, or list its categories",
            "hold free text; leave them out with `ignore`, or list their categories",
        ),
        _named(
            [column.name for column in features if column.kind == "other"],
            "holds dates or lists; turn it into numbers, or leave it out with `ignore`",
            "hold dates or lists; turn them into numbers, or leave them out with `ignore`",
        ),
    ]
    return [sentence for sentence in found if sentence] + _target_warnings(facts) + _place_warnings(facts)


def _target_warnings(facts: TableFacts) -> list[str]:
    if facts.target is None:
        return []
    target, found = facts.column(facts.target), []
    if target.missing:
        found.append(f"The target {quoted(target.name)} is missing in {target.missing} rows; remove or fill them.")
    if target.constant:
        found.append(f"The target {quoted(target.name)} is the same in all rows; there is nothing to learn.")
    elif is_label(target) and (rarest := min(target.frequent, key=lambda item: item[1]))[1] < RARE * facts.rows:
        found.append(
            f"Label {quoted(rarest[0])} of {quoted(target.name)} is in {rarest[1]} of {facts.rows} rows only; "
            "judge by AUC or log loss rather than by accuracy."
        )
    return found


def is_label(target: ColumnFacts) -> bool:
    """Whether a target looks like labels rather than like a measurement: words, or few whole numbers."""
    few = target.whole and target.distinct <= 10 and target.distinct < FEWEST_ROWS
    return target.kind in ("boolean", "category") or (target.kind == "number" and few)


def _place_warnings(facts: TableFacts) -> list[str]:
    places = facts.places
    if places is None:
        return []
    found = []
    for what, column in (("server", places.columns.server), ("cluster", places.columns.cluster)):
        if column is None:
            found.append(
                f"There is no column '{what}', so all clients are in one {what}, 'all'; name another with --{what}."
            )
    if places.small_clients:
        found.append(f"{places.small_clients} of {places.clients} clients have fewer than {FEW_ROWS} rows.")
    together = np.array(places.clients_by_cluster_and_server)
    alone = [name for name, count in zip(places.clusters, together.sum(axis=1), strict=True) if count == 1]
    if alone and places.clients > 1:
        one, many = "has one client only, which learns alone", "have one client only, which learn alone"
        found.append(_named(alone, one, many, "Cluster"))
    return found


def _named(names: Sequence[str], one: str, many: str, what: str = "Column") -> str:
    """A sentence about some columns or clusters; nothing if there are none."""
    shown = ", ".join(quoted(name) for name in names[:6]) + (", …" if len(names) > 6 else "")
    return "" if not names else f"{what} {shown} {one}." if len(names) == 1 else f"{what}s {shown} {many}."
