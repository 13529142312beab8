"""Progress of a run: a small file for those who watch it, and a bar in notebooks."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgfl.errors import ResultError
from pgfl.files import write_text
from pgfl.results.folder import LIVE
from pgfl.results.report.figures import news
from pgfl.simulate.observers import Observer
from pgfl.simulate.recorder import columns

if TYPE_CHECKING:
    from pgfl.simulate.simulator import Simulator


BETWEEN_WRITES = 0.5  # seconds
MOST_ROWS = 1000


class LiveHistory(Observer):
    """An observer that writes the history so far to a run's folder, now and then.

    With privacy on, the file holds what the finished history may show, and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._due = folder / LIVE, time.monotonic() + BETWEEN_WRITES

    def on_round(self, simulator: Simulator) -> None:
        """Write the file where it is due."""
        if time.monotonic() < self._due or not self._path.parent.is_dir():
            return
        recorder, options = simulator.recorder, simulator.options
        shown = recorder.shown
        if simulator.plan is None:
            shown = [{**row, **clean} for row, clean in zip(shown, recorder.clean, strict=True)]
        thinned = shown[:: len(shown) // MOST_ROWS + 1]
        table = columns(thinned) if thinned else {}
        history = {name: [_number(value) for value in values.tolist()] for name, values in table.items()}
        done = {"round": simulator.state.round, "rounds": options.rounds, "run": simulator.layout.runs[0].number}
        with suppress(ResultError):  # a full disk is for the checkpoints to complain about
            write_text(self._path, json.dumps({**done, "runs": options.runs, "history": history}, allow_nan=False))
        self._due = time.monotonic() + BETWEEN_WRITES


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


Display = Callable[[dict[str, str]], None]
PATIENCE = 1.0  # seconds without a bar


def in_notebook() -> bool:
    """Return whether the code runs in a Jupyter kernel."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


@contextmanager
def notebook_bar() -> Iterator[Bar | None]:
    """Return a bar in the output of the running cell, or None outside of notebooks."""
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
