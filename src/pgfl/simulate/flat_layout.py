"""All clients of all runs as one flat federation: Monte Carlo runs are federations that share no edge.

Clients lie in the order (run, server, cluster), so a server's clients and a (server, cluster) pair's are contiguous.
Pairs are those that can ever exist: a server and a cluster with a client in the server's connected component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import Linear
from pgfl.core.federation import Federation
from pgfl.core.topology import Mixing

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RunSize:
    """How large a run is on all ranks together."""

    clients: int
    rows: int
    longest: int  # the largest D_k

    @classmethod
    def of(cls, federation: Federation) -> RunSize:
        """A federation that is all in one place."""
        return cls(federation.size, len(federation.targets), int(federation.counts.max()))


@dataclass(frozen=True)
class RunLayout:
    """Where one run lies in the flat arrays."""

    federation: Federation
    number: int
    order: Ints  # the federation's client at every flat position of this run
    clients: slice
    servers: slice
    pairs: slice
    whole: RunSize

    @cached_property
    def position(self) -> Ints:
        """The flat position, within the run, of every client of the federation."""
        return np.argsort(self.order)


@dataclass(frozen=True)
class Layout:
    """The flat network. `personalised=False` gives all clients of a server one model (FedAvg)."""

    runs: tuple[RunLayout, ...]
    client_server: Ints
    client_pair: Ints
    counts: Ints
    server_clients: Ints  # |C_s| of every client's server
    pair_server: Ints
    pair_cluster: Ints  # within the run's own clusters
    pair_members: Ints  # |C_{s,(q)}|

    @property
    def clients(self) -> int:
        """How many clients there are in all runs."""
        return len(self.client_server)

    @property
    def pairs(self) -> int:
        """How many (server, cluster) models there can be."""
        return len(self.pair_server)

    @property
    def servers(self) -> int:
        """How many servers there are in all runs."""
        return int(self.runs[-1].servers.stop)

    @cached_property
    def members(self) -> list[Ints]:
        """The clients of every server."""
        bounds = np.searchsorted(self.client_server, np.arange(self.servers + 1))
        everyone = np.arange(self.clients)
        return [everyone[start:stop] for start, stop in pairwise(bounds)]

    @property
    def own_pairs(self) -> Ints | None:
        """The pairs that are counted here; None is all. On several ranks others lend theirs."""
        return None

    @cached_property
    def server_keys(self) -> list[tuple[int, int]]:
        """(run, server within the run) of every flat server: the key of its random streams."""
        return [(run.number, server) for run in self.runs for server in range(len(run.federation.server_ids))]

    @cached_property
    def server_pairs(self) -> Linear:
        """The sum over all clusters at a server, spread back to each of its pairs."""
        same = np.searchsorted(self.pair_server, np.arange(self.servers + 1))
        sizes = np.diff(same)[self.pair_server]
        rows = np.repeat(np.arange(self.pairs), sizes)
        columns = _steps(sizes) + np.repeat(same[self.pair_server], sizes)
        return Linear.from_entries(rows, columns, np.ones(len(rows)), self.pairs, self.pairs)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """c_s = |C_{s,(q)}| / max_s |C_{s,(q)}| over the servers of a run, for every pair."""
        width = int(self.pair_cluster.max()) + 1
        run = np.repeat(np.arange(len(self.runs)), [run.pairs.stop - run.pairs.start for run in self.runs])
        group = run * width + self.pair_cluster
        most = np.zeros(len(self.runs) * width, dtype=np.int64)
        np.maximum.at(most, group, self.pair_members)
        return np.asarray(self.pair_members / most[group])

    def mixing(self, mixing: Mixing) -> Linear:
        """InterServerAggregation's weights between pairs of the same cluster, the server's own included."""
        here, there, values = [], [], []
        for run in self.runs:
            weights = run.federation.graph.weights(mixing).tocoo()
            here.append(weights.coords[0] + run.servers.start)
            there.append(weights.coords[1] + run.servers.start)
            values.append(weights.data)
        return self.between_pairs(np.concatenate(here), np.concatenate(there), np.concatenate(values))

    def between_pairs(self, here: Ints, there: Ints, values: NDArray[np.float64]) -> Linear:
        """Weights between servers (of which both have the same clusters), spread to their pairs."""
        first_pair = np.searchsorted(self.pair_server, np.arange(self.servers))
        repeat = np.bincount(self.pair_server, minlength=self.servers)[here]
        step = _steps(repeat)
        rows, columns = (np.repeat(first_pair[server], repeat) + step for server in (here, there))
        return Linear.from_entries(rows, columns, np.repeat(values, repeat), self.pairs, self.pairs)


def lay_out(federations: Sequence[Federation], first_run: int = 0, personalised: bool = True) -> Layout:
    """Lay federations side by side; the first one is run number `first_run`."""
    runs, parts = [], []
    clients = servers = pairs = 0
    for number, federation in enumerate(federations, start=first_run):
        cluster = federation.client_cluster if personalised else np.zeros_like(federation.client_cluster)
        order = np.lexsort((cluster, federation.client_server))
        component = federation.graph.components
        known = np.unique(np.column_stack([component[federation.client_server], cluster]), axis=0)
        pair_server, pair_cluster = reachable_pairs(component, known)
        client_pair = pairs_of(pair_server, pair_cluster, federation.client_server[order], cluster[order])
        parts.append(
            (
                federation.client_server[order] + servers,
                client_pair + pairs,
                federation.counts[order],
                federation.server_sizes[federation.client_server[order]],
                pair_server + servers,
                pair_cluster,
                np.bincount(client_pair, minlength=len(pair_server)),
            )
        )
        ends = (clients + federation.size, servers + len(federation.server_ids), pairs + len(pair_server))
        places = [slice(start, end) for start, end in zip((clients, servers, pairs), ends, strict=True)]
        runs.append(RunLayout(federation, number, order, places[0], places[1], places[2], RunSize.of(federation)))
        clients, servers, pairs = ends
    return Layout(tuple(runs), *map(np.concatenate, zip(*parts, strict=True)))


def reachable_pairs(component: Ints, known: Ints) -> tuple[Ints, Ints]:
    """Every (server, cluster) whose component is `known` to hold a client of the cluster, sorted."""
    start = np.searchsorted(known[:, 0], component)
    count = np.searchsorted(known[:, 0], component, side="right") - start
    pair_server = np.repeat(np.arange(len(component)), count)
    return pair_server, known[np.repeat(start, count) + _steps(count), 1]


def pairs_of(pair_server: Ints, pair_cluster: Ints, server: Ints, cluster: Ints) -> Ints:
    """The place of every client's (server, cluster) among the sorted pairs."""
    width = int(pair_cluster.max()) + 1
    return np.searchsorted(pair_server * width + pair_cluster, server * width + cluster)


def _steps(sizes: Ints) -> Ints:
    """0 … n−1 for every n of `sizes`, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
