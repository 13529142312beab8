"""`pgfl plan`: what a private training will achieve, before anything is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import Json

if TYPE_CHECKING:
    from pgfl.planning.forecast import Plan

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file or a preset.")],
    epsilon: Annotated[float | None, typer.Option(help="The target ε, where it is not the config's.")] = None,
    expect: Annotated[
        float | None,
        typer.Option(help="How well you expect to predict without privacy: share of variance explained, or accuracy."),
    ] = None,
    label_mean: Annotated[
        float | None,
        typer.Option(
            help="The labels' mean that you expect; of two labels, the share of the second. A target with bounds is "
            "scaled from them to [-1, 1].",
            show_default=False,
        ),
    ] = None,
    label_scale: Annotated[
        float | None,
        typer.Option(
            help="The labels' standard deviation that you expect, for a regression: 0.5 is a quarter of the bounds.",
            show_default=False,
        ),
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Standard deviation of a typical number of your table, scaled from its bounds to [-1, 1] (0.46).",
            show_default=False,
        ),
    ] = None,
    trust: Annotated[
        str | None, typer.Option(help="Whom clients trust: local, site or masked; else the config's.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the config that carries the plan out.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw error against ε for the three levels of trust, as png, pdf or svg."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose the settings of a private training and predict its error, from public facts and made-up data alone.

    No record is read and nothing is spent: of a table only the columns' names and who is where are used.
    """
    from pgfl import config as configs
    from pgfl.cli.shared import bar
    from pgfl.files import write_text
    from pgfl.planning import forecast as pictures
    from pgfl.planning.planner import plan as work_out

    if picture is not None:
        pictures.check_kind(picture)

    overrides = [] if epsilon is None else [f"privacy.epsilon={epsilon!r}"]
    overrides += [] if trust is None else [f"privacy.trust={trust}", "algorithm.client=gradient"]
    config = configs.load(source, overrides)
    with bar(None, "planning", shown=not as_json) as progress:
        stated = {"expected": expect, "label_mean": label_mean, "label_scale": label_scale, "spread": spread}
        found = work_out(config, progress=progress, **stated)
    if out is not None:
        write_text(out, found.to_toml())
    if picture is not None:
        pictures.save(found, picture)
    if as_json:
        typer.echo(json.dumps(found.described() | {"out": None if out is None else str(out)}, indent=2))
    else:
        show(found, out)


def show(found: Plan, out: Path | None) -> None:
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
    kappa = "" if chosen.kappa is None else f", kappa {chosen.kappa:.3g}"
    fall = "" if chosen.tau_decay == 1.0 else f" × {chosen.tau_decay:.4g}ⁿ"
    console.print(
        f"Settings: client = gradient, rho {chosen.rho:.3g}, zeta {chosen.zeta:.4g}, {chosen.releases} releases per "
        f"client, tau {chosen.tau:.2g}{fall}{kappa}, x_norm {chosen.x_norm or facts.x_norm:.3g}, full_records "
        f"{chosen.full_records}, {chosen.rounds} rounds"
    )
    predicted = found.predicted
    console.print(
        f"Predicted {measure}: {predicted.value:.1f} {unit} (one run: {predicted.low:.1f} to {predicted.high:.1f})"
    )
    for name, gain in sorted(found.helps.items(), key=lambda pair: -pair[1]):
        console.print(f"  {name}: {gain:+.1f} {'dB better' if unit == 'dB' else 'points'}")
    console.print(found.verdict)
    if found.advice is not None:
        console.print(found.advice)
    if out is not None:
        console.print(f"Run it with: pgfl run {out}", soft_wrap=True)
