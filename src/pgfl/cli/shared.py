"""What several commands share: options, progress, privacy figures, findings."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from typer.core import TyperGroup

from pgfl.results.report.figures import news as figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click import Command, Context

    from pgfl.network.doctor import Finding


class FolderGroup(TyperGroup):
    """Commands that work on one folder, `--home`; a settings file in its place, as of an older pgfl, is that folder."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """As click does, with `--home` before a settings file that stands alone."""
        files = (number for number, word in enumerate(args) if word.endswith(".toml"))
        place = next(files, None)
        if place is not None and args[place - 1] != "--home" and not args[place].startswith("--home="):
            args = [*args[:place], "--home", *args[place:]]
        return super().resolve_command(ctx, args)


def settings_in(home: Path, name: str) -> Path:
    """The settings file of a folder, or the file that was named itself."""
    return home if home.suffix == ".toml" else home / name


def folder_of(home: Path) -> Path:
    """The folder, of which perhaps the settings file was named."""
    return home.parent if home.suffix == ".toml" else home


Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Another value in the settings file, as key=value; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Trust(StrEnum):
    """Whom clients trust."""

    local = "local"
    site = "site"
    masked = "masked"


TRUST_HELP = "Whom clients trust: nobody (local), their server (site), or a masked sum (masked)"
ClientColumn = Annotated[
    str | None, typer.Option("--client", help="The column that names clients (default: client).", show_default=False)
]
ServerColumn = Annotated[
    str | None, typer.Option("--server", help="The column that names servers (default: server).", show_default=False)
]
ClusterColumn = Annotated[
    str | None,
    typer.Option("--cluster", help="The column that names clusters (default: cluster).", show_default=False),
]


def print_findings(findings: Sequence[Finding], as_json: bool) -> None:
    """One line per finding, with what to do; ends with exit code 1 if there is anything to do, 2 after damage."""
    if as_json:
        typer.echo(json.dumps([{"what": found.what, "advice": found.advice} for found in findings]))
    for found in [] if as_json else findings:
        typer.echo(f"ok    {found.what}" if found.good else f"FIX   {found.what}\n      {found.advice}")
    if not all(found.good for found in findings):
        raise typer.Exit(2 if any(found.damaged for found in findings) else 1)


UNPROTECTED = "An infinite figure (null in JSON): a release left without noise, so nothing is promised."


def figure_text(value: object, digits: int = 6) -> str:
    """Return a figure for people.

    >>> figure_text(0.125), figure_text(float("inf")), figure_text(20)
    ('0.125', '∞', '20')
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.{digits}g}" if math.isfinite(value) else "∞"


def with_note(figures: Mapping[str, Any], note: str) -> dict[str, Any]:
    """Return the figures, with a `note` where one of them is infinite."""
    infinite = not all(map(math.isfinite, _numbers(figures)))
    return {**figures, "note": note} if infinite else dict(figures)


def strict_json(figures: Mapping[str, Any], indent: int | None = 2) -> str:
    """JSON that any reader accepts: null for an infinite figure."""
    return json.dumps(_finite(figures), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, float):
        yield value


Progress = Callable[[float, float, Any], None]
BETWEEN_LINES = 10.0  # seconds


@contextmanager
def bar(
    unit: str | None, waiting: str = "", words: Callable[[Any], str] = str, *, shown: bool
) -> Iterator[Progress | None]:
    """A function to call with how much is done, how much there is in all, and news, which `words` turns into text.

    The bar shows them with the time left, counted in `unit`s, or in per cent without a unit. It shows `waiting` until
    the first call.
    """
    console = Console(stderr=True)
    if not shown:
        yield None
    elif not console.is_terminal:
        yield _lines(console, unit, words)
    else:
        amount = (
            (TextColumn(f"{unit}s"), BarColumn(), MofNCompleteColumn()) if unit else (BarColumn(), TaskProgressColumn())
        )
        columns = (*amount, TimeRemainingColumn(), TextColumn("{task.description}"))
        with Bar(*columns, console=console, transient=True) as live:
            task = live.add_task(waiting, total=None)
            yield lambda done, total, news: live.update(task, completed=done, total=total, description=words(news))


def rounds(*, shown: bool) -> AbstractContextManager[Progress | None]:
    """Return the bar of a training."""
    return bar("round", "making the data and factoring the problems", figures, shown=shown)


def _lines(console: Console, unit: str | None, words: Callable[[Any], str]) -> Progress:
    began = printed = time.monotonic()
    before = 0.0

    def report(done: float, total: float, news: Any) -> None:
        nonlocal began, printed, before
        now = time.monotonic()
        if not before:
            began, before = now, done
        elif now - printed >= BETWEEN_LINES and done > before:
            printed = now
            left = timedelta(seconds=round((now - began) / (done - before) * (total - done)))
            far = f"{unit} {done} of {total}" if unit else f"{100 * done / total:.0f} %"
            console.print(
                "  ".join(filter(None, [f"pgfl: {far}, {left} left", words(news)])), highlight=False, soft_wrap=True
            )

    return report


def read_costs(text: str) -> tuple[float, float]:
    """Return the costs of a miss and of a false alarm, as in 9:1."""
    from pgfl.errors import ConfigError

    miss, _, false_alarm = text.partition(":")
    try:
        return float(miss), float(false_alarm)
    except ValueError:
        raise ConfigError(
            f"--costs takes two numbers, of a miss and of a false alarm, as in 9:1; got {text!r}."
        ) from None
