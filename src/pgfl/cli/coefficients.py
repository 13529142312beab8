"""`pgfl coefficients`: the coefficients of a result, by name and in the table's units."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import Json

if TYPE_CHECKING:
    import polars

app = typer.Typer(add_completion=False)


@app.command()
def coefficients(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A result folder.")],
    cluster: Annotated[str | None, typer.Option(help="Only this cluster.", show_default=False)] = None,
    level: Annotated[float, typer.Option(help="The level of the confidence intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Show every cluster's coefficients in the table's units, with standard errors and confidence intervals."""
    from pgfl.errors import ResultError
    from pgfl.results.result import Result
    from pgfl.suggestions import unknown_name

    result = Result.load(folder)
    table = result.coefficients(level)
    if cluster is not None and cluster not in result.cluster_ids:
        raise ResultError(unknown_name("cluster", cluster, result.cluster_ids))
    if cluster is not None:
        table = table.filter(table["cluster"] == cluster)
    if as_json:
        typer.echo(table.write_json())
    else:
        _show(table, result.fits_note)


def _show(table: polars.DataFrame, note: str) -> None:
    """Print one table per cluster, without columns that hold nothing."""
    from rich.console import Console
    from rich.table import Table

    from pgfl.results.coefficients import NAMES_OF_COLUMNS, cell_text

    console = Console()
    names = [name for name in table.columns if name != "cluster" and table[name].null_count() < len(table)]
    for (cluster,), rows in table.group_by(["cluster"], maintain_order=True):
        shown = Table(title=f"Cluster {cluster}", title_justify="left", box=None, pad_edge=False)
        for name in names:
            text = name in ("label", "feature", "reference")
            shown.add_column(NAMES_OF_COLUMNS.get(name, name), justify="left" if text else "right")
        for row in rows.select(names).rows():
            shown.add_row(*map(cell_text, row))
        console.print(shown, markup=False)
    if note:
        console.print(note, markup=False, highlight=False)
