"""The sliders and choices of the Play view as widgets."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from pgfl.config import Config
from pgfl.studio.controls import Choice, Slider
from pgfl.studio.shell import set_ends

EXPLAINED = ("tau", "rho", "epsilon", "digits-epsilon")  # symbols, whose meaning stands below them
Moved = Callable[[Slider, float, bool], Any]
Chosen = Callable[[Choice, str], Any]


class SliderField:
    """A slider with its value as text beside it, which can be typed, and room for what is wrong."""

    def __init__(self, slider: Slider, moved: Moved) -> None:
        self.slider, self._moved, self._showing = slider, moved, False
        with ui.element("div").classes("control") as self.box:
            name = ui.html(html.escape(slider.label), sanitize=False, tag="label").props(f'for="value-{slider.name}"')
            name.tooltip(slider.help)
            self.text = ui.input().props(f'dense outlined id="value-{slider.name}" for="value-{slider.name}"')
            self.text.on("keydown.enter", self._typed).on("blur", self._typed)
            self.bar = ui.slider(min=slider.low, max=slider.high, step=slider.step)
            self.bar.props(f'aria-label="{html.escape(slider.label)}: {html.escape(slider.help)}"')
            self.bar.props(f'data-control="{slider.name}" dense')
            self.bar.on_value_change(self._dragged)
            self.bar.on("change", self._released)
            if slider.name in EXPLAINED:
                ui.label(f"{slider.help}.").classes("help")
            self.error = ui.label().classes("wrong").props('role="alert"')
        self._value = 0.0

    def show(self, config: Config) -> None:
        """Stand where the config stands; hidden where it has no such value."""
        value = self.slider.read(config)
        self.box.set_visibility(value is not None)
        if value is not None:
            self.stand_at(value, config)

    def stand_at(self, value: float, config: Config) -> None:
        """Show a value that the config does not state, because it follows from others."""
        self.box.set_visibility(True)
        self._showing, self._value = True, value
        low, high = self.slider.limits(config)
        set_ends(self.bar, low, high)
        self.bar.value = min(max(self.slider.position(value), low), high)
        self.text.value = self.slider.shown(value)
        self._showing = False

    def wrong(self, sentence: str) -> None:
        """Say what is wrong, or that nothing is."""
        self.error.text = sentence

    def _dragged(self) -> None:
        if not self._showing and self.slider.value(self.bar.value) != self._value:
            self._move_to(self.slider.value(self.bar.value), final=False)

    def _released(self, event: GenericEventArguments) -> None:
        """The event has the last value; the bar's own may still be on its way."""
        self._move_to(self.slider.value(float(event.args)), final=True)

    def _move_to(self, value: float, *, final: bool) -> None:
        self._value = value
        self.text.value = self.slider.shown(value)
        self._moved(self.slider, value, final)

    def _typed(self) -> None:
        text = str(self.text.value or "").strip().replace(",", ".")
        if text == self.slider.shown(self._value) and not self.error.text:
            return
        try:
            value = float(text)
        except ValueError:
            self.wrong(f"`{self.slider.keys[0]}` must be a number; got {text!r}.")
            return
        self._value = value
        self._moved(self.slider, value, True)


class ChoiceField:
    """A setting with a few values."""

    def __init__(self, choice: Choice, chosen: Chosen) -> None:
        self.choice, self._chosen, self._showing = choice, chosen, False
        with ui.element("div") as self.box:
            self.select = ui.select({}, label=choice.label).props("dense outlined options-dense").style("width: 100%")
            self.select.on_value_change(self._changed)
            self.error = ui.label().classes("wrong").props('role="alert"')

    def show(self, config: Config) -> None:
        """Stand where the config stands."""
        value = self.choice.read(config)
        self.box.set_visibility(value is not None)
        if value is None:
            return
        self._showing = True
        self.select.set_options(self.choice.options(config), value=value)
        self.select.set_enabled(len(self.choice.options(config)) > 1)
        self._showing = False

    def wrong(self, sentence: str) -> None:
        """Say what is wrong, or that nothing is."""
        self.error.text = sentence

    def _changed(self) -> None:
        if not self._showing and self.select.value is not None:
            self._chosen(self.choice, str(self.select.value))
