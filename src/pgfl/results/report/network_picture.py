"""The network as a picture: servers on their graph, clients around their server in the colour of their cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pgfl.array_types import AnyInts, Floats
from pgfl.results.report.panels import MOST_CURVES, cluster_colour
from pgfl.results.report.rendering import rendered
from pgfl.results.result import Network, Result

MOST_SERVERS, MOST_CLIENTS, MOST_STRESSED = 300, 3_000, 60
SIZE = 560.0
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))


class Dot(NamedTuple):
    """A client or a server."""

    x: str
    y: str
    radius: str
    title: str
    colour: str = ""


class Legend(NamedTuple):
    """The colours of the first clusters, and how many more there are."""

    keys: list[tuple[str, str]]
    more: int


def picture(result: Result) -> str | None:
    """An inline SVG of run 0, or None where there is too much to see."""
    network = result.models[0].network
    servers = len(result.server_ids)
    if network is None or servers > MOST_SERVERS:
        return None
    places = server_places(servers, network.edges)
    spacing = spacing_of(places)
    sizes = np.bincount(network.client_server, minlength=servers)
    return rendered(
        "network.svg.jinja",
        size=f"{SIZE:g}",
        edges=[[f"{end:.1f}" for end in (*places[a], *places[b])] for a, b in network.edges],
        clients=_clients(result, network, places, spacing) if len(network.client_server) <= MOST_CLIENTS else [],
        servers=[
            _dot(place, spacing * 0.13, f"{name}: {size} clients")
            for place, name, size in zip(places, result.server_ids, sizes, strict=True)
        ],
    )


def _clients(result: Result, network: Network, places: Floats, spacing: float) -> list[Dot]:
    """Clients of a server on a sunflower spiral around it."""
    dots = []
    for server in range(len(places)):
        members = np.flatnonzero(network.client_server == server)
        members = members[np.argsort(network.client_cluster[members], kind="stable")]
        radius = spacing * min(0.045, 0.7 / max(len(members), 1) ** 0.5 * 0.2)
        for client, place in zip(members.tolist(), client_places(places[server], spacing, len(members)), strict=True):
            cluster = int(network.client_cluster[client])
            title = f"{result.client_ids[client]}: {result.cluster_ids[cluster]}"
            dots.append(_dot(place, radius, title, cluster_colour(cluster)))
    return dots


def client_places(server: Floats, spacing: float, clients: int) -> Floats:
    """Where the clients of a server are drawn: on a circle around it, or on a spiral where they are many."""
    many = clients > 24
    reach = np.linspace(0.22, 0.46, max(clients, 1)) if many else np.full(clients, 0.3)
    angle = np.arange(clients) * (GOLDEN_ANGLE if many else 2 * np.pi / max(clients, 1))
    return np.asarray(server + spacing * reach[:clients, None] * np.column_stack([np.cos(angle), np.sin(angle)]))


def _dot(place: Floats, radius: float, title: str, colour: str = "") -> Dot:
    return Dot(f"{place[0]:.1f}", f"{place[1]:.1f}", f"{radius:.1f}", title, colour)


def legend(result: Result) -> Legend:
    """Which colour is which cluster."""
    shown = result.cluster_ids[:MOST_CURVES]
    return Legend([(cluster_colour(q), name) for q, name in enumerate(shown)], len(result.cluster_ids) - len(shown))


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
