"""The panels of curves that the picture and the page of a result show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pgfl.array_types import AnyFloats, Ints
from pgfl.drawing.colours import CLUSTER_COLOURS, INK, MOST_COLOURS, cluster_colour
from pgfl.results.result import Result

EVERYONE = "all clients"
MOST_CURVES = MOST_COLOURS
MOST_POINTS = 1_000
BAND = (0.1, 0.9)


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

    @property
    def named(self) -> bool:
        """Whether the curves need a legend; the title names a single curve of all clients."""
        return [curve.name for curve in self.curves] != [EVERYONE]


def curves_of(result: Result) -> dict[str, tuple[Panel, Curve]]:
    """By metric, its curve and the panel that shows it; the most important first."""
    return {curve.metric: (panel, curve) for panel in panels(result) for curve in panel.curves}


def panels(result: Result) -> list[Panel]:
    """Everything that was measured, the most important first."""
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
    yield _panel(result, "Residuals", "dB", residuals)
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
    return Panel(title, unit, result.rounds[kept], tuple(curve for curve in curves if np.isfinite(curve.y).any()))


def _curve(values: AnyFloats, unit: str, metric: str, name: str, colour: str) -> Curve:
    """The mean over runs, and the quantiles of the runs around it, in the panel's unit."""
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
