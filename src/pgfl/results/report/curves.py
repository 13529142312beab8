"""`curves.png`: what was measured over the rounds, and what each client spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from pgfl.array_types import AnyFloats, Ints
from pgfl.drawing.colours import CLUSTER_COLOURS, GREY
from pgfl.results.report.panels import Curve, Panel, panels
from pgfl.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, DPI = 5.2, 3.4, 130
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def draw(result: Result, stream: BinaryIO) -> None:
    """Draw every panel of a result as one PNG."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown, spent = panels(result), epsilons(result)
    count = max(len(shown) + (spent is not None), 1)
    columns = min(count, 2)
    rows = -(-count // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, shown, strict=False):
            draw_panel(axes, panel)
        if spent is not None:
            _draw_spending(grid[len(shown)], spent)
        for axes in grid[count:]:
            axes.set_visible(False)
        figure.savefig(stream, format="png", dpi=DPI)


def epsilons(result: Result) -> AnyFloats | None:
    """The finite ε of every client of every run, where privacy is on."""
    tables = [table["epsilon"] for table in result.privacy if "epsilon" in table]
    values = np.concatenate(tables) if tables else np.empty(0)
    return values[np.isfinite(values)] if np.isfinite(values).any() else None


def draw_curve(axes: Axes, rounds: Ints, curve: Curve, name: str, colour: str) -> None:
    """Draw one curve and its band, under a name and in a colour."""
    if curve.low is not None and curve.high is not None:
        axes.fill_between(rounds, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(rounds, curve.y, color=colour, linewidth=1.4, label=name)


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw the curves of a panel."""
    for curve in panel.curves:
        draw_curve(axes, panel.x, curve, curve.name, curve.colour)
    axes.set_title(panel.title)
    axes.set_xlabel("round")
    axes.set_ylabel(panel.unit)
    axes.margins(x=0.01)
    if panel.named:
        axes.legend()


def _draw_spending(axes: Axes, values: AnyFloats) -> None:
    axes.hist(values, bins=min(30, max(5, int(np.sqrt(len(values))))), color=CLUSTER_COLOURS[0], alpha=0.8)
    axes.axvline(values.max(), color=CLUSTER_COLOURS[1], linewidth=1.4, label=f"worst client: {values.max():.3g}")
    axes.axvline(float(np.median(values)), color=GREY, linewidth=1.4, label=f"median client: {np.median(values):.3g}")
    axes.set_axisbelow(True)
    axes.margins(y=0.25)
    axes.set_title("Privacy spent")
    axes.set_xlabel("ε")
    axes.set_ylabel("clients")
    axes.legend()
