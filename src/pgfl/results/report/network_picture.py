"""The network of a result as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pgfl.drawing.colours import MOST_COLOURS, cluster_colour
from pgfl.drawing.network_layout import DrawnNetwork
from pgfl.drawing.network_svg import network_svg
from pgfl.results.result import Result

if TYPE_CHECKING:
    from markupsafe import Markup


class Legend(NamedTuple):
    """The colours of the first clusters, and how many more there are."""

    keys: list[tuple[str, str]]
    more: int


def drawn(result: Result) -> DrawnNetwork | None:
    """The network of run 0, ready to be drawn, where it was kept."""
    network = result.models[0].network
    if network is None:
        return None
    return DrawnNetwork(
        result.server_ids,
        network.edges,
        result.client_ids,
        result.cluster_ids,
        network.client_server,
        network.client_cluster,
    )


def picture(result: Result) -> Markup | None:
    """An inline SVG of run 0, or None where there is too much to see."""
    network = drawn(result)
    return None if network is None else network_svg(network)


def legend(result: Result) -> Legend:
    """Which colour is which cluster."""
    shown = result.cluster_ids[:MOST_COLOURS]
    return Legend([(cluster_colour(q), name) for q, name in enumerate(shown)], len(result.cluster_ids) - len(shown))
