"""The cards of the Play view: curve, network, plane, privacy, and the paper's claims."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from nicegui import ui
from nicegui.events import GenericEventArguments

from pgfl.config import Config
from pgfl.lab.paper.judging import standing
from pgfl.studio import charts, network_charts
from pgfl.studio import workers as epsilon_sweep
from pgfl.studio.charts import Task
from pgfl.studio.charts import plane as drawn_plane
from pgfl.studio.control_panel import Moved, SliderField
from pgfl.studio.controls import DIGITS_EPSILON
from pgfl.studio.figure_presets import ClaimShown, Figure
from pgfl.studio.shell import (
    Look,
    Promise,
    button,
    card,
    chart,
    note,
    redraw,
    redraw_curves,
    save_button,
    set_ends,
    table_html,
)
from pgfl.studio.workers import Network, Plane, Played, ServerDetail

ENGINES = {"numpy": "NumPy", "numba": "Numba"}


@dataclass
class Curves:
    """Everything that is drawn in the picture of the curve."""

    rounds: int
    now: Played | None = None
    before: Played | None = None
    preview: Played | None = None
    comparisons: dict[str, Played] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # what cannot be compared, and why

    def take(self, played: Played) -> None:
        """A new exact curve; the one until now becomes the ghost, where it measures the same and differs."""
        if self.now is not None and self.now.metric != played.metric:
            self.before = None
        elif self.now is not None and self.now.curve != played.curve:
            self.before = self.now
        self.now, self.preview = played, None

    def forget(self) -> None:
        """Another preset: nothing until now can be compared with it."""
        self.before, self.comparisons, self.missing = None, {}, {}


class CurveCard:
    """The card of the learning curve."""

    def __init__(self, look: Look, rounds: int) -> None:
        self.look, self.curves = look, Curves(rounds)
        with card("Learning curve") as head:
            self.figures = ui.html("", sanitize=False).classes("figures").props('aria-live="polite"')
            with ui.element("div") as self.box:
                options = charts.curves(None, look.colours, rounds=rounds)
                self.chart = chart(options, "Error of the models against the round").props('data-chart="curve"')
            save_button(head, self.chart, "learning-curve", look)
            self.missing = note("").props('id="not-compared"')
            self.verdict = ui.label().classes("verdict").props('id="play-verdict"')

    def busy(self, waits: bool) -> None:
        """Pale while the exact curve is on its way. The chart's own classes would send all its data again."""
        self.box.classes(add="busy") if waits else self.box.classes(remove="busy")

    def draw(self, name: str, *, whole: bool = False) -> None:
        """Draw the curves; `whole` draws the axes again, too, as a change of colours needs."""
        shown = self.curves
        metric = shown.now.metric if shown.now else None
        same = {key: one for key, one in shown.comparisons.items() if metric in (None, one.metric)}
        options = charts.curves(
            shown.now, self.look.colours, rounds=shown.rounds, before=shown.before, comparisons=same,
            preview=shown.preview, name=name,
        )  # fmt: skip
        (redraw if whole else redraw_curves)(self.chart, options)
        self.missing.text = " ".join(f"{key} is not shown: {why}" for key, why in shown.missing.items())

    def write(self, *, guaranteed: bool) -> None:
        """The figures above the picture, and the verdict below it."""
        self.figures.content = self._figures(guaranteed=guaranteed)
        now = self.curves.now
        self.verdict.text = (now.verdict or "") if now else ""
        self.verdict.classes(remove="good bad mixed", add=now.tone if now else "")
        self.verdict.set_visibility(bool(self.verdict.text))

    def _figures(self, *, guaranteed: bool) -> str:
        now, before = self.curves.now, self.curves.before
        if now is None:
            return "training …"
        value = charts.shown_value(now.metric, now.final)
        earlier = charts.shown_value(before.metric, before.final) if before else None
        parts = []
        if value is not None:
            parts.append(f"final {charts.axis_name(now.metric)} <b id='final-value'>{value:.2f}</b>")
            parts += [] if earlier is None else [f"before <b>{earlier:.2f}</b>"]
        if now.epsilon is not None and guaranteed:
            parts.append(f"worst client’s ε <b>{now.epsilon:.3g}</b>")
        parts.append(f"trained in <b>{1000 * now.seconds:.0f} ms</b> with {ENGINES.get(now.engine, now.engine)}")
        return "".join(f"<span>{part}</span>" for part in parts)


EXPLAINED = (
    "A server averages the models of its own clients and exchanges them with the servers it is linked to; no server "
    "sees all. A cluster, one colour and shape, is a group of clients that share a model, at whichever servers."
)
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
            note(EXPLAINED)
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


SECONDS_PER_FRAME = 0.12
LEGEND = "Large: the mean over servers. Small: each server’s own model."
TRUTH = " Crosses: the truth."


NEARLY_ONE = 0.25


def told_apart(plane: Plane) -> str:
    """Return a sentence where the clusters' models hardly differ beside how their truths do; nothing otherwise."""
    if plane.truth is None or plane.clusters.shape[1] < 2:
        return ""
    models, truth = (float(np.linalg.norm(one - one.mean(axis=0))) for one in (plane.clusters[-1], plane.truth))
    if truth == 0.0 or models >= NEARLY_ONE * truth:
        return ""
    return (
        f" The clusters’ models are only {models / truth:.0%} as far apart as their truths: this is nearly one model "
        "for all. A smaller τ lets them differ more."
    ).replace("%", " %")


class PlaneCard:
    """A picture of the models after one round, a slider over the rounds, and a button that moves it."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.plane: Plane | None = None
        self.clusters: Sequence[str] = ()
        with card("Models of the clusters") as head:
            self.drawn = chart({"series": []}, "Cluster models in two dimensions").props('data-chart="plane"')
            save_button(head, self.drawn, "models", look)
            with ui.element("div").classes("tools").style("flex-wrap: nowrap"):
                self.start = button("", "play_arrow", self._toggle).props('aria-label="Play or pause"')
                self.bar = ui.slider(min=0, max=1, value=0, on_change=self._draw).props('aria-label="Shown round"')
                self.round = ui.label().style("white-space: nowrap; min-width: 78px")
            self.legend = note(LEGEND)
        self.timer = ui.timer(SECONDS_PER_FRAME, self._next, active=False)

    def show(self, plane: Plane | None, clusters: Sequence[str]) -> None:
        """Other models; the last round is shown."""
        self.plane, self.clusters = plane, clusters
        if plane is None:
            return
        self.legend.text = LEGEND + ("" if plane.truth is None else TRUTH + told_apart(plane))
        last = len(plane.rounds) - 1
        set_ends(self.bar, 0, last)
        moved = self.bar.value != last and not self.timer.active
        if moved:
            self.bar.value = last
        self._draw()

    def _draw(self) -> None:
        if self.plane is None:
            return
        place = min(int(self.bar.value or 0), len(self.plane.rounds) - 1)
        self.round.text = f"round {self.plane.rounds[place]}"
        redraw(self.drawn, drawn_plane(self.plane, self.clusters, self.look.colours, place))

    def _toggle(self) -> None:
        if self.plane is None:
            return
        starting = not self.timer.active
        if starting and int(self.bar.value) >= len(self.plane.rounds) - 1:
            self.bar.value = 0
        self._set(starting)

    def _next(self) -> None:
        if self.plane is None or int(self.bar.value) >= len(self.plane.rounds) - 1:
            self._set(False)
        else:
            self.bar.value = int(self.bar.value) + 1

    def replay(self) -> None:
        """Show the rounds from the first one on."""
        if self.plane is not None:
            self.bar.value = 0
            self._set(True)

    def _set(self, playing: bool) -> None:
        self.timer.active = playing
        self.start.props(f"icon={'pause' if playing else 'play_arrow'}")


class PrivacyCards:
    """Two pictures where there is a guarantee; where there is none, the reason."""

    def __init__(self, look: Look) -> None:
        self.look = look
        with ui.element("div") as self.reason_box, card("Privacy"):
            self.reason = note("")
        with ui.element("div") as self.sweep_box, card("What ε costs") as head:
            self.sweep = chart({"series": []}, "Final error against ε", small=True).props('data-chart="epsilon"')
            save_button(head, self.sweep, "error-against-epsilon", look)
            self.sweep_note = note("")
        with ui.element("div") as self.spent_box, card("What each client has spent") as head:
            self.spent = chart({"series": []}, "Spent ε of every client", small=True).props('data-chart="spent"')
            save_button(head, self.spent, "spent", look)
            self.promise = Promise()

    def show(self, config: Config, now: Played | None, at: Mapping[float, float]) -> None:
        """Draw both for a training, with the errors that are known at other ε."""
        why = epsilon_sweep.why_not(config)
        self.reason.text = why or ""
        self.reason_box.set_visibility(why is not None)
        for box in (self.sweep_box, self.spent_box):
            box.set_visibility(why is None)
        if why is not None or now is None:
            return
        self.show_sweep(now, at)
        self.promise.show(now.card)
        if now.network is not None:
            drawn = charts.spending(now, now.network.clusters, self.look.colours, config.privacy.epsilon)
            redraw(self.spent, drawn)

    def show_sweep(self, now: Played, at: Mapping[float, float]) -> None:
        """The error against ε, as far as it is known."""
        self.sweep_note.text = "computing …" if len(at) < len(epsilon_sweep.FACTORS) else ""
        if now.epsilon:
            points, here = {**at, now.epsilon: now.final}, (now.epsilon, now.final)
            redraw(self.sweep, charts.against_epsilon(points, here, now.metric, self.look.colours))


class ClaimsCard:
    """The claims of a figure beside what was measured."""

    def __init__(self) -> None:
        with ui.element("div").classes("wide") as self.box, card("What the paper claims, and what was measured"):
            self.claims = ui.html("", sanitize=False).classes("claims")
            note("Verdicts of `pgfl reproduce all` over many runs; the curve above is one run.")

    def show(self, figure: Figure | None) -> None:
        """The claims of a figure; hidden where the preset is none."""
        self.box.set_visibility(figure is not None)
        self.claims.content = "".join(_claim_html(claim) for claim in figure.claims) if figure else ""


class DigitsCard:
    """Learned weights as pictures, and test images with the model's answer."""

    def __init__(self, moved: Moved) -> None:
        with ui.element("div").classes("wide digits-box") as self.box, card("Digits"):
            note(
                "The learned weights of each cluster (red votes for the second group of digits, blue for the first), "
                "and test images with the model's answer."
            )
            self.epsilon = SliderField(DIGITS_EPSILON, moved)
            self.digits = ui.html("", sanitize=False)

    def show(self, tasks: Sequence[Task], now: Played) -> None:
        """The pictures of every cluster, and how many test images its model gets right."""
        drawn = (_task_html(task, now.by_cluster.get(task.cluster)) for task in tasks)
        self.digits.content = f'<div class="digits">{"".join(drawn)}</div>'


def _claim_html(claim: ClaimShown) -> str:
    found = standing(claim.verdict, claim.here)
    kind = {"holds": "holds", "holds at the drawn setting": "partly", "does not hold": "fails"}.get(found, "elsewhere")
    value = "" if claim.value is None else f": {claim.value:.3g} {claim.unit}".rstrip()
    bounds = "" if claim.low is None or claim.high is None else f" [{claim.low:.3g}, {claim.high:.3g}]"
    where = f" Where: {claim.where}." if claim.where else ""
    return (
        f'<div class="claim"><span class="tag {kind}">{html.escape(found)}</span>'
        f"<span>{html.escape(claim.claim)}</span>"
        f'<span class="note">{html.escape(claim.measured + value + bounds)}.{html.escape(where)}</span></div>'
    )


def _task_html(task: Task, accuracy: Sequence[float] | None) -> str:
    right = "" if not accuracy else f' <span class="note">{100 * accuracy[-1]:.1f} % of all test images right</span>'
    images = "".join(
        f'<figure class="{"" if one.right else "miss"}"><img src="{one.picture}" width="64" height="64" '
        f'alt="a test image labelled {html.escape(one.label)}"/>says {html.escape(one.predicted)}<br/>'
        f"{100 * one.probability:.0f} %</figure>"
        for one in task.samples
    )
    return (
        f'<div class="digit-task"><div><b>{html.escape(task.cluster)}</b>{right}</div><div class="pictures"><figure>'
        f'<img src="{task.weights}" width="96" height="96" alt="learned weights"/>weights</figure>'
        f"{images}</div></div>"
    )
