"""Servers split over ranks: equal shares of the data, and few edges between ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgfl.errors import ConfigError
from pgfl.topology import Graph

Ints = NDArray[np.int64]
PASSES = 8
SLACK = 0.05  # how much more than its share a rank may be given


def partition(graph: Graph, rows: Ints, parts: int) -> Ints:
    """The part of every server, for servers that hold `rows` of data; every part gets a server that has some.

    The servers are walked through so that neighbours come near each other (reverse Cuthill–McKee), the walk is cut into
    shares of equal weight, and then servers move to the part of most of their neighbours while that lowers the number
    of edges between parts and loads no part beyond 5 % more than its share, or than the cut did.

    >>> from pgfl.topology import ring
    >>> partition(ring(6), np.full(6, 10), 2).tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0])
    True
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
    part = _cut_walk(_walk(graph), rows > 0, weight, parts)
    return _refined(graph, part, weight, rows > 0, parts)


def edges_between(graph: Graph, part: Ints) -> int:
    """How many edges join two parts."""
    return int(np.count_nonzero(part[graph.edges[:, 0]] != part[graph.edges[:, 1]]))


def _walk(graph: Graph) -> Ints:
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    return np.asarray(reverse_cuthill_mckee(graph.adjacency.tocsr(), symmetric_mode=True), dtype=np.int64)


def _cut_walk(walk: Ints, loaded: NDArray[np.bool_], weight: Ints, parts: int) -> Ints:
    """Cut a walk into shares of about equal weight, each with a loaded server."""
    stops = np.flatnonzero(loaded[walk])
    passed = np.cumsum(weight[walk])[stops] - 0.5 * weight[walk[stops]]
    wanted = np.searchsorted(passed, passed[-1] * np.arange(1, parts) / parts)
    ahead, behind = np.arange(1, parts), len(stops) - parts + np.arange(1, parts)
    cuts = np.minimum(np.maximum.accumulate(np.maximum(wanted, ahead) - ahead) + ahead, behind)
    part = np.empty(len(walk), dtype=np.int64)
    part[walk] = np.searchsorted(stops[cuts], np.arange(len(walk)), side="right")
    return part


def _refined(graph: Graph, part: Ints, weight: Ints, loaded: NDArray[np.bool_], parts: int) -> Ints:
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
            around: dict[int, int] = {}
            for neighbour in indices[indptr[server] : indptr[server + 1]]:
                around[place[neighbour]] = around.get(place[neighbour], 0) + 1
            here = place[server]
            gain, there = max((count - around.get(here, 0), -target) for target, count in around.items())
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
