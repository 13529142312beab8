"""The network as a picture: servers on their graph, clients around their server in the colour of their cluster."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from pgfl.results.report.panels import MOST_CURVES, cluster_colour
from pgfl.results.result import Network, Result

MOST_SERVERS, MOST_CLIENTS, MOST_STRESSED = 300, 3_000, 60
SIZE = 560.0
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))


def picture(result: Result) -> str | None:
    """An inline SVG of run 0, or None where there is too much to see."""
    network = result.models[0].network
    servers = len(result.server_ids)
    if network is None or servers > MOST_SERVERS:
        return None
    places = _positions(servers, network.edges)
    spacing = _spacing(places)
    parts = [f'<svg class="network" viewBox="0 0 {SIZE:g} {SIZE:g}" role="img" aria-label="The server network">']
    parts += [
        f'<line x1="{places[a, 0]:.1f}" y1="{places[a, 1]:.1f}" x2="{places[b, 0]:.1f}" y2="{places[b, 1]:.1f}"/>'
        for a, b in network.edges
    ]
    if len(network.client_server) <= MOST_CLIENTS:
        parts += _clients(result, network, places, spacing)
    sizes = np.bincount(network.client_server, minlength=servers)
    for server, (x, y) in enumerate(places):
        title = f"{escape(result.server_ids[server])}: {sizes[server]} clients"
        parts.append(
            f'<g class="server"><title>{title}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{spacing * 0.13:.1f}"/></g>'
        )
    return "".join([*parts, "</svg>"])


def _clients(result: Result, network: Network, places: NDArray[np.float64], spacing: float) -> list[str]:
    """Clients of a server on a sunflower spiral around it."""
    parts = []
    for server in range(len(places)):
        members = np.flatnonzero(network.client_server == server)
        members = members[np.argsort(network.client_cluster[members], kind="stable")]
        reach = np.linspace(0.22, 0.46, max(len(members), 1)) if len(members) > 24 else np.full(len(members), 0.3)
        turn = GOLDEN_ANGLE if len(members) > 24 else 2 * np.pi / max(len(members), 1)
        dot = spacing * min(0.045, 0.7 / max(len(members), 1) ** 0.5 * 0.2)
        for number, client in enumerate(members.tolist()):
            x, y = places[server] + spacing * reach[number] * np.array([np.cos(number * turn), np.sin(number * turn)])
            cluster = int(network.client_cluster[client])
            title = f"{escape(result.client_ids[client])}: {escape(result.cluster_ids[cluster])}"
            mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{dot:.1f}" fill="{cluster_colour(cluster)}">'
            parts.append(f"{mark}<title>{title}</title></circle>")
    return parts


def legend(result: Result) -> str:
    """Which colour is which cluster."""
    items = [
        f'<span class="key"><i style="background:{cluster_colour(index)}"></i>{escape(cluster)}</span>'
        for index, cluster in enumerate(result.cluster_ids[:MOST_CURVES])
    ]
    more = len(result.cluster_ids) - MOST_CURVES
    return "".join(items) + (f'<span class="key">and {more} more</span>' if more > 0 else "")


def _positions(servers: int, edges: NDArray[np.integer]) -> NDArray[np.float64]:
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


def _spacing(places: NDArray[np.float64]) -> float:
    """How much room a server has, from the distances to nearest neighbours."""
    if len(places) == 1:
        return SIZE / 2
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float(np.clip(np.quantile(apart.min(axis=1), 0.25), 8.0, SIZE / 4))
