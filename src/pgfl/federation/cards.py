"""How a graph and a federation show themselves in a notebook."""

from __future__ import annotations

import numpy as np

from pgfl.drawing.networks import MOST_CLIENTS, DrawnNetwork, network_svg
from pgfl.drawing.pages import Drawn, Row, card, counted
from pgfl.drawing.plots import cluster_colour
from pgfl.federation.federation import Federation, summary_line
from pgfl.federation.graphs import Graph


def graph_drawing(graph: Graph) -> DrawnNetwork:
    """Return a graph, ready to be drawn; servers are named by their numbers."""
    return DrawnNetwork([str(server) for server in range(graph.size)], graph.edges)


def federation_drawing(federation: Federation) -> DrawnNetwork:
    """Return a federation, ready to be drawn."""
    return DrawnNetwork(
        federation.server_ids,
        federation.graph.edges,
        federation.client_ids if federation.size <= MOST_CLIENTS else (),
        federation.cluster_ids,
        federation.client_server,
        federation.client_cluster,
    )


def graph_card(graph: Graph) -> str:
    """Servers, edges and neighbours, with a picture."""
    degrees = graph.degrees
    rows = [
        Row("servers", [f"{graph.size:,}"]),
        Row("edges", [f"{len(graph.edges):,}"]),
        Row("neighbours, least", [f"{degrees.min()}"]),
        Row("neighbours, average", [f"{degrees.mean():.3g}"]),
        Row("neighbours, most", [f"{degrees.max()}"]),
        Row("connected", ["yes" if graph.connected else f"no: {counted(graph.components.max() + 1, 'part')}"]),
    ]
    return card("Graph", rows=rows, columns=[""], pictures=_pictures(graph_drawing(graph)))


def federation_card(federation: Federation) -> str:
    """Return what every cluster has, with a picture of the network."""
    rows = [_cluster_row(federation, cluster) for cluster in range(len(federation.cluster_ids))]
    columns = ["clients", "servers", "rows", *(["test rows"] if federation.tests else [])]
    pictures = _pictures(federation_drawing(federation))
    return card("Federation", words=[summary_line(federation) + "."], rows=rows, columns=columns, pictures=pictures)


def _cluster_row(federation: Federation, cluster: int) -> Row:
    members = federation.client_cluster == cluster
    name = federation.cluster_ids[cluster]
    figures = [int(members.sum()), len(np.unique(federation.client_server[members])), federation.counts[members].sum()]
    if federation.tests:
        figures.append(len(federation.tests[name].targets) if name in federation.tests else 0)
    return Row(name, [f"{figure:,}" for figure in figures], cluster_colour(cluster))


def _pictures(network: DrawnNetwork) -> list[Drawn]:
    svg = network_svg(network)
    return [] if svg is None else [Drawn(svg)]
