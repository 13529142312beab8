"""The halo exchange: every round a rank receives what the owners of its borrowed servers published."""

from __future__ import annotations

import numpy as np

from pgfl.array_types import AnyArray, Bools, DTypeLike, Ints
from pgfl.simulate.flat_layout import Layout, crossings
from pgfl.simulate.mpi.mpi_communicator import MpiCommunicator
from pgfl.simulate.neighbourhoods import Network


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
    """The pairs of lists of servers, one list after the other, and how many each list has."""
    found = [np.flatnonzero(np.isin(layout.server_number[layout.pair_server], some)) for some in servers]
    return np.concatenate([np.empty(0, dtype=np.int64), *found]), [len(pairs) for pairs in found]


def _starts(counts: list[int]) -> list[int]:
    return (np.cumsum(counts) - counts).astype(int).tolist() if counts else []
