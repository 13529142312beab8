"""A command that counts the clients of a config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgfl import load_config

app = typer.Typer(help="Count the clients of a config.")


@app.command()
def count(config: Annotated[Path, typer.Argument(help="The config.")]) -> None:
    """Count the clients of a config."""
    typer.echo(load_config(config).federations()(0, None).size)
