"""How `site.toml` and `client.toml` are read and written: a wrong file ends in one sentence that names the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import ValidationError

from pgfl.config.error_messages import one_line, sentence
from pgfl.config.reading import tuples
from pgfl.config.schema import Section
from pgfl.errors import ConfigError

AnySection = TypeVar("AnySection", bound=Section)


def load_settings(path: Path, section: type[AnySection]) -> AnySection:
    """The settings in a TOML file."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {one_line(error)}.") from error
    try:
        return section.model_validate(tuples(table))
    except ValidationError as error:
        raise ConfigError(f"{path}: {sentence(error, list(_keys(section)))}") from None


def toml_of(settings: Mapping[str, Any]) -> str:
    """Settings as TOML; keys without a value are left out, since TOML has no null."""
    return tomli_w.dumps(_without_none(settings))


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def _keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _keys(field.annotation, f"{prefix}{name}.")
