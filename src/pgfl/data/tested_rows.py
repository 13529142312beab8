"""Test sets: rows that nobody trains on, by cluster, with the clients that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgfl.array_types import DTypeLike, Ints
from pgfl.core.federation import ELSEWHERE, TestSet
from pgfl.core.row_encoding import Part, RowEncoding
from pgfl.data.frames import Table
from pgfl.data.placement import offsets_of
from pgfl.data.rows import TableRows
from pgfl.data.table_places import Places, read_ids, used_rows
from pgfl.did_you_mean import quoted


def read_tests(
    table: Table, encoding: RowEncoding, everything: Places, part: Places, dtype: DTypeLike
) -> dict[str, TestSet]:
    """The test sets of a table: the columns of the clients' table, of which client and server may be missing.

    A row of a client that is known counts for this client too. Without a column of clusters it counts for the client's
    cluster.
    """
    rows, client, cluster = _places(table, encoding, everything)
    table.require(encoding.target.name, *(column.name for column in encoding.columns))
    read = TableRows(table, rows, ahead=[encoding.target.name, *(column.name for column in encoding.columns)])
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
    """The number of every client among those of a part; `ELSEWHERE` for the others."""
    own = {name: number for number, name in enumerate(part.clients)}
    return np.array([own.get(name, ELSEWHERE) for name in everything.clients], dtype=np.int64)


def _places(table: Table, encoding: RowEncoding, everything: Places) -> tuple[Ints, Ints, Ints]:
    """The rows that are samples, the client of each (−1 if it is not known), and its cluster."""
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
