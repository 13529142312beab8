"""`pgfl export`: a model for programs that do not have pgfl."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


class Target(StrEnum):
    """What a model is exported to."""

    sklearn = "sklearn"
    onnx = "onnx"


@app.command()
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A result folder or a model file.")],
    to: Annotated[Target, typer.Option(help="scikit-learn (saved with joblib) or ONNX.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    cluster: Annotated[str | None, typer.Option(help="The cluster whose model is exported.")] = None,
    client: Annotated[str | None, typer.Option(help="Export the model of one client.")] = None,
    server: Annotated[str | None, typer.Option(help="Export a server's model of the cluster.")] = None,
) -> None:
    """Write one model with everything that is done to a row before it is predicted."""
    from pgfl.errors import ResultError
    from pgfl.results.export import export as write
    from pgfl.results.model import Model

    loaded = Model.load(model)
    if cluster is None and client is None and len(loaded.cluster_ids) > 1:
        known = ", ".join(loaded.cluster_ids[:8]) + (", …" if len(loaded.cluster_ids) > 8 else "")
        raise ResultError(f"The model has {len(loaded.cluster_ids)} clusters ({known}); name one with --cluster.")
    write(loaded, out, to.value, client=client, cluster=cluster, server=server)
    how = "load it with joblib.load" if to is Target.sklearn else "run it with any ONNX runtime"
    typer.echo(f"Exported to {out}; {how}.")
