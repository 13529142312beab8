"""A plan of the Your data view: `pgfl plan` as a card, with its curve and what would help."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nicegui import background_tasks, ui
from nicegui.client import Client

from pgfl.studio import charts
from pgfl.studio.commands import Command
from pgfl.studio.shell import Look, button, card, chart, redraw, save_button, table_html


class PlanCard:
    """What a private training will achieve, foretold before anything is spent; its settings can be taken over."""

    def __init__(self, look: Look, client: Client, workspace: Path, use: Callable[[str], None]) -> None:
        self.look, self.client, self.workspace = look, client, workspace
        self.command: Command | None = None
        self.planned: Path | None = None
        self._found: dict[str, Any] | None = None
        self._use = use
        with ui.element("div") as self.box, card("Plan") as head:
            self.line = ui.label().classes("verdict")
            self.chart = chart({"series": []}, "Predicted error against ε", small=True).props('data-chart="plan"')
            save_button(head, self.chart, "plan", look)
            self.helps = ui.html("", sanitize=False)
            with ui.element("div").classes("tools"):
                self.take = button("Use these settings", "check", self._taken)
                self.stop = button("Stop", "stop", lambda: self.command.kill() if self.command else None)
        self.box.set_visibility(False)
        look.on_change(self._draw)

    def start(self, config: Path) -> None:
        """Plan a config, in a process of its own."""
        background_tasks.create(self._carry_out(config))

    async def _carry_out(self, config: Path) -> None:
        self.planned = self._found = None
        out = config.with_name("planned.toml")
        out.unlink(missing_ok=True)
        self.command = Command(["plan", str(config.resolve()), "--json", "--out", str(out.resolve())], self.workspace)
        with self.client:
            self.box.set_visibility(True)
            self.take.set_visibility(False)
            self.stop.set_visibility(True)
            self.line.text, self.helps.content = "trying settings on made-up data of the same shape …", ""
            redraw(self.chart, {"series": []})
        ended = await self.command.finished()
        with self.client:
            self.stop.set_visibility(False)
            if ended.code:
                self.line.text = "stopped" if ended.code < 0 else ended.sentence
                return
            self._found, self.planned = json.loads(ended.out), out
            self.take.set_visibility(True)
            self._draw()

    def _draw(self) -> None:
        found = self._found
        if found is None:
            return
        self.line.text = found["verdict"]
        measure = "NMSD [dB]" if found["unit"] == "dB" else "accuracy [%]"
        points = sorted((float(level), value) for level, value in found["by_epsilon"].items())
        levels, errors = [x for x, _ in points], [y for _, y in points]
        clean, colours = [found["without_privacy"]] * len(points), self.look.colours
        drawn = [
            charts.Line("predicted", levels, errors, colours.main, 2.4),
            charts.Line("without privacy", levels, clean, colours.green, 1.6, "dashed"),
        ]
        redraw(self.chart, charts.lines(drawn, colours, "ε", measure, log_x=True))
        rows = [[name, f"{gain:+.1f} {found['unit']}"] for name, gain in found["helps"].items()]
        self.helps.content = table_html(["what would help", "gain"], rows, frozenset({1}))

    def _taken(self) -> None:
        if self.planned is not None:
            self._use(self.planned.read_text("utf-8"))
