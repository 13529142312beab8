"""What a user says about a table: columns, bounds, privacy; it becomes a config, and an address."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlencode

from pgfl.config import Config, parse
from pgfl.core.declarations import Column
from pgfl.data.first_config import Asked, Draft, draft_config
from pgfl.data.survey import survey
from pgfl.data.table_facts import ColumnFacts, TableFacts
from pgfl.errors import ConfigError
from pgfl.privacy.trust import Level, Trust

PLACES = ("client", "server", "cluster")


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
    declared: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_query(cls, table: str, named: Mapping[str, str], bounds: list[str]) -> TableForm:
        """The form that an address names."""
        pairs = (text.partition("=") for text in bounds)
        known = {key: named[key] for key in ("target", *PLACES, "epsilon") if named.get(key)}
        known |= {"trust": named["trust"]} if named.get("trust") in get_args(Level) else {}
        return cls(table, **known, declared={name: value for name, _, value in pairs if value})

    def address(self) -> str:
        """The address of this form."""
        plain = [(key, getattr(self, key)) for key in ("table", "target", *PLACES, "epsilon")]
        pairs = [(key, value) for key, value in plain if value]
        pairs += [("trust", self.trust)] if self.epsilon and self.trust != Trust.level else []
        return "/data" + (
            "?" + urlencode([*pairs, *(("bounds", f"{k}={v}") for k, v in self.declared.items())]) if pairs else ""
        )

    def facts(self) -> TableFacts:
        """What the table holds, as `pgfl describe` shows it."""
        named = {key: getattr(self, key) or None for key in ("target", *PLACES)}
        return survey(Path(self.table).expanduser(), **named)

    def draft(self, facts: TableFacts) -> Draft:
        """The config that `pgfl init` would write."""
        epsilon = None
        if self.epsilon:
            try:
                epsilon = float(self.epsilon)
            except ValueError:
                raise ConfigError(f"`privacy.epsilon` must be a number; got {self.epsilon!r}.") from None
        declared = {name: declaration(name, text, facts) for name, text in self.declared.items() if text.strip()}
        path = str(Path(self.table).expanduser().resolve())
        return draft_config(facts, Asked(path, None, epsilon, declared, cast(Level, self.trust)))


def declaration(name: str, text: str, facts: TableFacts) -> Column:
    """What is typed about a column: two numbers are bounds, words are categories or the labels of the target.

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
    """A config that was typed; what is wrong with it is a ConfigError."""
    try:
        settings = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"This is not valid TOML: {error}.") from None
    return parse(settings)


def role(facts: TableFacts, column: str) -> str:
    """What a column is used as."""
    if column == facts.target:
        return "target"
    places = facts.places.columns if facts.places else None
    return next((key for key in PLACES if places is not None and getattr(places, key) == column), "feature")


def range_text(column: ColumnFacts) -> str:
    """The range of numbers, or the most frequent words."""
    if column.kind == "number" and column.low is not None and column.high is not None:
        return f"{column.low:g} to {column.high:g}"
    words = [word if len(word) <= 20 else word[:19] + "…" for word, _ in column.frequent[:4]]
    return ", ".join(words) + (", …" if column.distinct > 4 else "")


def histogram_svg(counts: tuple[int, ...]) -> str:
    """The spread of a column as small bars."""
    most = max(counts, default=0)
    if not most:
        return ""
    bars = "".join(
        f'<rect x="{9 * place}" y="{18 - 18 * count / most:.1f}" width="8" height="{18 * count / most:.1f}"/>'
        for place, count in enumerate(counts)
    )
    return f'<svg width="{9 * len(counts)}" height="18" fill="currentColor" aria-hidden="true">{bars}</svg>'
