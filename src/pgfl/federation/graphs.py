"""The server graph: which servers exchange models, the weights of neighbours, and graphs from kinds or edge tables."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from pgfl.arrays import Floats, Ints
from pgfl.drawing.pages import counted
from pgfl.errors import TopologyError
from pgfl.federation.frames import ArrowTable, TableSource, open_table
from pgfl.registry import Registry
from pgfl.streams import Purpose, stream
from pgfl.suggestions import kind_of, quoted, shown

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from scipy import sparse


Mixing = Literal["uniform", "metropolis", "clients"]
MIXINGS: tuple[Mixing, ...] = ("uniform", "metropolis", "clients")


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected graph of `size` servers; `edges` is (E, 2), each edge once with the smaller server first.

    A notebook shows it as a picture with a short table; `plot` draws it with matplotlib.

    >>> graph = Graph.from_edges(3, [(1, 0), (1, 2)])
    >>> graph
    <Graph: 3 servers, 2 edges>
    >>> graph.degrees
    array([1, 2, 1])
    """

    size: int
    edges: Ints

    @classmethod
    def from_edges(cls, size: int, edges: Iterable[tuple[int, int]] | Ints) -> Graph:
        """A graph from pairs of server indices; a self edge, a repeated edge or an unknown server is an error."""
        if size < 1:
            raise TopologyError("A federation needs at least one server.")
        listed = edges if isinstance(edges, np.ndarray) else list(edges)
        try:
            pairs = np.asarray(listed, dtype=np.int64).reshape(len(listed), 2)
        except (TypeError, ValueError):
            raise TopologyError("Every edge must be a pair of server numbers.") from None
        strange = pairs[(pairs < 0) | (pairs >= size)]
        if strange.size:
            raise TopologyError(f"An edge names server {strange[0]}, but the servers are numbered 0 to {size - 1}.")
        return cls._checked(pairs, range(size))

    @classmethod
    def between(cls, servers: Sequence[str], edges: Iterable[tuple[str, str]]) -> Graph:
        """Return a graph from pairs of server ids; `servers` lists all ids, in the order in which they are numbered.

        >>> Graph.between(["east", "north", "south"], [("south", "north")]).edges
        array([[1, 2]])
        """
        number = {server: index for index, server in enumerate(servers)}
        if isinstance(edges, str | Mapping):
            raise TopologyError(f'The edges are a list of pairs, such as [("north", "south")]; got {kind_of(edges)}.')
        named = [_pair(edge) for edge in edges]
        for a, b in named:
            if a not in number or b not in number:
                unknown = a if a not in number else b
                raise TopologyError(
                    f"The edge {a}–{b} names server {unknown}, which has no clients and is not in `servers`; "
                    "list it there or correct the edge."
                )
        pairs = np.array([(number[a], number[b]) for a, b in named], dtype=np.int64).reshape(-1, 2)
        if not servers:
            raise TopologyError("A federation needs at least one server.")
        return cls._checked(pairs, servers)

    @classmethod
    def _checked(cls, pairs: Ints, names: Sequence[object]) -> Graph:
        """Return the graph of `pairs`; a loop or a repeated edge is an error. `names` are used in the messages."""
        loops = pairs[:, 0] == pairs[:, 1]
        if loops.any():
            raise TopologyError(f"Server {names[pairs[loops][0, 0]]} has an edge to itself; remove it.")
        size = len(names)
        codes, counts = np.unique(pairs.min(axis=1) * size + pairs.max(axis=1), return_counts=True)
        unique = np.column_stack(np.divmod(codes, size))
        if (counts > 1).any():
            first, second = unique[counts > 1][0]
            raise TopologyError(
                f"The edge between servers {names[first]} and {names[second]} is given twice; keep one of them."
            )
        return cls(size, unique)

    @classmethod
    def from_networkx(cls, graph: nx.Graph) -> Graph:
        """Return a graph from any undirected networkx graph; nodes are numbered in the graph's own order."""
        if graph.is_directed():
            raise TopologyError("The server graph must be undirected; call graph.to_undirected() first.")
        number = {node: index for index, node in enumerate(graph.nodes)}
        return cls.from_edges(len(number), [(number[a], number[b]) for a, b in graph.edges()])

    def __repr__(self) -> str:
        return f"<Graph: {counted(self.size, 'server')}, {counted(len(self.edges), 'edge')}>"

    def _repr_html_(self) -> str:
        from pgfl.federation.cards import graph_card

        return graph_card(self)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the graph with matplotlib, on `ax` if it is given.

        >>> import matplotlib; matplotlib.use("agg")
        >>> axes = Graph.from_edges(3, [(0, 1), (1, 2)]).plot()
        """
        from pgfl.drawing.networks import draw_network
        from pgfl.federation.cards import graph_drawing

        return draw_network(graph_drawing(self), ax)

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """The symmetric 0/1 matrix of 𝒩_s⁻ (neighbours without the server itself)."""
        from scipy import sparse

        rows, columns = self.edges.T if len(self.edges) else np.empty((2, 0), dtype=np.int64)
        both = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
        return sparse.csr_array((np.ones(len(both[0])), both), shape=(self.size, self.size))

    @cached_property
    def degrees(self) -> Ints:
        """|𝒩_s⁻| of every server."""
        return np.bincount(self.edges.ravel(), minlength=self.size)

    def neighbours(self, server: int) -> Ints:
        """𝒩_s⁻, ascending."""
        start, stop = self.adjacency.indptr[server : server + 2]
        return np.sort(self.adjacency.indices[start:stop]).astype(np.int64)

    @cached_property
    def components(self) -> Ints:
        """For every server, the number of its connected component."""
        from scipy.sparse.csgraph import connected_components

        return connected_components(self.adjacency, directed=False)[1].astype(np.int64)

    @property
    def connected(self) -> bool:
        """Whether every server can reach every other."""
        return bool((self.components == 0).all())

    def weights(self, mixing: Mixing) -> sparse.csr_array:
        """Row s holds the weight of every p ∈ 𝒩_s in InterServerAggregation; rows sum to one.

        `uniform` is the paper's 1/|𝒩_s|; `metropolis` is 1/(1 + max(|𝒩_s⁻|, |𝒩_p⁻|)), a symmetric choice.
        `clients` is uniform until `by_clients` has counted the clients of a cluster.
        """
        from scipy import sparse

        first, second = self.edges.T if len(self.edges) else np.empty((2, 0), dtype=np.int64)
        rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
        values = neighbour_weight(mixing, self.degrees[rows], self.degrees[columns])
        off_diagonal = sparse.csr_array((values, (rows, columns)), shape=(self.size, self.size))
        own = sparse.diags_array(1.0 - np.asarray(off_diagonal.sum(axis=1)).ravel())
        matrix = sparse.csr_array(off_diagonal + own)
        matrix.sort_indices()
        return matrix


def _pair(edge: object) -> tuple[str, str]:
    if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
        raise TopologyError(f'Each edge is a pair of server ids, such as ("north", "south"); got {shown(edge)}.')
    return edge[0], edge[1]


def neighbour_weight(mixing: Mixing, degree: Ints, other: Ints) -> Floats:
    """Return the weight that a server of one degree gives a neighbour of the other degree."""
    if mixing in ("uniform", "clients"):
        return 1.0 / (1.0 + np.asarray(degree, dtype=float))
    if mixing == "metropolis":
        return 1.0 / (1.0 + np.maximum(degree, other))
    raise TopologyError(f"Unknown mixing '{mixing}'; choose one of {', '.join(MIXINGS)}.")


def by_clients(clients: Ints) -> Ints:
    """How much servers with so many clients of a cluster count; one that has none counts as one, so that it relays."""
    return np.maximum(clients, 1)


def build(kind: str, size: int, *, average_degree: float = 3.0, rng: np.random.Generator | None = None) -> Graph:
    """Return a graph of one of `GRAPHS`; `random` takes the average degree and the generator to draw it from.

    A single server has no neighbours, whatever the kind.

    >>> build("ring", 4).edges.tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    if kind not in GRAPHS:
        raise TopologyError(f"Unknown kind of graph '{kind}'; choose one of {', '.join(GRAPHS)}.")
    return empty(size) if size == 1 else GRAPHS[kind](size, average_degree, rng)


def ring(size: int, average_degree: float = 0.0, rng: np.random.Generator | None = None) -> Graph:
    """Every server is connected to the next and the previous one."""
    closing = [(0, size - 1)] if size > 2 else []
    return Graph.from_edges(size, [(i, i + 1) for i in range(size - 1)] + closing)


def line(size: int, average_degree: float = 0.0, rng: np.random.Generator | None = None) -> Graph:
    """Return a ring without its last edge."""
    return Graph.from_edges(size, [(i, i + 1) for i in range(size - 1)])


def star(size: int, average_degree: float = 0.0, rng: np.random.Generator | None = None) -> Graph:
    """Server 0 is connected to all others, which are connected only to it."""
    return Graph.from_edges(size, [(0, i) for i in range(1, size)])


def complete(size: int, average_degree: float = 0.0, rng: np.random.Generator | None = None) -> Graph:
    """Every server is connected to every other."""
    return Graph.from_edges(size, np.column_stack(np.triu_indices(size, k=1)))


def grid(size: int, average_degree: float = 0.0, rng: np.random.Generator | None = None) -> Graph:
    """As square a grid as the number of servers allows; the last row may be short."""
    width = int(np.ceil(np.sqrt(size)))
    right = [(i, i + 1) for i in range(size - 1) if (i + 1) % width]
    down = [(i, i + width) for i in range(size - width)]
    return Graph.from_edges(size, right + down)


def empty(size: int, average_degree: float = 0.0, rng: np.random.Generator | None = None) -> Graph:
    """No edges: ℰ = ∅."""
    return Graph.from_edges(size, [])


def random_connected(size: int, average_degree: float, rng: np.random.Generator | None) -> Graph:
    """A connected graph with exactly round(size · average_degree / 2) edges: a random tree, then random extra edges."""
    if rng is None:
        raise TopologyError("A random graph needs a generator to be drawn from; pass `rng`.")
    if not math.isfinite(average_degree):
        raise TopologyError(f"The average degree must be a finite number; got {average_degree}.")
    edges = round(size * average_degree / 2)
    most = size * (size - 1) // 2
    if not size - 1 <= edges <= most:
        raise TopologyError(
            f"A connected graph of {size} servers has {size - 1} to {most} edges, so an average degree from "
            f"{2 * (size - 1) / size:.3g} to {size - 1}; got {average_degree}."
        )
    order = rng.permutation(size)
    parents = order[(rng.random(max(size - 1, 0)) * np.arange(1, size)).astype(np.int64)]
    chosen = {(min(a, b), max(a, b)) for a, b in zip(parents.tolist(), order[1:].tolist(), strict=True)}
    if edges > most // 2:
        everything = np.column_stack(np.triu_indices(size, k=1))
        spare = [(a, b) for a, b in everything[rng.permutation(most)].tolist() if (a, b) not in chosen]
        chosen.update(spare[: edges - len(chosen)])
    while len(chosen) < edges:
        first, second = rng.integers(size, size=2).tolist()
        if first != second:
            chosen.add((min(first, second), max(first, second)))
    return Graph.from_edges(size, sorted(chosen))


GraphKind = Callable[[int, float, np.random.Generator | None], Graph]
"""From the number of servers (two or more), the average degree and a generator to draw from, to their graph."""

GRAPHS = Registry[GraphKind](
    "graphs",
    "kind of graph",
    {
        "random": random_connected,
        "ring": ring,
        "line": line,
        "star": star,
        "complete": complete,
        "grid": grid,
        "none": empty,
    },
)

GraphSource: TypeAlias = str | os.PathLike[str] | Graph | Iterable[tuple[str, str]] | ArrowTable


def read_edges(source: TableSource, servers: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """Return the edges of a table with the columns source and target, both server ids.

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
    """Return the names of servers without clients."""
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
    """Return the graph that is given, or one of a kind, or that of an edge table."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str) and graph in GRAPHS:
        rng = stream(seed, run, Purpose.GRAPH)
        return build(graph, len(server_ids), average_degree=average_degree, rng=rng)
    if isinstance(graph, str) and not Path(graph).suffix:
        raise TopologyError(f"'{graph}' is neither an edge file nor a kind of graph ({', '.join(GRAPHS)}).")
    if isinstance(graph, str | os.PathLike) or hasattr(graph, "__arrow_c_stream__"):
        return Graph.between(server_ids, read_edges(cast("TableSource", graph), server_ids))
    return Graph.between(server_ids, graph)
