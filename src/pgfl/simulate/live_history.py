"""What a run has measured so far, in a small file for those who watch it."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pgfl.atomic_files import write_text
from pgfl.errors import ResultError
from pgfl.results.folder import LIVE
from pgfl.simulate.recorder import columns

if TYPE_CHECKING:
    from pgfl.simulate.simulator import Simulator

BETWEEN_WRITES = 0.5  # seconds
MOST_ROWS = 1000


class LiveHistory:
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
