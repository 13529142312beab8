"""Configs as TOML: read and validated, with one sentence for each mistake, and written."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, cast, get_args

import tomli_w
from pydantic import ValidationError

from pgfl.config.schema import (
    DATA,
    DEFAULT_DEGREE,
    PATH_KEYS,
    AlgorithmSettings,
    Config,
    Decay,
    GraphSettings,
    PrivacySettings,
    idle_keys,
    objective_section,
)
from pgfl.config.section import MOST, DataSection, Section
from pgfl.config.synthetic_data import Generated
from pgfl.errors import ConfigError
from pgfl.suggestions import nearest, shown

_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table",
}
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


RENAMED_KEYS = {"data.clients": "data.table"}
"""Keys of old configs, and what they are called now."""


def sentence(error: ValidationError, known: Collection[str] | None = None) -> str:
    """The most helpful of pydantic's errors as one sentence: an unknown key first, as it explains a missing one.

    `known` are the keys of the file, dotted; those of a config unless given.
    """
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"] if not str(part).startswith("<"))
    kind, given = first["type"], shown(first["input"])
    context = first.get("ctx", {})
    if kind == "extra_forbidden":
        if isinstance(first["input"], Mapping) and (known is None) and (leaf := _misplaced(key, first["input"])):
            return leaf
        return _unknown(key, [str(part) for part in first["loc"]], dict(_known_keys()) if known is None else known)
    if kind == "missing" and isinstance(first["loc"][-1], int):
        return f"`{key.rpartition('.')[0]}` is too short a list."
    if kind == "missing":
        return f"`{key}` is missing; it has no default."
    if kind == "value_error":
        return str(context["error"])
    if kind.startswith("union_tag"):
        wrong = first["input"].get("kind") if isinstance(first["input"], Mapping) else None
        if wrong is None:
            return f"`{key}` must be a table; got {given}."
        return f"`{key}.kind` must be one of {', '.join(DATA)}; got {shown(wrong)}{nearest(wrong, DATA)}."
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", str(context["expected"]))
        if len(options) == 1:
            return f'`{key}` must be a whole number or "{options[0]}"; got {given}.'
        return f"`{key}` must be one of {', '.join(options)}; got {given}{nearest(first['input'], options)}."
    if kind in _LIMITS:
        limit, words = _LIMITS[kind]
        return f"`{key}` must be {words} {context[limit]}; got {given}."
    if kind == "too_long":
        return f"`{key}` must be a list of {context['max_length']}; got {given}."
    if kind == "finite_number":
        return f"`{key}` must be a finite number; got {given}."
    if wanted := _WANTED.get(kind.split("_")[0]):
        return f"`{key}` must be {wanted}; got {given}."
    return f"`{key}` is wrong: {one_line(first['msg'])}; got {given}."


def _misplaced(section: str, keys: Mapping[str, Any]) -> str | None:
    """The sentence about a key that stands in a section that does not exist, such as `run.rounds`."""
    sections = {name.partition(".")[0] for name, _ in _known_keys() if "." in name}
    if "." in section or difflib.get_close_matches(section, sections, n=1, cutoff=0.6):
        return None
    homes = {key: name for name, _ in _known_keys() for key in keys if name == key}
    return next((f"Unknown key `{section}.{key}`; did you mean `{home}`?" for key, home in homes.items()), None)


def _unknown(key: str, location: list[str], known: Collection[str]) -> str:
    if key in RENAMED_KEYS and RENAMED_KEYS[key] in known:
        return f"Unknown key `{key}`; it is called `{RENAMED_KEYS[key]}` now."
    section, _, leaf = key.rpartition(".")
    siblings = [name for name in known if name.rpartition(".")[0] == _generic(section, location)]
    if "data" in location[:1]:
        kind = location[1].strip("<>")
        siblings = [f"data.{name}" for name in DATA[kind].model_fields]
        if key in known and key not in siblings:
            owner = next(name for name in DATA if leaf in DATA[name].model_fields)
            return f"`{key}` belongs to data of kind {owner}, but `data.kind` is {kind}."
    own = difflib.get_close_matches(leaf, [name.rpartition(".")[2] for name in siblings], n=1, cutoff=0.6)
    elsewhere = [name for name in known if name.rpartition(".")[2] == leaf and "NAME" not in name]
    if own:
        return f"Unknown key `{key}`; did you mean `{section + '.' if section else ''}{own[0]}`?"
    if elsewhere:
        return f"Unknown key `{key}`; did you mean `{elsewhere[0]}`?"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if near:
        return f"Unknown key `{key}`; did you mean `{near[0]}`?"
    choices = ", ".join(name.rpartition(".")[2] for name in siblings)
    return f"Unknown key `{key}`; the keys {f'of [{section}]' if section else 'at the top'} are {choices}."


def _generic(section: str, location: list[str]) -> str:
    return "objective.clusters.NAME" if location[:2] == ["objective", "clusters"] else section


def _known_keys() -> Iterator[tuple[str, type]]:
    objective = objective_section()
    sections: list[tuple[str, type[Section]]] = [
        ("", Config),
        *(("data.", DATA[kind]) for kind in DATA),
        ("graph.", GraphSettings),
        ("objective.", objective),
        ("objective.clusters.NAME.", get_args(objective.model_fields["clusters"].annotation)[1]),
        ("algorithm.", AlgorithmSettings),
        ("algorithm.tau.", Decay),
        ("privacy.", PrivacySettings),
    ]
    for prefix, section in sections:
        yield from ((prefix + name, section) for name in section.model_fields)


def one_line(error: object) -> str:
    """A message without line breaks or a full stop."""
    return " ".join(str(error).split()).rstrip(".")


TABLES = (".csv", ".parquet")


def load_config(
    source: str | os.PathLike[str], overrides: Sequence[str] = (), seed: int | None = None, folds: int | None = None
) -> Config:
    """The config of a TOML file or a preset, with `key=value` overrides; relative paths are relative to the file.

    With `folds` a table is cross-validated instead of holding out its `data.test`.

    >>> load_config("paper-fig2", ["rounds=20", "graph.kind=ring"], seed=7).algorithm.participants
    3
    """
    settings, base = read_settings(source)
    for override in overrides:
        apply_override(settings, override)
    if seed is not None:
        settings["seed"] = seed
    if folds is not None and isinstance(data := settings.setdefault("data", {}), dict):
        data.pop("test", None)
        data["folds"] = folds
    return parse(settings, base)


def read_settings(source: str | os.PathLike[str]) -> tuple[dict[str, Any], Path]:
    """What a TOML file or a preset states, unchecked, and the folder that its relative paths start from."""
    text, base, name = _read(source)
    try:
        settings = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid TOML: {one_line(error)}.") from None
    settings.setdefault("name", _folder_name(Path(name).stem))
    return settings, base


def parse(settings: Mapping[str, Any], base: Path | None = None) -> Config:
    """A config from plain dictionaries; relative paths are taken from `base` where it is given."""
    filled = _fill({key: tuples(value) for key, value in settings.items()})
    try:
        config = Config.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(" ".join(sentence(error).split())) from None
    return config if base is None else _with_absolute_paths(config, base)


def presets() -> dict[str, str]:
    """The presets of the package: name and one-line description, sorted by name.

    >>> "private-huber" in presets()
    True
    """
    files = sorted((file for file in _preset_folder().iterdir() if file.name.endswith(".toml")), key=lambda f: f.name)
    return {file.name.removesuffix(".toml"): file.read_text("utf-8").splitlines()[0].lstrip("# ") for file in files}


def _preset_folder() -> Any:
    return resources.files("pgfl") / "presets"


def _read(source: str | os.PathLike[str]) -> tuple[str, Path, str]:
    """The text, the folder its relative paths start from, and how messages call it."""
    spelling = os.fspath(source)
    if "\x00" in spelling:
        raise ConfigError("The name of the config holds a NUL character; give a file or a preset.")
    path = Path(os.path.expanduser(spelling))
    if isinstance(source, str) and source in presets():
        return (_preset_folder() / f"{source}.toml").read_text("utf-8"), Path.cwd(), source
    if isinstance(source, str) and path.suffix == "" and path.name == spelling and not path.exists():
        raise ConfigError(f"There is no preset or file {source!r}{nearest(source, presets())}; see `pgfl presets`.")
    if path.suffix.lower() in TABLES and path.exists():
        raise ConfigError(f"{path} is a table, not a config; write one for it with `pgfl init {path}`.")
    try:
        return path.read_bytes().decode("utf-8"), path.resolve().parent, str(path)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8; a config is TOML.") from None
    except FileNotFoundError:
        raise ConfigError(f"The config {path} does not exist; give a TOML file or one of `pgfl presets`.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the TOML file in it.") from None
    except OSError as error:
        raise ConfigError(f"The config {path} cannot be read: {error.strerror}.") from None


def apply_override(settings: dict[str, Any], override: str) -> None:
    """Set one key of unchecked settings, as `--set key=value` does."""
    key, equals, value = override.partition("=")
    path = _key_path(key.strip())
    if not equals or not path:
        raise ConfigError(f"--set takes key=value, as in --set algorithm.rho=3; got {override!r}.")
    table = settings
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {key.strip()}: `{part}` is a value here, not a table.")
    table[path[-1]] = _toml_value(value.strip())


def _key_path(key: str) -> list[str]:
    try:
        table: Any = tomllib.loads(f"{key} = 0") if "\n" not in key else {}
    except (ValueError, RecursionError):
        return [] if "" in key.split(".") else key.split(".")
    path = []
    while isinstance(table, dict) and len(table) == 1:
        path.append(next(iter(table)))
        table = table[path[-1]]
    return path if table == 0 else []


def _toml_value(text: str) -> Any:
    """A TOML value; what is none is text, so that quotes may be left out."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def tuples(value: object) -> object:
    """The value with its lists as tuples, as frozen sections hold them."""
    if isinstance(value, list | tuple):
        return tuple(tuples(item) for item in value)
    return {key: tuples(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _fill(settings: dict[str, Any]) -> dict[str, Any]:
    """Defaults that depend on other keys."""
    data, graph = settings.get("data", {}), settings.get("graph", {})
    if not isinstance(data, dict) or not isinstance(graph, dict):
        return settings
    if "kind" not in graph:
        kind = "edges" if "edges" in graph else "none" if data.get("kind") == "table" else "random"
        graph = {"kind": kind} | graph
    servers = data.get("servers", Generated.model_fields["servers"].default)
    if graph["kind"] == "random" and data.get("kind") != "table" and type(servers) is int and 1 <= servers <= MOST:
        nearest = min(max(DEFAULT_DEGREE, 2 * (servers - 1) / servers), servers - 1.0)
        graph = {"average_degree": nearest} | graph
    settings = settings | {"graph": graph}
    if data.get("kind") == "table" and type(data.get("folds")) is int:
        settings = {"runs": data["folds"]} | settings
    privacy = settings.get("privacy")
    if isinstance(privacy, dict) and privacy.get("enabled", True) is True and "epsilon" in privacy:
        privacy = {"max_releases": settings.get("rounds", Config.model_fields["rounds"].default)} | privacy
        settings["privacy"] = privacy
    return settings


def _with_absolute_paths(config: Config, base: Path) -> Config:
    sections: dict[str, Section] = {}
    for section, key in PATH_KEYS:
        current = sections.get(section, getattr(config, section))
        value = getattr(current, key, None)
        if not isinstance(value, str):
            continue
        if "\x00" in value:
            raise ConfigError(f"`{section}.{key}` holds a NUL character; give the path of a file.")
        sections[section] = current.model_copy(update={key: str(base / os.path.expanduser(value))})
    data = cast("DataSection", sections.get("data", config.data))
    if maps := data.chosen_map:
        sections["data"] = data.model_copy(update={"map": tuple(one.located(base) for one in maps)})
    changes: dict[str, object] = dict(sections)
    if config.continues is not None:
        changes["continues"] = str(base / os.path.expanduser(config.continues))
    return config.model_copy(update=changes)


def _folder_name(stem: str) -> str:
    return re.sub(r"[/\\\x00-\x1f]", "-", stem) or "run"


def to_toml(config: Config) -> str:
    """The resolved config: every key that has a value, so that a later default cannot change what was run.

    >>> from pgfl.config import parse
    >>> print(to_toml(parse({"rounds": 9})).splitlines()[1])
    rounds = 9
    """
    settings = config.model_dump(exclude_none=True)
    for section, key in idle_keys(config):
        settings[section].pop(key, None)
    for section, key in (("objective", "clusters"), ("data", "columns"), ("data", "ignore")):
        if not settings[section].get(key, True):
            del settings[section][key]
    if not settings["new_clients"]:
        del settings["new_clients"]
    return tomli_w.dumps(settings)
