"""The results of all ranks on the first one, in the order of the whole federation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pgfl.array_types import AnyArray, Ints
from pgfl.core.federation import Federation
from pgfl.simulate.mpi.mpi_communicator import MpiCommunicator


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
        """All clients' rows, on the first rank."""
        return self._ranks.collected(rows, self._places, self._folder)

    def pairs(self, server: Ints, cluster: Ints, *rows: AnyArray) -> tuple[AnyArray, ...]:
        """All pairs by server and cluster, on the first rank."""
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
