"""Where every client of a table belongs, and which rows are its samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pgfl.array_types import Bools, Ints
from pgfl.core.row_encoding import PlaceColumns
from pgfl.data.frames import Table
from pgfl.data.placement import offsets_of
from pgfl.did_you_mean import quoted, shown
from pgfl.errors import DataError

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
        """The clients of some servers."""
        own = server_is_own[self.client_server]
        return replace(
            self.where(np.repeat(own, np.diff(self.offsets))),
            clients=tuple(compress(self.clients, own)),
            client_server=self.client_server[own],
            client_cluster=self.client_cluster[own],
            offsets=offsets_of(np.diff(self.offsets)[own]),
        )

    def where(self, kept: Bools) -> Places:
        """The same clients with some of their rows."""
        client = np.repeat(np.arange(len(self.clients)), np.diff(self.offsets))
        counts = np.bincount(client[kept], minlength=len(self.clients))
        return replace(self, rows=self.rows[kept], offsets=offsets_of(counts))

    @property
    def row_clients(self) -> Ints:
        """The number of the client of every row."""
        return np.repeat(np.arange(len(self.clients)), np.diff(self.offsets))


def place_columns(table: Table, client: str | None, server: str | None, cluster: str | None) -> PlaceColumns:
    """The columns that name clients, servers and clusters: those that are given, else those of that name.

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
    """The column of clients, servers or clusters; None if the table has none and needs none."""
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
            late, early = moved[0], first[client[moved[0]]]
            who, here, there = (quoted(name) for name in (clients[client[late]], known[code[late]], known[code[early]]))
            raise table.refuse(
                int(rows[late]),
                f"client {who} is {what} {here}, but {what} {there} in data row {rows[early] + 1}; correct one.",
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
