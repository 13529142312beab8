"""Servers split over ranks: equal shares of the data, and few edges between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgfl.array_types import Bools, Ints
from pgfl.core.topology import Graph
from pgfl.errors import ConfigError

if TYPE_CHECKING:
    from scipy import sparse

PASSES = 8
SLACK = 0.05  # how much more than its share a rank may be given


def partition(graph: Graph, rows: Ints, parts: int) -> Ints:
    """The part of every server, for servers that hold `rows` of data; every part gets a server that has some.

    The servers are walked through so that neighbours come near each other (reverse Cuthill–McKee), the walk is cut in
    two shares of equal weight, and these again in the same way. Then servers move to the part of most of their
    neighbours, while that lowers the number of edges between parts and loads no part beyond 5 % more than its share, or
    than the cut did.

    >>> from pgfl.core.topology import ring
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
    """How many edges join two parts."""
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
    """Where to cut a walk into `before` and `after` parts' shares of its weight, with a loaded server for each part."""
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
