"""`pgfl run`: train as a config or a preset says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import Json

if TYPE_CHECKING:
    from pgfl.config import Config
    from pgfl.config.section import DataSection
    from pgfl.results.result import Result
    from pgfl.simulate.communicator import Communicator
    from pgfl.simulate.observers import Observer
    from pgfl.simulate.simulator import Simulator

DEFAULT_PRESET = "private-huber"
RESULTS = Path("results")

app = typer.Typer(add_completion=False)


@app.command()
def run(
    source: Annotated[
        str | None,
        typer.Argument(metavar="CONFIG|PRESET", help=f"A TOML file or a preset (default: {DEFAULT_PRESET})."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a config key (may be repeated)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The result folder (default: results/NAME-DATE-TIME)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Override the seed.")] = None,
    folds: Annotated[
        int | None, typer.Option(help="Cross-validate a table: every run holds out another fold.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint in --out.")] = False,
    finished: Annotated[
        Path | None,
        typer.Option("--continue", metavar="FOLDER", help="Continue a finished run for more rounds, in a new folder."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Override the number of rounds; with --continue, how many more.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Override the engine: auto, numpy, numba, jax, debug, mpi, mpi-numba."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train from a config or a preset; write models, history, plots and an HTML report to a folder."""
    from pgfl.errors import ConfigError, Diverged

    if resume and out is None:
        raise ConfigError("--resume needs --out, the folder of the run to resume.")
    if resume and finished is not None:
        raise ConfigError("--resume is for an interrupted run, --continue for a finished one; give one of them.")
    if folds is not None and finished is not None:
        raise ConfigError("--folds begins a new run, --continue continues a finished one; give one of them.")
    load = partial(_config, source, overrides or [], seed, engine, folds, out if resume else None, finished, rounds)
    communicator, config = _joined(engine, load)
    config = _planned(config, communicator, quiet=as_json)
    with communicator.abort_on_error():
        folder = communicator.broadcast(partial(_folder, out, resume, config))
        result = _result(config, folder, communicator, resume, quiet=as_json)
    if not communicator.first:
        return
    if as_json:
        typer.echo(json.dumps(result.summary() | {"out": str(folder)}, indent=2, ensure_ascii=False))
    else:
        from pgfl.cli.show import show_result

        show_result(result, folder)
    if result.verdict is not None and result.verdict.kind == "diverging":
        raise typer.Exit(Diverged.exit_code)


def _planned(config: Config, communicator: Communicator, quiet: bool) -> Config:
    """Return the config with the settings of a plan, if it is private and states none; the first process plans."""
    if not config.data.own_records:
        return config
    if not config.privacy.enabled:
        return _with_chosen_map(config, communicator, quiet)
    from pgfl.planning.map_plan import with_planned_map
    from pgfl.planning.planner import is_open, plan

    def planned() -> Config:
        found = plan(config, whole=False)
        if not quiet:
            typer.echo(f"The config leaves its settings to a plan from public facts: {found.verdict}")
        if found.chosen_map is not None and not quiet:
            typer.echo(f"Row map: {found.chosen_map.value or 'none'}, because {found.chosen_map.reason}.")
        assert found.config is not None
        return found.config

    if not is_open(config):
        with communicator.abort_on_error():
            return communicator.broadcast(lambda: with_planned_map(config)[0])
    with communicator.abort_on_error():
        return communicator.broadcast(planned)


def _with_chosen_map(config: Config, communicator: Communicator, quiet: bool) -> Config:
    """Return the config with a row map in the place of "auto"; without privacy its records say which one pays."""
    if not config.data.leaves_map_open:
        return config
    from pgfl.experiment import with_chosen_map

    with communicator.abort_on_error():
        found, reason = with_chosen_map(config, communicator)
    if communicator.first and not quiet:
        named = ", ".join(map(str, found.data.chosen_map)) or "none"
        typer.echo(f"Row map: {named}, because {reason}.")
    return found


def _joined(engine: str | None, load: Callable[[], Config]) -> tuple[Communicator, Config]:
    """Return the processes that a launcher started with this one, or this one alone; and the config."""
    from pgfl.algorithms.schedules import ALIASES
    from pgfl.simulate.communicator import SINGLE_PROCESS
    from pgfl.simulate.mpi.communicator import world
    from pgfl.simulate.mpi.launcher import launched_size

    communicator = world() if engine in ALIASES or (launched_size() or 1) > 1 else SINGLE_PROCESS
    with communicator.abort_on_error():
        config = communicator.collective(load)
    alone_by_mistake = config.engine in ALIASES and not communicator.launched
    return world() if alone_by_mistake else communicator, config


def _config(
    source: str | None,
    overrides: list[str],
    seed: int | None,
    engine: str | None,
    folds: int | None,
    resumed: Path | None,
    finished: Path | None,
    rounds: int | None,
) -> Config:
    """Return the config that is named, else that of the folder to go on with, else the default preset."""
    from pgfl.config import load_config
    from pgfl.results.folder import CONFIG

    if source is None and resumed is not None and (resumed / CONFIG).exists():
        source = str(resumed / CONFIG)
    chosen = [*overrides, f"engine={engine}"] if engine else overrides
    if finished is not None:
        return _continued(source, chosen, seed, folds, finished, rounds)
    chosen = chosen if rounds is None else [*chosen, f"rounds={rounds}"]
    return load_config(source or DEFAULT_PRESET, chosen, seed, folds)


def _continued(
    source: str | None,
    overrides: list[str],
    seed: int | None,
    folds: int | None,
    finished: Path,
    rounds: int | None,
) -> Config:
    """Return the config of a finished run, or the one that is named, for more rounds of it."""
    from pgfl.config import load_config
    from pgfl.errors import ResultError
    from pgfl.results.folder import CONFIG
    from pgfl.results.result import Result

    earlier = Result.load(finished)
    if source is None and earlier.config is None:
        raise ResultError(f"{finished} has no config; go on with it in Python: train(…, start=Result.load(folder)).")
    config = load_config(source or str(finished / CONFIG), overrides, seed, folds)
    played, stated = int(earlier.rounds[-1]), {override.partition("=")[0].strip() for override in overrides}
    if source is None:  # what the folder's config says about records was about the run before it
        unstated = [name for name in ("new_clients", "moved_records") if name not in stated]
        config = config.model_copy(update={name: type(config).model_fields[name].default for name in unstated})
    return config.model_copy(
        update={
            "continues": str(finished.resolve()),
            "rounds": played + (rounds or config.rounds),
            "data": _with_kept_columns(config.data, earlier),
        }
    )


def _with_kept_columns(data: DataSection, earlier: Result) -> DataSection:
    """The data with the bounds and categories that the earlier run computed from its rows, for new rows as well."""
    alike = all(models.encoding == earlier.encoding for models in earlier.models)
    if not data.declared or earlier.encoding is None or not alike:
        return data
    kept = earlier.declared_columns
    columns = {name: kept.get(name, own) if own.from_data else own for name, own in data.declared.items()}
    return data.model_copy(update={"columns": columns})


def _folder(out: Path | None, resume: bool, config: Config) -> Path:
    """Return the folder that is named, if it may be used, or a new one."""
    from pgfl.results.folder import check_folder, fresh_folder

    folder = out or fresh_folder(RESULTS, config.name)
    check_folder(folder, resume=resume)
    return folder


def _result(config: Config, folder: Path, communicator: Communicator, resume: bool, quiet: bool) -> Result:
    """Return the result of a run, or the one that its folder already holds."""
    from pgfl import experiment
    from pgfl.cli import shared as progress
    from pgfl.results.folder import RunFolder, checkpoint_folder, is_complete

    command = communicator.command(config.engine)
    run_folder = RunFolder(folder, config, communicator, command)
    if communicator.broadcast(lambda: resume and is_complete(folder)):
        with run_folder:
            return communicator.collective(lambda: _finished(folder, communicator))
    watching = [_earlier_runs(config, folder)] if communicator.first else []
    advice = f"{command} --resume --out {folder}"
    with communicator.report_lost_process(checkpoint_folder(folder, config), advice), run_folder:
        with progress.rounds(shown=communicator.first and not quiet) as report:
            result = experiment.run(
                config, out=folder, resume=resume, progress=report, communicator=communicator, observers=watching
            )
        run_folder.save(result)
    return result


def _earlier_runs(config: Config, folder: Path) -> Observer:
    """Return an observer for the start of training: a run that is refused before has spent nothing, nor does it now."""
    from pgfl.simulate.observers import Observer

    class EarlierRuns(Observer):
        said = False

        def on_start(self, simulator: Simulator) -> None:
            if not self.said:
                self.said = True
                _say_what_adds_up(config, folder)

    return EarlierRuns()


def _say_what_adds_up(config: Config, folder: Path) -> None:
    """Say on stderr if another run has spent on the records of this table, where noise protects them."""
    from pgfl.results.earlier_runs import note_run

    table = getattr(config.data, "table", None)
    if table is None or not config.privacy.enabled or config.privacy.noise == "seeded":
        return
    if sentence := note_run(Path(table), folder, goes_on=config.continues is not None):
        typer.echo(f"Note: {sentence}", err=True)


def _finished(folder: Path, communicator: Communicator) -> Result:
    """Return the result of a run that has already ended; a missing page is written again."""
    from pgfl.results.report import PAGE, write
    from pgfl.results.result import Result

    if communicator.first:
        typer.echo(f"{folder} is complete; there is nothing to resume.", err=True)
    result = Result.load(folder)
    if communicator.first and not (folder / PAGE).exists():
        write(result, folder)
    return result
