"""All clients of all runs as one flat federation: Monte Carlo runs are federations that share no edge.

Clients lie in the order (run, server, cluster), so a server's clients and a (server, cluster) pair's are contiguous.
Pairs are those that can ever exist: a server and a cluster with a client in the server's connected component.

Where several processes share a run, each lays out its own servers and, between them in the order of their numbers, the
servers of other processes that are next to one of its own: its halo. These borrowed servers have no clients here.
Every sum over a neighbourhood therefore has the same terms in the same order as in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pgfl.algorithms.server_rules import half_of_server
from pgfl.arrays import Bools, Floats, Ints, Linear
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import Mixing, by_clients
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator


@dataclass(frozen=True)
class RunSize:
    """How large a run is in all processes together."""

    clients: int
    rows: int
    longest: int  # the largest D_k


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
    owner: Ints  # the process of every server of the federation

    @cached_property
    def position(self) -> Ints:
        """The flat position, within the run, of every client of the federation."""
        return np.argsort(self.order)


@dataclass(frozen=True)
class Layout:
    """The flat network. `personalised=False` gives all clients of a server one model (FedAvg)."""

    runs: tuple[RunLayout, ...]
    model_length: int  # of every model; the objectives decide
    client_server: Ints
    client_pair: Ints
    counts: Ints
    server_clients: Ints  # |C_s| of every client's server
    pair_server: Ints
    pair_cluster: Ints  # within the run's own clusters
    pair_members: Ints  # |C_{s,(q)}|
    pair_most: Ints  # max_s |C_{s,(q)}| over all servers of the run
    server_number: Ints  # of every server, its number in its federation
    own_server: Bools  # whether it belongs to this process

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
        return len(self.server_number)

    def client(self, place: int) -> str:
        """Return the client at a flat place, for messages: its id and, if there are several runs, its run."""
        run = next(run for run in self.runs if place < run.clients.stop)
        name = f"client {run.federation.client_id(int(run.order[place - run.clients.start]))}"
        return name if len(self.runs) == 1 else f"{name} in run {run.number}"

    @cached_property
    def members(self) -> list[Ints]:
        """The clients of every server."""
        bounds = np.searchsorted(self.client_server, np.arange(self.servers + 1))
        everyone = np.arange(self.clients)
        return [everyone[start:stop] for start, stop in pairwise(bounds)]

    @cached_property
    def client_half(self) -> Ints:
        """0 for every other client of a pair, in order, and 1 for the rest."""
        first = np.searchsorted(self.client_pair, np.arange(self.pairs))
        return np.asarray((np.arange(self.clients) - first[self.client_pair]) % 2)

    @cached_property
    def pair_half(self) -> Ints:
        """The half of the servers that each pair belongs to, by the server's name."""
        halves = [
            half_of_server(run.federation.server_ids[number])
            for run in self.runs
            for number in self.server_number[run.servers].tolist()
        ]
        return np.array(halves, dtype=np.int64)[self.pair_server]

    @cached_property
    def own_pairs(self) -> Ints | slice:
        """The pairs of own servers, as an index."""
        return slice(None) if self.own_server.all() else np.flatnonzero(self.own_server[self.pair_server])

    @cached_property
    def server_keys(self) -> list[tuple[int, int]]:
        """(run, server within the run) of every flat server: the key of its random streams."""
        return [(run.number, number) for run in self.runs for number in self.server_number[run.servers].tolist()]

    @cached_property
    def server_pairs(self) -> Linear:
        """The sum over all clusters at a server, spread back to each of its pairs."""
        same = np.searchsorted(self.pair_server, np.arange(self.servers + 1))
        sizes = np.diff(same)[self.pair_server]
        rows = np.repeat(np.arange(self.pairs), sizes)
        columns = _steps(sizes) + np.repeat(same[self.pair_server], sizes)
        return Linear.from_entries(rows, columns, np.ones(len(rows)), self.pairs, self.pairs)

    @cached_property
    def shares(self) -> Floats:
        """c_s = |C_{s,(q)}| / max_s |C_{s,(q)}| over the servers of a run, for every pair."""
        return np.asarray(self.pair_members / self.pair_most)

    def mixing(self, mixing: Mixing) -> Linear:
        """InterServerAggregation's weights between pairs of the same cluster, the server's own included.

        A borrowed server keeps what was received from its owner.
        """
        here, there, values = [], [], []
        for run in self.runs:
            numbers, own_server = self.server_number[run.servers], self.own_server[run.servers]
            own, borrowed = np.flatnonzero(own_server), np.flatnonzero(~own_server)
            between = run.federation.graph.weights(mixing)[numbers[own]].tocoo()
            here += [own[between.coords[0]] + run.servers.start, borrowed + run.servers.start]
            there += [np.searchsorted(numbers, between.coords[1]) + run.servers.start, borrowed + run.servers.start]
            values += [between.data, np.ones(len(borrowed))]
        weights = self._between_pairs(np.concatenate(here), np.concatenate(there), np.concatenate(values))
        return weights if mixing != "clients" else self._by_clients(weights)

    def _by_clients(self, weights: Linear) -> Linear:
        counted = weights.values * by_clients(self.pair_members)[weights.columns]
        return weights.revalued(counted / np.bincount(weights.rows, weights=counted)[weights.rows])

    def _between_pairs(self, here: Ints, there: Ints, values: Floats) -> Linear:
        """Return weights between servers (of which both have the same clusters), spread to their pairs."""
        first_pair = np.searchsorted(self.pair_server, np.arange(self.servers))
        repeat = np.bincount(self.pair_server, minlength=self.servers)[here]
        step = _steps(repeat)
        rows, columns = (np.repeat(first_pair[server], repeat) + step for server in (here, there))
        return Linear.from_entries(rows, columns, np.repeat(values, repeat), self.pairs, self.pairs)


def lay_out(
    federations: Sequence[Federation],
    first_run: int = 0,
    personalised: bool = True,
    owners: Sequence[Ints] | None = None,
    communicator: Communicator = SINGLE_PROCESS,
    model_length: int | None = None,
) -> Layout:
    """Lay federations side by side; the first one is run number `first_run`.

    A model has `model_length` numbers, or one per feature.

    With several processes, `federations` holds the own clients and the whole graph of each run, and `owners` the
    process of every server. All processes call this together.
    """
    runs, parts = [], []
    clients = servers = pairs = 0
    for place, federation in enumerate(federations):
        owner = np.zeros(len(federation.server_ids), dtype=np.int64) if owners is None else owners[place]
        cluster = federation.client_cluster if personalised else np.zeros_like(federation.client_cluster)
        order = np.lexsort((cluster, federation.client_server))
        component = federation.graph.components
        own = np.flatnonzero(owner == communicator.rank)
        crossing = crossings(federation, owner, communicator.rank)
        numbers = np.union1d(own, crossing[:, 1])
        known = communicator.unique_rows(np.column_stack([component[federation.client_server], cluster]))
        pair_server, pair_cluster = reachable_pairs(component[numbers], known)
        client_server = np.searchsorted(numbers, federation.client_server[order])
        client_pair = pairs_of(pair_server, pair_cluster, client_server, cluster[order])
        members = np.bincount(client_pair, minlength=len(pair_server))
        at_border = np.isin(numbers[pair_server], crossing[:, 0])
        told = communicator.unique_rows(np.column_stack([numbers[pair_server], pair_cluster, members])[at_border])
        told = told[np.isin(told[:, 0], numbers)]
        members[pairs_of(pair_server, pair_cluster, np.searchsorted(numbers, told[:, 0]), told[:, 1])] = told[:, 2]
        most = np.zeros(int(known[:, 1].max()) + 1, dtype=np.int64)
        np.maximum.at(most, pair_cluster, members)
        parts.append(
            (
                client_server + servers,
                client_pair + pairs,
                federation.counts[order],
                federation.server_sizes[federation.client_server[order]],
                pair_server + servers,
                pair_cluster,
                members,
                communicator.maximum(most)[pair_cluster],
                numbers,
                owner[numbers] == communicator.rank,
            )
        )
        ends = (clients + federation.size, servers + len(numbers), pairs + len(pair_server))
        slices = [slice(start, end) for start, end in zip((clients, servers, pairs), ends, strict=True)]
        size = _whole_size(federation, communicator)
        runs.append(RunLayout(federation, first_run + place, order, slices[0], slices[1], slices[2], size, owner))
        clients, servers, pairs = ends
    length = federations[0].dimension if model_length is None else model_length
    return Layout(tuple(runs), length, *map(np.concatenate, zip(*parts, strict=True)))


def crossings(federation: Federation, owner: Ints, rank: int) -> Ints:
    """Edges from an own server (first) to a server of another process (second)."""
    edges = federation.graph.edges
    both = np.concatenate([edges, edges[:, ::-1]])
    return np.asarray(both[(owner[both[:, 0]] == rank) & (owner[both[:, 1]] != rank)], dtype=np.int64)


def _whole_size(federation: Federation, communicator: Communicator) -> RunSize:
    clients, rows = communicator.sum([federation.size, len(federation.targets)]).tolist()
    return RunSize(clients, rows, int(communicator.maximum([federation.counts.max()])[0]))


def reachable_pairs(component: Ints, known: Ints) -> tuple[Ints, Ints]:
    """Every (server, cluster) whose component is `known` to hold a client of the cluster, sorted."""
    start = np.searchsorted(known[:, 0], component)
    count = np.searchsorted(known[:, 0], component, side="right") - start
    pair_server = np.repeat(np.arange(len(component)), count)
    return pair_server, known[np.repeat(start, count) + _steps(count), 1]


def pairs_of(pair_server: Ints, pair_cluster: Ints, server: Ints, cluster: Ints) -> Ints:
    """Return the place of every client's (server, cluster) among the sorted pairs."""
    width = int(pair_cluster.max()) + 1
    return np.searchsorted(pair_server * width + pair_cluster, server * width + cluster)


def _steps(sizes: Ints) -> Ints:
    """0 … n−1 for every n of `sizes`, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
