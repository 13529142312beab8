"""Progress on stderr: a bar on a terminal, elsewhere (a log, mpiexec) a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pgfl.results.report.figures import news as figures

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
    """The bar of a training."""
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
