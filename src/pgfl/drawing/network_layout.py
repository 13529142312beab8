"""Where servers and clients stand in a picture: neighbours near each other, clients around their server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pgfl.array_types import AnyInts, Floats
from pgfl.drawing.colours import MOST_COLOURS, cluster_colour

MOST_SERVERS, MOST_CLIENTS, MOST_STRESSED = 300, 3_000, 60
SIZE = 560.0
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))
ON_ONE_CIRCLE = 24


@dataclass(frozen=True, eq=False)
class DrawnNetwork:
    """What a picture of a network shows: servers, the edges (E × 2) between them, and clients if there are any."""

    server_ids: Sequence[str]
    edges: AnyInts
    client_ids: Sequence[str] = ()
    cluster_ids: Sequence[str] = ()
    client_server: AnyInts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    client_cluster: AnyInts = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def too_large(self) -> bool:
        """Whether there is too much to see."""
        return len(self.server_ids) > MOST_SERVERS

    @property
    def shows_clients(self) -> bool:
        """Whether clients are drawn, not their servers only."""
        return len(self.client_server) <= MOST_CLIENTS

    @cached_property
    def sizes(self) -> AnyInts:
        """How many clients each server has."""
        return np.bincount(self.client_server, minlength=len(self.server_ids))

    @cached_property
    def servers(self) -> Floats:
        """The places of the servers."""
        return server_places(len(self.server_ids), self.edges)

    @cached_property
    def spacing(self) -> float:
        """How much room a server has."""
        return spacing_of(self.servers)

    @cached_property
    def clients(self) -> Floats:
        """The places of the clients, those of one cluster beside each other."""
        places = np.empty((len(self.client_server), 2))
        for server, centre in enumerate(self.servers):
            members = np.flatnonzero(self.client_server == server)
            members = members[np.argsort(self.client_cluster[members], kind="stable")]
            places[members] = client_places(centre, self.spacing, len(members))
        return places

    @property
    def server_radius(self) -> float:
        """How large a server is drawn."""
        return 0.13 * self.spacing

    def client_radius(self, server: int) -> float:
        """How large the clients of a server are drawn."""
        return float(self.spacing * min(0.045, 0.14 / max(self.sizes[server], 1) ** 0.5))

    def legend(self) -> tuple[list[tuple[str, str]], int]:
        """The colours of the first clusters with their names, and how many more clusters there are."""
        shown = self.cluster_ids[:MOST_COLOURS]
        return [(cluster_colour(index), name) for index, name in enumerate(shown)], len(self.cluster_ids) - len(shown)


def server_places(servers: int, edges: AnyInts) -> Floats:
    """Places for the servers within the picture, neighbours near each other."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(servers))
    graph.add_edges_from(edges.tolist())
    start = nx.circular_layout(graph)
    if servers <= 2:
        near = start
    elif servers <= MOST_STRESSED and nx.is_connected(graph):
        near = nx.kamada_kawai_layout(graph, pos=start)
    else:
        near = nx.spring_layout(graph, pos=start, seed=0, k=1.6 / np.sqrt(servers), iterations=200)
    places = np.array([near[server] for server in range(servers)], dtype=float)
    low, extent = places.min(axis=0), np.ptp(places, axis=0)
    margin = 0.13 * SIZE
    unit = np.divide(places - low, extent, out=np.full_like(places, 0.5), where=extent > 1e-9)
    return np.asarray(margin + unit * (SIZE - 2 * margin))


def spacing_of(places: Floats) -> float:
    """How much room a server has, from the distances to nearest neighbours."""
    if len(places) == 1:
        return SIZE / 2
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float(np.clip(np.quantile(apart.min(axis=1), 0.25), 8.0, SIZE / 4))


def client_places(server: Floats, spacing: float, clients: int) -> Floats:
    """Where the clients of a server are drawn: on a circle around it, or on a sunflower spiral where they are many."""
    many = clients > ON_ONE_CIRCLE
    reach = np.linspace(0.22, 0.46, clients) if many else np.full(clients, 0.3)
    angle = np.arange(clients) * (GOLDEN_ANGLE if many else 2 * np.pi / max(clients, 1))
    return np.asarray(server + spacing * reach[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]))
