"""The network itself: servers, edges, clients coloured by cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.federation import Federation
from pgfl.paper.experiments import Experiment, RegressionData
from pgfl.paper.items import Effort, Lookup
from pgfl.paper.outcome import Outcome
from pgfl.paper.plots import BLUE, GREEN, GREY, INK, RED, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLUSTERS = (BLUE, RED, GREEN)
REACH = 0.17


@dataclass(frozen=True, eq=False)
class Map:
    """Servers at places where edges are short; clients on a ring around their server."""

    federation: Federation
    size: tuple[float, float] = (4.6, 4.2)

    def draw(self, axes: Axes) -> None:
        """Edges below, servers numbered, clients as dots."""
        federation, places = self.federation, self._places()
        for a, b in federation.graph.edges:
            axes.plot(*places[[a, b]].T, color=GREY, linewidth=0.9, zorder=1)
        for server, (x, y) in enumerate(places):
            axes.plot(x, y, "s", color="white", markeredgecolor=INK, markersize=10, zorder=3)
            axes.annotate(str(server + 1), (x, y), ha="center", va="center", fontsize=7, zorder=4)
        rings = self._rings(places)
        for q, (name, colour) in enumerate(zip(federation.cluster_ids, CLUSTERS, strict=False)):
            mine = rings[federation.client_cluster == q]
            axes.plot(*mine.T, "o", color=colour, markersize=3.4, zorder=2, label=f"{name} ({len(mine)} clients)")
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=3)

    def rows(self) -> Iterator[Row]:
        """One row per client, then one row per edge."""
        federation = self.federation
        for k in range(federation.size):
            yield {
                "client": federation.client_ids[k],
                "server": federation.server_ids[federation.client_server[k]],
                "cluster": federation.cluster_ids[federation.client_cluster[k]],
                "records": federation.counts[k],
            }
        for a, b in federation.graph.edges:
            yield {"edge from": federation.server_ids[a], "edge to": federation.server_ids[b]}

    def _places(self) -> Floats:
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(range(len(self.federation.server_ids)))
        graph.add_edges_from(self.federation.graph.edges.tolist())
        placed = networkx.kamada_kawai_layout(graph)
        return np.array([placed[server] for server in graph])

    def _rings(self, places: Floats) -> Floats:
        federation, rings = self.federation, np.empty((self.federation.size, 2))
        for server, centre in enumerate(places):
            members = np.flatnonzero(federation.client_server == server)
            members = members[np.argsort(federation.client_cluster[members], kind="stable")]
            turn = 2.0 * np.pi * np.arange(len(members)) / max(len(members), 1)
            rings[members] = centre + REACH * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return rings


class Network:
    """The first run's network of the regression figures."""

    name = "network"
    title = "The network of Section V: ten servers, fifteen clients each, three clusters"

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Nothing is measured."""
        return {}

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """The picture of run 0."""
        federation = RegressionData().federation(0, 0)
        degree = float(federation.graph.degrees.mean())
        note = (
            f"Run 0 of every regression figure: average degree {degree:g}, {len(federation.features)} records in all, "
            f"{federation.counts.min()} to {federation.counts.max()} a client. Squares are servers, dots their clients."
        )
        return Outcome(self.name, self.title, [Map(federation)], (), [note])


NETWORK = Network()
