"""A config written down: the resolved TOML, and a digest of all that determines the result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pgfl.config.schema import PATH_KEYS, Config, idle_keys
from pgfl.errors import ConfigError

UNDECIDING_KEYS = ("name", "engine", "threads", "checkpoint_every")


def fingerprint(config: Config, *, of_records: bool = True) -> str:
    """A digest of all that determines the result: settings and the contents of the files they name, not their place.

    Without `of_records` it holds of data files only what is public, so that it confirms no guess at a record.
    """
    settings = config.model_dump(mode="json", exclude=set(UNDECIDING_KEYS))
    for section, key in idle_keys(config):
        del settings[section][key]
    if not config.privacy.enabled:
        del settings["privacy"]
    for section, key in PATH_KEYS:
        if (path := settings[section].get(key)) is not None:
            public_only = section == "data" and not of_records
            settings[section][key] = _public_digest(key, path) if public_only else _content_digest(Path(path))
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def _public_digest(key: str, path: str) -> str:
    """Of the clients' table who is where with how many records; of test samples and images, that there are some."""
    if key != "clients":
        return "given"
    from pgfl.data.tables import public_digest

    return public_digest(path)


def _content_digest(path: Path) -> str:
    """Of a file its bytes, of a folder its files, of neither its name."""
    digest = hashlib.blake2b(digest_size=16)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        for file in (file for file in files if file.is_file()):
            digest.update(f"{file.relative_to(path)}\0".encode())
            with open(file, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest() if path.exists() else str(path)


def to_toml(config: Config) -> str:
    """The resolved config: every key that has a value, so that a later default cannot change what was run.

    >>> from pgfl.config import parse
    >>> print(to_toml(parse({"rounds": 9})).splitlines()[1])
    rounds = 9
    """
    settings = config.model_dump(exclude_none=True)
    for section, key in idle_keys(config):
        settings[section].pop(key, None)
    return "\n".join(_tables(settings)).strip() + "\n"


def _tables(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    nested = {key: value for key, value in table.items() if isinstance(value, dict) and prefix + key not in _INLINE}
    yield from (f"{_toml_key(key)} = {_toml_text(value)}" for key, value in table.items() if key not in nested)
    for key, value in nested.items():
        if value:
            yield from ("", f"[{prefix}{_toml_key(key)}]")
            yield from _tables(value, f"{prefix}{_toml_key(key)}.")


_INLINE = ("algorithm.tau",)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def _toml_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_text, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_text(item)}" for key, item in value.items()) + " }"
    return repr(value)
