"""Colours that people with colour blindness can tell apart, and plots as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats
from pgfl.drawing.pages import DRAWING

if TYPE_CHECKING:
    from markupsafe import Markup


CLUSTER_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#6a3d9a", "#8c564b")
MOST_COLOURS = len(CLUSTER_COLOURS)
INK, GREY = "#333333", "#8a8a8a"


def cluster_colour(index: int) -> str:
    """Return the colour of a cluster, the same in every picture."""
    return CLUSTER_COLOURS[index % MOST_COLOURS]


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 300, 58, 12, 24, 36


class Tick(NamedTuple):
    """A mark on an axis."""

    at: float
    text: str


class Dot(NamedTuple):
    """A dot with words that are shown while the mouse is on it."""

    x: str
    y: str
    radius: str
    title: str
    colour: str = ""


class Path(NamedTuple):
    """A line through points."""

    points: str
    colour: str
    title: str = ""


@dataclass(frozen=True)
class Axis:
    """A linear axis from values to places."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: AnyFloats, start: float, end: float) -> Axis:
        """Return an axis that holds all values, with a margin."""
        low, high = float(values.min()), float(values.max())
        margin = 0.04 * (high - low) or abs(high) * 0.05 or 1.0
        return cls(low - margin, high + margin, start, end)

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, wanted: int = 6) -> list[Tick]:
        """Marks at round numbers."""
        rough = (self.high - self.low) / wanted
        power = 10.0 ** np.floor(np.log10(rough))
        step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
        marks = np.arange(np.ceil(self.low / step), np.floor(self.high / step) + 1) * step
        return [Tick(self(mark), f"{mark + 0.0:.6g}") for mark in marks.tolist()]  # no "-0"


def plot_svg(
    *,
    label: str,
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    x_label: str = "",
    y_label: str = "",
    height: float = HEIGHT,
    left: float = LEFT,
    lines: Sequence[tuple[float, float, float, float]] = (),
    paths: Sequence[Path] = (),
    dots: Sequence[Dot] = (),
) -> Markup:
    """Return a plot of a given height: dashed lines, paths and dots over a grid."""
    return DRAWING.rendered(
        "plot.svg.jinja",
        width=WIDTH,
        height=height,
        left=left,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=height - BOTTOM,
        label=label,
        x_ticks=x_ticks,
        y_ticks=y_ticks,
        x_label=x_label,
        y_label=y_label,
        lines=lines,
        paths=paths,
        dots=dots,
    )


def curves_svg(
    label: str, unit: str, curves: Sequence[tuple[str, str, AnyArray, AnyFloats]], x_label: str = "round"
) -> Markup | None:
    """Curves as (name, colour, x, y) in one plot; None if no curve has two finite points."""
    finite = [(name, colour, x[np.isfinite(y)], y[np.isfinite(y)]) for name, colour, x, y in curves]
    shown = [curve for curve in finite if len(curve[2]) > 1]
    if not shown:
        return None
    across = Axis(min(c[2].min() for c in shown), max(c[2].max() for c in shown), LEFT, WIDTH - RIGHT)
    up = Axis.around(np.concatenate([c[3] for c in shown]), HEIGHT - BOTTOM, TOP)
    return plot_svg(
        label=label,
        x_ticks=across.ticks(),
        y_ticks=up.ticks(),
        x_label=x_label,
        y_label=f"{label}, {unit}" if unit else label,
        paths=[
            Path(" ".join(f"{across(a)},{up(b)}" for a, b in zip(x.tolist(), y.tolist(), strict=True)), colour, name)
            for name, colour, x, y in shown
        ],
    )
