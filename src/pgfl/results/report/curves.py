"""Curves of results: the panels that picture and page show, on matplotlib's axes, and `curves.png`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from pgfl.arrays import AnyFloats, Ints
from pgfl.drawing.networks import new_axes
from pgfl.drawing.plots import CLUSTER_COLOURS, GREY, INK, MOST_COLOURS, cluster_colour
from pgfl.errors import ResultError
from pgfl.results.result import Result
from pgfl.suggestions import nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes


EVERYONE = "all clients"
MOST_CURVES = MOST_COLOURS
MOST_POINTS = 1_000
BAND = (0.1, 0.9)
ROSE = 0.02
EQUAL = 1e-9  # a relative difference of spent ε below which all clients have spent the same
ROUNDING = -250.0  # dB: what never rises above it is what rounding leaves of an equality
RISES = (
    "That it rises at the end is no sign of divergence: the objective is that of each cluster alone, and models that "
    "average over servers, borrow from other clusters or carry noise settle on another point than its minimum."
)


@dataclass(frozen=True, eq=False)
class Curve:
    """One line, and the band that holds most of the runs."""

    metric: str
    name: str
    colour: str
    y: AnyFloats
    low: AnyFloats | None = None
    high: AnyFloats | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """Curves over the rounds that share an axis."""

    title: str
    unit: str
    x: Ints
    curves: tuple[Curve, ...]
    note: str = ""

    @property
    def named(self) -> bool:
        """Whether the curves need a legend; the title names a single curve of all clients."""
        return [curve.name for curve in self.curves] != [EVERYONE]


def curves_of(result: Result) -> dict[str, tuple[Panel, Curve]]:
    """By metric, its curve and the panel that shows it; the most important first."""
    return {curve.metric: (panel, curve) for panel in panels(result) for curve in panel.curves}


def panels(result: Result) -> list[Panel]:
    """Return everything that was measured, the most important first."""
    found = [*_learning(result), *_convergence(result)]
    return [panel for panel in found if panel.curves]


def _learning(result: Result) -> Iterator[Panel]:
    for metric, title, unit in (
        ("nmsd", "NMSD", "dB"),
        ("r2", "R²", ""),
        ("mae", "Mean absolute error", ""),
        ("rmse", "Root mean squared error", ""),
        ("accuracy", "Accuracy", "%"),
        ("auc", "AUC", ""),
        ("log_loss", "Log loss", ""),
        ("objective", "Objective", ""),
    ):
        names = [(metric, EVERYONE, INK)] + [
            (f"{metric}_{cluster}", cluster, cluster_colour(index))
            for index, cluster in enumerate(result.cluster_ids[:MOST_CURVES])
        ]
        yield _panel(result, title, unit, names)


def _convergence(result: Result) -> Iterator[Panel]:
    residuals = [("primal_residual", "primal", CLUSTER_COLOURS[0]), ("dual_residual", "dual", CLUSTER_COLOURS[1])]
    yield _panel(result, "Movement of the models (residuals)", "dB", residuals)
    distances = [
        ("disagreement", "disagreement among servers", CLUSTER_COLOURS[2]),
        ("distance", "distance to the cluster optimum", CLUSTER_COLOURS[3]),
    ]
    yield _panel(result, "Consensus", "dB", distances)


def _panel(result: Result, title: str, unit: str, names: list[tuple[str, str, str]]) -> Panel:
    kept = _thinned(len(result.rounds))
    curves = (
        _curve(result.curve(metric)[:, kept], unit, metric, name, colour)
        for metric, name, colour in names
        if metric in result.metrics
    )
    found = tuple(curve for curve in curves if (curve.y > ROUNDING if unit == "dB" else np.isfinite(curve.y)).any())
    rises = bool(found) and title == "Objective" and _rises(found[0].y)
    return Panel(title, unit, result.rounds[kept], found, RISES if rises else "")


def _rises(values: AnyFloats) -> bool:
    """Return whether a curve ends well above its least value, of what it fell by."""
    known = values[np.isfinite(values)]
    return bool(known[-1] - known.min() > ROSE * max(float(np.ptp(known)), 1e-12))


def _curve(values: AnyFloats, unit: str, metric: str, name: str, colour: str) -> Curve:
    """Return the mean over runs, and the quantiles of the runs around it, in the panel's unit."""
    mean = values.mean(axis=0)
    low, high = np.quantile(values, BAND, axis=0) if len(values) > 1 else (None, None)
    scaled = [None if part is None else _in_unit(part, unit, metric) for part in (mean, low, high)]
    assert scaled[0] is not None
    return Curve(metric, name, colour, scaled[0], scaled[1], scaled[2])


def _in_unit(values: AnyFloats, unit: str, metric: str) -> AnyFloats:
    if unit == "dB":  # residuals are norms, the others ratios of squared norms
        positive = np.where(values > 0, values, np.nan)
        return np.asarray((20.0 if metric.endswith("residual") else 10.0) * np.log10(positive))
    return 100.0 * values if unit == "%" else values


def _thinned(length: int) -> Ints:
    return np.unique(np.linspace(0, length - 1, min(length, MOST_POINTS)).round().astype(np.int64))


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
    """Return the finite ε of every client of every run, where privacy is on."""
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
    if np.ptp(values) <= EQUAL * values.max():  # bins would begin at the value, and seem to lie above it
        axes.bar([values.max()], [len(values)], width=0.05 * values.max(), color=CLUSTER_COLOURS[0], alpha=0.8)
        axes.set_xlim(0.0, 1.5 * values.max() or 1.0)
    else:
        axes.hist(values, bins=min(30, max(5, int(np.sqrt(len(values))))), color=CLUSTER_COLOURS[0], alpha=0.8)
    axes.axvline(values.max(), color=CLUSTER_COLOURS[1], linewidth=1.4, label=f"worst client: {values.max():.3g}")
    axes.axvline(float(np.median(values)), color=GREY, linewidth=1.4, label=f"median client: {np.median(values):.3g}")
    axes.set_axisbelow(True)
    axes.margins(y=0.25)
    axes.set_title("Privacy spent")
    axes.set_xlabel("ε")
    axes.set_ylabel("clients")
    axes.legend()


PLAIN = {name: value for name, value in STYLE.items() if not name.startswith("axes.title")}
"""The style without titles on the left, which `set_title` on the axes would not replace."""


def draw_metric(result: Result, metric: str | None = None, axes: Axes | None = None) -> Axes:
    """Draw a metric over the rounds, with the others that share its axis, on axes of its own unless some are given."""
    import matplotlib

    known = curves_of(result)
    panel, _ = known[chosen_metric(known, metric)]
    with matplotlib.rc_context(PLAIN):
        chosen = new_axes(WIDTH, HEIGHT) if axes is None else axes
        draw_panel(chosen, panel)
    return chosen


def draw_compared(
    results: Sequence[Result], names: Sequence[str], metric: str | None = None, axes: Axes | None = None
) -> Axes:
    """Draw one metric of several results over each other."""
    import matplotlib

    known = [curves_of(result) for result in results]
    asked = chosen_metric(common(known), metric)
    with matplotlib.rc_context(PLAIN):
        chosen = new_axes(WIDTH, HEIGHT) if axes is None else axes
        for number, (name, curves) in enumerate(zip(names, known, strict=True)):
            panel, curve = curves[asked]
            draw_curve(chosen, panel.x, curve, name, cluster_colour(number))
            chosen.set(title=panel.title, xlabel="round", ylabel=panel.unit)
        chosen.margins(x=0.01)
        chosen.legend()
    return chosen


def common(known: Sequence[Collection[str]]) -> list[str]:
    """Return the metrics that all results have, the most important first."""
    return [metric for metric in known[0] if all(metric in other for other in known)]


def chosen_metric(known: Collection[str], metric: str | None) -> str:
    """Return the metric that is asked for, or the most important one."""
    if not known:
        raise ResultError("There is nothing to draw: no metric was recorded that all of these results have.")
    if metric is None:
        return next(iter(known))
    if metric not in known:
        raise ResultError(f"There is no metric {metric}{nearest(metric, known)} to draw; see `metrics`.")
    return metric
