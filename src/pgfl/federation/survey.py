"""What a table holds and what looks wrong in it: columns, clients, servers, clusters, ids, warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.errors import DataError
from pgfl.federation.columns import NumberColumn, truth_value
from pgfl.federation.encoding import MISSING_WORDS, PlaceColumns
from pgfl.federation.federation import Federation
from pgfl.federation.frames import Table, TableSource, open_table
from pgfl.federation.places import Places, place_columns, read_places
from pgfl.suggestions import quoted

if TYPE_CHECKING:
    import polars as pl


NEARLY_ALL = 0.95
FEWEST_ROWS = 20
FEW_IDS = 2  # a column of so few values is no id, whatever its name
_NAME = re.compile(r"(?i:^(id|uuid|guid|index|key)$|[_\- ](id|uuid|guid|key)$|^(id|unnamed)[_\-: ])|[a-z]I[dD]$")


def named_like_an_id(name: str) -> bool:
    """Return whether a column's name says that it is an id.

    >>> [name for name in ("patient_id", "patientID", "id", "acid", "Unnamed: 0", "grid") if named_like_an_id(name)]
    ['patient_id', 'patientID', 'id', 'Unnamed: 0']
    """
    return _NAME.search(name) is not None


def numbered_like_an_id(values: AnyFloats) -> bool:
    """Return whether numbers are whole, nearly all distinct and nearly without gaps, as serial numbers are.

    >>> numbered_like_an_id(np.arange(100.0) + 7), numbered_like_an_id(np.arange(100.0) ** 2)
    (True, False)
    """
    known = values[np.isfinite(values)]
    if len(known) < FEWEST_ROWS or not np.array_equal(known, np.floor(known)):
        return False
    distinct = len(np.unique(known))
    return distinct >= NEARLY_ALL * len(known) and float(np.ptp(known)) + 1 <= 2 * distinct


def id_warning(federation: Federation, *, values: bool) -> str | None:
    """That a feature looks like an id, if one does that nobody has declared.

    Without `values` only names are looked at, so that nothing depends on records.
    """
    columns = federation.encoding.columns if federation.encoding else ()
    values = values and federation.encoding is not None and federation.encoding.is_plain
    start, found = 0, []
    for column in columns:
        undeclared = isinstance(column, NumberColumn) and column.bounds is None
        numbers = federation.features[:, start] if values else None
        if undeclared and (named_like_an_id(column.name) or (numbers is not None and numbered_like_an_id(numbers))):
            found.append(quoted(column.name))
        start += len(column.feature_names)
    if not found:
        return None
    if len(found) == 1:
        return f"Column {found[0]} looks like an id but is a feature; leave it out with `ignore`."
    return f"Columns {', '.join(found)} look like ids but are features; leave them out with `ignore`."


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
        """Return the facts of one column."""
        return next(column for column in self.columns if column.name == name)

    @property
    def features(self) -> tuple[ColumnFacts, ...]:
        """The columns that are neither the target nor name where a row belongs."""
        taken = {self.target, *(self.named.names if self.named else ())}
        return tuple(column for column in self.columns if column.name not in taken)


def is_label(target: ColumnFacts) -> bool:
    """Return whether a target looks like labels rather than like a measurement: words, or few consecutive numbers.

    Few numbers with gaps between them, such as 0, 2, 4, … 10, are a score.
    """
    few = target.whole and target.distinct <= MOST_LABELS and target.distinct < FEWEST_ROWS
    if target.kind != "number" or not few or target.low is None or target.high is None:
        return target.kind in ("boolean", "category")
    return target.high - target.low == target.distinct - 1 or target.distinct <= 2


MOST_NAMED = 6
FEW_ROWS = 5
UNEVEN = 3.0
"""Most rows of a client over those of the median one, above which it matters whether clients or rows count alike."""
RARE = 0.2
"""A label is rare if it has less than this share of the rows that it would have if all were equally frequent."""
TOLD = 0.98
"""Of the target, by one column alone, above which it looks as if it was made from the target."""
GIVES_AWAY = (
    "nearly tells the target by itself; leave it out with `ignore` if it is known only once the target is",
    "nearly tell the target by themselves; leave them out with `ignore` if they are known only once the target is",
)
LOOKS_LIKE_ID = ("looks like an id; leave it out with `ignore`", "look like ids; leave them out with `ignore`")


def table_warnings(facts: TableFacts) -> list[str]:
    """Return what a person should look at before training."""
    features = facts.features
    found = [
        _named([column.name for column in features if column.looks_like_id], *LOOKS_LIKE_ID),
        _named(
            [column.name for column in features if column.empty],
            "is empty; leave it out with `ignore`",
            "are empty; leave them out with `ignore`",
        ),
        _named(
            [column.name for column in features if column.constant and not column.empty],
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
    mixed = [_mixed(column) for column in facts.features if column.kind == "mixed"]
    return [
        *(sentence for sentence in found if sentence),
        *mixed[:MOST_NAMED],
        *_target_warnings(facts),
        *_place_warnings(facts),
    ]


def _mixed(column: ColumnFacts, what: str = "Column") -> str:
    """That a column of numbers also holds other text, or signs and units beside every number."""
    examples = ", ".join(quoted(cell) for cell in column.strays)
    if column.stray_rows and column.low is None:
        return (
            f"{what} {quoted(column.name)} holds numbers with signs or units, such as {examples}; write plain numbers."
        )
    rows = "1 row" if column.stray_rows == 1 else f"{column.stray_rows} rows"
    return f"{what} {quoted(column.name)} holds numbers, but also {examples} in {rows}; correct or empty these cells."


def _target_warnings(facts: TableFacts) -> list[str]:
    if facts.target is None:
        return []
    target, found = facts.column(facts.target), []
    if target.missing:
        rows = "1 row; remove or fill it" if target.missing == 1 else f"{target.missing} rows; remove or fill them"
        found.append(f"The target {quoted(target.name)} is missing in {rows}.")
    if target.kind == "mixed":
        found.append(_mixed(target, "The target"))
    if target.constant:
        found.append(f"The target {quoted(target.name)} is the same in all rows; there is nothing to learn.")
    elif is_label(target):
        label, seen = min(target.frequent, key=lambda item: item[1])
        if seen < RARE * facts.rows / target.distinct:
            found.append(
                f"Label {quoted(label)} of {quoted(target.name)} is in {seen} of {facts.rows} rows only; judge by AUC "
                "or log loss rather than by accuracy."
            )
    return found


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
    least, median, most = places.rows_per_client
    if most > UNEVEN * median:
        found.append(
            f"Clients have {least} to {most} rows, {median:g} in the median: all rows count alike unless "
            'algorithm.count is "clients".'
        )
    together = np.array(places.clients_by_cluster_and_server)
    alone = [name for name, count in zip(places.clusters, together.sum(axis=1), strict=True) if count == 1]
    if alone and places.clients > 1:
        one, many = "has one client only, which learns alone", "have one client only, which learn alone"
        found.append(_named(alone, one, many, "Cluster"))
    return found


def _named(names: Sequence[str], one: str, many: str, what: str = "Column") -> str:
    """Return a sentence about some columns or clusters; nothing if there are none."""
    shown = ", ".join(quoted(name) for name in names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    return "" if not names else f"{what} {shown} {one}." if len(names) == 1 else f"{what}s {shown} {many}."


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
    leaks = _named(leaking(table, facts, filled), *GIVES_AWAY)
    return replace(facts, warnings=(*warnings, *([leaks] if leaks else []), *table_warnings(facts)))


def leaking(table: Table, facts: TableFacts, rows: Ints) -> list[str]:
    """Return the features that alone tell the target of nearly all rows, in most cases because they were made from it.

    A number tells a number by a straight line and one of two labels by a threshold, words tell labels by their own most
    frequent one.
    """
    if facts.target is None or len(rows) < FEWEST_ROWS or facts.column(facts.target).constant:
        return []
    about = facts.column(facts.target)
    target, *columns = table.series([about.name, *(column.name for column in facts.features)])
    labels = None if about.kind == "number" and not is_label(about) else _codes(table, target, rows)
    numbers, found = table.as_floats(target)[rows], []
    for column, series in zip(facts.features, columns, strict=True):
        if column.constant or column.looks_like_id or column.kind in ("text", "mixed", "other"):
            continue
        told = 0.0
        if column.kind == "number" and labels is None:
            told = _straight(table.as_floats(series)[rows], numbers)
        elif column.kind == "number" and labels is not None and about.distinct == 2:
            told = _by_threshold(table.as_floats(series)[rows], labels)
        elif labels is not None:
            told = _by_words(_codes(table, series, rows), labels)
        if told >= TOLD:
            found.append(column.name)
    return found


def _codes(table: Table, series: pl.Series, rows: Ints) -> Ints:
    """Return a number for every text."""
    texts = table.as_text(series).gather(rows).fill_null("")
    return np.unique(texts.to_numpy().astype(str), return_inverse=True)[1]


def _straight(feature: Floats, target: Floats) -> float:
    """Return the share of the target's variance that a straight line explains, where both are known."""
    known = np.isfinite(feature) & np.isfinite(target)
    if known.sum() < FEWEST_ROWS:
        return 0.0
    with np.errstate(all="ignore"):  # a constant, or numbers too large to be squared, tell nothing
        return float(np.nan_to_num(np.corrcoef(feature[known], target[known])[0, 1])) ** 2


def _by_threshold(feature: Floats, labels: Ints) -> float:
    """Return the share of one of two labels that the best threshold tells beyond the more frequent one."""
    known = np.isfinite(feature)
    order = np.argsort(feature[known], kind="stable")
    ones, ranked = labels[known][order], feature[known][order]
    total, below = int(ones.sum()), np.cumsum(ones)
    if total in (0, len(ones)):
        return 0.0
    ends = np.flatnonzero(np.append(np.diff(ranked) > 0.0, True))
    right = below[ends] + (len(ones) - 1 - ends) - (total - below[ends])
    most = max(int(right.max()), len(ones) - int(right.min()))
    return _beyond(most, max(total, len(ones) - total), len(ones))


def _by_words(words: Ints, labels: Ints) -> float:
    """Return the share of labels that the most frequent one of every word tells, beyond that of all rows."""
    together = np.zeros((int(words.max()) + 1, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(together, (words, labels), 1)
    if len(together) > len(words) // FEWEST_ROWS:
        return 0.0
    return _beyond(int(together.max(axis=1).sum()), int(together.sum(axis=0).max()), len(words))


def _beyond(right: int, usual: int, rows: int) -> float:
    """Return how much of what the more frequent label leaves is told."""
    return (right - usual) / (rows - usual) if rows > usual else 0.0


def column_facts(table: Table, series: pl.Series) -> ColumnFacts:
    """Return what one column holds."""
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
        looks_like_id=unique or (named_like_an_id(name) and distinct > FEW_IDS),
    )


def place_facts(places: Places, columns: PlaceColumns) -> PlaceFacts:
    """Return how many clients and rows are where."""
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
        looks_like_id=(named_like_an_id(name) and len(values) > FEW_IDS) or numbered_like_an_id(numbers),
    )
