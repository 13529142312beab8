"""What a user says about a table, as a form and as a card of its columns; it becomes a config."""

from __future__ import annotations

import html
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlencode

from nicegui import ui

from pgfl.config import Config, parse
from pgfl.config.starter import Draft, InitOptions, draft_config
from pgfl.errors import ConfigError
from pgfl.federation.declarations import Column
from pgfl.federation.survey import ColumnFacts, TableFacts, survey
from pgfl.privacy.trust import Level, Trust
from pgfl.studio.controls import TRUST_WORDS
from pgfl.studio.shell import card, note

PLACES = ("client", "server", "cluster")
SHAPES = {
    "map": (
        "columns act as",
        {"": "straight lines", "auto": "whatever pays", "curves": "curves", "products": "lines and their products"},
    ),
    "clusters": ("clusters", {"": "as the table names them", "found": "found from models"}),
    "learn": ("a cluster learns", {"": "by itself", "auto": "from others where that helps"}),
}
"""What models are made of, as choices: the label of each, and its values in words; the first is the default."""


@dataclass(frozen=True)
class TableForm:
    """The form of the Your data view; every field is text, as it is typed.

    >>> form = TableForm("visits.csv", target="y", epsilon="2", declared={"age": "18:90"})
    >>> form.address()
    '/data?table=visits.csv&target=y&epsilon=2&bounds=age%3D18%3A90'
    >>> TableForm.of_query("visits.csv", {"target": "y", "epsilon": "2"}, ["age=18:90"]) == form
    True
    >>> TableForm("visits.csv", epsilon="2", trust="site").address()
    '/data?table=visits.csv&epsilon=2&trust=site'
    """

    table: str = ""
    target: str = ""
    client: str = ""
    server: str = ""
    cluster: str = ""
    epsilon: str = ""
    trust: str = Trust.level
    map: str = ""
    clusters: str = ""
    learn: str = ""
    declared: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_query(cls, table: str, named: Mapping[str, str], bounds: list[str]) -> TableForm:
        """Return the form that an address names."""
        pairs = (text.partition("=") for text in bounds)
        known = {key: named[key] for key in ("target", *PLACES, "epsilon") if named.get(key)}
        known |= {"trust": named["trust"]} if named.get("trust") in get_args(Level) else {}
        known |= {key: named[key] for key, (_, options) in SHAPES.items() if named.get(key) in options}
        return cls(table, **known, declared={name: value for name, _, value in pairs if value})

    def address(self) -> str:
        """Return the address of this form."""
        plain = [(key, getattr(self, key)) for key in ("table", "target", *PLACES, "epsilon")]
        pairs = [(key, value) for key, value in plain if value]
        pairs += [("trust", self.trust)] if self.epsilon and self.trust != Trust.level else []
        pairs += [(key, getattr(self, key)) for key in SHAPES if getattr(self, key)]
        return "/data" + (
            "?" + urlencode([*pairs, *(("bounds", f"{k}={v}") for k, v in self.declared.items())]) if pairs else ""
        )

    def facts(self) -> TableFacts:
        """Return what the table holds, as `pgfl describe` shows it."""
        named = {key: getattr(self, key) or None for key in ("target", *PLACES)}
        return survey(Path(self.table).expanduser(), **named)

    def draft(self, facts: TableFacts) -> Draft:
        """Return the config that `pgfl init` would write."""
        epsilon = None
        if self.epsilon:
            try:
                epsilon = float(self.epsilon)
            except ValueError:
                raise ConfigError(f"`privacy.epsilon` must be a number; got {self.epsilon!r}.") from None
        declared = {name: declaration(name, text, facts) for name, text in self.declared.items() if text.strip()}
        path = str(Path(self.table).expanduser().resolve())
        options = InitOptions(
            path, None, epsilon, declared, cast(Level, self.trust), map=self.map or None,
            discover=bool(self.clusters), learn=bool(self.learn),
        )  # fmt: skip
        return draft_config(facts, options)


def declaration(name: str, text: str, facts: TableFacts) -> Column:
    """Return what is typed about a column: two numbers are bounds, words are categories or the labels of the target.

    >>> facts = survey({"client": ["a", "b"], "age": [40, 50], "y": [1.5, 2.5]})
    >>> declaration("age", "18 : 90", facts).bounds
    (18.0, 90.0)
    """
    low, colon, high = text.partition(":")
    if colon:
        try:
            return Column(bounds=(float(low), float(high)))
        except ValueError:
            raise ConfigError(f"The bounds of {name} are two numbers, as in 18:90; got {text!r}.") from None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) < 2:
        raise ConfigError(f"State {name} as bounds, such as 18:90, or as words, such as f, m; got {text!r}.")
    if name == facts.target:
        return Column(labels=words)
    return Column(categories=words, other="other" not in words)


def checked(text: str) -> Config:
    """Return a config that was typed; what is wrong with it is a ConfigError."""
    try:
        settings = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"This is not valid TOML: {error}.") from None
    return parse(settings)


def role(facts: TableFacts, column: str) -> str:
    """Return what a column is used as."""
    if column == facts.target:
        return "target"
    places = facts.places.columns if facts.places else None
    return next((key for key in PLACES if places is not None and getattr(places, key) == column), "feature")


def range_text(column: ColumnFacts) -> str:
    """Return the range of numbers, or the most frequent words."""
    if column.kind == "number" and column.low is not None and column.high is not None:
        return f"{column.low:g} to {column.high:g}"
    words = [word if len(word) <= 20 else word[:19] + "…" for word, _ in column.frequent[:4]]
    return ", ".join(words) + (", …" if column.distinct > 4 else "")


def histogram_svg(counts: tuple[int, ...]) -> str:
    """Return the spread of a column as small bars."""
    most = max(counts, default=0)
    if not most:
        return ""
    bars = "".join(
        f'<rect x="{9 * place}" y="{18 - 18 * count / most:.1f}" width="8" height="{18 * count / most:.1f}"/>'
        for place, count in enumerate(counts)
    )
    return f'<svg width="{9 * len(counts)}" height="18" fill="currentColor" aria-hidden="true">{bars}</svg>'


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
            with ui.element("div").classes("tools"):
                self.shapes = {key: self._shape_field(key) for key in SHAPES}
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
        for key, entry in self.places.items():
            entry.set_options(names, value=shown[key])
        self.sizes.text = _sizes(facts)
        self.columns.clear()
        with self.columns:
            self._column_table(facts)
        self.warnings.content = "".join(f"<div class='wrong'>{html.escape(line)}</div>" for line in facts.warnings)
        return self.form

    def _place_field(self, key: str) -> ui.select:
        entry = ui.select([], label=key, clearable=key != "target").props("dense outlined options-dense")
        entry.on_value_change(lambda event: self._change(**{key: event.value or ""}))
        return entry.style("min-width: 150px")

    def _shape_field(self, key: str) -> ui.select:
        label, options = SHAPES[key]
        entry = ui.select(options, label=label, value=getattr(self.form, key)).props("dense outlined options-dense")
        entry.on_value_change(lambda event: self._change(**{key: event.value or ""}))
        return entry.style("min-width: 210px")

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
        entry = ui.input(value=self.form.declared.get(name, ""), placeholder="18:90, or a, b")
        entry.props(f'dense outlined aria-label="{about}"').style("width: 160px")

        def typed() -> None:
            declared = {**self.form.declared, name: str(entry.value or "")}
            self._change(declared={key: value for key, value in declared.items() if value.strip()})

        entry.on("blur", typed).on("keydown.enter", typed)

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
        for entry in (self.epsilon, self.trust):
            entry.set_visibility(bool(self.private.value))

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
