"""Networks as pictures: servers, links, clients; of the demonstration network also who lives and who is gone."""

from __future__ import annotations

import html

import numpy as np

from pgfl.drawing.networks import DrawnNetwork
from pgfl.studio.charts import VERMILION, Options, Theme, cluster_colour, cluster_symbol, frame
from pgfl.studio.demo_network import NetworkNow
from pgfl.studio.workers import Network, ServerDetail


def network(drawn: Network, colours: Theme, chosen: str | None = None) -> Options:
    """Servers on their graph, clients around them in the colour and symbol of their cluster."""
    nodes: list[Options] = []
    for client, place, q, x, y, epsilon in drawn.clients:
        spent = "" if epsilon is None else f"<br/>spent ε = {epsilon:.3g}"
        where = html.escape(drawn.servers[place].name)
        nodes.append(
            {
                "name": client,
                "x": x,
                "y": y,
                "symbol": cluster_symbol(q),
                "symbolSize": 9,
                "category": q,
                "itemStyle": {"color": cluster_colour(q, colours)},
                "label": {"show": False},
                "tip": f"<b>{html.escape(client)}</b><br/>{html.escape(drawn.clusters[q])}, at {where}{spent}",
            }
        )
    for server in drawn.servers:
        held = "".join(
            f"<br/>{html.escape(name)}: ‖w‖ = {norm:.3g}" + ("" if error is None else f", error {error:.1f} dB")
            for name, norm, error in server.models[:8]
        )
        about = f"{len(server.clients)} clients, {len(server.neighbours)} neighbours"
        nodes.append(
            {
                "name": server.name,
                "x": server.x,
                "y": server.y,
                "symbol": "circle",
                "symbolSize": 26 if server.name == chosen else 20,
                "itemStyle": {
                    "color": colours.ink,
                    "borderColor": VERMILION if server.name == chosen else colours.surface,
                    "borderWidth": 3 if server.name == chosen else 2,
                },
                "label": {"show": True, "position": "inside", "color": colours.surface, "fontSize": 10,
                          "fontWeight": "bold", "formatter": _short(server.name)},
                "tip": f"<b>{html.escape(server.name)}</b><br/>{about}{held}",
            }
        )  # fmt: skip
    names = [server.name for server in drawn.servers]
    base = frame(colours, "", "")
    return {
        "animation": False,
        "textStyle": base["textStyle"],
        "tooltip": {
            **base["tooltip"],
            "trigger": "item",
            ":formatter": "p => p.data && p.data.tip ? p.data.tip : ''",
        },
        "legend": {
            **base["legend"],
            "itemWidth": 12,
            "itemHeight": 12,
            "left": "center",
            "data": [
                {"name": name, "icon": cluster_symbol(q), "itemStyle": {"color": cluster_colour(q, colours)}}
                for q, name in enumerate(drawn.clusters)
            ],
        },
        "series": [
            {
                "type": "graph",
                "layout": "none",
                "preserveAspect": "contain",
                "roam": True,
                "scaleLimit": {"min": 0.7, "max": 6},
                "top": 52,
                "bottom": 26,
                "left": 26,
                "right": 26,
                "cursor": "pointer",
                "data": nodes,
                "links": [{"source": names[a], "target": names[b]} for a, b in drawn.edges],
                "lineStyle": {"color": colours.faint, "width": 1.4, "opacity": 0.7},
                "categories": [
                    {"name": name, "itemStyle": {"color": cluster_colour(q, colours)}}
                    for q, name in enumerate(drawn.clusters)
                ],
                "emphasis": {"focus": "none"},
            }
        ],
    }


def _short(name: str) -> str:
    head, _, tail = name.rpartition("-")
    return tail if head and tail.isdigit() else name[:3]


def demo_picture(now: NetworkNow, colours: Theme) -> Options:
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
    options = network(Network(servers, tuple(edges), tuple(clusters), clients), colours)
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
