"""What a table holds, as a person wants to see it: columns, clients, servers, clusters, and what looks wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.cells import truth_value
from pgfl.core.row_encoding import PlaceColumns
from pgfl.data.frames import Table
from pgfl.data.id_columns import FEWEST_ROWS, NEARLY_ALL, named_like_an_id, numbered_like_an_id
from pgfl.data.rows import MISSING_WORDS
from pgfl.data.sources import TableSource, open_table
from pgfl.data.table_facts import ColumnFacts, Kind, PlaceFacts, TableFacts
from pgfl.data.table_places import Places, place_columns, read_places
from pgfl.data.table_warnings import FEW_ROWS, table_warnings
from pgfl.errors import DataError

if TYPE_CHECKING:
    import polars as pl

BINS = 8
MOST_CATEGORIES = 30
MOST_STRAYS = 3
MOSTLY = 0.8
FEWEST_NUMBERS = 10
"""A column with fewer distinct numbers beside words is one of categories, such as 0, 1, 2 and 3+."""
DATE = r"^(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4})$"
CODE = r"^[-+]?0\d+$"
"""Leading zeros make a name of a number: a postal code, an account, an id."""
DECORATED = r"^[€$£¥]?\s*[-+]?\d+([.,' ]\d+)*\s*(%|[€$£¥]|\s[A-Za-zµ°/²³]{1,8})?$"
"""Numbers with a currency, a percent sign, a unit, or commas in them."""


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
    names = places = None
    try:
        names = place_columns(table, client, server, cluster)
        places = place_facts(read_places(table, names), names)
    except DataError as error:
        if any(name is not None and name not in table.columns for name in (client, server, cluster)):
            raise
        warnings.append(str(error))
    facts = TableFacts(table.label, len(filled), columns, places, target, named=names)
    return replace(facts, warnings=(*warnings, *table_warnings(facts)))


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
    codes = words.str.contains(CODE).any()
    if len(numbers) == len(words) and len(words) and not codes:
        return _number_facts(name, dtype == pl.Boolean, numbers, len(texts) - len(words))
    if len(words) and words.str.contains(DATE).all():
        return ColumnFacts(name, "other", len(texts) - len(words), words.n_unique())
    strays = words.filter(words.cast(pl.Float64, strict=False).is_finite().fill_null(False).not_())
    mostly = len(numbers) >= MOSTLY * len(words) and len(np.unique(numbers)) > FEWEST_NUMBERS
    if not codes and (mostly or (len(words) >= FEWEST_ROWS and words.str.contains(DECORATED).all())):
        return _mixed_facts(name, numbers, strays, len(texts) - len(words))
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


def _mixed_facts(name: str, numbers: Floats, strays: pl.Series, missing: int) -> ColumnFacts:
    return ColumnFacts(
        name,
        "mixed",
        missing,
        len(np.unique(numbers)) + strays.n_unique(),
        low=float(numbers.min()) if len(numbers) else None,
        high=float(numbers.max()) if len(numbers) else None,
        strays=tuple(strays.unique(maintain_order=True).head(MOST_STRAYS).to_list()),
        stray_rows=len(strays),
    )


def _histogram(numbers: Floats) -> tuple[int, ...]:
    """How many numbers are in each of a few bins; nothing if they are too large, or too close, to be told apart."""
    with np.errstate(over="ignore"):
        spread = float(numbers.max()) - float(numbers.min())
    if not np.isfinite(spread):
        return ()
    try:
        return tuple(int(count) for count in np.histogram(numbers, bins=BINS)[0])
    except ValueError:
        return ()


def _number_facts(name: str, boolean: bool, numbers: Floats, missing: int) -> ColumnFacts:
    values, counts = np.unique(numbers, return_counts=True)
    whole = bool(np.array_equal(values, np.floor(values)))
    kind: Kind = "boolean" if boolean or set(values.tolist()) == {0.0, 1.0} else "number"
    few = len(values) <= MOST_CATEGORIES and whole
    frequent = tuple((f"{value:.0f}", int(count)) for value, count in zip(values, counts, strict=True)) if few else ()
    return ColumnFacts(
        name,
        kind,
        missing,
        len(values),
        low=float(values[0]),
        high=float(values[-1]),
        whole=whole,
        frequent=tuple(sorted(frequent, key=lambda item: -item[1])),
        histogram=_histogram(numbers),
        looks_like_id=named_like_an_id(name) or numbered_like_an_id(numbers),
    )
