"""One rank's servers, the neighbours that it borrows from other ranks, and the exchange that keeps these up to date.

A rank lays out its own servers and, between them in the order of their numbers, the servers of other ranks that are
next to one of its own. The borrowed ones have no clients here; each round their rows are what their ranks published.
Every sum over a neighbourhood therefore has the same terms in the same order as on a single rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import Linear
from pgfl.core.federation import Federation
from pgfl.core.topology import Mixing
from pgfl.simulate.flat_layout import Layout, RunLayout, RunSize, pairs_of, reachable_pairs
from pgfl.simulate.mpi.communicator import Ranks

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RankLayout(Layout):
    """The flat network of one rank, for one run: its own servers and those next to them."""

    numbers: Ints  # of every server here, its number in the whole federation; ascending
    owner: Ints  # the rank of every server of the federation
    rank: int
    most_members: Ints  # max_s |C_{s,(q)}| of every cluster

    @cached_property
    def server_keys(self) -> list[tuple[int, int]]:
        """(run, server in the whole federation), so that draws are those of a single rank."""
        return [(self.runs[0].number, server) for server in self.numbers.tolist()]

    @cached_property
    def own_pairs(self) -> Ints:
        """The pairs of own servers."""
        return np.flatnonzero(self.owner[self.numbers[self.pair_server]] == self.rank)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """c_s of every pair, with the maximum over all ranks."""
        return np.asarray(self.pair_members / self.most_members[self.pair_cluster])

    def mixing(self, mixing: Mixing) -> Linear:
        """The weights of own servers; a borrowed one only keeps what it was told."""
        own = np.flatnonzero(self.owner[self.numbers] == self.rank)
        borrowed = np.flatnonzero(self.owner[self.numbers] != self.rank)
        weights = self.runs[0].federation.graph.weights(mixing)[self.numbers[own]].tocoo()
        here, there = own[weights.coords[0]], np.searchsorted(self.numbers, weights.coords[1])
        return self.between_pairs(
            np.concatenate([here, borrowed]),
            np.concatenate([there, borrowed]),
            np.concatenate([weights.data, np.ones(len(borrowed))]),
        )


def lay_out_rank(federation: Federation, run: int, owner: Ints, ranks: Ranks, personalised: bool = True) -> RankLayout:
    """Lay out a rank's part of a federation (its own clients, the whole graph). All ranks call this together."""
    cluster = federation.client_cluster if personalised else np.zeros_like(federation.client_cluster)
    order = np.lexsort((cluster, federation.client_server))
    component = federation.graph.components
    numbers = np.union1d(np.flatnonzero(owner == ranks.rank), _crossings(federation, owner, ranks.rank)[:, 1])
    found = np.unique(np.column_stack([component[federation.client_server], cluster]), axis=0)
    known = np.unique(np.concatenate(ranks.comm.allgather(found)), axis=0)
    pair_server, pair_cluster = reachable_pairs(component[numbers], known)
    client_server = np.searchsorted(numbers, federation.client_server[order])
    client_pair = pairs_of(pair_server, pair_cluster, client_server, cluster[order])
    members = np.bincount(client_pair, minlength=len(pair_server))
    most = np.zeros(int(known[:, 1].max()) + 1, dtype=np.int64)
    np.maximum.at(most, pair_cluster, members)
    clients, rows = ranks.added([federation.size, len(federation.targets)]).tolist()
    whole = RunSize(clients, rows, int(ranks.largest([federation.counts.max()])[0]))
    places = [slice(0, size) for size in (federation.size, len(numbers), len(pair_server))]
    return RankLayout(
        runs=(RunLayout(federation, run, order, places[0], places[1], places[2], whole),),
        client_server=client_server,
        client_pair=client_pair,
        counts=federation.counts[order],
        server_clients=federation.server_sizes[federation.client_server[order]],
        pair_server=pair_server,
        pair_cluster=pair_cluster,
        pair_members=members,
        numbers=numbers,
        owner=owner,
        rank=ranks.rank,
        most_members=ranks.largest(most),
    )


class Halo:
    """The exchange with neighbouring ranks: one neighbourhood collective on a graph of ranks."""

    def __init__(self, layout: RankLayout, ranks: Ranks, dimension: int, dtype: Any) -> None:
        from mpi4py.util.dtlib import from_numpy_dtype

        crossings = _crossings(layout.runs[0].federation, layout.owner, layout.rank)
        rank_there = layout.owner[crossings[:, 1]]
        neighbours = np.unique(rank_there)
        told = [np.unique(crossings[rank_there == rank, 0]) for rank in neighbours]
        heard = [np.unique(crossings[rank_there == rank, 1]) for rank in neighbours]
        self._told, told_rows = _pairs_at(layout, told)
        self.borrowed, heard_rows = _pairs_at(layout, heard)
        near = neighbours.tolist()
        self._comm = ranks.comm.Create_dist_graph_adjacent(near, near, told_rows, heard_rows)
        self._row = from_numpy_dtype(np.dtype(dtype)).Create_contiguous(dimension + 1).Commit()
        self._out = np.empty((len(self._told), dimension + 1), dtype)
        self._in = np.empty((len(self.borrowed), dimension + 1), dtype)
        self._send = [self._out, (told_rows, _starts(told_rows)), self._row]
        self._receive = [self._in, (heard_rows, _starts(heard_rows)), self._row]

    def exchange(self, published: NDArray[Any], present: Mask) -> Mask:
        """Fill in the borrowed rows of what is published; returns which of them are there at all."""
        self._out[:, :-1] = published[self._told]
        self._out[:, -1] = present[self._told]
        self._comm.Neighbor_alltoallv(self._send, self._receive)
        published[self.borrowed] = self._in[:, :-1]
        return np.asarray(self._in[:, -1] > 0)

    def close(self) -> None:
        """Let go of what MPI holds."""
        self._row.Free()
        self._comm.Free()


def _crossings(federation: Federation, owner: Ints, rank: int) -> Ints:
    """Edges from an own server (first) to one of another rank (second)."""
    edges = federation.graph.edges
    both = np.concatenate([edges, edges[:, ::-1]])
    return np.asarray(both[(owner[both[:, 0]] == rank) & (owner[both[:, 1]] != rank)], dtype=np.int64)


def _pairs_at(layout: RankLayout, servers: list[Ints]) -> tuple[Ints, list[int]]:
    """The pairs of lists of servers, one list after the other, and how many each list has."""
    found = [np.flatnonzero(np.isin(layout.numbers[layout.pair_server], some)) for some in servers]
    return np.concatenate([np.empty(0, dtype=np.int64), *found]), [len(pairs) for pairs in found]


def _starts(counts: list[int]) -> list[int]:
    return (np.cumsum(counts) - counts).astype(int).tolist() if counts else []
