"""The encoding of a table's rows, from declared columns, and what is known of a federation before its rows are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack, cast

import numpy as np

from pgfl.arrays import Ints
from pgfl.errors import DataError
from pgfl.federation.columns import BooleanColumn, CategoryColumn, FeatureColumn, NumberColumn, TargetColumn, plain_text
from pgfl.federation.declarations import DATA, INDICATOR, REFUSE, Column
from pgfl.federation.encoding import PlaceColumns, RowEncoding, TableRows
from pgfl.federation.frames import Table, TableSource, open_table
from pgfl.federation.graphs import Graph, GraphSource, extra_servers, server_graph
from pgfl.federation.places import place_column, place_columns, read_ids, read_places
from pgfl.federation.usual_bounds import robust_bounds
from pgfl.maps import MapSource, RowMap, read_maps
from pgfl.suggestions import nearest, quoted, shown

MOST_CATEGORIES = 1000
"""The most categories that are computed from data; a column with more is more likely an id."""

Declarations = Mapping[str, Column | Mapping[str, object]]


@dataclass(frozen=True)
class Selection:
    """Which columns of a table are features, in their order, and which are left out."""

    places: PlaceColumns
    target: str
    features: tuple[str, ...]
    ignored: tuple[str, ...]
    declared: Mapping[str, Column]
    maps: tuple[RowMap, ...] = ()

    def declaration(self, name: str) -> Column:
        """Return what is declared about a column; nothing if it is taken as it is."""
        return self.declared.get(name, _UNDECLARED)


_UNDECLARED = Column()


def select_columns(
    table: Table,
    target: str,
    places: PlaceColumns,
    columns: Declarations | None = None,
    features: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    maps: tuple[RowMap, ...] = (),
) -> Selection:
    """Choose the features: those that are listed, else all columns that are not ignored. Unknown names are refused."""
    if not isinstance(target, str):
        raise DataError(f"The target is the name of a column; got {shown(target)}.")
    if target in places.names:
        raise DataError(f"The target column cannot be {quoted(target)}, which names where a sample belongs.")
    table.require(target)
    if columns is not None and not isinstance(columns, Mapping):
        raise DataError(f"`columns` must map names of columns to declarations; got {shown(columns)}.")
    declared = {name: Column.of(given, f"columns.{name}") for name, given in (columns or {}).items()}
    listed = None if features is None else _names(table, "features", features)
    left_out = _names(table, "ignore", ignore)
    _names(table, "columns", declared)
    taken = (*places.names, target)
    for key, names in (("features", listed or ()), ("ignore", left_out)):
        if found := next((name for name in names if name in taken), None):
            role = "the target" if found == target else "not a feature: it names where a sample belongs"
            raise DataError(f"`{key}` names {quoted(found)}, which is {role}; remove it there.")
    if found := next((name for name in declared if name in places.names), None):
        raise DataError(f"`columns` declares {quoted(found)}, which names where a sample belongs; remove it there.")
    if found := next((name for name in left_out if name in declared or name in (listed or ())), None):
        raise DataError(f"`ignore` names {quoted(found)}, which is declared or listed as a feature; keep one of them.")
    rest = [name for name in table.columns if name not in taken]
    chosen = tuple(listed if listed is not None else (name for name in rest if name not in left_out))
    if found := next((name for name in declared if name not in (*chosen, target)), None):
        raise DataError(f"`columns` declares {quoted(found)}, which `features` does not list; add it or remove it.")
    if not chosen:
        key = "features" if listed is not None else "ignore"
        if listed is not None or left_out:
            raise DataError(f"`{key}` leaves no column as a feature; keep at least one.")
        beside = ", ".join([*places.names, target])
        raise table.error(f"{table.label} has no feature columns; add at least one beside {beside}.")
    return Selection(places, target, chosen, tuple(name for name in rest if name not in chosen), declared, maps)


def build_encoding(table: Table, selection: Selection, training: Ints, intercept: bool) -> RowEncoding:
    """The encoding that the declarations describe; what they leave to the data is computed from the training rows."""
    from_data = [name for name, column in selection.declared.items() if column.from_data]
    rows = TableRows(table, training, ahead=from_data) if from_data else None
    known = {
        name: _computed(name, selection.declared[name], rows, feature=name != selection.target)
        for name in from_data
        if rows is not None
    }
    columns = tuple(_feature(name, known.get(name, selection.declaration(name))) for name in selection.features)
    target = _target(selection.target, known.get(selection.target, selection.declaration(selection.target)))
    encoding = RowEncoding(
        columns, target, intercept, selection.places, selection.ignored, tuple(from_data), selection.maps
    )
    _check_names(encoding)
    return encoding


def encoded_dimension(table: Table, selection: Selection, intercept: bool) -> int:
    """Return how many features there will be, at most, without reading them; categories of the data are counted."""
    declared = {name: selection.declaration(name) for name in selection.features}
    counted = [name for name, column in declared.items() if column.categories == DATA]
    distinct = dict(zip(counted, table.counts(counted)[1], strict=True)) if counted else {}
    columns = tuple(_feature(name, _as_if_known(column, distinct.get(name))) for name, column in declared.items())
    return RowEncoding(columns, TargetColumn(selection.target), intercept, maps=selection.maps).dimension


def _as_if_known(column: Column, distinct: int | None) -> Column:
    """Return a declaration that gives as many features as the one that will be computed from rows."""
    if column.bounds == DATA:
        return Column(
            bounds=(0.0, 1.0), missing=INDICATOR if column.missing == INDICATOR else REFUSE, knots=column.knots
        )
    if distinct is None:
        return column
    words = tuple(f"category-{number}" for number in range(distinct))
    indicator = INDICATOR if column.missing == INDICATOR else REFUSE
    return Column(categories=words, other=column.other is not False, missing=indicator)


def _names(table: Table, key: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns that the table has, without repetition."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise DataError(f"`{key}` must be a list of column names; got {shown(names)}.")
    listed = tuple(names)
    for name in listed:
        if name not in table.columns:
            unknown = quoted(name) if isinstance(name, str) else shown(name)
            raise table.error(
                f"{table.label} has no column {unknown}, which `{key}` names{nearest(name, table.columns)}; correct it."
            )
        if listed.count(name) > 1:
            raise DataError(f"`{key}` names {quoted(name)} twice; remove one.")
    return listed


def _computed(name: str, column: Column, rows: TableRows, feature: bool) -> Column:
    """Return the declaration with bounds, categories or labels of the training rows.

    A few far values do not widen the bounds of a feature: they would leave hardly any room for the others.
    """
    if column.bounds == DATA:
        values = rows.numbers(name)
        if np.isnan(values).all():
            raise DataError(f"Column {quoted(name)} has no numbers from which bounds could be computed; ignore it.")
        low, high = robust_bounds(values) if feature else (float(np.nanmin(values)), float(np.nanmax(values)))
        if not isinstance(column.missing, str):
            low, high = min(low, float(column.missing)), max(high, float(column.missing))
        bounds = (low, high) if low < high else (low - 1.0, high + 1.0)
        return Column(bounds=bounds, missing=column.missing, knots=column.knots)
    filled = set() if column.missing in (REFUSE, INDICATOR) else {str(column.missing)}
    words = _sorted(filled | {plain_text(cell) for cell in rows.texts(name) if cell is not None})
    if not words:
        raise DataError(f"Column {quoted(name)} is empty in all training rows; ignore it.")
    if len(words) > MOST_CATEGORIES:
        raise DataError(
            f"Column {quoted(name)} has {len(words)} distinct texts in the training rows; ignore it, or list its "
            "categories and set other = true."
        )
    if column.labels == DATA:
        if len(words) < 2:
            raise DataError(
                f"The target {quoted(name)} has one label only in the training rows; nothing can be learnt."
            )
        return Column(labels=words)
    other = column.other if column.other is not None else "other" not in words
    return Column(categories=words, other=other, missing=column.missing)


def _sorted(words: Iterable[str]) -> tuple[str, ...]:
    """Numbers by size, other texts by spelling."""
    found = list(words)
    try:
        return tuple(sorted(found, key=lambda word: (float(word), word)))
    except ValueError:
        return tuple(sorted(found))


def _feature(name: str, column: Column) -> FeatureColumn:
    if column.labels is not None:
        raise DataError(f"Column {quoted(name)} has labels, which belong to the target; use categories instead.")
    indicator = column.missing == INDICATOR
    constant = None if column.missing in (REFUSE, INDICATOR) else column.missing
    if column.boolean:
        return BooleanColumn(name, False if indicator else cast("bool | None", constant), indicator)
    if column.categories is not None:
        categories = cast("Sequence[str]", column.categories)
        return CategoryColumn(name, tuple(categories), bool(column.other), indicator, cast("str | None", constant))
    bounds = cast("tuple[float, float] | None", column.bounds)
    if indicator:
        middle = 0.0 if bounds is None else bounds[0] + (bounds[1] - bounds[0]) / 2.0
        return NumberColumn(name, bounds, middle, True, column.knots)
    return NumberColumn(name, bounds, None if constant is None else float(constant), False, column.knots)


def _target(name: str, column: Column) -> TargetColumn:
    if column.categories is not None or column.boolean:
        raise DataError(
            f'The target {quoted(name)} takes bounds or labels, as in {{ labels = ["no", "yes"] }}; correct it.'
        )
    if column.knots is not None:
        raise DataError(f"The target {quoted(name)} has `knots`, which belong to features; remove it.")
    if column.missing != REFUSE:
        raise DataError(f"The target {quoted(name)} cannot be missing; remove `missing` from its declaration.")
    labels = None if column.labels is None else tuple(cast("Sequence[str]", column.labels))
    return TargetColumn(name, cast("tuple[float, float] | None", column.bounds), labels)


def _check_names(encoding: RowEncoding) -> None:
    seen: set[str] = set()
    for name in encoding.feature_names:
        if name in seen:
            raise DataError(f"Two features would be called {quoted(name)}; rename a column or a category.")
        seen.add(name)


class Reading(TypedDict):
    """How the columns of a table are read, as in `Federation.read`."""

    columns: Declarations | None
    features: Iterable[str] | None
    ignore: Iterable[str]
    client: str | None
    server: str | None
    cluster: str | None
    map: MapSource


def read_shape(
    clients: TableSource,
    graph: GraphSource,
    servers: Sequence[object],
    average_degree: float,
    seed: int,
    server: str | None = None,
) -> tuple[Graph, Ints]:
    """Return the server graph of a table and how many rows each server has, from its column of servers alone."""
    table = open_table(clients)
    ids, numbers = read_ids(table, place_column(table, "server", server))
    server_ids = tuple(sorted({*ids, *extra_servers(servers)}))
    rows = dict(zip(ids, np.bincount(numbers[numbers >= 0], minlength=len(ids)).tolist(), strict=True))
    counts = np.array([rows.get(name, 0) for name in server_ids], dtype=np.int64)
    return server_graph(graph, server_ids, average_degree, seed, 0), counts


def read_placement(
    clients: TableSource,
    servers: Sequence[object] = (),
    client: str | None = None,
    server: str | None = None,
    cluster: str | None = None,
) -> list[tuple[int, int, int]]:
    """(server, cluster, rows) of every client, from the columns that name its place; servers as in `read_shape`."""
    table = open_table(clients)
    places = read_places(table, place_columns(table, client, server, cluster))
    server_ids = sorted({*places.servers, *extra_servers(servers)})
    number = np.array([server_ids.index(name) for name in places.servers])
    columns = (number[places.client_server], places.client_cluster, np.diff(places.offsets))
    return list(zip(*(values.tolist() for values in columns), strict=True))


def read_extent(clients: TableSource, target: str, intercept: bool, **reading: Unpack[Reading]) -> dict[str, int]:
    """How large the federation of a table will be, without reading its features: clients, rows, dimension, pairs."""
    table, selection = _selected(clients, target, reading)
    places = selection.places
    rows, distinct = table.counts(places.names)
    found = dict(zip(places.names, distinct, strict=True))
    pairs = found.get(places.server or "", 1) * found.get(places.cluster or "", 1)
    dimension = encoded_dimension(table, selection, intercept)
    return {"clients": found[places.client or ""], "rows": rows, "dimension": dimension, "pairs": pairs}


def stated_encoding(
    clients: TableSource, target: str, intercept: bool, **reading: Unpack[Reading]
) -> RowEncoding | None:
    """How rows of a table are encoded, from its columns' names and declarations; None if that depends on records."""
    table, selection = _selected(clients, target, reading)
    if any(column.from_data for column in selection.declared.values()):
        return None
    return build_encoding(table, selection, np.empty(0, dtype=np.int64), intercept)


def public_digest(
    clients: TableSource, client: str | None = None, server: str | None = None, cluster: str | None = None
) -> str:
    """A digest of what is public in a table: its columns' names, who is where, and how many records each client has."""
    table = open_table(clients)
    places = read_places(table, place_columns(table, client, server, cluster))
    names = (table.columns, places.clients, places.servers, places.clusters)
    numbers = (places.client_server, places.client_cluster, np.diff(places.offsets))
    digest = hashlib.blake2b(json.dumps([list(part) for part in names]).encode(), digest_size=16)
    for values in numbers:
        digest.update(values.astype("<i8").tobytes())
    return digest.hexdigest()


def _selected(clients: TableSource, target: str, reading: Reading) -> tuple[Table, Selection]:
    table = open_table(clients)
    places = place_columns(table, reading["client"], reading["server"], reading["cluster"])
    chosen = select_columns(
        table, target, places, reading["columns"], reading["features"], reading["ignore"], read_maps(reading["map"])
    )
    return table, chosen
