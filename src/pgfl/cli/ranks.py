"""`pgfl run` under an MPI launcher: every rank trains, the first one speaks, writes and returns the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pgfl.errors import ConfigError
from pgfl.results.folder import abandon_folder
from pgfl.simulate.mpi.communicator import Agreed, Ranks, Watch, world

if TYPE_CHECKING:
    from pgfl.config import Config
    from pgfl.results.result import Result


def run_on_ranks(
    load: Callable[[], Config], choose: Callable[[Config], Path], resume: bool, quiet: bool
) -> tuple[Result, Path] | None:
    """The result and its folder on the first rank; None on the others.

    An error that all ranks know of is raised on all, so that they end in an orderly way. One that a single rank meets
    ends the job at once: others may be waiting for that rank.
    """
    from pgfl.cli.run import interrupted

    ranks = world()
    watch, folder = None, None
    try:
        config = ranks.together(lambda: _for_ranks(load(), ranks))
        folder = ranks.from_first(lambda: choose(config))
        if ranks.first:
            watch = _watch(config, folder, ranks)
        result = _result(config, folder, ranks, resume, quiet)
    except Agreed as agreed:
        if folder and ranks.first:
            abandon_folder(folder)
        raise agreed.error from None
    except KeyboardInterrupt as error:
        ranks.abort(interrupted(folder, _command(config, ranks)) if folder else error)
    except BaseException as error:
        ranks.abort(error)
    finally:
        if watch:
            watch.over()
    return None if result is None else (result, folder)


def _result(config: Config, folder: Path, ranks: Ranks, resume: bool, quiet: bool) -> Result | None:
    from pgfl.cli import progress
    from pgfl.cli.run import finished
    from pgfl.results.folder import is_complete
    from pgfl.simulate import experiment

    if ranks.from_first(lambda: resume and is_complete(folder)):
        return ranks.together(lambda: finished(folder, config) if ranks.first else None)
    with progress.rounds(shown=ranks.first and not quiet) as told:
        result = experiment.run_on_ranks(config, ranks, out=folder, resume=resume, progress=told)
    if result is not None:
        result.save(folder)
    return result


def _for_ranks(config: Config, ranks: Ranks) -> Config:
    if not config.engine.startswith("mpi"):
        raise ConfigError(
            f"{ranks.size} ranks were started, but the engine is {config.engine}; add --engine mpi, or start pgfl "
            "without a launcher."
        )
    return config


def _watch(config: Config, folder: Path, ranks: Ranks) -> Watch:
    from pgfl.simulate.experiment import checkpoint_folder

    return Watch(checkpoint_folder(config, folder), f"{_command(config, ranks)} --resume --out {folder}")


def _command(config: Config, ranks: Ranks) -> str:
    return f"mpiexec -n {ranks.size} pgfl run --engine {config.engine}"
