"""The models of the clusters in a plane, round after round, with play and pause."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from pgfl.studio.plane_chart import plane as drawn_plane
from pgfl.studio.played import Plane
from pgfl.studio.shell import Look, button, card, chart, note, redraw, save_button, set_ends

SECONDS_PER_FRAME = 0.12
LEGEND = "Large: the mean over servers. Small: each server’s own model."
TRUTH = " Crosses: the truth."


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
        self.legend.text = LEGEND + ("" if plane.truth is None else TRUTH)
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

    def _set(self, playing: bool) -> None:
        self.timer.active = playing
        self.start.props(f"icon={'pause' if playing else 'play_arrow'}")
