"""Federations from tables: a row is a sample of a client, an edge file a line between two servers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pgfl.data.frames import TableFile, quoted
from pgfl.data.layout import offsets_of
from pgfl.data.store import Allocate, build_stored, in_memory
from pgfl.errors import DataError, TopologyError
from pgfl.federation import Federation
from pgfl.streams import Purpose, stream
from pgfl.topology import KINDS, Graph, build

if TYPE_CHECKING:
    import polars as pl

_ID_COLUMNS = ("client", "server", "cluster")


def read_federation(
    clients: str | os.PathLike[str],
    *,
    target: str = "y",
    graph: str | os.PathLike[str] | Graph | Iterable[tuple[str, str]] = "none",
    servers: Sequence[object] = (),
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    dtype: DTypeLike = np.float64,
    intercept: bool = False,
    store: str | os.PathLike[str] | None = None,
) -> Federation:
    """A federation from a csv or parquet file with the columns client, server, cluster, `target`, and features.

    Every other column is a feature, in the file's order; with `intercept` a column of ones comes last. Rows may be in
    any order. `graph` is a kind (random, ring, line, star, complete, grid, none) over the server ids sorted as text,
    an edge file (see `read_edges`), pairs of server ids, or a `Graph`. `servers` names servers without clients.

    The features are allocated once, in `dtype`, and filled a few columns at a time: the peak is the federation
    itself, about 128 MB of columns, and 16 bytes a row of order; before that, the ids alone take some 50 bytes a row.
    With `store` the features are written to that new folder and mapped from it.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as place:
    ...     table = pathlib.Path(place) / "clients.csv"
    ...     _ = table.write_text("client,server,cluster,y,age\\nbob,south,a,1,50\\nann,north,a,2,40\\nbob,south,a,3,60")
    ...     federation = read_federation(table, graph="line")
    >>> federation.client_ids, federation.rows("bob")[0].tolist(), federation.graph.edges.tolist()
    (('ann', 'bob'), [[50.0], [60.0]], [[0, 1]])
    """
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise DataError(f"Tables can be read as float32 or float64; got {np.dtype(dtype)}.")
    table = TableFile(clients)
    if target in _ID_COLUMNS:
        raise DataError(f"The target column cannot be '{target}', which says where a sample belongs.")
    table.require(*_ID_COLUMNS, target)
    names = [name for name in table.columns if name not in (*_ID_COLUMNS, target)]
    if not names:
        raise DataError(
            f"{table.path} has no feature columns; add at least one beside {', '.join(_ID_COLUMNS)}, {target}."
        )
    places = _read_places(table)
    server_ids = tuple(sorted({*places.servers, *_extra_servers(servers)}))
    position = {server: index for index, server in enumerate(server_ids)}
    server_numbers = np.array([position[server] for server in places.servers], dtype=np.int64)
    server_graph = _server_graph(graph, server_ids, average_degree, seed, run)

    def fill(allocate: Allocate) -> Federation:
        features = allocate((len(places.rows), len(names) + intercept), dtype)
        targets = np.empty(len(places.rows), dtype=dtype)
        for column, (series, values) in enumerate(table.numbers([target, *names], places.file_rows)):
            _copy_checked(table, places, series, values, features[:, column - 1] if column else targets)
        if intercept:
            features[:, -1] = 1.0
        return Federation(
            features=features,
            targets=targets,
            offsets=places.offsets,
            client_server=server_numbers[places.client_server],
            client_cluster=places.client_cluster,
            server_ids=server_ids,
            cluster_ids=places.clusters,
            graph=server_graph,
            names=places.clients,
        )

    return in_memory(fill) if store is None else build_stored(store, fill)


def read_edges(path: str | os.PathLike[str], servers: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """The edges of a csv or parquet file with the columns source and target, both server ids.

    An edge to itself, a repeated edge (in either direction) and, if `servers` is given, an unknown server are errors.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as place:
    ...     table = pathlib.Path(place) / "edges.csv"
    ...     _ = table.write_text("source,target\\nnorth,south\\nsouth,west\\n")
    ...     read_edges(table)
    [('north', 'south'), ('south', 'west')]
    """
    table = TableFile(path)
    table.require("source", "target")
    for name in table.columns:
        if name not in ("source", "target"):
            raise DataError(
                f"{table.path} has a column {quoted(name)}, but edges have no more than source and target; remove it."
            )
    sources, targets = table.texts("source", "target")
    known = None if servers is None else set(servers)
    seen: dict[frozenset[str], int] = {}
    edges = []
    for row, edge in enumerate(zip(sources, targets, strict=True)):
        if edge == (None, None):
            continue
        for column, server in zip(("source", "target"), edge, strict=True):
            if server is None:
                raise table.refuse(row, f"column '{column}' is empty; name a server.")
            if known is not None and server not in known:
                raise table.refuse(
                    row,
                    f"server {quoted(server)} has no clients and is not in `servers`; list it there or correct the edge.",
                )
        if edge[0] == edge[1]:
            raise table.refuse(row, f"server {quoted(edge[0])} has an edge to itself; remove it.")
        first = seen.setdefault(frozenset(edge), row)
        if first != row:
            raise table.refuse(
                row,
                f"the edge {quoted(edge[0])}–{quoted(edge[1])} is already in data row {first + 1}; keep one of them.",
            )
        edges.append(edge)
    return edges


@dataclass(frozen=True, eq=False)
class _Places:
    """Where every client belongs, and which rows of the file (0 = the first) are its samples, client by client."""

    clients: tuple[str, ...]
    servers: tuple[str, ...]
    clusters: tuple[str, ...]
    client_server: NDArray[np.int64]
    client_cluster: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    file_rows: int
    in_order: bool


def _read_places(table: TableFile) -> _Places:
    columns = table.texts(*_ID_COLUMNS)
    file_rows = len(columns[0])
    rows = _used_rows(table, columns)
    if not rows.size:
        raise DataError(f"{table.path} has no rows below the header; add samples.")
    if len(rows) < file_rows:
        columns = [column.gather(rows) for column in columns]
    (clients, client), (servers, server), (clusters, cluster) = (_encode(column) for column in columns)
    order = np.argsort(client, kind="stable")
    offsets = offsets_of(np.bincount(client))
    first = order[offsets[:-1]]
    for what, names, code in (("at server", servers, server), ("in cluster", clusters, cluster)):
        moved = np.flatnonzero(code != code[first][client])
        if moved.size:
            late, early = moved[0], first[client[moved[0]]]
            here, there = names[code[late]], names[code[early]]
            raise table.refuse(
                int(rows[late]),
                f"client {quoted(clients[client[late]])} is {what} {quoted(here)}, but {what} {quoted(there)} in data row "
                f"{rows[early] + 1}; a client belongs to one.",
            )
    return _Places(
        clients=clients,
        servers=servers,
        clusters=clusters,
        client_server=server[first],
        client_cluster=cluster[first],
        rows=rows[order],
        offsets=offsets,
        file_rows=file_rows,
        in_order=len(rows) == file_rows and bool((client[1:] >= client[:-1]).all()),
    )


def _used_rows(table: TableFile, ids: Sequence[pl.Series]) -> NDArray[np.int64]:
    """The rows that are samples: all but blank lines. A row that lacks an id is refused."""
    missing = np.stack([column.is_null().to_numpy() for column in ids])
    used = ~table.blank() if table.is_csv or missing.all(axis=0).any() else np.ones(len(ids[0]), dtype=bool)
    lacking = np.flatnonzero(missing.any(axis=0) & used)
    if lacking.size:
        row = int(lacking[0])
        name = _ID_COLUMNS[int(missing[:, row].argmax())]
        raise table.refuse(row, f"column '{name}' is empty; every sample names its client, server and cluster.")
    return np.flatnonzero(used)


def _encode(column: pl.Series) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The distinct ids sorted as text, and the number of each row's id among them."""
    import polars as pl

    ids = column.unique().sort()
    return tuple(ids.to_list()), column.cast(pl.Enum(ids)).to_physical().cast(pl.Int64).to_numpy()


def _copy_checked(
    table: TableFile, places: _Places, series: pl.Series, values: NDArray[np.float64], into: NDArray[np.floating]
) -> None:
    with np.errstate(over="ignore"):
        into[:] = values if places.in_order else values[places.rows]
    if np.isfinite(into).all():
        return
    row = int(places.rows[~np.isfinite(into)].min())
    cell = series[row]
    if cell is None or not str(cell).strip():
        problem = "is empty"
    elif np.isfinite(values[row]):
        problem = f"holds {quoted(cell)}, which is too large for {into.dtype}"
    else:
        problem = f"holds {quoted(cell)}, which is not a finite number"
    raise table.refuse(row, f"column {quoted(series.name)} {problem}; correct it or remove the row.")


def _extra_servers(servers: Sequence[object]) -> list[str]:
    names = [str(server).strip() for server in ([servers] if isinstance(servers, str) else servers)]
    if not all(names):
        raise TopologyError("A server in `servers` has no name; name it or remove it.")
    return names


def _server_graph(
    graph: str | os.PathLike[str] | Graph | Iterable[tuple[str, str]],
    server_ids: tuple[str, ...],
    average_degree: float,
    seed: int,
    run: int,
) -> Graph:
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str) and graph in KINDS:
        rng = stream(seed, run, Purpose.GRAPH)
        return build(graph, len(server_ids), average_degree=average_degree, rng=rng)
    if isinstance(graph, str) and not Path(graph).suffix:
        raise TopologyError(f"'{graph}' is neither an edge file nor a kind of graph ({', '.join(KINDS)}).")
    if isinstance(graph, str | os.PathLike):
        return Graph.between(server_ids, read_edges(graph, server_ids))
    return Graph.between(server_ids, graph)
