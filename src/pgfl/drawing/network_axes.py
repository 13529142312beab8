"""A network drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgfl.drawing.colours import GREY, INK, cluster_colour
from pgfl.drawing.network_layout import SIZE, DrawnNetwork
from pgfl.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED_SERVERS = 30
INCHES = 5.0


def new_axes(width: float = INCHES, height: float = INCHES) -> Axes:
    """Axes of a new figure, which notebooks show by themselves."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


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
    if len(network.server_ids) <= MOST_NAMED_SERVERS:
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
