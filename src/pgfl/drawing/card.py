"""A card: how an object shows itself in a notebook, as a line of words, a short table and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pgfl.drawing.page_templates import DRAWING

if TYPE_CHECKING:
    from markupsafe import Markup

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
    """The HTML of a card. It brings its own style, fetches nothing, and takes the notebook's colours."""
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
    """A number with its noun.

    >>> counted(1, "client"), counted(1500, "row")
    ('1 client', '1,500 rows')
    """
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
