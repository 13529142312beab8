"""What is wrong with a config, as one sentence that names the key; unknown keys suggest the nearest known one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping

from pydantic import ValidationError

from pgfl.config.schema import (
    DATA_KINDS,
    DATA_SECTIONS,
    AlgorithmSettings,
    ClusterObjective,
    Config,
    Decay,
    GraphSettings,
    ObjectiveSettings,
    PrivacySettings,
    Section,
)
from pgfl.did_you_mean import nearest, shown

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


def sentence(error: ValidationError, known: Collection[str] | None = None) -> str:
    """The most helpful of pydantic's errors as one sentence: an unknown key first, as it explains a missing one.

    `known` are the keys of the file, dotted; those of a config unless given.
    """
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"] if not str(part).startswith("<"))
    kind, given = first["type"], shown(first["input"])
    context = first.get("ctx", {})
    if kind == "extra_forbidden":
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
        return f"`{key}.kind` must be one of {', '.join(DATA_KINDS)}; got {shown(wrong)}{nearest(wrong, DATA_KINDS)}."
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


def _unknown(key: str, location: list[str], known: Collection[str]) -> str:
    section, _, leaf = key.rpartition(".")
    siblings = [name for name in known if name.rpartition(".")[0] == _generic(section, location)]
    if "data" in location[:1]:
        siblings = [f"data.{name}" for name in DATA_SECTIONS[location[1]].model_fields]
        if key in known and key not in siblings:
            owner = next(tag for tag, section in DATA_SECTIONS.items() if leaf in section.model_fields).strip("<>")
            return f"`{key}` belongs to data of kind {owner}, but `data.kind` is {location[1].strip('<>')}."
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
    sections: list[tuple[str, type[Section]]] = [
        ("", Config),
        *(("data.", section) for section in DATA_SECTIONS.values()),
        ("graph.", GraphSettings),
        ("objective.", ObjectiveSettings),
        ("objective.clusters.NAME.", ClusterObjective),
        ("algorithm.", AlgorithmSettings),
        ("algorithm.tau.", Decay),
        ("privacy.", PrivacySettings),
    ]
    for prefix, section in sections:
        yield from ((prefix + name, section) for name in section.model_fields)


def one_line(error: object) -> str:
    """A message without line breaks or a full stop."""
    return " ".join(str(error).split()).rstrip(".")
