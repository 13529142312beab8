"""The columns of a table as a card: what they are used as, what is declared about them, and how private they stay."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nicegui import ui

from pgfl.data.table_facts import TableFacts
from pgfl.studio.controls import TRUST_WORDS
from pgfl.studio.shell import card, note
from pgfl.studio.table_form import PLACES, TableForm, histogram_svg, range_text, role

EXACT = "These are exact figures of records, for your own machine; do not share them if the records are private."
TITLES = ("column", "used as", "kind", "missing", "distinct", "values", "spread", "declared")
USUAL_EPSILON = "4"


class ColumnsCard:
    """The form beside a table's columns; `changed` is told every other form, and whether columns have other roles."""

    def __init__(self, form: TableForm, changed: Callable[[TableForm, bool], None]) -> None:
        self.form, self._changed_to = form, changed
        with card("Columns"):
            self.sizes = note("")
            with ui.element("div").classes("tools"):
                self.places = {key: self._place_field(key) for key in ("target", *PLACES)}
                self.private = ui.switch("privacy", value=bool(form.epsilon))
                self.epsilon = ui.input(label="ε of every client", value=form.epsilon).props("dense outlined")
                self.epsilon.style("width: 130px")
                self.trust = ui.select(TRUST_WORDS, label="trust level", value=form.trust)
                self.trust.props("dense outlined options-dense").style("width: 270px")
            self.private.on_value_change(self._privacy_switched)
            self.epsilon.on("blur", self._epsilon_typed).on("keydown.enter", self._epsilon_typed)
            self.trust.on_value_change(lambda event: self._change(trust=event.value))
            self.wrong = ui.label().classes("wrong").props('role="alert"')
            self.columns = ui.element("div").classes("scroll")
            self.warnings = ui.html("", sanitize=False)
            note(EXACT)
        self._show_privacy()

    def show(self, form: TableForm, facts: TableFacts) -> TableForm:
        """Show a table's columns; returns the form with the columns that were found for it."""
        names = [column.name for column in facts.columns]
        shown = {"target": facts.target, **{key: _place(facts, key) for key in PLACES}}
        named: dict[str, Any] = {key: shown[key] or "" for key in shown}
        self.form = replace(form, **named)
        for key, field in self.places.items():
            field.set_options(names, value=shown[key])
        self.sizes.text = _sizes(facts)
        self.columns.clear()
        with self.columns:
            self._column_table(facts)
        self.warnings.content = "".join(f"<div class='wrong'>{html.escape(line)}</div>" for line in facts.warnings)
        return self.form

    def _place_field(self, key: str) -> ui.select:
        field = ui.select([], label=key, clearable=key != "target").props("dense outlined options-dense")
        field.on_value_change(lambda event: self._change(**{key: event.value or ""}))
        return field.style("min-width: 150px")

    def _column_table(self, facts: TableFacts) -> None:
        with ui.element("table").classes("plain"):
            ui.html("".join(f"<th>{title}</th>" for title in TITLES), sanitize=False, tag="tr")
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
            self._change(declared={key: value for key, value in declared.items() if value.strip()})

        field.on("blur", typed).on("keydown.enter", typed)

    def _change(self, **fields: Any) -> None:
        form = replace(self.form, **fields)
        if form != self.form:
            self.form = form
            self._changed_to(form, any(key in fields for key in ("target", *PLACES)))

    def _privacy_switched(self) -> None:
        if self.private.value and not self.epsilon.value:
            self.epsilon.value = USUAL_EPSILON
        self._show_privacy()
        self._change(epsilon=str(self.epsilon.value) if self.private.value else "")

    def _show_privacy(self) -> None:
        for field in (self.epsilon, self.trust):
            field.set_visibility(bool(self.private.value))

    def _epsilon_typed(self) -> None:
        if self.private.value:
            self._change(epsilon=str(self.epsilon.value or ""))


def _place(facts: TableFacts, key: str) -> str | None:
    found = getattr(facts.places.columns, key) if facts.places else None
    return None if found is None else str(found)


def _sizes(facts: TableFacts) -> str:
    head = f"{facts.rows} rows, {len(facts.columns)} columns"
    if facts.places is None:
        return head
    least, median, most = facts.places.rows_per_client
    servers, clusters = len(facts.places.servers), len(facts.places.clusters)
    return (
        f"{head}; {_counted(facts.places.clients, 'client')} at {_counted(servers, 'server')} in "
        f"{_counted(clusters, 'cluster')}; rows per client: {least} least, {median:g} median, {most} most"
    )


def _counted(count: int, what: str) -> str:
    """
    >>> _counted(1, "cluster"), _counted(2, "cluster")
    ('1 cluster', '2 clusters')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
