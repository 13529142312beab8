"""Runs: result folders listed and compared, live while they are written."""

from __future__ import annotations

import csv
import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

from nicegui import ui

from pgfl.results.arrays import HISTORY
from pgfl.results.folder import CONFIG, LIVE, SUMMARY, is_complete
from pgfl.results.verdict import Verdict
from pgfl.studio import charts
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

Status = Literal["done", "running", "interrupted"]
MOST_FOLDERS = 500
QUIET = 20.0
"""A run that has written nothing for so many seconds counts as interrupted; `pgfl run` writes twice a second."""
INDEX = ("run", "round")
NOT_COMPARED = ("name",)


@dataclass(frozen=True)
class RunEntry:
    """A result folder at a glance."""

    name: str
    path: Path
    status: Status
    changed: float
    summary: dict[str, Any]
    live: dict[str, Any]
    config: dict[str, Any]

    @property
    def when(self) -> str:
        """When it was last written to."""
        return datetime.fromtimestamp(self.changed).strftime("%Y-%m-%d %H:%M")

    @property
    def rounds(self) -> str:
        """How far it is."""
        if self.status == "done":
            return str(self.summary.get("rounds", ""))
        return f"{self.live.get('round', 0)} of {self.live.get('rounds', self.config.get('rounds', '?'))}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What was measured."""
        return tuple(name for name in history_of(self) if name not in INDEX)

    @property
    def epsilon(self) -> float | None:
        """What the worst client has spent, where a guarantee says so."""
        spent = (self.summary.get("privacy") or {}).get("epsilon") or {}
        guaranteed = self.config.get("privacy", {}).get("guarantee", "required") == "required"
        return spent.get("worst") if guaranteed else None

    @property
    def verdict(self) -> str:
        """What became of it, with the figure behind it."""
        stated = self.summary.get("verdict") or {}
        try:
            verdict = Verdict.from_json(stated)
        except KeyError:
            return str(stated.get("sentence", ""))
        return f"{verdict.sentence} {verdict.support}".strip()


def listed(root: Path) -> list[RunEntry]:
    """Return all result folders directly below a folder, or the folder itself, newest first."""
    if not root.is_dir():
        return []
    folders = [root] if _is_run(root) else [path for path in sorted(root.iterdir()) if path.is_dir() and _is_run(path)]
    found = [entry(path) for path in folders[:MOST_FOLDERS]]
    return sorted(found, key=lambda one: -one.changed)


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (SUMMARY, CONFIG, LIVE))


def entry(path: Path) -> RunEntry:
    """Return one result folder; what cannot be read is empty."""
    done, live = is_complete(path), path / LIVE
    last = path / SUMMARY if done else live if live.exists() else path / CONFIG
    try:
        changed = last.stat().st_mtime
    except OSError:
        changed = 0.0
    fresh = time.time() - changed < QUIET
    status: Status = "done" if done else "running" if fresh else "interrupted"
    return RunEntry(
        path.name, path, status, changed, _json(path / SUMMARY) if done else {}, _json(live), _toml(path / CONFIG)
    )


def history_of(run: RunEntry) -> dict[str, list[float | None]]:
    """Return the history of run 0: whole, or as far as it has come."""
    table = run.live.get("history", {}) if run.status != "done" else _csv(run.path / HISTORY)
    if not table or "round" not in table:
        return {}
    first = [place for place, number in enumerate(table.get("run", [])) if number == 0]
    return {name: [values[place] for place in first] for name, values in table.items()}


def difference(runs: Sequence[RunEntry]) -> list[tuple[str, list[str]]]:
    """Return the keys in which configs differ, with the value of each run; a dash where it has none."""
    flat = [_flat(run.config) for run in runs]
    keys = [key for one in flat for key in one]
    found: list[tuple[str, list[str]]] = []
    for key in dict.fromkeys(keys):
        values = [_text(one[key]) if key in one else "—" for one in flat]
        section = key.partition(".")[0]
        lacking = [not any(name.startswith(f"{section}.") for name in one) for one in flat]
        if "." in key and any(lacking):  # a part that a run does not have is one row, not one for each of its keys
            if all(row != section for row, _ in found):
                found.append(
                    (
                        section,
                        ["—" if lacks else _in_short(one, section) for lacks, one in zip(lacking, flat, strict=True)],
                    )
                )
        elif len(set(values)) > 1 and key not in NOT_COMPARED:
            found.append((key, values))
    return found


def _in_short(flat: Mapping[str, Any], section: str) -> str:
    """Return the keys of a section on one line, without those that are empty."""
    own = {key.partition(".")[2]: value for key, value in flat.items() if key.startswith(f"{section}.")}
    return ", ".join(f"{key} = {_text(value)}" for key, value in own.items() if value not in (None, [], "", False))


def privacy_rows(runs: Sequence[RunEntry]) -> list[tuple[str, list[str]]]:
    """Return what is promised and spent, one column per run."""
    rows: list[tuple[str, list[str]]] = [
        ("guarantee", [str(run.summary.get("guarantee") or "no privacy") for run in runs]),
        ("noise", [str(run.summary.get("noise") or "—") for run in runs]),
    ]
    for figure in ("epsilon", "releases"):
        worst = [((run.summary.get("privacy") or {}).get(figure) or {}) for run in runs]
        for which in ("worst", "median"):
            values = ["—" if one.get(which) is None else f"{one[which]:.4g}" for one in worst]
            rows.append((f"{figure}, {which} client", values))
    return [row for row in rows if any(value != "—" for value in row[1])]


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _csv(path: Path) -> dict[str, list[float | None]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, ValueError):
        return {}
    if not rows:
        return {}
    return {name: [_number(row[place]) for row in rows[1:]] for place, name in enumerate(rows[0])}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


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
            rows = [
                [key, *((value, "differs" if value != values[0] else "") for value in values)]
                for key, values in difference(shown)
            ]
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
        from pgfl.config import load_config
        from pgfl.errors import PgflError
        from pgfl.studio.python_text import python_text

        for one in self.shown[:1]:
            try:
                show_text("Python", python_text(load_config(one.path / "config.toml")))
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
