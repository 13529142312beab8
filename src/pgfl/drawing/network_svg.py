"""A network as an inline SVG: servers on their graph, clients around their server in the colour of their cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgfl.array_types import Floats
from pgfl.drawing.colours import cluster_colour
from pgfl.drawing.network_layout import SIZE, DrawnNetwork
from pgfl.drawing.page_templates import DRAWING
from pgfl.drawing.plot_svg import Dot

if TYPE_CHECKING:
    from markupsafe import Markup


def network_svg(network: DrawnNetwork) -> Markup | None:
    """The picture, or None where there is too much to see."""
    if network.too_large:
        return None
    places = network.servers
    return DRAWING.rendered(
        "network.svg.jinja",
        size=f"{SIZE:g}",
        edges=[_edge(places[a], places[b], network.server_radius) for a, b in network.edges],
        clients=_clients(network) if network.shows_clients else [],
        servers=[
            _dot(place, network.server_radius, f"{name}: {size} client{'' if size == 1 else 's'}" if size else name)
            for place, name, size in zip(places, network.server_ids, network.sizes.tolist(), strict=True)
        ],
    )


def _clients(network: DrawnNetwork) -> list[Dot]:
    dots = []
    for client, place in enumerate(network.clients):
        cluster, server = int(network.client_cluster[client]), int(network.client_server[client])
        title = f"{network.client_ids[client]}: {network.cluster_ids[cluster]}"
        dots.append(_dot(place, network.client_radius(server), title, cluster_colour(cluster)))
    return dots


def _edge(start: Floats, end: Floats, radius: float) -> list[str]:
    """The ends of an edge, at the rims of its servers: these are drawn as empty circles, on any background."""
    length = float(np.hypot(*(end - start)))
    inset = (end - start) * (min(radius / length, 0.5) if length else 0.0)
    return [f"{value:.1f}" for value in (*(start + inset), *(end - inset))]


def _dot(place: Floats, radius: float, title: str, colour: str = "") -> Dot:
    return Dot(f"{place[0]:.1f}", f"{place[1]:.1f}", f"{radius:.1f}", title, colour)
