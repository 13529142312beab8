"""A network as a picture: its layout, as inline SVG, and drawn with matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import AnyInts, Floats
from pgfl.drawing.pages import DRAWING
from pgfl.drawing.plots import GREY, INK, MOST_COLOURS, Dot, cluster_colour
from pgfl.errors import UsageError

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


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
        """Return how large the clients of a server are drawn."""
        return float(self.spacing * min(0.045, 0.14 / max(self.sizes[server], 1) ** 0.5))

    def legend(self) -> tuple[list[tuple[str, str]], int]:
        """Return the colours of the first clusters with their names, and how many more clusters there are."""
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
    """Return how much room a server has, from the distances to nearest neighbours."""
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


def network_svg(network: DrawnNetwork) -> Markup | None:
    """Return the picture, or None where there is too much to see."""
    if network.too_large:
        return None
    places = network.servers
    servers = [
        _dot(place, network.server_radius, f"{name}: {size} client{'' if size == 1 else 's'}" if size else name)
        for place, name, size in zip(places, network.server_ids, network.sizes.tolist(), strict=True)
    ]
    numbers = server_numbers(network.server_ids) if len(servers) <= MOST_NAMED_SERVERS else []
    return DRAWING.rendered(
        "network.svg.jinja",
        named=list(zip(servers, numbers, strict=False)),
        size=f"{SIZE:g}",
        edges=[_edge(places[a], places[b], network.server_radius) for a, b in network.edges],
        clients=_clients(network) if network.shows_clients else [],
        servers=servers,
    )


def _clients(network: DrawnNetwork) -> list[Dot]:
    dots = []
    for client, place in enumerate(network.clients):
        cluster, server = int(network.client_cluster[client]), int(network.client_server[client])
        title = f"{network.client_ids[client]}: {network.cluster_ids[cluster]}"
        dots.append(_dot(place, network.client_radius(server), title, cluster_colour(cluster)))
    return dots


def _edge(start: Floats, end: Floats, radius: float) -> list[str]:
    """Return the ends of an edge, at the rims of its servers: these are drawn as empty circles, on any background."""
    length = float(np.hypot(*(end - start)))
    inset = (end - start) * (min(radius / length, 0.5) if length else 0.0)
    return [f"{value:.1f}" for value in (*(start + inset), *(end - inset))]


def _dot(place: Floats, radius: float, title: str, colour: str = "") -> Dot:
    return Dot(f"{place[0]:.1f}", f"{place[1]:.1f}", f"{radius:.1f}", title, colour)


MOST_NAMED_SERVERS = 30
INCHES = 5.0


def new_axes(width: float = INCHES, height: float = INCHES) -> Axes:
    """Axes of a new figure, which notebooks show by themselves."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def server_numbers(names: Sequence[str]) -> list[str]:
    """Return the numbers in names that differ in nothing else, which fit into a server; else nothing.

    >>> server_numbers(["server-0", "server-11"]), server_numbers(["north", "south-1"])
    (['0', '11'], [])
    """
    parts = [re.fullmatch(r"(\D*)(\d{1,2})", name) for name in names]
    found = [part for part in parts if part]
    return [part[2] for part in found] if len(found) == len(names) and len({part[1] for part in found}) == 1 else []


def draw_network(network: DrawnNetwork, axes: Axes | None = None) -> Axes:
    """Draw a network, on axes of its own unless some are given."""
    from matplotlib.collections import LineCollection

    if network.too_large:
        raise UsageError(f"A network of {len(network.server_ids)} servers is too large for a picture.")
    chosen = new_axes() if axes is None else axes
    unit = INCHES * 72 / SIZE  # points per length of the layout
    places = network.servers
    chosen.add_collection(LineCollection(list(places[network.edges]), colors=GREY, linewidths=1.0, zorder=1))
    if network.shows_clients:
        for cluster, name in enumerate(network.cluster_ids):
            members = np.flatnonzero(network.client_cluster == cluster)
            radii = [network.client_radius(int(server)) for server in network.client_server[members]]
            sizes = (2.0 * unit * np.array(radii)) ** 2
            label = name if cluster < len(network.legend()[0]) else None
            x, y = network.clients[members].T
            chosen.scatter(x, y, s=sizes, color=cluster_colour(cluster), label=label, zorder=2)
    size = (2.0 * unit * network.server_radius) ** 2
    chosen.scatter(places[:, 0], places[:, 1], s=size, facecolor="white", edgecolor=INK, linewidth=1.2, zorder=3)
    if numbers := server_numbers(network.server_ids):
        for number, (x, y) in zip(numbers, places, strict=True):
            chosen.annotate(number, (x, y), ha="center", va="center", fontsize=6.5, color=INK, zorder=4)
    elif len(network.server_ids) <= MOST_NAMED_SERVERS:
        for name, (x, y) in zip(network.server_ids, places, strict=True):
            below = y + (0.36 * network.spacing if len(network.client_server) else network.server_radius) + 6.0
            text = chosen.annotate(name, (x, below), ha="center", va="top", fontsize=7, color=INK, zorder=4)
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6})
    chosen.set(xlim=(0, SIZE), ylim=(SIZE, 0), aspect="equal")
    chosen.set_axis_off()
    if network.shows_clients and network.cluster_ids:
        more = network.legend()[1]
        title = f"and {more} more" if more else None
        legend = chosen.legend(title=title, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        for handle in legend.legend_handles:
            if handle is not None and hasattr(handle, "set_sizes"):
                handle.set_sizes([36])
    return chosen
