"""`pgfl run`: train as a config or a preset says."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.options import Json

if TYPE_CHECKING:
    from pgfl.config import Config
    from pgfl.errors import Interrupted
    from pgfl.results.result import Result

DEFAULT_PRESET = "private-huber"
RESULTS = Path("results")

app = typer.Typer(add_completion=False)


class Engine(StrEnum):
    """What carries out the rounds."""

    numpy = "numpy"
    numba = "numba"
    jax = "jax"
    mpi = "mpi"
    mpi_numba = "mpi-numba"


@app.command()
def run(
    source: Annotated[
        str | None,
        typer.Argument(metavar="CONFIG|PRESET", help=f"A TOML file or a preset; {DEFAULT_PRESET} by default."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the config; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The result folder; results/NAME-DATE-TIME by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Override the seed.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")] = False,
    engine: Annotated[Engine | None, typer.Option(help="Override the engine.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Train as a config or a preset says, and leave a folder with models, history, curves and a page."""
    from pgfl.errors import ConfigError
    from pgfl.results.folder import is_complete
    from pgfl.simulate.mpi.launcher import launched_size

    if resume and out is None:
        raise ConfigError("--resume needs --out, the folder of the run to go on with.")
    load = partial(_config, source, overrides or [], seed, engine, out if resume else None)
    choose = partial(_folder, out, resume)
    if (engine or "").startswith("mpi") or (launched_size() or 1) > 1 or load().engine.startswith("mpi"):
        from pgfl.cli.ranks import run_on_ranks

        outcome = run_on_ranks(load, choose, resume, as_json)
        if outcome is None:
            return
        result, folder = outcome
    else:
        config = load()
        folder = choose(config)
        complete = resume and is_complete(folder)
        result = finished(folder, config) if complete else _train(config, folder, resume, as_json)
    from pgfl.results.report import write

    write(result, folder)
    if as_json:
        typer.echo(json.dumps(result.summary() | {"out": str(folder)}, indent=2, ensure_ascii=False))
    else:
        from pgfl.cli.show import show_result

        show_result(result, folder)


def _config(
    source: str | None, overrides: list[str], seed: int | None, engine: Engine | None, resumed: Path | None
) -> Config:
    """The config that is named, else that of the folder to go on with, else the default preset."""
    from pgfl.config import load
    from pgfl.results.folder import CONFIG

    if source is None and resumed is not None and (resumed / CONFIG).exists():
        source = str(resumed / CONFIG)
    chosen = [*overrides, f"engine={engine.value}"] if engine else overrides
    return load(source or DEFAULT_PRESET, chosen, seed)


def _folder(out: Path | None, resume: bool, config: Config) -> Path:
    """The folder that is named, if it may be used, or a new one."""
    from pgfl.results.folder import check_folder, fresh_folder

    folder = out or fresh_folder(RESULTS, config.name)
    check_folder(folder, resume=resume)
    return folder


def _train(config: Config, folder: Path, resume: bool, quiet: bool) -> Result:
    from pgfl.cli import progress
    from pgfl.results.folder import abandon_folder, is_complete
    from pgfl.simulate import experiment

    try:
        with progress.rounds(shown=not quiet) as told:
            result = experiment.run(config, out=folder, resume=resume, progress=told)
    except BaseException as error:
        abandon_folder(folder)
        if not isinstance(error, KeyboardInterrupt):
            raise
        raise interrupted(folder, "pgfl run") from None
    if not is_complete(folder):
        result.save(folder)
    return result


def interrupted(folder: Path, command: str) -> Interrupted:
    """What to say after Ctrl-C: how to go on, where there is something to go on with."""
    from pgfl.errors import Interrupted
    from pgfl.results.folder import checkpoint_folders

    kept = any(place.exists() for place in checkpoint_folders(folder))
    then = f"go on with `{command} --resume --out {folder}`" if kept else "nothing was kept"
    return Interrupted(f"Interrupted; {then}.")


def finished(folder: Path, config: Config) -> Result:
    """The result of a run that has already ended."""
    from pgfl.results.folder import begin_folder
    from pgfl.results.result import Result

    begin_folder(folder, config)
    typer.echo(f"{folder} is complete; there is nothing to go on with.", err=True)
    return Result.load(folder)
