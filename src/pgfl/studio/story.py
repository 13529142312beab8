"""The first minute of the studio: four captioned steps on one preset, each of which visibly moves the models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from pgfl.studio.charts import axis_name, shown_value
from pgfl.studio.play_state import STORY, PlayState
from pgfl.studio.shell import card
from pgfl.studio.workers import Played


@dataclass(frozen=True)
class Step:
    """A step of the story: what changes, what it is called, and what to look at."""

    name: str
    caption: str
    changes: Mapping[str, Any]

    def state(self) -> PlayState:
        """Return what is played."""
        state = PlayState(STORY)
        for key, value in self.changes.items():
            state = state.changed(key, value)
        return state


_CONNECTED = {"graph.kind": "random"}
_SHARING = _CONNECTED | {"algorithm.tau": 0.05}
STEPS = (
    Step(
        "Alone",
        "Ten servers, three clusters, too little data: every server trains by itself, and its models stay far from the "
        "truth (the crosses below).",
        {},
    ),
    Step(
        "Servers connected",
        "Linked servers average their models, cluster by cluster. Clients of one cluster now learn together, at "
        "whichever server they are.",
        _CONNECTED,
    ),
    Step(
        "Clusters share",
        "The clusters are related. τ = 0.05 lets each borrow from the others: the models move nearer to their crosses.",
        _SHARING,
    ),
    Step(
        "Privacy on",
        "Noise now hides every single record, with ε = 8, and the models still end far nearer to the truth than alone. "
        "The error rises by what noise costs; one model for all (FedAvg) averages more of it out. Now move sliders.",
        _SHARING | {"privacy.enabled": True},
    ),
)


class StoryCard:
    """The steps as buttons, the caption of the one that is played, and the error that each one reached."""

    def __init__(self, go: Callable[[PlayState], None]) -> None:
        self.reached: dict[int, str] = {}
        with ui.element("div").classes("wide story-box") as self.box, card("The first minute"):
            with ui.element("div").classes("story").props('role="group" aria-label="Steps"'):
                self.buttons = [
                    ui.button(f"{place + 1} · {step.name}", on_click=lambda step=step: go(step.state())).props(
                        "no-caps flat"
                    )
                    for place, step in enumerate(STEPS)
                ]
            self.caption = ui.label().props('id="story-caption" aria-live="polite"')
            self.errors = ui.html("", sanitize=False).classes("figures").props('id="story-errors"')

    def show(self, state: PlayState, now: Played | None) -> None:
        """Mark the step that is played, and say what it reached; hidden for other presets."""
        self.box.set_visibility(state.preset == STORY)
        at = step_of(state)
        for place, button in enumerate(self.buttons):
            button.props(remove="flat" if place == at else "unelevated", add="unelevated" if place == at else "flat")
            button.props(f"aria-pressed={'true' if place == at else 'false'}")
        self.caption.text = "Your own setting." if at is None else STEPS[at].caption
        if at is not None and now is not None and (value := shown_value(now.metric, now.final)) is not None:
            self.reached[at] = f"{STEPS[at].name} <b>{value:.1f}</b>"
        listed = " ".join(f"<span>{self.reached[place]}</span>" for place in sorted(self.reached))
        self.errors.content = f"<span>final {axis_name('nmsd')}:</span> {listed}" if listed else ""


def step_of(state: PlayState) -> int | None:
    """Return the step that a state is, if it is one.

    >>> step_of(STEPS[2].state()), step_of(STEPS[2].state().changed("seed", 3))
    (2, None)
    """
    found = (place for place, step in enumerate(STEPS) if set(step.state().changes) == set(state.changes))
    return next(found, None) if state.preset == STORY else None
