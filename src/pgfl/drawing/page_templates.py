"""Jinja2 templates that lie in a package, with autoescaping."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True)
class Templates:
    """The templates of one package."""

    package: str

    def rendered(self, template: str, **values: Any) -> Markup:
        """A template, filled in."""
        from markupsafe import Markup

        return Markup(self._environment.get_template(template).render(**values))

    def trusted(self, asset: str) -> Markup:
        """A file of the package, put into a page as it is."""
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
