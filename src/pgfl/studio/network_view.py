"""Network: a site's live state, and a demonstration network whose clients can be killed and brought back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from nicegui import run, ui

from pgfl.errors import PgflError
from pgfl.studio import charts
from pgfl.studio.demo_network import DemoNetwork, NetworkNow
from pgfl.studio.network_charts import demo_picture
from pgfl.studio.shell import (
    Look,
    button,
    card,
    chart,
    note,
    redraw,
    replace_address,
    save_button,
    show_text,
    table_html,
)

BETWEEN_LOOKS = 1.0  # seconds
MOST = 6
LEARNED = (
    "The data are made up, so the true models are known: 0 dB is the error of models of zero, lower is better. No site "
    "of a real network can draw this curve: it sees only the disagreement below."
)


class NetworkView:
    """One page of the Network view."""

    def __init__(self, demo: DemoNetwork, look: Look, site: str) -> None:
        self.demo, self.look, self.site = demo, look, site
        self._seen: Any = None
        self._demo_cards()
        self._site_card()
        look.on_change(lambda: self._draw(force=True))
        self._draw(force=True)
        ui.timer(BETWEEN_LOOKS, self._tick)

    def _demo_cards(self) -> None:
        with card("A network on this machine", "wide") as head:
            with head:
                button("command", "content_copy", self._copy_command).tooltip("Copy as a command for a terminal")
            note(
                "Sites in a line with their clients: real processes with TLS, keys and ledgers, on made-up data. Kill "
                "a client and see the others go on; bring it back, and it has the budget that is left."
            )
            with ui.element("div").classes("tools"):
                self.sizes = [
                    ui.number(label=label, value=value, min=1, max=MOST, precision=0)
                    .props("dense outlined")
                    .style("width: 120px")
                    for label, value in (("sites", self.demo.sites), ("clients per site", self.demo.clients))
                ]
                self.start = ui.button("Start", icon="play_arrow", on_click=self._start).props("no-caps unelevated")
                self.stop = ui.button("Stop", icon="stop", on_click=self._stop).props("no-caps outline")
                self.state = ui.label().props('aria-live="polite" id="demo-state"')
            self.wrong = ui.label().classes("wrong").props('role="alert"')
        with ui.element("div").classes("wide studio-page studio-two").style("padding: 0") as self.pictures:
            with card("Sites and clients") as head:
                self.picture = chart({"series": []}, "Sites, links and clients").props('data-chart="demo"')
                save_button(head, self.picture, "network", self.look)
                self.clients = ui.element("div").classes("rows").style("gap: 2px")
            with card("What the sites have learned") as head:
                self.errors = chart({"series": []}, "Error of every site's models against the round")
                self.errors.props('data-chart="errors"')
                save_button(head, self.errors, "errors", self.look)
                note(LEARNED)
            with card("How far sites disagree", "wide") as head:
                self.disagreement = chart({"series": []}, "Disagreement of every site against the round")
                self.disagreement.props('data-chart="disagreement"')
                save_button(head, self.disagreement, "disagreement", self.look)
                self.sites = ui.html("", sanitize=False).classes("scroll")

    def _copy_command(self) -> None:
        sites, clients = (int(field.value or 1) for field in self.sizes)
        show_text("command", f"pgfl network demo --sites {sites} --clients {clients} --rounds {self.demo.now.rounds}")

    def _site_card(self) -> None:
        with card("Monitor a site", "wide") as head:
            with head:
                button("site.toml", "content_copy", self._copy_settings).tooltip("Copy the site's settings")
            note(
                "The live state of a site on this machine, as `pgfl site status` prints it. Remaining ε is shown for "
                "clients that share it."
            )
            with ui.element("div").classes("tools"):
                self.home = ui.input(label="Site folder", value=self.site).props("dense outlined")
                self.home.style("width: 420px").on("keydown.enter", self._watch_site)
                button("Watch", "visibility", self._watch_site)
            self.site_wrong = ui.label().classes("wrong").props('role="alert"')
            self.status = ui.html("", sanitize=False)

    def _copy_settings(self) -> None:
        path = Path(self.site).expanduser() / "site.toml"
        if self.site and path.is_file():
            show_text("site.toml", path.read_text("utf-8"))
        else:
            self.site_wrong.text = "Watch a site first: the folder of a site has a site.toml."

    def _start(self) -> None:
        sites, clients = (int(min(max(field.value or 1, 1), MOST)) for field in self.sizes)
        self.demo.start(sites, clients)
        self._draw(force=True)

    async def _stop(self) -> None:
        await run.io_bound(self.demo.stop)
        self._draw(force=True)

    async def _tick(self) -> None:
        self._draw()
        if self.site:
            await self._show_site()

    async def _watch_site(self) -> None:
        self.site = str(self.home.value or "")
        replace_address("/network" + (f"?{urlencode({'site': self.site})}" if self.site else ""))
        await self._show_site()

    async def _show_site(self) -> None:
        try:
            from pgfl.network.site.status import status_of

            found = await run.io_bound(status_of, Path(self.site).expanduser())
        except (PgflError, OSError) as error:
            self.site_wrong.text, self.status.content = str(error), ""
            return
        self.site_wrong.text = ""
        content = status_html(found or {})
        if content != self.status.content:
            self.status.content = content

    def _draw(self, *, force: bool = False) -> None:
        now = self.demo.now
        if now == self._seen and not force:
            return
        before, self._seen = self._seen, now
        going = now.state in ("starting", "running")
        for field in (self.start, *self.sizes):
            field.set_visibility(not going)
        self.stop.set_visibility(going)
        self.pictures.set_visibility(bool(now.sites))
        self.state.text = _words(now)
        self.wrong.text = now.problem
        if not now.sites:
            return
        redraw(self.picture, demo_picture(now, self.look.colours))
        learned = self._lines("nmsd", {site.name: site.errors for site in now.sites})
        redraw(self.errors, charts.lines(learned, self.look.colours, "round n", charts.axis_name("nmsd")))
        apart = self._lines("disagreement", {site.name: site.history for site in now.sites})
        redraw(self.disagreement, charts.lines(apart, self.look.colours, "round n", "disagreement [dB]"))
        header = ["site", "round", "connected", "waits for", "went on without", "disagreement"]
        rows = [
            [
                site.name, site.round, f"{site.connected} of {site.clients}", ", ".join(site.waiting_for) or "—",
                ", ".join(site.late) or "—", "—" if site.disagreement is None else f"{site.disagreement:.2e}",
            ]
            for site in now.sites
        ]  # fmt: skip
        self.sites.content = table_html(header, rows, frozenset({1, 2, 5}))
        if force or before is None or before.clients != now.clients:
            self._draw_clients(now)

    def _lines(self, metric: str, values: Mapping[str, Sequence[tuple[int, float]]]) -> list[charts.Line]:
        """Return one curve per site."""
        colours = self.look.colours.clusters
        return [
            charts.Line(
                name, [float(number) for number, _ in points], [charts.shown_value(metric, y) for _, y in points],
                colours[place % len(colours)], 2.0, charts.LINES[place % 3],
            )
            for place, (name, points) in enumerate(values.items())
        ]  # fmt: skip

    def _draw_clients(self, now: NetworkNow) -> None:
        self.clients.clear()
        with self.clients:
            for one in now.clients:
                with ui.element("div").classes("tools").props(f'data-client="{one.name}"'):
                    left = one.budget - (one.epsilon or 0.0)
                    ui.label(one.name).style("min-width: 78px; font-weight: 500")
                    ui.label(f"{one.site}, {one.cluster}").classes("note").style("min-width: 130px")
                    spent = f"{one.releases} releases, ε left {left:.2f} of {one.budget:g}"
                    ui.label(spent).classes("note").style("min-width: 190px; font-variant-numeric: tabular-nums")
                    if now.state in ("starting", "running"):
                        if one.alive:
                            button("Kill", "bolt", partial(self.demo.kill, one.name)).props(
                                f'aria-label="Kill {one.name}"'
                            )
                        else:
                            button("Bring back", "replay", partial(self.demo.bring_back, one.name)).props(
                                f'aria-label="Bring back {one.name}"'
                            )


def _words(now: NetworkNow) -> str:
    if now.state == "off":
        return "not started"
    if now.state == "starting":
        return "starting: keys, certificates, sites, clients …"
    furthest = max((site.round for site in now.sites), default=0)
    return f"{'round' if now.state == 'running' else 'ended in round'} {furthest} of {now.rounds}"


def status_html(found: dict[str, Any]) -> str:
    """Return a site's status as tables."""
    last = found.get("last") or {}
    about: list[list[Any]] = [
        ["running", "yes" if found.get("running") else "no"],
        ["last round", found.get("round")],
        ["connected", ", ".join(found.get("connected", [])) or "—"],
        ["neighbours up", ", ".join(found.get("up", [])) or "—"],
        ["waits for", ", ".join(found.get("waiting_for", [])) or "—"],
        ["disagreement", f"{last['disagreement']:.2e}" if last.get("disagreement") is not None else "—"],
        ["refused", ", ".join(f"{key}: {count}" for key, count in found.get("refused", {}).items()) or "nothing"],
    ]
    clients = [
        [
            c["name"], c["cluster"], c["releases"], c["accepted"] or "—", c["trust"], _figure(c["epsilon"]),
            _figure(c["epsilon_left"]),
        ]
        for c in found.get("clients", [])
    ]  # fmt: skip
    links = [[n["name"], n["address"]] for n in found.get("neighbours", [])]
    return (
        table_html(["", ""], about)
        + table_html(
            ["client", "cluster", "releases", "last round", "trust", "ε spent here", "ε left"],
            clients,
            frozenset({2, 3, 5, 6}),
        )
        + table_html(["neighbour", "address"], links)
    )


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"
