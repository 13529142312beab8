"""`pgfl reproduce`: the paper's figures, theorems and claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import Json

if TYPE_CHECKING:
    from pgfl.lab.paper.reproduce import Reproduction

app = typer.Typer(add_completion=False)
DEFAULT_OUT = Path("results/reproduction")


@app.command()
def reproduce(
    items: Annotated[
        list[str],
        typer.Argument(metavar="ITEM…", help="fig1 … fig9, theorem1 … theorem3, network, beyond, affordable, or all."),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Few runs and coarse grids: about a minute.")] = False,
    runs: Annotated[
        int | None,
        typer.Option(min=2, help="Monte Carlo runs of a regression curve (default: 100)."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", help="The folder of pictures, tables and claims; the page is FOLDER.md."),
    ] = DEFAULT_OUT,
    mnist: Annotated[
        Path | None, typer.Option("--mnist", metavar="DIR", help="Read MNIST from the four original files in DIR.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Cache every measurement in DIR, so that an interrupted command can be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes (default: one per core).", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Reproduce figures and theorems of the paper, with a verdict on every claim.

    ITEM is fig1 … fig9, theorem1 … theorem3, network, beyond, affordable, or all, which means all but affordable.
    Everything runs offline. On two cores all takes about ten minutes, with --quick less than one; affordable takes
    an hour.
    """
    from pgfl.cli.shared import bar
    from pgfl.lab.paper.items import Effort
    from pgfl.lab.paper.reproduce import reproduce as carry_out

    effort = Effort.of(runs, quick, None if mnist is None else str(mnist))
    with bar(None, "preparing", shown=not as_json) as progress:
        found = carry_out(items, effort, out, workers=workers, progress=progress, keep=keep)
    if as_json:
        typer.echo(json.dumps(found.as_json() | {"out": str(out)}, indent=2, ensure_ascii=False))
    else:
        _show(found)


def _show(found: Reproduction) -> None:
    """The verdicts as a table."""
    from rich.console import Console
    from rich.table import Table

    from pgfl.lab.paper.claims_page import value_text

    table = Table("item", "claim", "measured", "verdict", title="The paper's claims", title_justify="left")
    colours = {"holds": "green", "does not hold": "red"}
    for outcome in found.outcomes:
        for claim in outcome.claims:
            colour = colours.get(claim.verdict, "yellow")
            table.add_row(outcome.name, claim.claim, value_text(claim), f"[{colour}]{claim.sentence}[/{colour}]")
    console = Console()
    console.print(table)
    console.print(f"The page: {found.folder}.md; pictures, tables and claims: {found.folder}", markup=False)
