"""HTML templates with autoescaping, and cards: how an object is displayed in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True)
class Templates:
    """The templates of one package."""

    package: str

    def rendered(self, template: str, **values: Any) -> Markup:
        """Return a template, filled in."""
        from markupsafe import Markup

        return Markup(self._environment.get_template(template).render(**values))

    def trusted(self, asset: str) -> Markup:
        """Return a file of the package, put into a page as it is."""
        from markupsafe import Markup

        return Markup(self._text(asset))

    @cached_property
    def _environment(self) -> Environment:
        from jinja2 import Environment, FunctionLoader, StrictUndefined

        environment = Environment(
            loader=FunctionLoader(self._text),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
        return environment

    def _text(self, name: str) -> str:
        return (resources.files(self.package) / name).read_text("utf-8")


DRAWING = Templates("pgfl.drawing")


MOST_ROWS = 10


class Row(NamedTuple):
    """One row of the table: a name, the colour of its key if it has one, and its figures."""

    name: str
    figures: Sequence[str]
    colour: str = ""


class Drawn(NamedTuple):
    """A picture with the keys of its colours, and how many have no key."""

    svg: Markup
    keys: Sequence[tuple[str, str]] = ()
    more: int = 0


def card(
    title: str,
    *,
    words: Sequence[str] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Row] = (),
    pictures: Sequence[Drawn] = (),
) -> str:
    """Return the HTML of a card. It brings its own style, fetches nothing, and takes the notebook's colours."""
    return DRAWING.rendered(
        "card.html.jinja",
        style=DRAWING.trusted("card.css"),
        title=title,
        words=words,
        columns=columns,
        rows=rows[:MOST_ROWS],
        hidden=max(len(rows) - MOST_ROWS, 0),
        pictures=pictures,
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "client"), counted(1500, "row")
    ('1 client', '1,500 rows')
    """
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
