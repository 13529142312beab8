"""Pictures as ECharts options: plain dictionaries, made from what was played."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgfl.studio.palette import ORANGE, VERMILION, Theme, cluster_colour
from pgfl.studio.played import Played

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
    """A measure in the unit of the picture: NMSD in dB, shares in per cent.

    >>> shown_value("nmsd", 0.01), shown_value("accuracy", 0.5)
    (-20.0, 50.0)
    """
    if not math.isfinite(value):
        return None
    if is_in_decibels(metric):
        return 10.0 * math.log10(value) if value > 0 else None
    return 100.0 * value if metric in ("accuracy", "auc") else value


def is_in_decibels(metric: str) -> bool:
    """Whether a measure is drawn in dB."""
    return metric.split("_")[0] in ("nmsd", "disagreement", "distance")


def axis_name(metric: str) -> str:
    """The label of a measure's axis."""
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
        "axisLabel": {"color": colours.faint, "fontSize": 12, "fontFamily": FONT, "margin": 10},
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
    beside: Mapping[str, Played] | None = None,
    preview: Played | None = None,
    name: str = "PGFL",
) -> Options:
    """The learning curve, the previous one as a ghost, a preview, and what stands beside."""
    drawn: list[Line] = []
    if before is not None:
        drawn.append(line_of("before", before, colours.ghost, width=1.6))
    looks = {"FedAvg": (ORANGE, "solid"), "no inter-server": (colours.green, "dashed")}
    for label, other in (beside or {}).items():
        colour, kind = looks[label]
        drawn.append(line_of(label, other, colour, width=2.0, kind=kind))
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
    """A curve of a training in the unit of its picture."""
    return Line(name, played.rounds, [shown_value(played.metric, value) for value in played.curve], colour, **look)


def spending(played: Played, clusters: Sequence[str], colours: Theme, budget: float | None) -> Options:
    """What each client of each cluster has spent, least first, and its budget."""
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
    """The final error at several ε, and where the current setting stands; ε on a logarithmic axis."""
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
