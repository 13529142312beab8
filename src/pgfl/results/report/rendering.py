"""The Jinja2 templates of this folder, with autoescaping."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def rendered(template: str, **values: Any) -> Markup:
    """A template, filled in."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(**values))


def trusted(asset: str) -> Markup:
    """A file of the package, put into a page as it is."""
    from markupsafe import Markup

    return Markup(_text(asset))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment


def _text(name: str) -> str:
    return (resources.files("pgfl.results.report") / name).read_text("utf-8")
