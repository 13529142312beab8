"""Who is where in a generated federation: servers on a graph, clients at servers, clusters cut across them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pgfl.array_types import AnyInts, Ints
from pgfl.core.federation import numbered, own_servers
from pgfl.core.streams import Purpose, stream
from pgfl.core.topology import Graph, build
from pgfl.errors import ConfigError

COUNTS, SAMPLES, TESTS, POOLS = range(4)  # what a DATA stream is for, in the place of its round


@dataclass(frozen=True, eq=False)
class Layout:
    """The whole federation's shape, and the servers whose clients are generated here (`own`, ascending)."""

    sizes: Ints
    clusters: AnyInts
    graph: Graph
    own: Ints
    seed: int
    run: int

    @cached_property
    def first_client(self) -> Ints:
        """Server s has clients `first_client[s]` to `first_client[s + 1]`."""
        return offsets_of(self.sizes)

    @cached_property
    def clients(self) -> Ints:
        """The clients of the own servers, numbered in the whole federation."""
        return np.concatenate([np.arange(*self.first_client[s : s + 2]) for s in self.own])

    @property
    def client_server(self) -> Ints:
        """The server of each of these clients."""
        return np.repeat(self.own, self.sizes[self.own])

    @property
    def client_cluster(self) -> Ints:
        """The cluster of each of these clients."""
        return self.clusters[self.clients].astype(np.int64)

    @property
    def server_ids(self) -> tuple[str, ...]:
        """Ids of all servers."""
        return tuple(numbered("server", s, len(self.sizes)) for s in range(len(self.sizes)))

    @property
    def names(self) -> tuple[str, ...] | None:
        """Ids of these clients where they are not all: a part keeps the names of the whole."""
        total = len(self.clusters)
        return None if len(self.own) == len(self.sizes) else tuple(numbered("client", k, total) for k in self.clients)

    def sample_counts(self, samples: int | tuple[int, int], servers: Iterable[int]) -> dict[int, Ints]:
        """D_k of the clients of each of some servers, uniform between the two ends of `samples`."""
        low, high = (samples, samples) if isinstance(samples, int) else samples
        if not 1 <= low <= high:
            raise ConfigError(f"Samples per client must go from at least 1 up to something not smaller; got {samples}.")
        return {
            s: stream(self.seed, self.run, Purpose.DATA, s, COUNTS).integers(low, high, self.sizes[s], endpoint=True)
            for s in servers
        }


def lay_out(
    servers: int,
    clients_per_server: int | Sequence[int],
    clusters: int,
    *,
    graph: str | Graph = "random",
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    servers_subset: Sequence[int] | None = None,
) -> Layout:
    """Clients numbered server by server, and split at random among clusters whose sizes differ by one at most."""
    if servers < 1:
        raise ConfigError(f"A federation needs at least one server; got {servers}.")
    sizes = (
        np.full(servers, clients_per_server) if isinstance(clients_per_server, int) else np.array(clients_per_server)
    )
    if len(sizes) != servers:
        raise ConfigError(f"There are {servers} servers, but clients per server are given for {len(sizes)}.")
    if sizes.dtype.kind not in "iu" or sizes.min() < 0 or sizes.sum() < 1:
        raise ConfigError("Clients per server must be whole numbers, none negative and not all zero.")
    total = int(sizes.sum())
    if not 1 <= clusters <= total:
        raise ConfigError(f"{total} clients can be split among 1 to {total} clusters; got {clusters}.")
    own = np.arange(servers) if servers_subset is None else own_servers(servers_subset, servers)
    if isinstance(graph, str):
        graph = build(graph, servers, average_degree=average_degree, rng=stream(seed, run, Purpose.GRAPH))
    labels = (np.arange(total) % clusters).astype(np.min_scalar_type(clusters))
    stream(seed, run, Purpose.CLUSTERS).shuffle(labels)
    return Layout(sizes.astype(np.int64), labels, graph, own, seed, run)


def offsets_of(counts: Ints) -> Ints:
    """Where each of consecutive groups of these sizes begins, and where the last one ends.

    >>> offsets_of(np.array([2, 3]))
    array([0, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """The type that data is held in: float32 or float64, and nothing else."""
    try:
        chosen = np.dtype(dtype)
    except TypeError:
        raise ConfigError(f"Data can be held as float32 or float64; got {dtype!r}.") from None
    if chosen not in (np.float32, np.float64):
        raise ConfigError(f"Data can be held as float32 or float64; got {chosen}.")
    return chosen
