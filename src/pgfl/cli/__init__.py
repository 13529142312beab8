"""The command line: parse, call, print. A command's module is imported when the command is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from pgfl import __version__
from pgfl.errors import PgflError, exit_code, is_full_disk
from pgfl.registry import Registry
from pgfl.simulate.mpi.launcher import launched_rank
from pgfl.suggestions import nearest

if TYPE_CHECKING:
    from click import Command, Context, HelpFormatter

HELP = {
    "describe": "Describe a table: columns, clients, servers, clusters, and likely mistakes.",
    "init": "Write a starter config for a table.",
    "run": "Train from a config or a preset; write models, history, plots and a report.",
    "predict": "Predict the rows of a table with a trained model.",
    "coefficients": "Show the coefficients of a result, with standard errors and intervals.",
    "export": "Export a model to scikit-learn or ONNX.",
    "plan": "Predict what a private training will achieve, before any privacy is spent.",
    "reproduce": "Reproduce the paper: figures, theorems, and a verdict on every claim.",
    "account": "Compute the ε of a noise schedule, or the schedule for a target ε.",
    "ledger": "Show or verify a client's privacy ledger.",
    "audit": "Test the privacy guarantee empirically by attacking it.",
    "studio": "Open the studio: simulate, train on a table, compare runs, monitor a network.",
    "presets": "List or show the presets.",
    "site": "Set up and run a site of the network.",
    "client": "Set up and run a client of a site.",
    "network": "Try a whole network on this machine.",
}
"""Command of the package → one line of help."""

COMMANDS: Registry[typer.Typer] = Registry("commands", "command", {name: f"pgfl.cli.{name}:app" for name in HELP})
"""Every command; another package adds a `typer.Typer` under the entry points `pgfl.commands`."""

INTERRUPTED = 130
_ParserError: type[Any] = typer.BadParameter.__mro__[2]
"""ClickException: of click, or of the copy of click that newer versions of Typer contain."""


class _Argument(TyperArgument):
    """A positional argument that keeps its help, which click 8.5 erases from older Typers' by one of its own."""

    def __init__(self, *, help: str | None = None, **stated: Any) -> None:
        super().__init__(help=help, **stated)
        self.help = help


typer.main.TyperArgument = _Argument  # type: ignore[attr-defined]


class LazyGroup(TyperGroup):
    """The commands of the registry; the help page needs only the one-liners of the package's own."""

    _listing = False

    def list_commands(self, ctx: Context) -> list[str]:
        """Return all commands, the package's own first."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return the command, imported unless only its one-liner is wanted."""
        if cmd_name not in COMMANDS:
            return None
        if self._listing and cmd_name in HELP:
            return TyperCommand(cmd_name, help=HELP[cmd_name])
        try:
            command = typer.main.get_command(COMMANDS[cmd_name])
        except PgflError as error:
            if not self._listing:
                raise
            return TyperCommand(cmd_name, help=str(error))  # another package's fault must not hide the other commands
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """As click does, with a suggestion for a name that is not known."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The help page, without importing any command."""
        self._listing = True
        super().format_help(ctx, formatter)


app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pgfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Personalised graph federated learning with differential privacy."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; every foreseen mistake is one sentence on stderr and an exit code."""
    sys.exit(execute(arguments))


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        outcome: Any = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments), prog_name="pgfl", standalone_mode=False
        )
        return outcome if isinstance(outcome, int) else 0
    except _ParserError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message(), err=True)
            return 2
        return _fail(f"{error.format_message().rstrip('.')}; see {_help_of(error)}.", 2)
    except PgflError as error:
        return _fail(str(error), exit_code(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("Interrupted; resume a run that has a checkpoint with --resume --out FOLDER.", INTERRUPTED)
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library in ("None", "pgfl"):
            raise
        return _fail(f"{library} is missing; install it with pip install {library}.", 2)
    except OSError as error:
        return _fail(_why(error), exit_code(error))
    except MemoryError:
        return _fail("There is not enough memory for this; take fewer runs, clients or threads, or float32.", 1)


def _help_of(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path if context else 'pgfl'} --help`"


def _why(error: OSError) -> str:
    name = error.filename or "a file"
    if is_full_disk(error):
        return f"The disk is full while writing {name}; free some space, then continue with --resume."
    if isinstance(error, PermissionError):
        return f"There is no permission for {name}; choose another folder or change its rights."
    return f"{name}: {error.strerror or error}."


def _fail(sentence: str, code: int) -> int:
    """Print what is wrong, once: in an MPI job only the first rank prints."""
    if not launched_rank():
        print(f"pgfl: {' '.join(sentence.split())}", file=sys.stderr)
    return code
