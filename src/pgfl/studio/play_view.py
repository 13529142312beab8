"""Play: move a slider, see the training."""

from __future__ import annotations

import asyncio
import html
from collections import OrderedDict
from typing import Any

from nicegui import background_tasks, run, ui
from nicegui.client import Client

from pgfl.config import Config, to_toml
from pgfl.errors import PgflError
from pgfl.studio import charts, epsilon_sweep
from pgfl.studio.control_panel import ChoiceField, SliderField
from pgfl.studio.controls import CHOICES, EPSILON, SLIDERS, TRUST_CHOICE, Choice, Slider, choose, owner_of
from pgfl.studio.figure_presets import ClaimShown
from pgfl.studio.pictures import Task, tasks
from pgfl.studio.plane_card import PlaneCard
from pgfl.studio.play_state import PlayState, beside, choices, figure_of, preview_of
from pgfl.studio.played import Played
from pgfl.studio.python_text import python_text
from pgfl.studio.shell import Look, button, card, chart, note, redraw, replace_address, save_button, show_text
from pgfl.studio.workers import NewestOnly, Workers

USUAL_EPSILON = 8.0
REMEMBERED = 64
CURVE_FIRST = 0.05  # seconds until the other pictures follow the curve


class PlayView:
    """One page of the Play view: its state, its cards, and the trainings that it waits for."""

    def __init__(self, workers: Workers, look: Look, state: PlayState, client: Client, problem: str | None) -> None:
        self.workers, self.look, self.state, self.client = workers, look, state, client
        self.page, self.previews = workers.page(), NewestOnly()
        self.now: Played | None = None
        self.before: Played | None = None
        self.preview: Played | None = None
        self.beside: dict[str, Played] = {}
        self.sweep: dict[float, float] = {}
        self.server: str | None = None
        self.rounds = state.config().rounds
        self._known: OrderedDict[str, Played] = OrderedDict()
        self._controls()
        with ui.element("div").classes("studio-pictures"):
            with ui.element("div").classes("rows"):
                self._curve_card()
                self.plane = PlaneCard(look)
            with ui.element("div").classes("rows"):
                self._network_card()
                self._privacy_cards()
            self._digits_card()
            self._claims_card()
        self._show_controls()
        self._draw_all()
        if problem:
            self.problem.text = problem
        look.on_change(self._draw_all)
        client.on_connect(lambda: self.refresh(final=True))
        client.on_delete(lambda: workers.supersede(self.page))

    # the cards --------------------------------------------------------------------------------------------------------

    def _controls(self) -> None:
        with ui.element("section").classes("card controls").props('aria-label="Settings"'):
            self.preset = ui.select(choices(), label="preset", value=self.state.preset).props(
                "dense outlined options-dense"
            )
            self.preset.on_value_change(self._preset_chosen)
            self.fields: dict[str, SliderField | ChoiceField] = {}
            for choice in CHOICES[:1]:
                self.fields[choice.name] = ChoiceField(choice, self._chosen)
            for slider in SLIDERS:
                self.fields[slider.name] = SliderField(slider, self._moved)
            self.private = ui.switch("privacy", on_change=self._privacy_switched).props("dense")
            self.fields[EPSILON.name] = SliderField(EPSILON, self._moved)
            for choice in (TRUST_CHOICE, *CHOICES[1:]):
                self.fields[choice.name] = ChoiceField(choice, self._chosen)
            self.problem = ui.label().classes("wrong").props('role="alert"')
            with ui.element("div").classes("tools"):
                button("New draw", "casino", self._new_draw).tooltip("Other data, network and noise: the next seed")
                button("Reset", "restart_alt", lambda: self._go(PlayState(self.state.preset)))
                button("config.toml", "content_copy", self._copy_toml).tooltip("Copy as config.toml")
                button("Python", "content_copy", self._copy_python).tooltip("Copy as Python")

    def _curve_card(self) -> None:
        with card("Learning curve") as head:
            self.figures = ui.html("", sanitize=False).classes("figures").props('aria-live="polite"')
            options = charts.curves(None, self.look.colours, rounds=self.rounds)
            self.curve = chart(options, "Error of the models against the round").props('data-chart="curve"')
            save_button(head, self.curve, "learning-curve", self.look)
            self.verdict = note("")

    def _network_card(self) -> None:
        with card("Network") as head:
            self.network = chart(
                {"series": []}, "Servers, their links and their clients", on_point_click=self._server_clicked
            ).props('data-chart="network"')
            save_button(head, self.network, "network", self.look)
            self.detail = ui.html("", sanitize=False)
            self.servers = ui.select([], label="show a server", clearable=True).props("dense outlined options-dense")
            self.servers.on_value_change(lambda event: self._choose_server(event.value))

    def _privacy_cards(self) -> None:
        with ui.element("div") as self.public_box, card("Privacy"):
            self.privacy_note = note("")
        with ui.element("div") as self.sweep_box, card("Error against ε") as head:
            self.sweep_chart = chart({"series": []}, "Final error against ε", small=True)
            self.sweep_chart.props('data-chart="epsilon"')
            save_button(head, self.sweep_chart, "error-against-epsilon", self.look)
            self.sweep_note = note("")
        with ui.element("div") as self.spent_box, card("What each client has spent") as head:
            self.spent_chart = chart({"series": []}, "Spent ε of every client", small=True)
            self.spent_chart.props('data-chart="spent"')
            save_button(head, self.spent_chart, "spent", self.look)
            self.spent_note = note("")

    def _claims_card(self) -> None:
        with ui.element("div").classes("wide") as self.claims_box, card("What the paper claims, and what was measured"):
            self.claims = ui.html("", sanitize=False).classes("claims")
            note("Verdicts of `pgfl reproduce all` over many runs; the curve above is one run.")

    def _digits_card(self) -> None:
        with ui.element("div").classes("wide") as self.digits_box, card("Digits"):
            note(
                "The learned weights of each cluster (red votes for the second group of digits, blue for the first), "
                "and test images with the model's answer."
            )
            self.digits = ui.html("", sanitize=False)

    # what a user does -------------------------------------------------------------------------------------------------

    def _moved(self, slider: Slider, value: float, final: bool) -> Any:
        state = slider.write(self.state, self._config_or_last(), value)
        if self._accept(state, from_control=slider.name):
            if final:
                self.fields[slider.name].show(self.state.config())
            return background_tasks.create(self.refresh(final=final))

    def _chosen(self, choice: Choice, value: str) -> None:
        if self._accept(choose(self.state, choice, value), from_control=choice.name):
            self._show_controls()
            background_tasks.create(self.refresh(final=True))

    def _preset_chosen(self) -> None:
        if self.preset.value != self.state.preset:
            self._go(PlayState(str(self.preset.value)))

    def _privacy_switched(self) -> None:
        config = self._config_or_last()
        if bool(self.private.value) != config.privacy.enabled:
            wanted = bool(self.private.value)
            self._go(self.state.with_privacy(USUAL_EPSILON) if wanted else self.state.without_privacy())

    def _new_draw(self) -> None:
        self._go(self.state.changed("seed", self._config_or_last().seed + 1))

    def _go(self, state: PlayState) -> None:
        if state.preset != self.state.preset:
            self.before, self.beside, self.sweep, self.server = None, {}, {}, None
        if self._accept(state, from_control=None):
            self._show_controls()
            background_tasks.create(self.refresh(final=True))

    def _accept(self, state: PlayState, *, from_control: str | None) -> bool:
        """Take a state over if it is valid; else say what is wrong beside the control that it is about."""
        for field in self.fields.values():
            field.wrong("")
        self.problem.text = ""
        try:
            self.rounds = state.config().rounds
        except PgflError as error:
            name = owner_of(str(error)) or from_control
            if name in self.fields:
                self.fields[name].wrong(str(error))
            else:
                self.problem.text = str(error)
            return False
        self.state = state
        return True

    def _config_or_last(self) -> Config:
        return self.state.config()

    def _show_controls(self) -> None:
        config = self.state.config()
        self.preset.value = self.state.preset
        for field in self.fields.values():
            field.show(config)
        self.private.value = config.privacy.enabled
        self._show_claims()

    # training and drawing ---------------------------------------------------------------------------------------------

    async def refresh(self, *, final: bool) -> None:
        """Train as the controls say: a preview of the newest setting while they move, everything once they rest."""
        if not final:
            number = self.workers.current(self.page)
            await self.previews.ask(lambda: self._preview(number))
            return
        number, config = self.workers.supersede(self.page), self.state.config()
        with self.client:
            replace_address(self.state.address())
            self.curve.classes(add="busy")
        played = await self._play(number, config, details=True)
        if played is None or number != self.workers.current(self.page):
            return
        with self.client:
            self._take(played)
        background_tasks.create(self._compare(number, config))

    async def _preview(self, number: int) -> None:
        played = await self._play(number, preview_of(self.state.config()), details=False)
        if played is not None and number == self.workers.current(self.page):
            self.preview = played
            with self.client:
                self._draw_curve()

    def _take(self, played: Played) -> None:
        if self.now is not None and self.now.metric == played.metric and self.now.curve != played.curve:
            self.before = self.now
        elif self.now is not None and self.now.metric != played.metric:
            self.before = None
        self.now, self.preview, self.sweep = played, None, {}
        self.curve.classes(remove="busy")
        config, epsilon = self.state.config(), self.fields[EPSILON.name]
        follows = config.privacy.epsilon is None and epsilon_sweep.why_not(config) is None
        if isinstance(epsilon, SliderField) and follows and played.epsilon is not None:
            epsilon.stand_at(float(f"{played.epsilon:.3g}"), config)
        self._draw_curve()

    async def _compare(self, number: int, config: Config) -> None:
        """FedAvg and no inter-server beside the curve, then the error at other ε, as they come."""
        await asyncio.sleep(CURVE_FIRST)
        with self.client:
            self._draw_all()
        wanted = beside(config)
        self.beside = {name: played for name, played in self.beside.items() if name in wanted}

        async def one(name: str, other: Config) -> None:
            played = await self._play(number, other, details=False)
            if played is not None and number == self.workers.current(self.page):
                self.beside[name] = played
                with self.client:
                    self._draw_curve()

        async def at(other: Config) -> None:
            played = await self._play(number, other, details=False)
            if played is not None and played.epsilon and number == self.workers.current(self.page):
                self.sweep[played.epsilon] = played.final
                with self.client:
                    self._draw_sweep()

        if self.now is not None and self.now.models:
            shown = await run.io_bound(tasks, config, self.now.models) or []
            with self.client:
                self.digits.content = _digits_html(shown)
        await asyncio.gather(*(one(name, other) for name, other in wanted.items()))
        if number == self.workers.current(self.page):
            await asyncio.gather(*(at(other) for other in epsilon_sweep.levels(config)))

    async def _play(self, number: int, config: Config, *, details: bool) -> Played | None:
        """A training, remembered by everything that it depends on; what goes wrong is shown."""
        key = f"{details}\n{to_toml(config)}"
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        try:
            played = await self.workers.play(self.page, number, config, details=details)
        except PgflError as error:
            if details and number == self.workers.current(self.page):
                with self.client:
                    self.problem.text = str(error)
                    self.curve.classes(remove="busy")
            return None
        if played is not None:
            self._known[key] = played
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return played

    def _draw_all(self) -> None:
        self._draw_curve()
        self._draw_network()
        self._draw_sweep()
        self._draw_spent()
        if self.now is not None and self.now.network is not None:
            self.plane.show(self.now.plane, self.now.network.clusters)
        self.digits_box.set_visibility(bool(self.now and self.now.models))

    def _draw_curve(self) -> None:
        name = self.fields["algorithm"].choice.options(self.state.config())[self.state.config().algorithm.kind]  # type: ignore[union-attr]
        same = {key: one for key, one in self.beside.items() if self.now is None or one.metric == self.now.metric}
        redraw(
            self.curve,
            charts.curves(
                self.now,
                self.look.colours,
                rounds=self.rounds,
                before=self.before,
                beside=same,
                preview=self.preview,
                name=name,
            ),
        )
        self.figures.content = self._figures()
        self.verdict.text = (self.now.verdict or "") if self.now else ""

    def _figures(self) -> str:
        if self.now is None:
            return "training …"
        value = charts.shown_value(self.now.metric, self.now.final)
        parts = [f"final {charts.axis_name(self.now.metric)} <b id='final-value'>{value:.2f}</b>" if value else ""]
        before = charts.shown_value(self.before.metric, self.before.final) if self.before else None
        if value is not None and before is not None:
            parts.append(f"before <b>{before:.2f}</b>")
        if self.now.epsilon is not None and epsilon_sweep.why_not(self.state.config()) is None:
            parts.append(f"worst client’s ε <b>{self.now.epsilon:.3g}</b>")
        parts.append(f"trained in <b>{1000 * self.now.seconds:.0f} ms</b>")
        return "".join(f"<span>{part}</span>" for part in parts if part)

    def _draw_network(self) -> None:
        if self.now is None or self.now.network is None:
            return
        drawn = self.now.network
        names = [server.name for server in drawn.servers]
        self.servers.set_options(names, value=self.server if self.server in names else None)
        redraw(self.network, charts.network(drawn, self.look.colours, self.server))
        found = next((server for server in drawn.servers if server.name == self.server), None)
        if found is None:
            self.detail.content = (
                '<div class="note">Click a server, or choose it below: its models, neighbours and clients.</div>'
            )
            return
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td class='number'>{sum(c[1] == name for c in found.clients)}</td>"
            f"<td class='number'>{sum(c[2] for c in found.clients if c[1] == name)}</td>"
            f"<td class='number'>{norm:.3g}</td><td class='number'>{'—' if error is None else f'{error:.1f}'}</td></tr>"
            for name, norm, error in found.models
        )
        self.detail.content = (
            f"<b>{html.escape(found.name)}</b> · neighbours: {html.escape(', '.join(found.neighbours)) or 'none'}"
            "<table class='plain'><thead><tr><th>model of</th><th class='number'>clients</th>"
            "<th class='number'>records</th><th class='number'>‖w‖</th><th class='number'>error [dB]</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )

    def _server_clicked(self, event: Any) -> None:
        self._choose_server(event.name)

    def _choose_server(self, name: str | None) -> None:
        known = {server.name for server in self.now.network.servers} if self.now and self.now.network else set()
        if name is None or name in known:
            self.server = name
            self._draw_network()

    def _draw_sweep(self) -> None:
        why = epsilon_sweep.why_not(self.state.config())
        self.sweep_note.text = "computing …" if len(self.sweep) < len(epsilon_sweep.FACTORS) else ""
        self.privacy_note.text = why or ""
        self.public_box.set_visibility(why is not None)
        self.sweep_box.set_visibility(why is None)
        if why is None and self.now is not None and self.now.epsilon:
            points = {**self.sweep, self.now.epsilon: self.now.final}
            at = (self.now.epsilon, self.now.final)
            redraw(self.sweep_chart, charts.against_epsilon(points, at, self.now.metric, self.look.colours))

    def _draw_spent(self) -> None:
        why = epsilon_sweep.why_not(self.state.config())
        self.spent_box.set_visibility(why is None)
        self.spent_note.text = (self.now.guarantee or "") if self.now else ""
        if why is None and self.now is not None and self.now.network is not None:
            budget = self.state.config().privacy.epsilon
            drawn = charts.spending(self.now, self.now.network.clusters, self.look.colours, budget)
            redraw(self.spent_chart, drawn)

    def _show_claims(self) -> None:
        figure = figure_of(self.state.preset)
        self.claims_box.set_visibility(figure is not None)
        self.claims.content = "".join(_claim_html(claim) for claim in figure.claims) if figure else ""

    # copies -----------------------------------------------------------------------------------------------------------

    def _copy_toml(self) -> None:
        show_text("config.toml", to_toml(self.state.config()))

    def _copy_python(self) -> None:
        show_text("Python", python_text(self.state.config()))


def _claim_html(claim: ClaimShown) -> str:
    kind = {"holds": "holds", "does not hold": "fails"}.get(claim.verdict, "partly")
    value = "" if claim.value is None else f": {claim.value:.3g} {claim.unit}".rstrip()
    bounds = "" if claim.low is None or claim.high is None else f" [{claim.low:.3g}, {claim.high:.3g}]"
    where = f" Where: {claim.where}." if claim.where else ""
    return (
        f'<div class="claim"><span class="tag {kind}">{html.escape(claim.verdict)}</span>'
        f"<span>{html.escape(claim.claim)}</span>"
        f'<span class="note">{html.escape(claim.measured + value + bounds)}.{html.escape(where)}</span></div>'
    )


def _digits_html(shown: list[Task]) -> str:
    parts = []
    for task in shown:
        images = "".join(
            f'<figure class="{"" if one.right else "miss"}"><img src="{one.picture}" width="64" height="64" '
            f'alt="a test image labelled {html.escape(one.label)}"/>says {html.escape(one.predicted)}<br/>'
            f"{100 * one.probability:.0f} %</figure>"
            for one in task.samples
        )
        parts.append(
            f'<div class="digit-task"><b>{html.escape(task.cluster)}</b><div class="pictures"><figure>'
            f'<img src="{task.weights}" width="96" height="96" alt="learned weights"/>weights</figure>'
            f"{images}</div></div>"
        )
    return f'<div class="digits">{"".join(parts)}</div>'
