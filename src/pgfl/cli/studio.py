"""`pgfl studio`: the studio, a local page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def studio(
    results: Annotated[Path, typer.Argument(metavar="[RESULTS]", help="The folder of result folders.")] = Path(
        "results"
    ),
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port on 127.0.0.1 (default: 8377, or a free one).")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address without opening a browser.")] = False,
) -> None:
    """Open the studio, a local page: simulate, train on your own table, compare runs, monitor a network."""
    from pgfl.errors import require_extra

    require_extra("The studio needs NiceGUI", "studio", "nicegui")
    from pgfl.studio.serving import Wanted, serve

    serve(Wanted(results, port, not no_open), _say)


def _say(address: str, entrance: Path) -> None:
    typer.echo(
        f"pgfl studio: {address}\nThe address works once; another browser of yours can open {entrance}.\n"
        "Only this machine can open it. Ctrl-C ends it."
    )
