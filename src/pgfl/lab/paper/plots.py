"""What a figure shows, as data: curves, points, maps; each draws itself and gives the rows of its CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.arrays import AnyFloats, Bools

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Row = dict[str, Any]

_FIT_INSIDE = 5  # series whose legend leaves room for their curves
INK = "#222222"
BLUE, RED, GREEN, ORANGE, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#AA4499", "#777777"


@dataclass(frozen=True)
class Look:
    """Colour, dash and marker of a series."""

    colour: str = BLUE
    dash: str = "-"
    marker: str = ""


@dataclass(frozen=True, eq=False)
class Series:
    """One curve with its band."""

    name: str
    x: AnyFloats
    y: AnyFloats
    low: AnyFloats | None = None
    high: AnyFloats | None = None
    look: Look = field(default_factory=Look)


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves on common axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    bound_y: tuple[float | None, float | None] = (None, None)
    note: str = ""
    marks: tuple[tuple[float, str], ...] = ()  # vertical lines and what they mean
    point_labels: tuple[str, ...] = ()  # of the first series
    error_bars: bool = False  # points with bars, not curves with bands
    size: tuple[float, float] = (3.5, 2.8)

    def draw(self, axes: Axes) -> None:
        """On axes of a figure in the journal's style."""
        for one in self.series:
            x, y = np.asarray(one.x, float), np.asarray(one.y, float)
            every = max(1, len(x) // 8) if one.look.marker and len(x) > 20 else 1
            if one.low is not None and one.high is not None:
                if self.error_bars:
                    axes.errorbar(
                        x, y, np.abs(np.array([y - one.low, one.high - y])), fmt="none", ecolor=one.look.colour,
                        elinewidth=0.7, capsize=1.8, capthick=0.7,
                    )  # fmt: skip
                else:
                    axes.fill_between(x, one.low, one.high, color=one.look.colour, alpha=0.18, linewidth=0)
            axes.plot(
                x, y, one.look.dash, color=one.look.colour, marker=one.look.marker or None, markevery=every,
                markersize=3.2, markerfacecolor="white", markeredgewidth=0.8, linewidth=1.1, label=one.name,
            )  # fmt: skip
        if self.log_x:
            axes.set_xscale("log")
            if len(self.series[0].x) <= 7:
                axes.set_xticks(self.series[0].x, [f"{value:g}" for value in self.series[0].x])
                axes.minorticks_off()
        if self.log_y:
            axes.set_yscale("log")
        for at, meaning in self.marks:
            axes.axvline(at, color=GREY, linewidth=0.6, linestyle=":")
            axes.annotate(
                meaning, (at, 0.3), xycoords=("data", "axes fraction"), fontsize=6.5, color=GREY, rotation=90,
                ha="right", va="center",
            )  # fmt: skip
        for text, x, y in zip(self.point_labels, self.series[0].x, self.series[0].y, strict=False):
            axes.annotate(text, (x, y), (0, 6), textcoords="offset points", fontsize=6.5, color=INK, ha="center")
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.set_title(self.title)
        axes.set_ylim(*self.bound_y)
        if self.note:
            axes.annotate(self.note, (0.5, 0.98), xycoords="axes fraction", fontsize=6.5, ha="center", va="top")
        if not self.log_x and not self.error_bars:
            axes.margins(x=0.0)
        if self.point_labels:
            axes.margins(x=0.1, y=0.1)
        if len(self.series) > _FIT_INSIDE:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=6, frameon=False)
        elif len(self.series) > 1 or self.series[0].name:
            axes.legend()

    def rows(self) -> Iterator[Row]:
        """One row per point."""
        for one in self.series:
            for i, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
                yield {
                    "panel": self.title,
                    "curve": one.name,
                    self.x_label: x,
                    self.y_label: y,
                    "low": None if one.low is None else one.low[i],
                    "high": None if one.high is None else one.high[i],
                }


@dataclass(frozen=True, eq=False)
class Heat:
    """A statistic over a grid of two settings; on the `good` side of its limit (blue) the claim holds."""

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    y: Sequence[float]
    value: AnyFloats
    low: AnyFloats
    high: AnyFloats
    unit: str
    digits: int = 1
    good: int = -1
    limit: float = 0.0
    size: tuple[float, float] = (3.5, 2.4)

    @property
    def holds(self) -> Bools:
        """Where all of the interval supports the claim."""
        return np.asarray(self.high < self.limit if self.good < 0 else self.low > self.limit)

    def draw(self, axes: Axes) -> None:
        """Cells with their numbers; a number in brackets is not distinguishable from the limit."""
        beyond = self.value - self.limit
        shade = np.sign(beyond) * np.sqrt(np.abs(beyond))
        reach = 1.6 * float(np.nanmax(np.abs(shade))) or 1.0
        colours = "RdBu_r" if self.good < 0 else "RdBu"
        axes.imshow(shade, cmap=colours, vmin=-reach, vmax=reach, aspect="auto", origin="lower")
        for row in range(len(self.y)):
            for column in range(len(self.x)):
                sign = "+" if self.limit == 0.0 else ""
                text = f"{self.value[row, column]:{sign}.{self.digits}f}".replace("-", "−")
                if self.low[row, column] <= self.limit <= self.high[row, column]:
                    text = f"({text})"
                axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=INK)
        axes.set_xticks(range(len(self.x)), [f"{value:g}" for value in self.x])
        axes.set_yticks(range(len(self.y)), [f"{value:g}" for value in self.y])
        axes.tick_params(length=0, which="both")
        axes.grid(visible=False)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.set_title(self.title)

    def rows(self) -> Iterator[Row]:
        """One row per cell, with its interval."""
        for row, y in enumerate(self.y):
            for column, x in enumerate(self.x):
                yield {
                    "map": self.title,
                    self.x_label: x,
                    self.y_label: y,
                    f"statistic in {self.unit}": self.value[row, column],
                    "low": self.low[row, column],
                    "high": self.high[row, column],
                    "holds": "yes" if self.holds[row, column] else "no",
                }


def map_keys() -> list[Any]:
    """Return the legend of maps: what the colours and the brackets of their cells say."""
    from matplotlib.patches import Patch

    return [
        Patch(facecolor="#6aaed6", label="claim holds"),
        Patch(facecolor="#ef9b7a", label="does not hold"),
        Patch(alpha=0.0, label="(in brackets): undecided"),
    ]


@dataclass(frozen=True, eq=False)
class Bars:
    """One number per name, and a limit."""

    title: str
    y_label: str
    values: dict[str, float]
    limit: float | None = None
    limit_name: str = ""
    size: tuple[float, float] = (3.5, 2.8)

    def draw(self, axes: Axes) -> None:
        """Bars with their numbers on top."""
        heights = list(self.values.values())
        axes.bar(range(len(heights)), heights, width=0.55, color=BLUE, alpha=0.75)
        for i, height in enumerate(heights):
            axes.annotate(
                f"{height:.3g}",
                (i, height),
                (0, -10),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color="white",
            )
        if self.limit is not None:
            axes.axhline(self.limit, color=RED, linewidth=0.9, linestyle="--", label=self.limit_name)
            axes.legend(loc="upper right")
        axes.set_ylim(0.0, 1.25 * max([*heights, self.limit or 0.0]))
        axes.set_xticks(range(len(heights)), [name.replace(",", "").replace(" ", "\n") for name in self.values])
        axes.tick_params(axis="x", length=0, labelsize=7)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(self.y_label)
        axes.set_title(self.title)

    def rows(self) -> Iterator[Row]:
        """One row per bar."""
        for name, value in self.values.items():
            yield {"panel": self.title, "curve": name, self.y_label: value}


_WORDS = (
    (r"\phi^{(0)}", "φ⁽⁰⁾"), (r"\varepsilon", "ε"), (r"\rho", "ρ"), (r"\tau", "τ"), (r"\gamma", "γ"),
    (r"\mathcal{E}", "E"), (r"\emptyset", "∅"), (r"\times", "×"), (r"\in", "∈"), (r"\{", "{"), (r"\}", "}"),
    (r"\Delta", "Δ"), (r"\eta", "η"), (r"\kappa", "κ"), (r"\Vert", "‖"),
    ("^n", "ⁿ"), ("^2", "²"), (r"\,", " "), ("$", ""),
)  # fmt: skip


def words(label: str) -> str:
    """A label of a plot as plain text, for tables and sentences.

    >>> words(r"PGFL, $\\tau = 0.4 \\times 0.98^n$")
    'PGFL, τ = 0.4 × 0.98ⁿ'
    """
    for mark, plain in _WORDS:
        label = label.replace(mark, plain)
    return label
