"""Where every client of a table belongs, which rows are its samples, and which are held out for testing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import Bools, DTypeLike, Ints
from pgfl.errors import ConfigError, DataError
from pgfl.federation.encoding import Part, PlaceColumns, RowEncoding, TableRows
from pgfl.federation.federation import ELSEWHERE, TestSet
from pgfl.federation.frames import Table
from pgfl.federation.synthetic import offsets_of
from pgfl.streams import Purpose, stream
from pgfl.suggestions import quoted, shown

EVERYBODY = "all"
"""The server or cluster of all clients where the table has no such column."""

Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Places:
    """Where every client belongs, and which rows of the table (0 = the first) are its samples, client by client."""

    clients: tuple[str, ...]
    servers: tuple[str, ...]
    clusters: tuple[str, ...]
    client_server: Ints
    client_cluster: Ints
    rows: Ints
    offsets: Ints

    def at(self, server_is_own: Bools) -> Places:
        """Return the clients of some servers."""
        own = server_is_own[self.client_server]
        return replace(
            self.where(np.repeat(own, np.diff(self.offsets))),
            clients=tuple(compress(self.clients, own)),
            client_server=self.client_server[own],
            client_cluster=self.client_cluster[own],
            offsets=offsets_of(np.diff(self.offsets)[own]),
        )

    def where(self, kept: Bools) -> Places:
        """Return the same clients with some of their rows."""
        client = np.repeat(np.arange(len(self.clients)), np.diff(self.offsets))
        counts = np.bincount(client[kept], minlength=len(self.clients))
        return replace(self, rows=self.rows[kept], offsets=offsets_of(counts))

    @property
    def row_clients(self) -> Ints:
        """The number of the client of every row."""
        return np.repeat(np.arange(len(self.clients)), np.diff(self.offsets))


def place_columns(table: Table, client: str | None, server: str | None, cluster: str | None) -> PlaceColumns:
    """Return the columns that name clients, servers and clusters: those that are given, else those of that name.

    A table without a column `server` or `cluster` has one server or cluster, "all". A client must be named.
    """
    asked = {"client": client, "server": server, "cluster": cluster}
    named = {key: place_column(table, key, name) for key, name in asked.items()}
    given = [name for name in named.values() if name is not None]
    if len(set(given)) < len(given):
        twice = next(name for name in given if given.count(name) > 1)
        keys = [key for key, name in named.items() if name == twice]
        raise table.error(f"Column {quoted(twice)} cannot be both {keys[0]} and {keys[1]}; name another column.")
    return PlaceColumns(**named)


def place_column(table: Table, key: str, name: str | None) -> str | None:
    """Return the column of clients, servers or clusters; None if the table has none and needs none."""
    if name is not None:
        if not isinstance(name, str):
            raise DataError(f"`{key}` is the name of a column; got {shown(name)}.")
        table.require(name)
        return name
    if key in table.columns:
        return key
    if likely := [column for column in table.columns if column.lower().strip("_ ").removesuffix("s") == key]:
        raise table.error(
            f"{table.label} has no column '{key}', but {quoted(likely[0])}; "
            f'state {key} = "{likely[0]}", or rename the column.'
        )
    if key == "client":
        table.require(key, advice='; name the column of clients, as in client = "patient"')
    return None


def _split(names: Mapping[str, str | None], what: str) -> str:
    """Return what to do where many clients are in several places: one client per place."""
    other = names["server" if what == "at server" else "cluster"]
    return (
        f"if clients are in several, name the client of a row by {quoted(str(names['client']))} and "
        f"{quoted(str(other))} together, in a column such as '{names['client']}_{other}'"
    )


def read_places(table: Table, columns: PlaceColumns) -> Places:
    """Read the clients, servers and clusters of a table; a client at two of them is refused."""
    names = {"client": columns.client, "server": columns.server, "cluster": columns.cluster}
    ids = {what: read_ids(table, name) for what, name in names.items()}
    (clients, client), (servers, server), (clusters, cluster) = ids.values()
    rows = used_rows(table, {name: ids[what][1] for what, name in names.items() if name is not None})
    if len(rows) < len(client):
        client, server, cluster = client[rows], server[rows], cluster[rows]
    order = np.argsort(client, kind="stable")
    offsets = offsets_of(np.bincount(client))
    first = order[offsets[:-1]]
    for what, known, code in (("at server", servers, server), ("in cluster", clusters, cluster)):
        moved = np.flatnonzero(code != code[first][client])
        if moved.size:
            late, early, several = moved[0], first[client[moved[0]]], len(np.unique(client[moved]))
            who, here, there = (quoted(name) for name in (clients[client[late]], known[code[late]], known[code[early]]))
            raise table.refuse(
                int(rows[late]),
                f"client {who} is {what} {here}, but {what} {there} in data row {rows[early] + 1}; "
                f"{'correct one' if several == 1 else _split(names, what)}.",
            )
    return Places(
        clients=clients,
        servers=servers,
        clusters=clusters,
        client_server=server[first].astype(np.int64),
        client_cluster=cluster[first].astype(np.int64),
        rows=rows[order],
        offsets=offsets,
    )


def read_ids(table: Table, column: str | None) -> tuple[tuple[str, ...], Codes]:
    """The distinct ids of a column sorted as text, and the number of each row's id among them, −1 where it has none.

    Without a column, everybody has one id.
    """
    import polars as pl

    if column is None:
        return (EVERYBODY,), np.zeros(table.size, dtype=np.int32)
    cells = table.texts(column)
    ids = cells.drop_nulls().unique().sort()
    numbers = cells.cast(pl.Enum(ids)).to_physical().cast(pl.Int32).fill_null(-1)
    return tuple(ids.to_list()), numbers.to_numpy()


def used_rows(table: Table, ids: dict[str, Codes]) -> Ints:
    """The rows that are samples: all but blank lines. A row that lacks an id is refused, and so is having no rows."""
    missing = np.stack(list(ids.values())) < 0 if ids else np.ones((1, table.size), dtype=bool)
    look = missing.all(axis=0).any() or not table.widths_known
    used = ~table.blank() if look else np.ones(missing.shape[1], dtype=bool)
    lacking = np.flatnonzero(missing.any(axis=0) & used)
    if ids and lacking.size:
        row = int(lacking[0])
        name = list(ids)[int(missing[:, row].argmax())]
        raise table.refuse(row, f"column {quoted(name)} is empty; every sample names its {', '.join(ids)}.")
    if not used.any():
        raise table.error(f"{table.label} has no rows below the header; add samples.")
    return np.flatnonzero(used)


def held_out_share(offsets: Ints, share: float, seed: int) -> Bools:
    """A share of every client's rows, drawn at random: at least one row in all, and every client keeps at least one.

    The rows of client k are `offsets[k]` to `offsets[k+1]`. A share that is not a whole number of rows is rounded up or
    down at random, so that the share holds on average. Nothing but the counts and the seed decides.

    >>> held_out_share(np.array([0, 10, 11]), 0.2, seed=0).sum()
    np.int64(2)
    """
    counts = np.diff(offsets)
    _check_counts(counts, f"test = {share:g}")
    rng = stream(seed, 0, Purpose.HELD_OUT)
    wanted = np.minimum(np.floor(share * counts + rng.random(len(counts))), counts - 1)
    if not wanted.any():
        wanted[np.argmax(counts)] = 1
    return np.asarray(_shuffled_ranks(offsets, rng) < np.repeat(wanted, counts))


def held_out_fold(offsets: Ints, folds: int, fold: int, seed: int) -> Bools:
    """Return one of several folds: every row of a client with several rows is held out in exactly one of them.

    From the number `folds` on, folds are drawn anew: fold 7 of 5 is the third one of the second repetition.
    """
    if folds < 2 or fold < 0:
        raise ConfigError(f"Cross-validation takes at least 2 folds, counted from 0; got fold {fold} of {folds}.")
    counts = np.diff(offsets)
    _check_counts(counts, f"folds = {folds}")
    repetition, number = divmod(fold, folds)
    rng = stream(seed, repetition, Purpose.HELD_OUT, round=folds)
    first = np.repeat(rng.integers(folds, size=len(counts)), counts)
    own_fold: Ints = (_shuffled_ranks(offsets, rng) + first) % folds
    return np.asarray((own_fold == number) & np.repeat(counts > 1, counts))


def _check_counts(counts: Ints, asked: str) -> None:
    if counts.max() < 2:
        raise DataError(f"{asked} holds out no row, as every client has one row only; give a table of test rows.")


def _shuffled_ranks(offsets: Ints, rng: np.random.Generator) -> Ints:
    """Return the place of every row among the shuffled rows of its client."""
    counts = np.diff(offsets)
    client = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((rng.random(len(client)), client))
    ranks = np.empty(len(client), dtype=np.int64)
    ranks[order] = np.arange(len(client)) - np.repeat(offsets[:-1], counts)
    return ranks


def read_tests(
    table: Table, encoding: RowEncoding, everything: Places, part: Places, dtype: DTypeLike
) -> dict[str, TestSet]:
    """Return the test sets of a table: the columns of the clients' table, of which client and server may be missing.

    A row of a client that is known counts for this client too. Without a column of clusters it counts for the client's
    cluster.
    """
    rows, client, cluster = _places(table, encoding, everything)
    table.require(encoding.target.name, *encoding.cells)
    read = TableRows(table, rows, ahead=[encoding.target.name, *encoding.cells])
    read.check(encoding)
    samples = Part(
        np.empty((len(rows), encoding.dimension), dtype=dtype), np.empty(len(rows), dtype=dtype), np.arange(len(rows))
    )
    encoding.encode_into(read, samples)
    numbers = np.append(client_numbers(everything, part), ELSEWHERE)[client]
    return sets_by_cluster(samples, cluster, everything.clusters, numbers if (client >= 0).any() else None)


def sets_by_cluster(samples: Part, cluster: Ints, clusters: Sequence[str], clients: Ints | None) -> dict[str, TestSet]:
    """Rows sorted by cluster; a cluster without rows has no test set."""
    order = np.argsort(cluster, kind="stable")
    ends = offsets_of(np.bincount(cluster, minlength=len(clusters)))
    chosen = {name: order[a:b] for name, a, b in zip(clusters, ends[:-1], ends[1:], strict=True) if b > a}
    return {
        name: TestSet(samples.features[rows], samples.targets[rows], None if clients is None else clients[rows])
        for name, rows in chosen.items()
    }


def client_numbers(everything: Places, part: Places) -> Ints:
    """Return the number of every client among those of a part; `ELSEWHERE` for the others."""
    own = {name: number for number, name in enumerate(part.clients)}
    return np.array([own.get(name, ELSEWHERE) for name in everything.clients], dtype=np.int64)


def _places(table: Table, encoding: RowEncoding, everything: Places) -> tuple[Ints, Ints, Ints]:
    """Return the rows that are samples, the client of each (−1 if it is not known), and its cluster."""
    places = encoding.places
    by_cluster = places.cluster is not None and places.cluster in table.columns
    by_client = places.client is not None and places.client in table.columns
    if not by_cluster and not by_client and places.cluster is not None:
        table.require(places.cluster)
    client_ids, client = read_ids(table, places.client if by_client else None)
    cluster_ids, cluster = read_ids(table, places.cluster if by_cluster else None)
    ids = {places.cluster or "": cluster} if by_cluster else {places.client or "": client} if by_client else {}
    rows = used_rows(table, ids)
    number = {name: position for position, name in enumerate(everything.clients)}
    known = np.array([number.get(name, -1) for name in client_ids] + [-1] if by_client else [-1, -1], dtype=np.int64)
    client_of = known[client[rows]]
    if not by_cluster:
        if by_client and places.cluster is not None and (client_of < 0).any():
            row = int(rows[np.argmax(client_of < 0)])
            raise table.refuse(
                row,
                f"client {quoted(client_ids[client[row]])} is not in the clients' table; correct it, or add a column "
                f"{quoted(places.cluster)}.",
            )
        return rows, client_of, np.where(client_of < 0, 0, everything.client_cluster[client_of])
    position = {name: index for index, name in enumerate(everything.clusters)}
    cluster_of = np.array([position.get(name, -1) for name in cluster_ids], dtype=np.int64)[cluster[rows]]
    if (cluster_of < 0).any():
        row = int(rows[np.argmax(cluster_of < 0)])
        raise table.refuse(
            row, f"cluster {quoted(cluster_ids[cluster[row]])} has no clients; correct it or remove the row."
        )
    moved = (client_of >= 0) & (everything.client_cluster[client_of] != cluster_of)
    if moved.any():
        first = int(np.argmax(moved))
        row, own = int(rows[first]), everything.clusters[everything.client_cluster[client_of[first]]]
        raise table.refuse(
            row,
            f"client {quoted(client_ids[client[row]])} is in cluster {quoted(own)} of the clients' table; correct one.",
        )
    return rows, client_of, cluster_of
