"""`pgfl presets`: the configs that the package includes."""

import json

import typer

from pgfl.cli.shared import Json

app = typer.Typer(add_completion=False)


@app.command()
def presets(
    name: str | None = typer.Argument(None, help="Show this preset in full.", show_default=False), as_json: Json = False
) -> None:
    """List the presets of the package; with a name, print one resolved as TOML."""
    from pgfl import config

    if name is not None:
        chosen = config.load_config(name)
        typer.echo(chosen.model_dump_json(indent=2) if as_json else config.to_toml(chosen), nl=as_json)
    elif as_json:
        typer.echo(json.dumps([{"name": key, "description": text} for key, text in config.presets().items()], indent=2))
    else:
        found = config.presets()
        width = max(map(len, found))
        for key, text in found.items():
            typer.echo(f"{key:<{width}}  {text}")
