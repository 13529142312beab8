"""`pgfl describe`: what a table holds, before anything is trained."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import ClientColumn, ClusterColumn, Json, ServerColumn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pgfl.federation.survey import ColumnFacts, PlaceFacts, TableFacts

PLACES = ("client", "server", "cluster")
BLOCKS = "▁▂▃▄▅▆▇█"
MOST_SHOWN = 12
EXACT = "These are exact figures of records, for your own machine; do not share them if the records are private."

app = typer.Typer(add_completion=False)


@app.command()
def describe(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A csv or parquet file with one row per sample.")],
    target: Annotated[str | None, typer.Option(help="The column to predict (default: y).", show_default=False)] = None,
    client: ClientColumn = None,
    server: ServerColumn = None,
    cluster: ClusterColumn = None,
    as_json: Json = False,
) -> None:
    """Show the columns, clients, servers and clusters of a table, and what looks wrong with it."""
    from pgfl.federation.survey import survey

    facts = survey(table, target=target, client=client, server=server, cluster=cluster)
    if as_json:
        typer.echo(json.dumps(asdict(facts) | {"note": EXACT}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    show(facts, Console())


def show(facts: TableFacts, console: Console) -> None:
    """Print the tables and the warnings."""
    console.print(f"{facts.label}: {facts.rows} rows, {len(facts.columns)} columns", markup=False, highlight=False)
    console.print()
    console.print(_columns(facts))
    if facts.places is not None:
        console.print()
        console.print(_sizes(facts.places), markup=False, highlight=False)
        if len(facts.places.servers) > 1 or len(facts.places.clusters) > 1:
            console.print("Clients of each cluster at each server:")
            console.print(_clients(facts.places))
    console.print()
    for warning in facts.warnings:
        console.print(f"Warning: {warning}", style="yellow", markup=False, highlight=False)
    console.print(EXACT, markup=False, highlight=False)


def _columns(facts: TableFacts) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for title in ("column", "used as", "kind"):
        shown.add_column(title, no_wrap=title != "column")
    for title in ("missing", "distinct"):
        shown.add_column(title, justify="right")
    shown.add_column("values")
    shown.add_column("spread", no_wrap=True)
    roles = _roles(facts)
    for column in facts.columns:
        role = roles.get(column.name, "feature")
        values = names_text(column) if role in PLACES and column.frequent else values_text(column)
        cells = [column.name, role, _kind(column), str(column.missing), str(column.distinct), values]
        shown.add_row(*(Text(cell) for cell in (*cells, sparkline(column.histogram))))
    return shown


def _roles(facts: TableFacts) -> dict[str, str]:
    roles = {facts.target: "target"} if facts.target else {}
    if (places := facts.named) is not None:
        named = {"client": places.client, "server": places.server, "cluster": places.cluster}
        roles |= {column: role for role, column in named.items() if column is not None}
    return {name: role for name, role in roles.items() if name is not None}


def _kind(column: ColumnFacts) -> str:
    if column.kind == "number" and column.whole:
        return "whole number"
    return {"other": "dates or lists", "mixed": "numbers, text"}.get(column.kind, column.kind)


def values_text(column: ColumnFacts) -> str:
    """Return the range of numbers, or the most frequent texts."""
    strays = f"{', ' if column.low is not None else ''}{', '.join(column.strays)}" if column.strays else ""
    if column.kind in ("number", "mixed") and column.low is not None and column.high is not None:
        return f"{column.low:g} to {column.high:g}{strays}"
    if strays:
        return f"{strays}, …"
    return names_text(column) if column.frequent else ""


def names_text(column: ColumnFacts) -> str:
    """Return the most frequent texts."""
    words = [word if len(word) <= 20 else word[:19] + "…" for word, _ in column.frequent[:4]]
    return ", ".join(words) + (", …" if column.distinct > 4 else "")


def sparkline(counts: tuple[int, ...]) -> str:
    """Return a histogram in eight heights.

    >>> sparkline((0, 1, 4, 8))
    '▁▂▅█'
    """
    most = max(counts, default=0)
    return "".join(BLOCKS[round((len(BLOCKS) - 1) * count / most)] for count in counts) if most else ""


def _sizes(places: PlaceFacts) -> str:
    least, median, most = places.rows_per_client
    who = [
        _counted(places.clients, "client"), _counted(len(places.servers), "server"),
        _counted(len(places.clusters), "cluster"),
    ]  # fmt: skip
    return f"{', '.join(who)}; rows per client: {least} least, {median:g} median, {most} most"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _clients(places: PlaceFacts) -> Table:
    """Clients of every cluster at every server."""
    from rich.table import Table
    from rich.text import Text

    servers, clusters = places.servers[:MOST_SHOWN], places.clusters[:MOST_SHOWN]
    shown = Table(box=None, pad_edge=False)
    shown.add_column("cluster")
    for name in (*servers, *(["…"] if len(places.servers) > MOST_SHOWN else []), "all"):
        shown.add_column(Text(name), justify="right")
    for cluster, row in zip(clusters, places.clients_by_cluster_and_server, strict=False):
        cells = [str(count) for count in row[:MOST_SHOWN]] + (["…"] if len(row) > MOST_SHOWN else [])
        shown.add_row(Text(cluster), *cells, str(sum(row)))
    if len(places.clusters) > MOST_SHOWN:
        shown.add_row("…")
    return shown
