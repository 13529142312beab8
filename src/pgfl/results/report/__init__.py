"""Plots and the run's page; they know the result only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgfl.results.result import Result


CURVES, PAGE = "curves.png", "report.html"


def write(result: Result, folder: str | Path) -> None:
    """Put `curves.png` and `report.html` into a result folder."""
    from pgfl.files import write_atomically, write_text
    from pgfl.results.report.curves import draw
    from pgfl.results.report.page import page

    place = Path(folder)
    write_atomically(place / CURVES, lambda stream: draw(result, stream))
    write_text(place / PAGE, page(result))
