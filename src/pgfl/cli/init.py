"""`pgfl init`: a commented config for a table, to start from."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import TRUST_HELP, ClientColumn, ClusterColumn, ServerColumn, Trust, read_costs

if TYPE_CHECKING:
    from pgfl.federation.declarations import Column
    from pgfl.planning.forecast import Plan
    from pgfl.privacy.trust import Level

app = typer.Typer(add_completion=False)


class Task(StrEnum):
    """What is predicted."""

    regression = "regression"
    classification = "classification"


@app.command()
def init(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A csv or parquet file with one row per sample.")],
    target: Annotated[str | None, typer.Option(help="The column to predict (default: y).", show_default=False)] = None,
    task: Annotated[
        Task | None, typer.Option(help="The task; guessed from the target by default.", show_default=False)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Train with privacy, with this budget for each client.", show_default=False)
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option("--bounds", metavar="COLUMN=LOW:HIGH", help="Public bounds of a column (may be repeated)."),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option("--categories", metavar="COLUMN=A,B,…", help="Public categories of a column (may be repeated)."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Public labels of the target.", show_default=False)
    ] = None,
    trust: Annotated[
        Trust | None,
        typer.Option(help=f"{TRUST_HELP}.", show_default="local"),
    ] = None,
    no_plan: Annotated[
        bool,
        typer.Option("--no-plan", help="Leave the settings of a private training to you, instead of planning them."),
    ] = False,
    expect: Annotated[
        float | None,
        typer.Option(help="For the plan: expected R² or AUC of a training without privacy.", show_default=False),
    ] = None,
    row_map: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="NAME",
            help="Let columns act as curves: a row map, or auto for the one that pays.",
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            metavar="MISS:FALSE_ALARM",
            help="Of two labels let saved models predict the one that costs less, as in 9:1.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The config to write; it must not exist.")] = Path("config.toml"),
    client: ClientColumn = None,
    server: ServerColumn = None,
    cluster: ClusterColumn = None,
) -> None:
    """Write a commented config for a table. It runs as it is; with --epsilon, once all public bounds are stated.

    With --epsilon, steps, rounds and noise are planned from public facts alone, as `pgfl plan` does.
    """
    from pgfl.config.starter import InitOptions, draft_config
    from pgfl.errors import ConfigError
    from pgfl.federation.survey import survey

    if out.exists():
        raise ConfigError(f"{out} already exists; choose another name with --out, or remove it.")
    if trust is not None and epsilon is None:
        raise ConfigError("--trust is for a private training; state its budget with --epsilon.")
    if no_plan and epsilon is None:
        raise ConfigError("--no-plan is for a private training; state its budget with --epsilon.")
    if expect is not None and (no_plan or epsilon is None):
        raise ConfigError("--expect is for the plan of a private training; give --epsilon and no --no-plan.")
    facts = survey(table, target=target, client=client, server=server, cluster=cluster)
    declared = _stated(bounds or [], categories or [], labels, facts.target)
    level: Level = trust.value if trust else "local"
    path = os.path.relpath(table.resolve(), out.resolve().parent)
    planning = epsilon is not None and not no_plan
    options = InitOptions(path, task.value if task else None, epsilon, declared, level, {} if planning else None)
    options = replace(options, map=_known_map(row_map), costs=None if costs is None else read_costs(costs))
    draft, planned = draft_config(facts, options), None
    if planning and not draft.unstated:
        planned = _planned(draft.text, out, expect)
        chosen = {choice.key: (choice.value, choice.reason) for choice in planned.choices}
        draft = draft_config(facts, replace(options, planned=chosen, foretold=planned.verdict))
    _write(out, draft.text, complete=not draft.unstated)
    for warning in facts.warnings:
        typer.echo(f"Warning: {warning}")
    typer.echo(f"{out} is written for {draft.task}{'' if task else ' (choose with --task)'}.")
    if draft.unstated:
        typer.echo(
            f"Privacy needs public facts about {', '.join(draft.unstated)}: state them in {out}, or remove it and "
            "write it again with --bounds COLUMN=LOW:HIGH, --categories COLUMN=A,B and --labels A,B."
        )
        return
    if planned is not None:
        typer.echo(f"Planned from public facts alone: {planned.verdict}")
        typer.echo(f"What else would help, and why these settings: pgfl plan {out} --explain")
    typer.echo(f"Run it with: pgfl run {out}")


def _known_map(name: str | None) -> str | None:
    """Refuse a map that does not exist, before anything is planned for it."""
    from pgfl.maps import AUTO, read_maps

    if name not in (None, AUTO):
        read_maps(name, "--map")
    return name


def _planned(text: str, out: Path, expect: float | None) -> Plan:
    """Return the plan for a drafted config, whose paths are relative to the file that it will be in."""
    from pgfl.config import parse
    from pgfl.planning.planner import plan

    return plan(parse(tomllib.loads(text), out.resolve().parent), whole=False, expected=expect)


def _write(out: Path, text: str, complete: bool) -> None:
    """Write the config, never over a file that is there; a complete one is checked first."""
    from pgfl.config import parse

    if complete:
        parse(tomllib.loads(text))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        file.write(text)


def _stated(bounds: list[str], categories: list[str], labels: str | None, target: str | None) -> dict[str, Column]:
    """Return the declarations that are stated on the command line."""
    from pgfl.errors import ConfigError
    from pgfl.federation.declarations import Column

    declared: dict[str, Column] = {}
    for option, example, given in (
        ("--bounds", "age=18:90", bounds),
        ("--categories", "sex=f,m", categories),
    ):
        for text in given:
            name, equals, value = text.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise ConfigError(f"{option} takes {example}; got {text!r}.")
            if name.strip() in declared:
                raise ConfigError(f"Column {name.strip()!r} is declared twice; keep one of them.")
            declared[name.strip()] = _bounded(text, value) if option == "--bounds" else _categories(value)
    if labels is not None:
        if target is None or target in declared:
            raise ConfigError("--labels states the labels of the target; name it with --target, and give no bounds.")
        declared[target] = Column(labels=labels.split(","))
    return declared


def _bounded(text: str, value: str) -> Column:
    from pgfl.errors import ConfigError
    from pgfl.federation.declarations import Column

    low, _, high = value.partition(":")
    try:
        return Column(bounds=(float(low), float(high)))
    except ValueError:
        raise ConfigError(f"--bounds takes two numbers, as in age=18:90; got {text!r}.") from None


def _categories(value: str) -> Column:
    from pgfl.federation.declarations import Column

    words = [word.strip() for word in value.split(",")]
    return Column(categories=words, other="other" not in words)
