"""`pgfl plan`: what a private training will achieve, before anything is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgfl.cli.shared import TRUST_HELP, Json, Trust

if TYPE_CHECKING:
    from pgfl.planning.forecast import Plan

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file or a preset.")],
    epsilon: Annotated[float | None, typer.Option(help="The target ε (default: the config's).")] = None,
    expect: Annotated[
        float | None,
        typer.Option(help="Expected R² or AUC of a training without privacy."),
    ] = None,
    label_mean: Annotated[
        float | None,
        typer.Option(
            help="Expected label mean on the [-1, 1] scale; of two labels, the share of the second.",
            show_default=False,
        ),
    ] = None,
    label_scale: Annotated[
        float | None,
        typer.Option(
            help="Expected label standard deviation on the [-1, 1] scale (regression only).",
            show_default=False,
        ),
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Typical standard deviation of a column after scaling to [-1, 1] (default: 0.46).",
            show_default=False,
        ),
    ] = None,
    trust: Annotated[
        Trust | None, typer.Option(help=f"{TRUST_HELP} (default: the config's).", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write a config with the planned settings.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Plot error against ε for the three trust levels (png, pdf or svg)."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Give the reason of every setting.")] = False,
    as_json: Json = False,
) -> None:
    """Choose the settings of a private training and predict its error, from public facts and simulated data.

    No record is read and no privacy is spent: only column names and the places of clients are taken from a table.
    """
    from pgfl import config as configs
    from pgfl.cli.shared import bar
    from pgfl.files import write_text
    from pgfl.planning import forecast as pictures
    from pgfl.planning.planner import plan as work_out

    if picture is not None:
        pictures.check_kind(picture)

    overrides = [] if epsilon is None else [f"privacy.epsilon={epsilon!r}"]
    overrides += [] if trust is None else [f"privacy.trust={trust.value}", "algorithm.client=gradient"]
    config = configs.load_config(source, overrides)
    with bar(None, "planning", shown=not as_json) as progress:
        stated: dict[str, Any] = {"label_mean": label_mean, "label_scale": label_scale, "spread": spread}
        found = work_out(config, progress=progress, expected=expect, **stated)
    if out is not None:
        write_text(out, found.to_toml())
    if picture is not None:
        pictures.save(found, picture)
    if as_json:
        typer.echo(json.dumps(found.described() | {"out": None if out is None else str(out)}, indent=2))
    else:
        show(found, out, explain=explain)


def show(found: Plan, out: Path | None, explain: bool = False) -> None:
    """Print a plan for people."""
    from rich.console import Console
    from rich.table import Table

    console, facts, chosen, unit = Console(), found.facts, found.settings, found.unit
    console.print(
        f"{facts.servers} servers, {facts.clients} clients, {facts.clusters} clusters, {facts.records[0]} to "
        f"{facts.records[1]} records per client, {facts.columns} columns; trust = {facts.trust}"
    )
    measure, curves = found.measure, found.by_trust
    table = Table(title=f"{measure} in {unit}, by whom clients trust", title_justify="left")
    for heading in ("epsilon", *curves):
        table.add_column(heading, justify="right")
    for level in next(iter(curves.values()), {}):
        starred = {trust: "*" if (trust, level) in found.instead else "" for trust in curves}
        table.add_row(f"{level:g}", *(f"{curve[level]:.1f}{starred[trust]}" for trust, curve in curves.items()))
    table.add_row("without privacy", *[f"{found.limit:.1f}"] * len(curves))
    console.print(table)
    if found.instead:
        console.print("* with less trust, which does better here")
    if explain:
        reasons = Table("key", "value", "why", title="Settings", title_justify="left")
        for choice in found.choices:
            reasons.add_row(choice.key, _value(choice.value), choice.reason)
        console.print(reasons)
    else:
        kappa = "" if chosen.kappa is None else f", kappa {chosen.kappa:.3g}"
        fall = "" if chosen.tau_decay == 1.0 else f" × {chosen.tau_decay:.4g}ⁿ"
        console.print(
            f"Settings: client = gradient, rho {chosen.rho:.3g}, zeta {chosen.zeta:.4g}, {chosen.releases} releases "
            f"per client, tau {chosen.tau:.2g}{fall}{kappa}, x_norm {chosen.x_norm or facts.x_norm:.3g}, full_records "
            f"{chosen.full_records}, {chosen.rounds} rounds"
        )
    predicted = found.predicted
    console.print(
        f"Predicted {measure}: {predicted.value:.1f} {unit} (one run: {predicted.low:.1f} to {predicted.high:.1f})"
    )
    if found.kept is not None:
        kept = found.kept
        console.print(
            f"Share of what is reached without privacy: {100 * kept.value:.0f} % "
            f"({100 * max(kept.low, 0.0):.0f} to {100 * kept.high:.0f}{_as_measured(found)})"
        )
    for name, gain in sorted(found.helps.items(), key=lambda pair: -pair[1]):
        console.print(f"  {name}: {gain:+.1f} {'dB better' if unit == 'dB' else 'points'}")
    console.print(found.verdict)
    if found.advice is not None:
        console.print(found.advice)
    if out is not None:
        console.print(f"Run it with: pgfl run {out}", soft_wrap=True)


def _as_measured(found: Plan) -> str:
    """Return which share the held-out rows of one run will show."""
    if found.measured is None or not found.facts.test_records:
        return ""
    low, high = (100 * end for end in (found.measured.low, found.measured.high))
    most = "100 or more" if high >= 100.0 else f"{high:.0f}"
    return f"; one run, as {found.facts.test_records} held-out rows measure it: {low:.0f} to {most}"


def _value(value: object) -> str:
    """Return a setting as people read it."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
