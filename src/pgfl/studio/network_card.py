"""The network of the Play view: servers, clients, and what a chosen server holds."""

from __future__ import annotations

import html

from nicegui import ui
from nicegui.events import GenericEventArguments

from pgfl.studio import network_charts
from pgfl.studio.played import Network, ServerDetail
from pgfl.studio.shell import Look, card, chart, redraw, save_button, table_html

HINT = '<div class="note">Click a server, or choose it below: its models, neighbours and clients.</div>'


class NetworkCard:
    """The picture of the network; a click on a server, or a choice from the list, shows the server's details."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.network: Network | None = None
        self.server: str | None = None
        with card("Network") as head:
            self.chart = chart({"series": []}, "Servers, their links and their clients").props('data-chart="network"')
            self.chart.on("componentClick", self._clicked, ["name"])  # `on_point_click` needs a value, which nodes lack
            save_button(head, self.chart, "network", look)
            self.detail = ui.html("", sanitize=False).props('id="server-detail" aria-live="polite"')
            self.servers = ui.select([], label="show a server", clearable=True).props("dense outlined options-dense")
            self.servers.on_value_change(lambda event: self._choose(event.value))

    def show(self, network: Network | None) -> None:
        """Draw a network; the chosen server stays chosen if it is still there."""
        self.network = network
        if network is None:
            return
        names = [server.name for server in network.servers]
        found = next((server for server in network.servers if server.name == self.server), None)
        self.servers.set_options(names, value=found.name if found else None)
        redraw(self.chart, network_charts.network(network, self.look.colours, self.server))
        self.detail.content = _detail(found) if found else HINT

    def _clicked(self, event: GenericEventArguments) -> None:
        """A click on a server, or on one of its clients; a click on a link or on the background changes nothing."""
        name = event.args.get("name")
        at = next((s.name for s in self._servers if name in (s.name, *(client[0] for client in s.clients))), None)
        if at is not None:
            self._choose(at)

    @property
    def _servers(self) -> tuple[ServerDetail, ...]:
        return self.network.servers if self.network else ()

    def _choose(self, name: str | None) -> None:
        if name != self.server and (name is None or name in {server.name for server in self._servers}):
            self.server = name
            self.show(self.network)


def _detail(server: ServerDetail) -> str:
    rows = []
    for name, norm, error in server.models:
        own = [records for _, cluster, records in server.clients if cluster == name]
        rows.append([name, len(own), sum(own), f"{norm:.3g}", "—" if error is None else f"{error:.1f}"])
    header = ["model of", "clients", "records", "‖w‖", "error [dB]"]
    who = ", ".join(f"{name} ({records})" for name, _, records in server.clients) or "none"
    return (
        f"<b>{html.escape(server.name)}</b> · neighbours: {html.escape(', '.join(server.neighbours)) or 'none'}"
        + table_html(header, rows, frozenset({1, 2, 3, 4}))
        + f'<div class="note">clients (records): {html.escape(who)}</div>'
    )
