"""Colours and pictures of the page: ECharts options as plain dictionaries, and digits as PNG."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgfl.arrays import AnyFloats
from pgfl.config import Config
from pgfl.drawing.plots import CLUSTER_COLOURS
from pgfl.studio.workers import Plane, Played

BLUE, VERMILION, GREEN, PURPLE, _, SKY, *_others = CLUSTER_COLOURS
ORANGE = "#e69f00"
LIGHT_GREEN = "#4fd6ad"
SYMBOLS = ("circle", "rect", "triangle", "diamond", "pin", "roundRect", "arrow")


@dataclass(frozen=True)
class Theme:
    """What differs between a light and a dark page."""

    ink: str
    faint: str
    grid: str
    ghost: str
    surface: str
    main: str
    other: str
    clusters: tuple[str, ...]


LIGHT = Theme("#1d2330", "#5b6474", "#e6e9ef", "#b4bac6", "#ffffff", "#1d2330", "#5b6474", CLUSTER_COLOURS)
DARK = Theme(
    "#eef1f6",
    "#a9b2c1",
    "#2b3340",
    "#5d6778",
    "#171c24",
    "#eef1f6",
    "#a9b2c1",
    (SKY, ORANGE, LIGHT_GREEN, PURPLE, "#e8d44d", "#7aa6ff", "#b79be0", "#d2a08f"),
)


def theme(dark: bool) -> Theme:
    """Return the colours of a page."""
    return DARK if dark else LIGHT


def cluster_colour(cluster: int, colours: Theme) -> str:
    """Return the colour of a cluster."""
    return colours.clusters[cluster % len(colours.clusters)]


def cluster_symbol(cluster: int) -> str:
    """Return the symbol of a cluster, which tells as much as its colour."""
    return SYMBOLS[cluster % len(SYMBOLS)]


SIDE = 28
SAMPLES = 6


@dataclass(frozen=True)
class Sample:
    """A test image with what the model of its cluster says about it."""

    picture: str
    label: str
    predicted: str
    probability: float

    @property
    def right(self) -> bool:
        """Whether the model is right."""
        return self.label == self.predicted


@dataclass(frozen=True)
class Task:
    """A cluster's task: its learned weights, and some test images."""

    cluster: str
    weights: str
    samples: tuple[Sample, ...]


def tasks(config: Config, models: Mapping[str, AnyFloats]) -> list[Task]:
    """The pictures of every cluster of a training on digits; the first test images of either label, every time."""
    federation = config.federations()(0, None)
    found = []
    for cluster, model in models.items():
        test = (federation.tests or {})[cluster]
        names = cluster.split("|")
        chosen = np.concatenate([np.flatnonzero(test.targets == label)[: SAMPLES // 2] for label in (0, 1)])
        samples = tuple(_sample(test.features[row], int(test.targets[row]), model, names) for row in chosen.tolist())
        found.append(Task(cluster, picture(model[: SIDE * SIDE], diverging=True), samples))
    return found


def _sample(features: AnyFloats, label: int, model: AnyFloats, names: list[str]) -> Sample:
    chance = float(1.0 / (1.0 + np.exp(-np.clip(features @ model, -500, 500))))
    predicted = int(chance > 0.5)
    image = picture(features[: SIDE * SIDE])
    return Sample(image, names[label], names[predicted], chance if predicted else 1.0 - chance)


def picture(values: AnyFloats, *, diverging: bool = False) -> str:
    """A square of pixels as a data address; with weights, blue votes for the first label and red for the second."""
    from matplotlib.image import imsave

    square = np.asarray(values, dtype=float).reshape(SIDE, SIDE)
    most = float(np.abs(square).max()) or 1.0
    look: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -most, "vmax": most} if diverging else {"cmap": "gray_r"}
    file = io.BytesIO()
    imsave(file, square, format="png", **look)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


Options = dict[str, Any]
FONT = "Roboto, Helvetica, Arial, sans-serif"
LINES = ("solid", "dashed", "dotted")


@dataclass(frozen=True)
class Line:
    """A named curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: str
    width: float = 2.0
    kind: str = "solid"
    opacity: float = 1.0


def shown_value(metric: str, value: float) -> float | None:
    """Return a measure in the unit of the picture: NMSD in dB, shares in per cent.

    >>> shown_value("nmsd", 0.01), shown_value("accuracy", 0.5)
    (-20.0, 50.0)
    """
    if not math.isfinite(value):
        return None
    if is_in_decibels(metric):
        return 10.0 * math.log10(value) if value > 0 else None
    return 100.0 * value if metric in ("accuracy", "auc") else value


def is_in_decibels(metric: str) -> bool:
    """Return whether a measure is drawn in dB."""
    return metric.split("_")[0] in ("nmsd", "disagreement", "distance")


def axis_name(metric: str) -> str:
    """Return the label of a measure's axis."""
    names = {
        "nmsd": "NMSD [dB]",
        "accuracy": "accuracy [%]",
        "auc": "AUC [%]",
        "r2": "R²",
        "mae": "MAE",
        "rmse": "RMSE",
    }
    names |= {"disagreement": "disagreement [dB]", "distance": "distance to the optimum [dB]", "log_loss": "log loss"}
    return names.get(metric, metric.replace("_", " "))


def frame(colours: Theme, x: str, y: str, *, log_x: bool = False) -> Options:
    """Axes without curves."""
    axis: Options = {
        "nameLocation": "middle",
        "nameTextStyle": {"color": colours.ink, "fontSize": 13, "fontFamily": FONT},
        "axisLabel": {"color": colours.faint, "fontSize": 12, "fontFamily": FONT, "margin": 10, "hideOverlap": True},
        "axisLine": {"show": True, "onZero": False, "lineStyle": {"color": colours.faint}},
        "axisTick": {"show": True, "lineStyle": {"color": colours.faint}},
        "splitLine": {"lineStyle": {"color": colours.grid}},
    }
    return {
        "animation": False,
        "backgroundColor": "transparent",
        "textStyle": {"fontFamily": FONT, "color": colours.ink},
        "grid": {"left": 66, "right": 20, "top": 44, "bottom": 54, "outerBoundsMode": "none"},
        "legend": {
            "top": 4,
            "left": 56,
            "right": 16,
            "itemWidth": 26,
            "itemHeight": 10,
            "textStyle": {"color": colours.ink, "fontSize": 12, "fontFamily": FONT},
            "inactiveColor": colours.ghost,
        },
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": colours.surface,
            "borderColor": colours.grid,
            "textStyle": {"color": colours.ink, "fontSize": 12},
            ":valueFormatter": "v => v == null ? '—' : Number(v).toPrecision(4)",
        },
        "xAxis": {
            **axis,
            "axisLabel": dict(axis["axisLabel"]),
            "type": "log" if log_x else "value",
            "name": x,
            "nameGap": 34,
        },
        "yAxis": {**axis, "type": "value", "name": y, "nameGap": 48, "scale": True},
        "series": [],
    }


def _series(line: Line) -> Options:
    return {
        "id": line.name,
        "name": line.name,
        "type": "line",
        "showSymbol": len(line.x) <= 15,
        "symbolSize": 6,
        "data": [[x, y] for x, y in zip(line.x, line.y, strict=True)],
        "lineStyle": {"color": line.colour, "width": line.width, "type": line.kind, "opacity": line.opacity},
        "itemStyle": {"color": line.colour, "opacity": line.opacity},
        "emphasis": {"disabled": True},
    }


def lines(drawn: Iterable[Line], colours: Theme, x: str, y: str, *, log_x: bool = False) -> Options:
    """Curves over each other, with zoom by wheel and values on hover."""
    options = frame(colours, x, y, log_x=log_x)
    options["series"] = [_series(line) for line in drawn]
    options["legend"]["itemStyle"] = {"opacity": 0}
    options["dataZoom"] = [{"type": "inside", "xAxisIndex": 0, "zoomOnMouseWheel": "ctrl", "moveOnMouseMove": False}]
    return options


def curves(
    now: Played | None,
    colours: Theme,
    *,
    rounds: int,
    before: Played | None = None,
    comparisons: Mapping[str, Played] | None = None,
    preview: Played | None = None,
    name: str = "PGFL",
) -> Options:
    """Return the learning curve, the previous one as a ghost, a preview, and other algorithms for comparison."""
    drawn: list[Line] = []
    if before is not None:
        drawn.append(line_of("before", before, colours.ghost, width=1.6))
    for label, other in (comparisons or {}).items():  # by their lines: colours belong to clusters
        kind = "dashed" if label == "FedAvg" else "dotted"
        step = "" if other.step_size is None else f", step {other.step_size:.3g}"
        drawn.append(line_of(label + step, other, colours.other, width=2.0, kind=kind))
    if preview is not None:
        drawn.append(line_of("preview", preview, colours.main, width=2.0, kind="dotted"))
    if now is not None:
        drawn.append(line_of(name, now, colours.main, width=2.8, opacity=1.0 if preview is None else 0.35))
    metric = next((one.metric for one in (now, preview, before) if one is not None), "nmsd")
    options = lines(drawn, colours, "round n", axis_name(metric))
    options["xAxis"]["max"] = rounds
    options["yAxis"]["max"] = 100 if metric == "accuracy" else None
    options["legend"]["data"] = [line.name for line in reversed(drawn)]
    return options


def line_of(name: str, played: Played, colour: str, **look: Any) -> Line:
    """Return a curve of a training in the unit of its picture."""
    return Line(name, played.rounds, [shown_value(played.metric, value) for value in played.curve], colour, **look)


def spending(played: Played, clusters: Sequence[str], colours: Theme, budget: float | None) -> Options:
    """Return what each client of each cluster has spent, least first, and its budget."""
    options = frame(colours, "clients of each cluster, least spent first", "spent ε")
    rows = sorted(played.spent, key=lambda row: (clusters.index(row[1]), row[2], row[0]))
    options["xAxis"] |= {"type": "category", "data": [row[0] for row in rows], "axisLabel": {"show": False}}
    options["xAxis"]["axisTick"] = {"show": False}
    options["xAxis"]["nameGap"] = 14
    options["grid"]["bottom"] = 34
    options["yAxis"] |= {"min": 0, "scale": False}
    options["tooltip"] |= {"trigger": "item", ":formatter": "p => p.data && p.data.tip ? p.data.tip : p.name"}
    for q, name in enumerate(clusters):
        data = [
            {"value": row[2], "tip": f"<b>{html.escape(row[0])}</b><br/>ε = {row[2]:.4g} in {row[3]} releases"}
            if row[1] == name else None
            for row in rows
        ]  # fmt: skip
        options["series"].append(
            {"name": name, "type": "bar", "stack": "spent", "data": data, "barCategoryGap": "10%",
             "itemStyle": {"color": cluster_colour(q, colours)}, "emphasis": {"disabled": True}}
        )  # fmt: skip
    if budget is not None and options["series"]:
        options["yAxis"]["max"] = f"{1.1 * max(budget, played.epsilon or 0.0):.3g}"
        options["yAxis"]["axisLabel"] |= {"showMaxLabel": False}
        options["series"][0]["markLine"] = {
            "silent": True,
            "symbol": "none",
            "data": [{"yAxis": budget}],
            "lineStyle": {"color": VERMILION, "type": "dashed", "width": 2},
            "label": {"formatter": f"budget ε = {budget:g}", "color": colours.ink, "position": "insideEndTop"},
        }
    return options


def against_epsilon(
    points: Mapping[float, float], now: tuple[float, float] | None, metric: str, colours: Theme
) -> Options:
    """Return the final error at several ε, and where the current setting stands; ε on a logarithmic axis."""
    chosen = sorted(points.items())
    drawn = [Line("at this ε", [x for x, _ in chosen], [shown_value(metric, y) for _, y in chosen], colours.main, 2.4)]
    options = lines(drawn, colours, "ε of the worst client", f"final {axis_name(metric)}", log_x=True)
    options["series"][0]["showSymbol"] = True
    if now is not None:
        options["series"].append(
            {"name": "now", "type": "scatter", "data": [[now[0], shown_value(metric, now[1])]], "symbolSize": 14,
             "symbol": "diamond", "itemStyle": {"color": VERMILION}}
        )  # fmt: skip
    options["legend"] = {"show": False}
    if metric == "accuracy":
        options["yAxis"]["max"] = 100
    options["xAxis"] |= {"min": "dataMin", "max": "dataMax"}
    options["xAxis"]["axisLabel"][":formatter"] = "v => Number(v.toPrecision(2))"
    options["tooltip"]["trigger"] = "item"
    options["tooltip"][":formatter"] = "p => `ε = ${p.value[0].toPrecision(3)}<br/>${p.value[1].toPrecision(4)}`"
    return options


def plane(drawn: Plane, clusters: Sequence[str], colours: Theme, place: int) -> Options:
    """The models of all servers after a round, the clusters' paths until then, and the truth where it is known."""
    options = frame(colours, "difference from the clusters’ mean, first direction", "second direction")
    options["tooltip"] = {"show": False}
    options["legend"]["data"] = list(clusters)[: drawn.clusters.shape[1]]
    shown = [drawn.clusters] if drawn.truth is None else [drawn.clusters, drawn.truth]
    limit = _round_up(1.1 * max(float(abs(points).max()) for points in shown))
    for axis in ("xAxis", "yAxis"):
        options[axis] |= {"min": -limit, "max": limit, "interval": limit / 2}
    series: list[Options] = []
    for q in range(drawn.clusters.shape[1]):
        colour, name = cluster_colour(q, colours), clusters[q]
        own = [pair for pair, of in enumerate(drawn.pair_cluster) if of == q]
        path = drawn.clusters[: place + 1, q].tolist()
        series += [
            {"name": name, "type": "line", "data": path, "showSymbol": False, "silent": True,
             "lineStyle": {"color": colour, "width": 1.4, "opacity": 0.35}, "itemStyle": {"color": colour}},
            {"name": name, "type": "scatter", "data": drawn.servers[place, own].tolist(), "symbolSize": 6,
             "symbol": cluster_symbol(q), "silent": True, "itemStyle": {"color": colour, "opacity": 0.45}},
            {"name": name, "type": "scatter", "data": [path[-1]], "symbolSize": 16, "symbol": cluster_symbol(q),
             "silent": True, "itemStyle": {"color": colour, "borderColor": colours.ink, "borderWidth": 1.5}},
        ]  # fmt: skip
        if drawn.truth is not None:
            series.append(
                {"name": name, "type": "scatter", "data": [drawn.truth[q].tolist()], "symbolSize": 20, "silent": True,
                 "symbol": "path://M-1,-8h2v7h7v2h-7v7h-2v-7h-7v-2h7z",
                 "itemStyle": {"color": colour, "borderColor": colours.surface, "borderWidth": 0.5}}
            )  # fmt: skip
    options["series"] = series
    return options


def _round_up(value: float) -> float:
    """Return the next number with one figure that halves well.

    >>> _round_up(0.55), _round_up(3.2)
    (0.6, 4.0)
    """
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    steps = next((step for step in (1, 2, 4, 6, 8, 10) if step * unit >= value), 10)
    return float(f"{steps * unit:.3g}")
