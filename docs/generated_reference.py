"""Writes the pages of the reference that follow from the code: config keys, commands, error classes."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import pgfl
from pgfl import cli, errors
from pgfl.config import schema

SOURCE = Path(pgfl.__file__).parent
FOLDER = Path(__file__).parent / "reference" / "generated"
MEANINGS = Path(__file__).parent / "reference" / "meanings.toml"


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx reads its sources."""
    app.connect("config-inited", lambda *_: write_pages())
    app.connect("autodoc-process-docstring", _as_restructured_text)
    return {"parallel_read_safe": True}


def write_pages() -> None:
    """Write every generated page that has changed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pages = {
        "config": config_page(),
        "commands": commands_page(),
        "errors": errors_page(),
        "messages": messages_page(),
        "api": api_page(),
    }
    pages |= {f"api/{name}": object_page(name) for name in pgfl.__all__ if not name.startswith("_")}
    (FOLDER / "api").mkdir(exist_ok=True)
    for name, text in pages.items():
        path = FOLDER / f"{name}.md"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _as_restructured_text(app: Any, what: str, name: str, of: object, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in backticks; bars are sizes and norms, not substitutions."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[number] = re.sub(r"`([^`]+)`", r"``\1``", line.replace("|", "\\|").replace("*", "\\*"))


def config_page() -> str:
    """Every key of a config with its default and meaning."""
    sections = [f"## {title}\n\n{_about(model)}\n\n{_keys(model)}" for title, model in config_sections()]
    lead = "Every key has a default except the paths of data files. A relative path is relative to the config.\n"
    return "\n".join(["# Configuration reference\n", lead, *sections])


def config_sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """The tables of a config, the top level first."""
    yield "Top level", schema.Config
    for name, field in schema.Config.model_fields.items():
        for model in _models_in(field.annotation, field.metadata):
            if model is schema.DataSection:
                yield from ((f'`[{name}]`, kind = "{kind}"', schema.DATA[kind]) for kind in schema.DATA.built_in)
            else:
                yield f"`[{name}]`", schema.objective_section() if model is schema.ObjectiveSettings else model


def _models_in(annotation: Any, metadata: Any = ()) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models_in(part)


def _about(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def shown_keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a table; of the top level those that are no tables themselves."""
    fields = model.model_fields.items()
    return {name: field for name, field in fields if model is not schema.Config or not [*_models_in(field.annotation)]}


def _keys(model: type[BaseModel]) -> str:
    meanings = tomllib.loads(MEANINGS.read_text("utf-8"))[model.__name__]
    rows = [
        f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {_cell(meanings[name])} |"
        for name, field in shown_keys(model).items()
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part!r}`".replace("'", '"') for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(part) for part in parts if part is not type(None))
    if origin in (tuple, list):
        inside = [part for part in parts if part is not Ellipsis]
        return f"list of {_type(inside[0])}" if Ellipsis in parts else f"[{', '.join(map(_type, inside))}]"
    if origin in (dict, typing.Mapping):
        return f"table of {_type(parts[1])}"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "{ " + ", ".join(annotation.model_fields) + " }"
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default is not PydanticUndefined else field.default_factory()  # type: ignore[call-arg,misc]
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, BaseModel | dict):
        return "empty"
    shown = repr(list(value) if isinstance(value, tuple) else value).replace("'", '"')
    return f"`{shown}`"


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = ["# Command reference\n"]
    group = typer.main.get_command(cli.app)
    for name in cli.COMMANDS:
        command = group.get_command(click.Context(group), name)  # type: ignore[attr-defined]
        parts += _command(f"pgfl {name}", command)
    return "\n".join(parts)


def _command(path: str, command: click.Command) -> list[str]:
    about = inspect.cleandoc(command.help or "").replace("\b", "")
    lines = [f"## `{path}`\n", f"{about}\n"]
    context = click.Context(command, info_name=path)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            if sub is not None and not sub.hidden:
                lines += [line.replace("## ", "### ", 1) for line in _command(f"{path} {name}", sub)]
        return lines
    usage = " ".join(command.collect_usage_pieces(context))
    rows = [record for p in command.params if (record := _parameter(p, context))]
    table = ["| argument or option | meaning |", "|---|---|", *rows, ""] if rows else []
    return [*lines, f"```text\n{path} {usage}\n```\n", *table]


def _parameter(parameter: click.Parameter, context: click.Context) -> str | None:
    if parameter.param_type_name == "option":
        record = parameter.get_help_record(context)
        return f"| `{_cell(record[0])}` | {_cell(record[1])} |" if record else None
    return f"| `{_cell(parameter.make_metavar(context))}` | {_cell(getattr(parameter, 'help', '') or '')} |"


def errors_page() -> str:
    """Every class of error, and the exit code of the command line."""
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.PgflError)]
    rows = [f"| `{kind.__name__}` | {kind.exit_code} | {_cell(inspect.getdoc(kind) or '')} |" for kind in classes]
    lead = "Every foreseen mistake is one sentence that says what to do, an exception in Python and an exit code.\n"
    return "\n".join(["# Errors\n", lead, "| exception | exit code | meaning |", "|---|---|---|", *rows, ""])


def messages_page() -> str:
    """Every message of an error, by its class, as the code has it."""
    kinds = {kind.__name__ for _, kind in inspect.getmembers(errors, inspect.isclass)}
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for kind, text in _messages(ast.parse(path.read_text("utf-8")), kinds):
            room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
            found.setdefault(kind, {}).setdefault(room, set()).add(text)
    parts = [
        "# Error messages\n",
        "Every message of an error that pgfl raises on purpose, generated from the code. A dot-dot-dot (…) stands for "
        "what differs from case to case: names, numbers and files. Search this page for a part of the message that you "
        "saw. [Errors](errors.md) lists the exceptions and exit codes.\n",
    ]
    for kind in sorted(found):
        parts += [f"## {kind}\n", f"{inspect.getdoc(getattr(errors, kind))}\n"]
        for room, texts in found[kind].items():
            parts += [f"**{room}**\n", *(f"- {_plain(text)}" for text in sorted(texts)), ""]
    return "\n".join(parts)


def _messages(tree: ast.Module, kinds: set[str]) -> Iterator[tuple[str, str]]:
    """(class, message) of every error that is raised with a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds and node.args:
            text = re.sub(r"…(?:\s*…)+", "…", _text_of(node.args[0])).strip()
            if len(text.strip("… .")) > 3:
                yield node.func.id, text


def _text_of(node: ast.expr) -> str:
    """A text as far as the code states it; whatever is filled in is an ellipsis."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text_of(node.left) + _text_of(node.right)
    return "…"


def _plain(text: str) -> str:
    """A text in which nothing is markup but code in backticks."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        piece if piece.startswith("`") and len(piece) > 2 else re.sub(r"([\\*_<>\[\]#$|~`{}])", r"\\\1", piece)
        for piece in pieces
    )


GROUPS = {
    "Federations": ("Federation", "ClientData", "TestSet", "Graph", "Column"),
    "Generating data": ("synthetic_regression", "mnist_federation", "images_federation"),
    "Training": ("train", "PGFL", "ExactMixing", "OneStep", "FedAvg", "Decaying", "Observer"),
    "Objectives": ("Ridge", "Huber", "Logistic", "Softmax", "Objective", "MarginObjective", "Bounds"),
    "Privacy": ("Privacy", "plan", "Facts"),
    "Results": ("Result", "Comparison", "Model"),
}  # fmt: skip
"""The public names as the page sorts them; what is not here comes last."""


def api_page() -> str:
    """The public names, documented by their docstrings."""
    listed = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "More": tuple(name for name in pgfl.__all__ if name not in listed)}
    parts = ["# Python API\n", "Import these names from `pgfl`. Examples that begin with `>>>` are run as tests.\n"]
    for title, names in groups.items():
        if own := [name for name in names if not name.startswith("_")]:
            rows = [f"| [`{name}`](api/{name}.md) | {_cell(_first_sentence(getattr(pgfl, name)))} |" for name in own]
            parts += [f"## {title}\n", "| name | what it is |", "|---|---|", *rows, ""]
            parts += ["```{toctree}", ":hidden:", "", *(f"api/{name}" for name in own), "```", ""]
    return "\n".join(parts)


def _first_sentence(value: Any) -> str:
    return inspect.cleandoc(inspect.getdoc(value) or "").split("\n\n")[0].replace("*", "\\*")


def object_page(name: str) -> str:
    """One public name, as it is imported."""
    value = getattr(pgfl, name)
    directive = "autoclass" if inspect.isclass(value) else "autofunction"
    members = "\n:members:\n:inherited-members: object" if inspect.isclass(value) else ""
    shown = f"```python\nfrom pgfl import {name}\n```"
    return f"# {name}\n\n{shown}\n\n```{{eval-rst}}\n.. {directive}:: pgfl.{name}{_indented(members)}\n```\n"


def _indented(text: str) -> str:
    return text.replace("\n", "\n   ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\[", "[").replace("|", "\\|")
