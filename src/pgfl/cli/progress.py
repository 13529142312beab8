"""How far a run is, on stderr: a bar on a terminal, now and then a line elsewhere (a log, or under mpiexec)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pgfl.cli.show import figures

Progress = Callable[[int, int, dict[str, Any]], None]
BETWEEN_LINES = 10.0  # seconds


@contextmanager
def bar(*, shown: bool) -> Iterator[Progress | None]:
    """What to call with rounds done, rounds in all and figures; it shows them with the time left."""
    console = Console(stderr=True)
    if not shown:
        yield None
    elif not console.is_terminal:
        yield _lines(console)
    else:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Bar(TextColumn("rounds"), *columns, console=console, transient=True) as live:
            task = live.add_task("making the data and factoring the problems", total=None)
            yield lambda done, total, info: live.update(task, completed=done, total=total, description=figures(info))


def _lines(console: Console) -> Progress:
    began = told = time.monotonic()
    before = 0

    def tell(done: int, total: int, info: dict[str, Any]) -> None:
        nonlocal began, told, before
        now = time.monotonic()
        if not before:
            began, before = now, done
        elif now - told >= BETWEEN_LINES:
            told = now
            left = (now - began) / (done - before) * (total - done)
            line = f"pgfl: round {done} of {total}, {timedelta(seconds=round(left))} left"
            console.print("  ".join(filter(None, [line, figures(info)])), highlight=False, soft_wrap=True)

    return tell
