"""What is known of a table's federation before its features are read: its size, its graph, its encoding, its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

import numpy as np

from pgfl.array_types import Ints
from pgfl.core.row_encoding import RowEncoding
from pgfl.core.topology import Graph
from pgfl.data.declared import Declarations, Selection, build_encoding, encoded_dimension, select_columns
from pgfl.data.frames import Table
from pgfl.data.server_graphs import GraphSource, extra_servers, server_graph
from pgfl.data.sources import TableSource, open_table
from pgfl.data.table_places import place_column, place_columns, read_ids, read_places


class Reading(TypedDict):
    """How the columns of a table are read, as in `read_federation`."""

    columns: Declarations | None
    features: Iterable[str] | None
    ignore: Iterable[str]
    client: str | None
    server: str | None
    cluster: str | None


def read_shape(
    clients: TableSource,
    graph: GraphSource,
    servers: Sequence[object],
    average_degree: float,
    seed: int,
    server: str | None = None,
) -> tuple[Graph, Ints]:
    """The server graph of a table and how many rows each server has, from its column of servers alone."""
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
    chosen = select_columns(table, target, places, reading["columns"], reading["features"], reading["ignore"])
    return table, chosen
