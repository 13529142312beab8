"""A progress bar in notebooks: it appears if training takes longer than a moment, and goes away at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from typing import Any

from pgfl.results.report.figures import news

Display = Callable[[dict[str, str]], None]
PATIENCE = 1.0  # seconds without a bar


def in_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


@contextmanager
def notebook_bar() -> Iterator[Bar | None]:
    """A bar in the output of the running cell, or None outside of notebooks."""
    if not in_notebook():
        yield None
        return
    bar = Bar(_cell_output())
    try:
        yield bar
    finally:
        bar.remove()


class Bar:
    """Shows how many rounds are done, how long the others will take, and the newest measures."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock = display, clock
        self._began, self._shown = clock(), False

    def __call__(self, done: int, total: int, measures: Mapping[str, Any]) -> None:
        """Show news, once the first moment has passed."""
        passed = self._clock() - self._began
        if passed < PATIENCE:
            return
        self._shown = True
        left = timedelta(seconds=round(passed / max(done, 1) * (total - done)))
        words = "  ".join(filter(None, [f"round {done:,} of {total:,}, {left} left", news(measures)]))
        bar = f'<progress value="{done}" max="{total}" style="width: 240px; vertical-align: middle"></progress>'
        self._display({"text/html": f"{bar} {escape(words)}", "text/plain": words})

    def remove(self) -> None:
        """Leave nothing behind."""
        if self._shown:
            self._display({"text/html": "", "text/plain": ""})


def _cell_output() -> Display:
    """Something that replaces its own output in the running cell."""
    from IPython.display import DisplayHandle

    handle = DisplayHandle()
    begun = False

    def display(bundle: dict[str, str]) -> None:
        nonlocal begun
        (handle.update if begun else handle.display)(bundle, raw=True)
        begun = True

    return display
