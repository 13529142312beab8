"""The graph of the servers: a kind, pairs of server ids, or a table of edges."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from pgfl.errors import TopologyError
from pgfl.federation.frames import ArrowTable, TableSource, open_table
from pgfl.federation.graphs import KINDS, Graph, build
from pgfl.streams import Purpose, stream
from pgfl.suggestions import quoted

GraphSource: TypeAlias = str | os.PathLike[str] | Graph | Iterable[tuple[str, str]] | ArrowTable


def read_edges(source: TableSource, servers: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """The edges of a table with the columns source and target, both server ids.

    An edge to itself, a repeated edge (in either direction) and, if `servers` is given, an unknown server are errors.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as place:
    ...     table = pathlib.Path(place) / "edges.csv"
    ...     _ = table.write_text("source,target\\nnorth,south\\nsouth,west\\n")
    ...     read_edges(table)
    [('north', 'south'), ('south', 'west')]
    """
    table = open_table(source)
    table.require("source", "target")
    for name in table.columns:
        if name not in ("source", "target"):
            raise table.error(
                f"{table.label} has a column {quoted(name)}, but edges have no more than source and target; remove it."
            )
    sources, targets = table.texts("source"), table.texts("target")
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
                problem = "has no clients and is not in `servers`; list it there or correct the edge."
                raise table.refuse(row, f"server {quoted(server)} {problem}")
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


def extra_servers(servers: Sequence[object]) -> list[str]:
    """The names of servers without clients."""
    names = [str(server).strip() for server in ([servers] if isinstance(servers, str) else servers)]
    if not all(names):
        raise TopologyError("A server in `servers` has no name; name it or remove it.")
    return names


def server_graph(
    graph: GraphSource,
    server_ids: tuple[str, ...],
    average_degree: float,
    seed: int,
    run: int,
) -> Graph:
    """The graph that is given, or one of a kind, or that of an edge table."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str) and graph in KINDS:
        rng = stream(seed, run, Purpose.GRAPH)
        return build(graph, len(server_ids), average_degree=average_degree, rng=rng)
    if isinstance(graph, str) and not Path(graph).suffix:
        raise TopologyError(f"'{graph}' is neither an edge file nor a kind of graph ({', '.join(KINDS)}).")
    if isinstance(graph, str | os.PathLike) or hasattr(graph, "__arrow_c_stream__"):
        return Graph.between(server_ids, read_edges(cast("TableSource", graph), server_ids))
    return Graph.between(server_ids, graph)
