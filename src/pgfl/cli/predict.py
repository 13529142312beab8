"""`pgfl predict`: predict the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import read_costs

if TYPE_CHECKING:
    import polars as pl

    from pgfl.federation.frames import Table, TableFile
    from pgfl.results.model import Model, PredictOptions

ROWS_AT_A_TIME = 100_000
PREDICTION = "prediction"

app = typer.Typer(add_completion=False)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A result folder or a model file.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A csv or parquet file with the model's columns.")],
    out: Annotated[Path, typer.Option("--out", help="The csv or parquet file to write; it must not exist.")],
    cluster: Annotated[str | None, typer.Option(help="The cluster of all rows; else the table's own column.")] = None,
    client: Annotated[str | None, typer.Option(help="Predict with the model of one client.")] = None,
    server: Annotated[str | None, typer.Option(help="Predict with a server's model of the cluster.")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add one column with the probability of each label.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="COLUMN", help="Ignore this column (may be repeated)."),
    ] = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Correct probabilities by what held-out rows said about them.")
    ] = False,
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            metavar="MISS:FALSE_ALARM",
            help="Of two labels predict the one that costs less, as in 9:1 (default: the config's data.costs).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the table's rows and columns in their order, with the prediction as the last column."""
    from pgfl.federation.frames import TableFile
    from pgfl.results.model import Model

    _check_out(out)
    loaded, opened = Model.load(model), TableFile(table)
    options: PredictOptions = {"client": client, "cluster": cluster, "server": server, "ignore": ignore or ()}
    options |= {"calibrated": calibrated, "costs": None if costs is None else read_costs(costs)}
    _check(loaded, opened, options, probabilities)
    rows = _write(out, _predicted(loaded, opened, options, probabilities))
    typer.echo(f"Predicted {rows} rows: {out}")


def _check_out(out: Path) -> None:
    from pgfl.errors import ResultError

    if out.suffix.lower() not in (".csv", ".parquet"):
        raise ResultError(f"Unsupported file type {out.suffix!r} of --out {out}; expected .csv or .parquet.")
    if out.exists():
        raise ResultError(f"{out} already exists, and nothing was overwritten; choose another file.")
    if not out.parent.is_dir():
        raise ResultError(f"The folder {out.parent} does not exist; make it, or choose another file.")


def _check(model: Model, table: TableFile, options: PredictOptions, probabilities: bool) -> None:
    """Refuse what cannot be predicted before any row is read."""
    from pgfl.errors import DataError, ResultError

    if options["client"] is not None and (options["cluster"] is not None or options["server"] is not None):
        raise ResultError("--client names a model of its own; leave out --cluster and --server.")
    named = options["client"] is not None or options["cluster"] is not None or len(model.cluster_ids) == 1
    if not named and model.cluster_column not in table.columns:
        known = ", ".join(model.cluster_ids[:8]) + (", …" if len(model.cluster_ids) > 8 else "")
        raise ResultError(
            f"The model has {len(model.cluster_ids)} clusters ({known}); name one with --cluster, or add the column "
            f"'{model.cluster_column or 'cluster'}' to the table."
        )
    added = [*_probability_names(model), PREDICTION] if probabilities else [PREDICTION]
    for name in added:
        if name in table.columns:
            raise DataError(f"{table.path} already has a column '{name}'; rename or remove it.")


def _predicted(model: Model, table: Table, options: PredictOptions, probabilities: bool) -> Iterator[pl.DataFrame]:
    """Yield the table with its predictions, some rows at a time."""
    import numpy as np
    import polars as pl

    from pgfl.federation.encoding import TableRows

    for part in table.parts(ROWS_AT_A_TIME):
        filled = np.flatnonzero(~part.blank())
        if not len(filled):
            continue
        rows = TableRows(part, filled)
        frame = part.frame()[filled]
        if probabilities:
            probabilities_of_rows = model.predict_proba(rows, **options)
            frame = frame.with_columns(
                pl.Series(name, probabilities_of_rows[:, place]) for place, name in enumerate(_probability_names(model))
            )
        found = model.predict(rows, **options)
        yield frame.with_columns(pl.Series(PREDICTION, found.tolist() if found.dtype == object else found))


def _probability_names(model: Model) -> Sequence[str]:
    return [f"probability_{label}" for label in model.label_names]


def _write(out: Path, frames: Iterator[pl.DataFrame]) -> int:
    """Write all frames to one file, whole or not at all; returns the number of rows."""
    from typing import BinaryIO

    import polars as pl

    from pgfl.errors import DataError
    from pgfl.files import write_atomically

    written = 0

    def as_csv(stream: BinaryIO) -> None:
        nonlocal written
        for frame in frames:
            frame.write_csv(stream, include_header=not written)
            written += len(frame)

    def as_parquet(stream: BinaryIO) -> None:
        nonlocal written
        whole = pl.concat(parts) if (parts := list(frames)) else pl.DataFrame()
        whole.write_parquet(stream)
        written = len(whole)

    def write(stream: BinaryIO) -> None:
        (as_csv if out.suffix.lower() == ".csv" else as_parquet)(stream)
        if not written:
            raise DataError("The table has no rows below the header; there is nothing to predict.")

    write_atomically(out, write)
    return written
