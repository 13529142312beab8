"""Options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for machines.")]
ClientColumn = Annotated[
    str | None, typer.Option("--client", help="The column that names clients; client by default.", show_default=False)
]
ServerColumn = Annotated[
    str | None, typer.Option("--server", help="The column that names servers; server by default.", show_default=False)
]
ClusterColumn = Annotated[
    str | None,
    typer.Option("--cluster", help="The column that names clusters; cluster by default.", show_default=False),
]
