"""The demonstration network as a picture: who lives, who is gone."""

from __future__ import annotations

import numpy as np

from pgfl.drawing.network_layout import DrawnNetwork
from pgfl.studio import charts
from pgfl.studio.demo_network import NetworkNow
from pgfl.studio.palette import Theme
from pgfl.studio.played import Network, ServerDetail


def demo_picture(now: NetworkNow, colours: Theme) -> charts.Options:
    """Sites and clients; a client that does not run is hollow and grey."""
    names = [site.name for site in now.sites]
    clusters = sorted({client.cluster for client in now.clients})
    edges = [(names.index(a), names.index(b)) for a, b in now.edges]
    placed = DrawnNetwork(
        names,
        np.array(edges, dtype=np.int64).reshape(-1, 2),
        [client.name for client in now.clients],
        clusters,
        np.array([names.index(client.site) for client in now.clients], dtype=np.int64),
        np.array([clusters.index(client.cluster) for client in now.clients], dtype=np.int64),
    )
    servers = tuple(
        ServerDetail(
            site.name, float(placed.servers[place, 0]), float(placed.servers[place, 1]), (),
            tuple((client.name, client.cluster, 0) for client in now.clients if client.site == site.name), (),
        )
        for place, site in enumerate(now.sites)
    )  # fmt: skip
    clients = tuple(
        (client.name, names.index(client.site), clusters.index(client.cluster), *placed.clients[place].tolist(),
         client.epsilon)
        for place, client in enumerate(now.clients)
    )  # fmt: skip
    options = charts.network(Network(servers, tuple(edges), tuple(clusters), clients), colours)
    alive = {client.name: client.alive for client in now.clients}
    for node in options["series"][0]["data"]:
        if node["name"] in alive:
            node["symbolSize"] = 16
            if not alive[node["name"]]:
                node["itemStyle"] = {"color": "transparent", "borderColor": colours.ghost, "borderWidth": 2}
                node["tip"] += "<br/>not running"
        else:
            node["symbolSize"] = 30
    return options
