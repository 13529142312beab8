"""Your data: from a table to predictions, on this machine."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from nicegui import background_tasks, events, run, ui
from nicegui.client import Client

from pgfl.data.table_facts import TableFacts
from pgfl.errors import PgflError
from pgfl.studio import charts
from pgfl.studio.commands import Command
from pgfl.studio.palette import GREEN
from pgfl.studio.run_card import RunCard
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
from pgfl.studio.table_form import PLACES, TableForm, checked, histogram_svg, range_text, role

LARGEST = 2 * 2**30  # bytes
EXACT = "These are exact figures of records, for your own machine; do not share them if the records are private."


class DataView:
    """One page of the Your data view."""

    def __init__(self, look: Look, client: Client, form: TableForm, workspace: Path, results: Path) -> None:
        self.look, self.client, self.form, self.workspace = look, client, form, workspace
        self.facts: TableFacts | None = None
        self.planning: Command | None = None
        with card("A table", "wide"):
            note("One row per sample, csv or parquet. It is read on this machine, and nothing leaves it.")
            with ui.element("div").classes("tools"):
                self.upload = ui.upload(
                    label="drop a table, or choose one",
                    auto_upload=True,
                    max_file_size=LARGEST,
                    on_upload=self._dropped,
                ).props('accept=".csv,.parquet" flat bordered')
                self.path = ui.input(label="or the path of a file", value=form.table).props("dense outlined")
                self.path.style("width: 420px").on("keydown.enter", self._path_typed)
                button("Read", "table_view", self._path_typed)
            self.table_wrong = ui.label().classes("wrong").props('role="alert"')
        with ui.element("div").classes("wide rows") as self.described:
            self._columns_card()
            self._config_card()
            self._plan_card()
        self.run = RunCard(look, client, workspace, results)
        self.described.set_visibility(False)
        if form.table:
            client.on_connect(self.describe)

    def _columns_card(self) -> None:
        with card("Columns"):
            self.sizes = note("")
            with ui.element("div").classes("tools"):
                self.places = {
                    key: ui.select([], label=label, clearable=key != "target")
                    .props("dense outlined options-dense")
                    .style("min-width: 150px")
                    for key, label in (("target", "target"), *((key, key) for key in PLACES))
                }
                self.private = ui.switch("privacy", value=bool(self.form.epsilon))
                self.epsilon = ui.input(label="ε of every client", value=self.form.epsilon).props("dense outlined")
                self.epsilon.style("width: 130px")
            for key, field in self.places.items():
                field.on_value_change(lambda event, key=key: self._changed(**{key: event.value or ""}))
            self.private.on_value_change(self._privacy_switched)
            self.epsilon.on("blur", self._epsilon_typed).on("keydown.enter", self._epsilon_typed)
            self.columns_wrong = ui.label().classes("wrong").props('role="alert"')
            self.columns = ui.element("div").classes("scroll")
            self.warnings = ui.html("", sanitize=False)
            note(EXACT)

    def _config_card(self) -> None:
        with card("Config") as head:
            with head:
                button("config.toml", "content_copy", lambda: show_text("config.toml", str(self.text.value)))
                button("Python", "content_copy", self._copy_python)
            self.text = ui.textarea().props(
                'outlined autogrow input-class="typed-code" aria-label="Config" spellcheck=false'
            )
            self.text.style("width: 100%")
            self.config_wrong = ui.label().classes("wrong").props('role="alert"')
            with ui.element("div").classes("tools"):
                ui.button("Run", icon="play_arrow", on_click=self._run).props("no-caps unelevated")
                self.plan_button = ui.button("Plan", icon="insights", on_click=self._plan).props("no-caps outline")
                self.plan_button.tooltip("What a private training will achieve, before anything is spent")

    def _plan_card(self) -> None:
        with ui.element("div") as self.plan_box, card("Plan") as head:
            self.plan_line = ui.label().classes("verdict")
            self.plan_chart = chart({"series": []}, "Predicted error against ε", small=True).props('data-chart="plan"')
            save_button(head, self.plan_chart, "plan", self.look)
            self.plan_table = ui.html("", sanitize=False)
            with ui.element("div").classes("tools"):
                self.plan_use = button("Use these settings", "check", self._use_plan)
                self.plan_stop = button("Stop", "stop", lambda: self.planning.kill() if self.planning else None)
        self.planned: Path | None = None
        self.plan_box.set_visibility(False)

    # the table --------------------------------------------------------------------------------------------------------

    async def _dropped(self, event: events.UploadEventArguments) -> None:
        name = re.sub(r"[^\w.-]", "_", Path(event.file.name).name) or "table.csv"
        path = self.workspace / name
        await event.file.save(path)
        self.upload.reset()
        self.path.value = str(path)
        await self._take(TableForm(str(path)))

    async def _path_typed(self) -> None:
        if self.path.value:
            await self._take(TableForm(str(self.path.value)))

    async def _take(self, form: TableForm) -> None:
        self.form = form
        await self.describe()

    async def describe(self) -> None:
        """Read the table and show what it holds."""
        with self.client:
            self.table_wrong.text = ""
            try:
                self.facts = await run.io_bound(self.form.facts)
            except (PgflError, OSError) as error:
                self.table_wrong.text = str(error)
                self.described.set_visibility(False)
                return
            self.described.set_visibility(True)
            self._show_facts()
            self._draft()

    def _show_facts(self) -> None:
        facts = self.facts
        assert facts is not None
        names = [column.name for column in facts.columns]
        shown = {"target": facts.target, **{key: _place(facts, key) for key in PLACES}}
        named: dict[str, Any] = {key: shown[key] or "" for key in shown}
        self.form = replace(self.form, **named)
        for key, field in self.places.items():
            field.set_options(names, value=shown[key])
        self.sizes.text = _sizes(facts)
        self.columns.clear()
        with self.columns:
            self._column_table(facts)
        self.warnings.content = "".join(f"<div class='wrong'>{html.escape(line)}</div>" for line in facts.warnings)

    def _column_table(self, facts: TableFacts) -> None:
        grid = ui.element("table").classes("plain")
        with grid:
            titles = ("column", "used as", "kind", "missing", "distinct", "values", "spread", "declared")
            ui.html("".join(f"<th>{title}</th>" for title in titles), sanitize=False, tag="tr")
            for column in facts.columns:
                used = role(facts, column.name)
                cells = [column.name, used, column.kind, column.missing, column.distinct, range_text(column)]
                with ui.element("tr"):
                    for cell in cells:
                        ui.html(html.escape(str(cell)), sanitize=False, tag="td")
                    ui.html(histogram_svg(column.histogram), sanitize=False, tag="td")
                    with ui.element("td"):
                        if used in ("feature", "target"):
                            self._declaration_field(column.name)

    def _declaration_field(self, name: str) -> None:
        about = html.escape(f"Public bounds or categories of {name}")
        field = ui.input(value=self.form.declared.get(name, ""), placeholder="18:90, or a, b")
        field.props(f'dense outlined aria-label="{about}"').style("width: 160px")

        def typed() -> None:
            declared = {**self.form.declared, name: str(field.value or "")}
            self._changed(declared={key: value for key, value in declared.items() if value.strip()})

        field.on("blur", typed).on("keydown.enter", typed)

    def _changed(self, **fields: Any) -> None:
        form = replace(self.form, **fields)
        if form == self.form:
            return
        places = any(key in fields for key in ("target", *PLACES))
        self.form = form
        if places:
            background_tasks.create(self.describe())
        else:
            self._draft()

    def _privacy_switched(self) -> None:
        self.epsilon.set_visibility(bool(self.private.value))
        if self.private.value and not self.epsilon.value:
            self.epsilon.value = "4"
        self._changed(epsilon=str(self.epsilon.value) if self.private.value else "")

    def _epsilon_typed(self) -> None:
        if self.private.value:
            self._changed(epsilon=str(self.epsilon.value or ""))

    def _draft(self) -> None:
        """Write the config anew from the form."""
        assert self.facts is not None
        self.columns_wrong.text = ""
        replace_address(self.form.address())
        self.epsilon.set_visibility(bool(self.private.value))
        self.plan_button.set_visibility(bool(self.form.epsilon))
        try:
            draft = self.form.draft(self.facts)
        except PgflError as error:
            self.columns_wrong.text = str(error)
            return
        self.text.value = draft.text
        if draft.unstated:
            self.columns_wrong.text = (
                f"Privacy needs public facts about {', '.join(draft.unstated)}: declare them above."
            )

    # what is done with it ---------------------------------------------------------------------------------------------

    def _written(self) -> Path | None:
        """The config as a file, if it is one."""
        self.config_wrong.text = ""
        try:
            checked(str(self.text.value))
        except PgflError as error:
            self.config_wrong.text = str(error)
            return None
        path = self.workspace / f"{Path(self.form.table).stem}.toml"
        path.write_text(str(self.text.value), encoding="utf-8")
        return path

    def _run(self) -> None:
        if (path := self._written()) is not None:
            background_tasks.create(self.run.start(path, checked(str(self.text.value)), self.form.table))

    def _plan(self) -> None:
        if (path := self._written()) is not None:
            background_tasks.create(self._carry_out_plan(path))

    async def _carry_out_plan(self, path: Path) -> None:
        self.planned = None
        out = path.with_name("planned.toml")
        out.unlink(missing_ok=True)
        self.planning = Command(["plan", str(path.resolve()), "--json", "--out", str(out.resolve())], self.workspace)
        with self.client:
            self.plan_box.set_visibility(True)
            self.plan_use.set_visibility(False)
            self.plan_stop.set_visibility(True)
            self.plan_line.text, self.plan_table.content = "trying settings on made-up data of the same shape …", ""
            redraw(self.plan_chart, {"series": []})
        ended = await self.planning.finished()
        with self.client:
            self.plan_stop.set_visibility(False)
            if ended.code:
                self.plan_line.text = "stopped" if ended.code < 0 else ended.sentence
                return
            found = json.loads(ended.out)
            self.planned = out
            self.plan_use.set_visibility(True)
            self.plan_line.text = found["verdict"]
            self._draw_plan(found)

    def _draw_plan(self, found: dict[str, Any]) -> None:
        measure = "NMSD [dB]" if found["unit"] == "dB" else "accuracy [%]"
        points = sorted((float(level), value) for level, value in found["by_epsilon"].items())
        levels, errors = [x for x, _ in points], [y for _, y in points]
        drawn = [
            charts.Line("predicted", levels, errors, self.look.colours.main, 2.4),
            charts.Line("without privacy", levels, [found["without_privacy"]] * len(points), GREEN, 1.6, "dashed"),
        ]
        redraw(self.plan_chart, charts.lines(drawn, self.look.colours, "ε", measure, log_x=True))
        rows = [[name, f"{gain:+.1f} {found['unit']}"] for name, gain in found["helps"].items()]
        self.plan_table.content = table_html(["what would help", "gain"], rows, frozenset({1}))

    def _use_plan(self) -> None:
        if self.planned is not None:
            self.text.value = self.planned.read_text("utf-8")

    def _copy_python(self) -> None:
        from pgfl.studio.python_text import python_text

        try:
            show_text("Python", python_text(checked(str(self.text.value))))
        except PgflError as error:
            self.config_wrong.text = str(error)


def _place(facts: TableFacts, key: str) -> str | None:
    found = getattr(facts.places.columns, key) if facts.places else None
    return None if found is None else str(found)


def _sizes(facts: TableFacts) -> str:
    head = f"{facts.rows} rows, {len(facts.columns)} columns"
    if facts.places is None:
        return head
    least, median, most = facts.places.rows_per_client
    return (
        f"{head}; {facts.places.clients} clients at {len(facts.places.servers)} servers in "
        f"{len(facts.places.clusters)} clusters; rows per client: {least} least, {median:g} median, {most} most"
    )
