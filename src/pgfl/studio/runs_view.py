"""Runs: result folders listed and compared, live while they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from pgfl.studio import charts
from pgfl.studio.run_folders import RunEntry, difference, history_of, listed, privacy_rows
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
PREFERRED = ("nmsd", "r2", "accuracy", "auc", "rmse")
COLUMNS: list[dict[str, Any]] = [
    {"name": "name", "label": "folder", "field": "name", "align": "left", "sortable": True},
    {"name": "status", "label": "status", "field": "status", "align": "left", "sortable": True},
    {"name": "rounds", "label": "rounds", "field": "rounds", "align": "right"},
    {"name": "epsilon", "label": "worst ε", "field": "epsilon", "align": "right", "sortable": True},
    {"name": "when", "label": "written", "field": "when", "align": "left", "sortable": True},
    {"name": "verdict", "label": "verdict", "field": "verdict", "align": "left"},
]


class RunsView:
    """One page of the Runs view."""

    def __init__(self, root: Path, look: Look, chosen: Sequence[str], metric: str | None) -> None:
        self.root, self.look, self.metric = root, look, metric
        self.chosen = list(chosen)
        self.entries: list[RunEntry] = []
        self._drawn: object = None
        with card(f"Result folders in {root}", "wide"):
            self.list = ui.table(
                rows=[], columns=COLUMNS, row_key="name", selection="multiple", pagination={"rowsPerPage": 10}
            )
            self.list.props("flat dense").style("width: 100%; background: transparent")
            self.list.on_select(self._selected)
            self.empty = note("")
        with card("Curves", "wide") as head:
            with head:
                self.measure = ui.select([], label="measure", on_change=self._measure_chosen)
                self.measure.props("dense outlined options-dense").style("min-width: 170px")
            self.curves = chart({"series": []}, "Curves of the chosen runs over each other")
            self.curves.props('data-chart="runs"')
            save_button(head, self.curves, "runs", look)
            self.hint = note("")
        with card("What differs between the configs"):
            self.configs = ui.html("", sanitize=False).classes("scroll")
            with ui.element("div").classes("tools"):
                button("config.toml", "content_copy", self._copy_toml).tooltip("Copy the first one as config.toml")
                button("Python", "content_copy", self._copy_python).tooltip("Copy the first one as Python")
        with card("Privacy and verdicts"):
            self.privacy = ui.html("", sanitize=False).classes("scroll")
        look.on_change(lambda: self._draw(force=True))
        self.refresh()
        ui.timer(BETWEEN_LOOKS, self.refresh)

    @property
    def shown(self) -> list[RunEntry]:
        """The chosen runs, in the order in which they were chosen."""
        by_name = {one.name: one for one in self.entries}
        return [by_name[name] for name in self.chosen if name in by_name]

    def refresh(self) -> None:
        """Look at the folders again, and draw what has changed."""
        self.entries = listed(self.root)
        rows = [
            {
                "name": one.name,
                "status": one.status,
                "rounds": one.rounds,
                "epsilon": "—" if one.epsilon is None else f"{one.epsilon:.3g}",
                "when": one.when,
                "verdict": one.verdict,
            }
            for one in self.entries
        ]
        if rows != self.list.rows:
            self.list.rows = rows
            self.list.selected = [row for row in rows if row["name"] in self.chosen]
        self.empty.text = "" if rows else f"There is no result in {self.root} yet; `pgfl run` makes one."
        self._draw()

    def _selected(self) -> None:
        names = [row["name"] for row in self.list.selected]
        self.chosen = [name for name in self.chosen if name in names] + [n for n in names if n not in self.chosen]
        self._share()
        self._draw()

    def _measure_chosen(self) -> None:
        if self.measure.value and self.measure.value != self.metric:
            self.metric = str(self.measure.value)
            self._share()
            self._draw()

    def _share(self) -> None:
        pairs = [("run", name) for name in self.chosen] + ([("metric", self.metric)] if self.metric else [])
        replace_address("/runs" + (f"?{urlencode(pairs)}" if pairs else ""))

    def _draw(self, *, force: bool = False) -> None:
        shown = self.shown
        state = (self.metric, [(one.name, one.status, one.changed) for one in shown])
        if state == self._drawn and not force:
            return
        self._drawn = state
        histories = {one.name: history_of(one) for one in shown}
        metrics = list(
            dict.fromkeys(name for one in histories.values() for name in one if name not in ("run", "round"))
        )
        if metrics and self.metric not in metrics:
            self.metric = next((name for name in PREFERRED if name in metrics), metrics[0])
        self.measure.set_options(metrics, value=self.metric if self.metric in metrics else None)
        self.hint.text = "" if shown else "Choose runs above; their curves are drawn over each other."
        lines = [_line(one, histories[one.name], self.metric, place, self.look) for place, one in enumerate(shown)]
        redraw(
            self.curves,
            charts.lines(
                [line for line in lines if line is not None], self.look.colours, "round n",
                charts.axis_name(self.metric or "nmsd"),
            ),
        )  # fmt: skip
        names = [one.name for one in shown]
        if len(shown) > 1:
            rows = [[key, *((value, "differs") for value in values)] for key, values in difference(shown)]
            same = "<div class='note'>The configs do not differ.</div>"
            self.configs.content = table_html(["key", *names], rows) if rows else same
        else:
            self.configs.content = "<div class='note'>Choose two runs or more to see their difference.</div>"
        verdicts = [("verdict", [one.verdict or one.status for one in shown])]
        private = [[key, *values] for key, values in [*verdicts, *privacy_rows(shown)]]
        self.privacy.content = table_html(["", *names], private) if shown else ""

    def _copy_toml(self) -> None:
        for one in self.shown[:1]:
            show_text("config.toml", (one.path / "config.toml").read_text("utf-8"))

    def _copy_python(self) -> None:
        from pgfl.config import load
        from pgfl.errors import PgflError
        from pgfl.studio.python_text import python_text

        for one in self.shown[:1]:
            try:
                show_text("Python", python_text(load(one.path / "config.toml")))
            except PgflError as error:
                ui.notify(str(error), type="negative")


def _line(
    run: RunEntry, history: dict[str, list[float | None]], metric: str | None, place: int, look: Look
) -> charts.Line | None:
    if metric is None or metric not in history:
        return None
    colours = look.colours.clusters
    values = [None if value is None else charts.shown_value(metric, value) for value in history[metric]]
    rounds = [float(value or 0) for value in history["round"]]
    kind = charts.LINES[place % len(charts.LINES)]
    return charts.Line(run.name, rounds, values, colours[place % len(colours)], 2.4, kind)
