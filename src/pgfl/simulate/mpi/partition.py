"""Servers split over ranks, the halo exchange between them, and results gathered on the first rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import AnyArray, Bools, DTypeLike, Ints
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import Graph
from pgfl.simulate.layout import Layout, crossings
from pgfl.simulate.mpi.communicator import MpiCommunicator
from pgfl.simulate.neighbourhoods import Network

if TYPE_CHECKING:
    from scipy import sparse


PASSES = 8
SLACK = 0.05  # how much more than its share a rank may be given


def partition(graph: Graph, rows: Ints, parts: int) -> Ints:
    """Return the part of every server, for servers that hold `rows` of data; every part gets a server that has some.

    The servers are walked through so that neighbours come near each other (reverse Cuthill–McKee), the walk is cut in
    two shares of equal weight, and these again in the same way. Then servers move to the part of most of their
    neighbours, while that lowers the number of edges between parts and loads no part beyond 5 % more than its share, or
    than the cut did.

    >>> from pgfl.federation.graphs import ring
    >>> part = partition(ring(6), np.full(6, 10), 2)
    >>> np.bincount(part).tolist(), edges_between(ring(6), part)
    ([3, 3], 2)
    """
    loaded = np.flatnonzero(rows)
    if parts < 1:
        raise ConfigError(f"The servers can be split over 1 rank or more; got {parts}.")
    if parts > len(loaded):
        raise ConfigError(
            f"{parts} ranks are more than the {len(loaded)} servers that have clients; start at most {len(loaded)}."
        )
    if parts == 1:
        return np.zeros(graph.size, dtype=np.int64)
    weight = np.asarray(rows, dtype=np.int64) + 1
    part = _halved(graph.adjacency.tocsr(), rows > 0, weight, parts)
    return _refined(graph, part, weight, rows > 0, parts)


def edges_between(graph: Graph, part: Ints) -> int:
    """Return how many edges join two parts."""
    return int(np.count_nonzero(part[graph.edges[:, 0]] != part[graph.edges[:, 1]]))


def _halved(adjacency: sparse.csr_array, loaded: Bools, weight: Ints, parts: int) -> Ints:
    """Halve the servers, and the halves again: cut a walk through each so that both sides get their share."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    part = np.empty(len(weight), dtype=np.int64)
    waiting = [(np.arange(len(weight)), 0, parts)]
    while waiting:
        servers, first, count = waiting.pop()
        if count == 1:
            part[servers] = first
            continue
        near = adjacency[servers][:, servers]
        walk = servers[reverse_cuthill_mckee(near, symmetric_mode=True)]
        fewer = count // 2
        cut = _cut(loaded[walk], weight[walk], fewer, count - fewer)
        waiting += [(walk[:cut], first, fewer), (walk[cut:], first + fewer, count - fewer)]
    return part


def _cut(loaded: Bools, weight: Ints, before: int, after: int) -> int:
    """Return where to cut a walk by weight into `before` and `after` parts, with a loaded server for each part."""
    middle = np.cumsum(weight) - 0.5 * weight
    wanted = int(np.searchsorted(middle, weight.sum() * before / (before + after)))
    stops = np.flatnonzero(loaded)
    return int(np.clip(wanted, stops[before - 1] + 1, stops[-after]))


def _refined(graph: Graph, part: Ints, weight: Ints, loaded: Bools, parts: int) -> Ints:
    adjacency = graph.adjacency.tocsr()
    indptr, indices = adjacency.indptr.tolist(), adjacency.indices.tolist()
    place, heavy = part.tolist(), weight.tolist()
    load = np.bincount(part, weights=weight, minlength=parts).tolist()
    bearing = np.bincount(part[loaded], minlength=parts).tolist()
    share = float(weight.sum()) / parts
    limit = max((1.0 + SLACK) * share, *load)
    for _ in range(PASSES):
        current = np.array(place)
        crossing = graph.edges[current[graph.edges[:, 0]] != current[graph.edges[:, 1]]]
        moved = 0
        for server in np.unique(crossing).tolist():
            nearby: dict[int, int] = {}
            for neighbour in indices[indptr[server] : indptr[server + 1]]:
                nearby[place[neighbour]] = nearby.get(place[neighbour], 0) + 1
            here = place[server]
            gain, there = max((count - nearby.get(here, 0), -target) for target, count in nearby.items())
            there = -there
            lighter = gain == 0 and load[here] > load[there] + heavy[server]
            alone = loaded[server] and bearing[here] == 1
            if there == here or alone or not (gain > 0 or lighter) or load[there] + heavy[server] > limit:
                continue
            place[server] = there
            load[here] -= heavy[server]
            load[there] += heavy[server]
            bearing[here] -= int(loaded[server])
            bearing[there] += int(loaded[server])
            moved += 1
        if not moved:
            break
    return np.array(place, dtype=np.int64)


class RankHalo:
    """The exchange with neighbouring ranks: one neighbourhood collective on a graph of ranks."""

    def __init__(self, layout: Layout, ranks: MpiCommunicator, dimension: int, dtype: DTypeLike) -> None:
        from mpi4py.util.dtlib import from_numpy_dtype

        (run,) = layout.runs
        crossing = crossings(run.federation, run.owner, ranks.rank)
        rank_there = run.owner[crossing[:, 1]]
        neighbours = np.unique(rank_there)
        self._sent, sent_rows = _pairs_at(layout, [np.unique(crossing[rank_there == r, 0]) for r in neighbours])
        self.borrowed, received_rows = _pairs_at(layout, [np.unique(crossing[rank_there == r, 1]) for r in neighbours])
        near = neighbours.tolist()
        self._comm = ranks.comm.Create_dist_graph_adjacent(near, near, sent_rows, received_rows)
        self._row = from_numpy_dtype(np.dtype(dtype)).Create_contiguous(dimension + 1).Commit()
        self._out = np.empty((len(self._sent), dimension + 1), dtype)
        self._in = np.empty((len(self.borrowed), dimension + 1), dtype)
        self._send = [self._out, (sent_rows, _starts(sent_rows)), self._row]
        self._receive = [self._in, (received_rows, _starts(received_rows)), self._row]

    def exchange(self, published: AnyArray, network: Network, contributing: Bools) -> None:
        """Fill in the borrowed rows of what is published, and note their status in the network."""
        self._out[:, :-1] = published[self._sent]
        self._out[:, -1] = network.status(contributing)[self._sent]
        self._comm.Neighbor_alltoallv(self._send, self._receive)
        published[self.borrowed] = self._in[:, :-1]
        network.receive(self.borrowed, self._in[:, -1].astype(np.int64))

    def close(self) -> None:
        """Free what MPI holds."""
        self._row.Free()
        self._comm.Free()


def _pairs_at(layout: Layout, servers: list[Ints]) -> tuple[Ints, list[int]]:
    """Return the pairs of lists of servers, one list after the other, and how many each list has."""
    found = [np.flatnonzero(np.isin(layout.server_number[layout.pair_server], some)) for some in servers]
    return np.concatenate([np.empty(0, dtype=np.int64), *found]), [len(pairs) for pairs in found]


def _starts(counts: list[int]) -> list[int]:
    return (np.cumsum(counts) - counts).astype(int).tolist() if counts else []


class RankGathering:
    """Knows where the clients of every rank lie among all clients: in the order of their ids as text."""

    def __init__(self, ranks: MpiCommunicator, federation: Federation, folder: Path | None) -> None:
        self._ranks, self._folder = ranks, folder
        self.client_ids: list[str] = []
        self._places: list[Ints] | None = None
        if gathered := ranks.gathered(federation.client_ids):
            names = [name for part in gathered for name in part]
            order = sorted(range(len(names)), key=names.__getitem__)
            self.client_ids = [names[index] for index in order]
            self._places = _split(np.argsort(order), gathered)

    def clients(self, rows: AnyArray) -> AnyArray:
        """Return all clients' rows, on the first rank."""
        return self._ranks.collected(rows, self._places, self._folder)

    def pairs(self, server: Ints, cluster: Ints, *rows: AnyArray) -> tuple[AnyArray, ...]:
        """Return all pairs by server and cluster, on the first rank."""
        numbers = self._ranks.gathered((server, cluster))
        if numbers is None:
            return (server, cluster, *(self._ranks.collected(values, None, self._folder) for values in rows))
        all_servers, all_clusters = map(np.concatenate, zip(*numbers, strict=True))
        order = np.lexsort((all_clusters, all_servers))
        places = _split(np.argsort(order), [part for part, _ in numbers])
        collected = (self._ranks.collected(values, places, self._folder) for values in rows)
        return (all_servers[order], all_clusters[order], *collected)


def _split(values: Ints, parts: Sequence[Sequence[object] | AnyArray]) -> list[Ints]:
    return np.split(values, np.cumsum([len(part) for part in parts])[:-1])
