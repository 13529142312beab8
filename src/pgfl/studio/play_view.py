"""Play: move a slider, see the training."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from nicegui import background_tasks, run, ui
from nicegui.client import Client

from pgfl.config import Config, to_toml
from pgfl.errors import PgflError
from pgfl.studio import workers as epsilon_sweep
from pgfl.studio.charts import tasks
from pgfl.studio.control_panel import ChoiceField, SliderField
from pgfl.studio.controls import (
    CHOICES,
    DIGITS_EPSILON,
    EPSILON,
    SLIDERS,
    TRUST_CHOICE,
    Choice,
    Slider,
    choose,
    implied,
    owner_of,
)
from pgfl.studio.play_cards import ClaimsCard, CurveCard, DigitsCard, NetworkCard, PlaneCard, PrivacyCards
from pgfl.studio.play_state import PlayState, choices, comparison_configs, figure_of, preview_of
from pgfl.studio.python_text import python_text
from pgfl.studio.shell import Look, button, note, replace_address, show_text
from pgfl.studio.story import StoryCard
from pgfl.studio.workers import NewestOnly, Played, Workers

USUAL_EPSILON = 8.0
REMEMBERED = 64
CURVE_FIRST = 0.05  # seconds until the other pictures follow the curve


class PlayView:
    """One page of the Play view: its state, its cards, and the trainings that it waits for."""

    def __init__(self, workers: Workers, look: Look, state: PlayState, client: Client, problem: str | None) -> None:
        self.workers, self.look, self.state, self.client = workers, look, state, client
        self.page, self.previews = workers.page(), NewestOnly()
        self.sweep: dict[float, float] = {}
        self.replay = False
        self._known: OrderedDict[str, Played] = OrderedDict()
        self._controls()
        with ui.element("div").classes("studio-pictures"):
            self.story = StoryCard(self._tell)
            with ui.element("div").classes("rows"):
                self.curve = CurveCard(look, state.config().rounds)
                self.plane = PlaneCard(look)
            with ui.element("div").classes("rows"):
                self.network = NetworkCard(look)
                self.privacy = PrivacyCards(look)
            self.digits = DigitsCard(self._moved)
            self.claims = ClaimsCard()
        self.fields[DIGITS_EPSILON.name] = self.digits.epsilon
        self.curves = self.curve.curves
        self._show_controls()
        self._draw_all()
        if problem:
            self.problem.text = problem
        look.on_change(self._draw_all)
        client.on_connect(lambda: self.refresh(final=True))
        client.on_delete(lambda: workers.supersede(self.page))

    # the controls -----------------------------------------------------------------------------------------------------

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
            self.implied = note("").props('id="implied" aria-live="polite"')
            self.problem = ui.label().classes("wrong").props('role="alert"')
            with ui.element("div").classes("tools"):
                button("New draw", "casino", self._new_draw).tooltip("Other data, network and noise: the next seed")
                button("Reset", "restart_alt", lambda: self._go(PlayState(self.state.preset)))
                button("config.toml", "content_copy", self._copy_toml).tooltip("Copy as config.toml")
                button("Python", "content_copy", self._copy_python).tooltip("Copy as Python")

    # what a user does -------------------------------------------------------------------------------------------------

    def _moved(self, slider: Slider, value: float, final: bool) -> Any:
        state = slider.write(self.state, self._config_or_last(), value)
        if self._accept(state, from_control=slider.name):
            if final:
                both = (EPSILON.name, DIGITS_EPSILON.name)
                for name in both if slider.name in both else (slider.name,):
                    self.fields[name].show(self.state.config())
            return background_tasks.create(self.refresh(final=final))

    def _chosen(self, choice: Choice, value: str) -> None:
        before = self._config_or_last()
        if self._accept(choose(self.state, choice, value), from_control=choice.name):
            self.implied.text = implied(before, self.state.config(), choice.name)
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
            self.implied.text = implied(config, self.state.config(), "privacy")

    def _tell(self, state: PlayState) -> None:
        """Play a step of the story, and show how its models move."""
        self.replay = True
        self._go(state)

    def _new_draw(self) -> None:
        self._go(self.state.changed("seed", self._config_or_last().seed + 1))

    def _go(self, state: PlayState) -> None:
        if state.preset != self.state.preset:
            self.curves.forget()
            self.sweep, self.network.server = {}, None
        if self._accept(state, from_control=None):
            self._show_controls()
            background_tasks.create(self.refresh(final=True))

    def _accept(self, state: PlayState, *, from_control: str | None) -> bool:
        """Take a state over if it is valid; else say what is wrong beside the control that it is about."""
        for field in self.fields.values():
            field.wrong("")
        self.problem.text = ""
        try:
            self.curves.rounds = state.config().rounds
        except PgflError as error:
            name = owner_of(str(error)) or from_control
            if name in self.fields:
                self.fields[name].wrong(str(error))
            else:
                self.problem.text = str(error)
            return False
        self.state, self.implied.text = state, ""
        self._compare_with_known()
        return True

    def _compare_with_known(self) -> None:
        """Keep of the comparisons those that belong to these very settings; the others would mislead."""
        wanted = comparison_configs(self.state.config())
        known = {name: self._known.get(_key(other, details=False)) for name, other in wanted.items()}
        self.curves.comparisons = {name: played for name, played in known.items() if played is not None}
        self.curves.missing = {}

    def _config_or_last(self) -> Config:
        return self.state.config()

    def _show_controls(self) -> None:
        config = self.state.config()
        self.preset.value = self.state.preset
        for field in self.fields.values():
            field.show(config)
        self.private.value = config.privacy.enabled
        self.claims.show(figure_of(self.state.preset))
        self.story.show(self.state, None)

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
            self.curve.busy(True)
        played = await self._play(number, config, details=True)
        if played is None or number != self.workers.current(self.page):
            return
        self.curves.take(played)
        self.sweep = {}
        with self.client:
            self._draw_curve()
        background_tasks.create(self._follow(number, config))

    async def _preview(self, number: int) -> None:
        played = await self._play(number, preview_of(self.state.config()), details=False)
        if played is not None and number == self.workers.current(self.page):
            self.curves.preview = played
            with self.client:
                self._draw_curve()

    async def _follow(self, number: int, config: Config) -> None:
        """Everything but the curve, which is not kept waiting by changes of the page's other elements."""
        await asyncio.sleep(CURVE_FIRST)
        if number != self.workers.current(self.page):
            return
        with self.client:
            self.curve.busy(False)
            self._show_spent_epsilon(config)
            self._draw_rest()
        await self._compare(number, config)

    def _show_spent_epsilon(self, config: Config) -> None:
        """Where a schedule is stated in the place of an ε, the slider of ε stands where the schedule leads."""
        now, epsilon = self.curves.now, self.fields[EPSILON.name]
        follows = config.privacy.epsilon is None and epsilon_sweep.why_not(config) is None
        if isinstance(epsilon, SliderField) and follows and now is not None and now.epsilon is not None:
            epsilon.stand_at(float(f"{now.epsilon:.3g}"), config)

    async def _compare(self, number: int, config: Config) -> None:
        """Compute the comparison curves, then the error at other ε, and show each when it is ready."""
        wanted, now = comparison_configs(config), self.curves.now

        async def one(name: str, other: Config) -> None:
            try:
                played = await self._train(number, other, details=False)
            except PgflError as error:
                if number == self.workers.current(self.page):
                    self.curves.missing[name] = str(error)
                    with self.client:
                        self._draw_curve()
                return
            if played is not None and number == self.workers.current(self.page):
                self.curves.comparisons[name] = played
                with self.client:
                    self._draw_curve()

        async def at(other: Config) -> None:
            played = await self._play(number, other, details=False)
            if played is not None and played.epsilon and now is not None and number == self.workers.current(self.page):
                self.sweep[played.epsilon] = played.final
                with self.client:
                    self.privacy.show_sweep(now, self.sweep)

        if now is not None and now.models:
            shown = await run.io_bound(tasks, config, now.models) or []
            with self.client:
                self.digits.show(shown, now)
        await asyncio.gather(*(one(name, other) for name, other in wanted.items()))
        if number == self.workers.current(self.page):
            await asyncio.gather(*(at(other) for other in epsilon_sweep.levels(config)))

    async def _play(self, number: int, config: Config, *, details: bool) -> Played | None:
        """Return a training; what goes wrong is shown."""
        try:
            return await self._train(number, config, details=details)
        except PgflError as error:
            if details and number == self.workers.current(self.page):
                with self.client:
                    self.problem.text = str(error)
                    self.curve.busy(False)
            return None

    async def _train(self, number: int, config: Config, *, details: bool) -> Played | None:
        """Return a training, remembered by everything that it depends on; None if it is not wanted any more."""
        key = _key(config, details=details)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        played = await self.workers.play(self.page, number, config, details=details)
        if played is not None:
            self._known[key] = played
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return played

    def _draw_all(self) -> None:
        """Everything again, as new colours need."""
        self.curve.draw(self._name, whole=True)
        self._draw_rest()

    def _draw_curve(self) -> None:
        self.curve.draw(self._name)

    def _draw_rest(self) -> None:
        """What follows the curve: figures, network, models, privacy."""
        config, now = self.state.config(), self.curves.now
        self.curve.write(guaranteed=epsilon_sweep.why_not(config) is None)
        self.privacy.show(config, now, self.sweep)
        self.digits.box.set_visibility(bool(now and now.models))
        if now is not None:
            self.network.show(now.network)
        if now is not None and now.network is not None:
            self.plane.show(now.plane, now.network.clusters)
        self.story.show(self.state, now)
        if self.replay:
            self.replay = False
            self.plane.replay()

    @property
    def _name(self) -> str:
        """The algorithm's name in the legend."""
        return CHOICES[0].options(self.state.config())[self.state.config().algorithm.kind]

    # copies -----------------------------------------------------------------------------------------------------------

    def _copy_toml(self) -> None:
        show_text("config.toml", to_toml(self.state.config()))

    def _copy_python(self) -> None:
        show_text("Python", python_text(self.state.config()))


def _key(config: Config, *, details: bool) -> str:
    """Return everything that a training depends on."""
    return f"{details}\n{to_toml(config)}"
