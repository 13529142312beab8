"""Curves of results on matplotlib's axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pgfl.did_you_mean import nearest
from pgfl.drawing.colours import cluster_colour
from pgfl.drawing.network_axes import new_axes
from pgfl.errors import ResultError
from pgfl.results.report.curves import HEIGHT, STYLE, WIDTH, draw_curve, draw_panel
from pgfl.results.report.panels import curves_of
from pgfl.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    """The metrics that all results have, the most important first."""
    return [metric for metric in known[0] if all(metric in other for other in known)]


def chosen_metric(known: Collection[str], metric: str | None) -> str:
    """The metric that is asked for, or the most important one."""
    if not known:
        raise ResultError("There is nothing to draw: no metric was recorded that all of these results have.")
    if metric is None:
        return next(iter(known))
    if metric not in known:
        raise ResultError(f"There is no metric {metric}{nearest(metric, known)} to draw; see `metrics`.")
    return metric
