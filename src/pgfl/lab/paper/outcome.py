"""What an item of the reproduction leaves, and how it becomes files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pgfl.errors import ResultError
from pgfl.lab.paper.judging import Claim
from pgfl.lab.paper.plots import GREY, INK, Heat, Row, map_keys, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STYLE: Any = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.4,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "xtick.top": True,
    "ytick.right": True,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "legend.edgecolor": GREY,
    "legend.fancybox": False,
    "legend.handlelength": 2.2,
    "patch.linewidth": 0.5,
    "pdf.fonttype": 42,
}
DPI = 200
COLUMNS = 2


class Drawable(Protocol):
    """A panel: draws itself, and gives the rows of its CSV."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        ...

    def draw(self, axes: Axes) -> None:
        """Onto axes."""
        ...

    def rows(self) -> Iterator[Row]:
        """What it shows, as rows."""
        ...


@dataclass(frozen=True)
class Outcome:
    """An item's picture, its claims with verdicts, and notes.

    `panels` make the picture and its CSV; `maps` a second picture and CSV of how far claims hold.
    """

    name: str
    title: str
    panels: Sequence[Drawable]
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    maps: Sequence[Drawable] = field(default=())

    def save(self, folder: Path) -> None:
        """Write PNG, PDF and CSV."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name, panels in ((self.name, self.panels), (f"{self.name}-map", self.maps)):
                if panels:
                    draw(panels, folder / name)
                    write_csv([row for panel in panels for row in panel.rows()], folder / f"{name}.csv")


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Report a failure to write as one sentence."""
    try:
        yield
    except OSError as error:
        raise ResultError(
            f"Cannot write to {place}: {(error.strerror or str(error)).lower()}; choose another --out or make room."
        ) from error


def draw(panels: Sequence[Drawable], stem: Path) -> None:
    """The panels side by side, as PNG and PDF."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width, height = (max(panel.size[i] for panel in panels) for i in (0, 1))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for letter, axes, panel in zip("abcdefghijklmnop", grid, panels, strict=False):
            panel.draw(axes)
            if len(panels) > 1:
                axes.set_title(f"({letter}) {axes.get_title()}")
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if all(isinstance(panel, Heat) for panel in panels):
            figure.legend(handles=map_keys(), loc="outside lower center", ncols=3, fontsize=7)
        figure.savefig(stem.with_suffix(".png"), dpi=DPI, metadata={"Software": None})
        figure.set_layout_engine("none")  # the PDF has the same layout; to find it takes as long as drawing
        figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None, "Producer": None, "Creator": None})


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """Rows as CSV with the union of their columns."""
    table = list(rows)
    names = list(dict.fromkeys(name for row in table for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [words(name) for name in names], restval="", lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow({words(name): _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return words(value)
    return "" if value is None else f"{float(value):.6g}"
