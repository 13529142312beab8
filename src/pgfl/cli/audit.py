"""`pgfl audit`: attack the shipped mechanism and the bugs planted in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pgfl.cli.shared import Json

if TYPE_CHECKING:
    from pgfl.lab.audit import Report

app = typer.Typer(add_completion=False)


@app.command()
def audit(
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of 20, with wider bounds.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the simulated noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Test the privacy guarantee empirically by attacking it as a malicious server would; exit code 1 if it fails."""
    from pgfl.cli.shared import bar
    from pgfl.lab.audit import FULL, QUICK
    from pgfl.lab.audit import audit as attack_everything

    with bar("attack", shown=not as_json) as progress:
        report = attack_everything(QUICK if quick else FULL, seed=seed, progress=progress)
    if as_json:
        typer.echo(json.dumps(report.describe(), indent=2))
    else:
        _show(report)
    raise typer.Exit(0 if report.passed else 1)


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("mechanism", "path", "claimed", "at least", "ratio", "trials", "verdict"):
        justify: Literal["left", "right"] = "left" if name in ("mechanism", "path", "verdict") else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    for found in report.findings:
        subject = found.subject if found.bug is None else f"bug: {found.bug}"
        figures = (f"{found.claimed_mu:.3f}", f"{found.mu_lower:.3f}", f"{found.ratio:.2f}", f"{2 * found.trials}")
        style = None if found.as_it_should_be else "bold red"
        table.add_row(subject, found.path, *figures, found.verdict, style=style)
    console.print("The privacy loss μ as claimed, and as a lying server measured it at least:", highlight=False)
    console.print(table)
    wrong = sum(not found.as_it_should_be for found in report.findings)
    console.print(
        "Everything is as it should be: what is shipped keeps its claim, and every planted bug is found."
        if report.passed
        else f"{wrong} of {len(report.findings)} findings are not as they should be; do not rely on the guarantee.",
        style="green" if report.passed else "bold red",
        soft_wrap=True,
    )
