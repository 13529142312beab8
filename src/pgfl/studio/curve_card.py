"""The learning curve: the exact one, the previous one as a ghost, a preview, and what stands beside."""

from __future__ import annotations

from dataclasses import dataclass, field

from nicegui import ui

from pgfl.studio import charts
from pgfl.studio.played import Played
from pgfl.studio.shell import Look, card, chart, note, redraw, redraw_curves, save_button

ENGINES = {"numpy": "NumPy", "numba": "Numba"}


@dataclass
class Curves:
    """Everything that is drawn in the picture of the curve."""

    rounds: int
    now: Played | None = None
    before: Played | None = None
    preview: Played | None = None
    beside: dict[str, Played] = field(default_factory=dict)

    def take(self, played: Played) -> None:
        """A new exact curve; the one until now becomes the ghost, where it measures the same and differs."""
        if self.now is not None and self.now.metric != played.metric:
            self.before = None
        elif self.now is not None and self.now.curve != played.curve:
            self.before = self.now
        self.now, self.preview = played, None

    def forget(self) -> None:
        """Another preset: nothing until now can be compared with it."""
        self.before, self.beside = None, {}


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
            self.verdict = note("")

    def busy(self, waits: bool) -> None:
        """Pale while the exact curve is on its way. The chart's own classes would send all its data again."""
        self.box.classes(add="busy") if waits else self.box.classes(remove="busy")

    def draw(self, name: str, *, whole: bool = False) -> None:
        """Draw the curves; `whole` draws the axes again, too, as a change of colours needs."""
        shown = self.curves
        metric = shown.now.metric if shown.now else None
        same = {key: one for key, one in shown.beside.items() if metric in (None, one.metric)}
        options = charts.curves(
            shown.now, self.look.colours, rounds=shown.rounds, before=shown.before, beside=same,
            preview=shown.preview, name=name,
        )  # fmt: skip
        (redraw if whole else redraw_curves)(self.chart, options)

    def write(self, *, guaranteed: bool) -> None:
        """The figures above the picture, and the verdict below it."""
        self.figures.content = self._figures(guaranteed=guaranteed)
        self.verdict.text = (self.curves.now.verdict or "") if self.curves.now else ""

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
