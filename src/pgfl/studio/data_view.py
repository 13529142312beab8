"""Your data: from a table to predictions, on this machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from nicegui import background_tasks, events, run, ui
from nicegui.client import Client

from pgfl.errors import PgflError
from pgfl.federation.survey import TableFacts
from pgfl.studio.python_text import python_text
from pgfl.studio.run_card import PlanCard, RunCard
from pgfl.studio.sample_table import TARGET, write_sample
from pgfl.studio.shell import Look, button, card, note, replace_address, show_text
from pgfl.studio.table_form import ColumnsCard, TableForm, checked

LARGEST = 2 * 2**30  # bytes
COPY = (
    "What is copied from here or downloaded below names {} beside it: keep both in one folder, and the config works "
    "tomorrow. The studio's own copy of the table is deleted when it ends."
)


class DataView:
    """One page of the Your data view."""

    def __init__(self, look: Look, client: Client, form: TableForm, workspace: Path, results: Path) -> None:
        self.look, self.client, self.form, self.workspace = look, client, form, workspace
        self.facts: TableFacts | None = None
        self._table_card()
        with ui.element("div").classes("wide rows") as self.described:
            self.columns = ColumnsCard(form, self._changed)
            self._config_card()
            self.plan = PlanCard(look, client, workspace, self._use)
        self.run = RunCard(look, client, workspace, results)
        self.described.set_visibility(False)
        if form.table:
            client.on_connect(self.describe)

    def _table_card(self) -> None:
        with card("A table", "wide"):
            note("One row per sample, csv or parquet. It is read on this machine, and nothing leaves it.")
            with ui.element("div").classes("tools"):
                self.upload = ui.upload(
                    label="Drop a CSV or Parquet file, or browse",
                    auto_upload=True,
                    max_file_size=LARGEST,
                    on_upload=self._dropped,
                ).props('accept=".csv,.parquet" flat bordered')
                self.path = ui.input(label="or the path of a file", value=self.form.table).props("dense outlined")
                self.path.style("width: 420px").on("keydown.enter", self._path_typed)
                button("Read", "table_view", self._path_typed)
                button("Try a sample table", "science", self._sample).tooltip(
                    "Made-up blood pressures of children and adults"
                )
            self.table_wrong = ui.label().classes("wrong").props('role="alert"')

    def _config_card(self) -> None:
        with card("Config") as head:
            with head:
                button("config.toml", "content_copy", lambda: show_text("config.toml", self._portable()))
                button("Python", "content_copy", self._copy_python)
            self.text = ui.textarea().props(
                'outlined autogrow input-class="typed-code" aria-label="Config" spellcheck=false'
            )
            self.text.style("width: 100%")
            with ui.element("div").classes("tools") as self.moved:
                self.moved_words = note("")
                button("table", "download", self._download_table).props('aria-label="Download the table"')
            self.config_wrong = ui.label().classes("wrong").props('role="alert"')
            with ui.element("div").classes("tools"):
                ui.button("Run", icon="play_arrow", on_click=self._run).props("no-caps unelevated")
                self.plan_button = ui.button("Plan", icon="insights", on_click=self._plan).props("no-caps outline")
                self.plan_button.tooltip("What a private training will achieve, before anything is spent")

    # the table --------------------------------------------------------------------------------------------------------

    async def _dropped(self, event: events.UploadEventArguments) -> None:
        name = re.sub(r"[^\w.-]", "_", Path(event.file.name).name) or "table.csv"
        path = self.workspace / name
        await event.file.save(path)
        self.upload.reset()
        self.path.value = str(path)
        await self._take(str(path))

    async def _sample(self) -> None:
        path = str(write_sample(self.workspace))
        self.path.value = path
        self.form = self._fresh(path, target=TARGET)
        await self.describe()

    async def _path_typed(self) -> None:
        if self.path.value:
            await self._take(str(self.path.value))

    async def _take(self, table: str) -> None:
        self.form = self._fresh(table)
        await self.describe()

    def _fresh(self, table: str, target: str = "") -> TableForm:
        """Return the form of another table; how private it is to stay and what models are made of do not change."""
        return replace(self.form, table=table, target=target, client="", server="", cluster="", declared={})

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
            assert self.facts is not None
            self.described.set_visibility(True)
            self.form = self.columns.show(self.form, self.facts)
            self._draft()

    def _changed(self, form: TableForm, other_roles: bool) -> None:
        self.form = form
        if other_roles:
            background_tasks.create(self.describe())
        else:
            self._draft()

    def _draft(self) -> None:
        """Write the config anew from the form."""
        assert self.facts is not None
        wrong = self.columns.wrong
        wrong.text = self.text.value = ""
        self.run.clear()
        self.plan.clear()
        self.moved.set_visibility(self._is_copy)
        self.moved_words.text = COPY.format(Path(self.form.table).name)
        replace_address(self.form.address())
        self.plan_button.set_visibility(bool(self.form.epsilon))
        if self.facts.target is None:
            wrong.text = "Choose the column to predict."
            return
        try:
            draft = self.form.draft(self.facts)
        except PgflError as error:
            wrong.text = str(error).replace("name the column to predict with --target", "choose the column to predict")
            return
        self.text.value = draft.text
        if draft.unstated:
            wrong.text = (
                f'Privacy needs public facts about {", ".join(draft.unstated)}: fill in the "declared" column below.'
            )

    @property
    def _is_copy(self) -> bool:
        """Whether the table is one that was dropped here, which goes when the studio ends."""
        return Path(self.form.table).parent == self.workspace

    def _portable(self) -> str:
        """Return the config as it is to be kept: a table that was dropped here is beside it, under its own name."""
        text = str(self.text.value)
        return text.replace(str(Path(self.form.table).resolve()), Path(self.form.table).name) if self._is_copy else text

    def _download_table(self) -> None:
        ui.download.content(Path(self.form.table).read_bytes(), Path(self.form.table).name)

    # what is done with it ---------------------------------------------------------------------------------------------

    def _written(self) -> Path | None:
        """Return the config as a file, if it is one."""
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
            self.plan.start(path)

    def _use(self, text: str) -> None:
        self.text.value = text

    def _copy_python(self) -> None:
        self.config_wrong.text = ""
        try:
            show_text("Python", python_text(checked(self._portable())))
        except PgflError as error:
            self.config_wrong.text = str(error)
