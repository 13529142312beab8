"""What privacy costs: the error against ε, and what each client has spent."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from pgfl.config import Config
from pgfl.studio import charts, epsilon_sweep
from pgfl.studio.played import Played
from pgfl.studio.shell import Look, card, chart, note, redraw, save_button


class PrivacyCards:
    """Two pictures where there is a guarantee; where there is none, the reason."""

    def __init__(self, look: Look) -> None:
        self.look = look
        with ui.element("div") as self.reason_box, card("Privacy"):
            self.reason = note("")
        with ui.element("div") as self.sweep_box, card("Error against ε") as head:
            self.sweep = chart({"series": []}, "Final error against ε", small=True).props('data-chart="epsilon"')
            save_button(head, self.sweep, "error-against-epsilon", look)
            self.sweep_note = note("")
        with ui.element("div") as self.spent_box, card("What each client has spent") as head:
            self.spent = chart({"series": []}, "Spent ε of every client", small=True).props('data-chart="spent"')
            save_button(head, self.spent, "spent", look)
            self.spent_note = note("")

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
        self.spent_note.text = now.guarantee or ""
        if now.network is not None:
            drawn = charts.spending(now, now.network.clusters, self.look.colours, config.privacy.epsilon)
            redraw(self.spent, drawn)

    def show_sweep(self, now: Played, at: Mapping[float, float]) -> None:
        """The error against ε, as far as it is known."""
        self.sweep_note.text = "computing …" if len(at) < len(epsilon_sweep.FACTORS) else ""
        if now.epsilon:
            points, here = {**at, now.epsilon: now.final}, (now.epsilon, now.final)
            redraw(self.sweep, charts.against_epsilon(points, here, now.metric, self.look.colours))
