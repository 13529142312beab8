"""Pictures as ECharts options: plain dictionaries, made from what was played."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgfl.studio.palette import GREEN, ORANGE, PURPLE, VERMILION, Theme, cluster_colour, cluster_symbol
from pgfl.studio.played import Network, Plane, Played

Options = dict[str, Any]
FONT = "Roboto, Helvetica, Arial, sans-serif"
BESIDE = {"FedAvg": ORANGE, "no inter-server": GREEN}
RUN_COLOURS = (ORANGE, GREEN, PURPLE, VERMILION)
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
    for label, other in (beside or {}).items():
        drawn.append(line_of(label, other, BESIDE[label], width=1.6, kind="dashed" if label != "FedAvg" else "solid"))
    if preview is not None:
        drawn.append(line_of("preview", preview, colours.main, width=2.0, kind="dotted"))
    if now is not None:
        drawn.append(line_of(name, now, colours.main, width=2.8, opacity=1.0 if preview is None else 0.35))
    metric = next((one.metric for one in (now, preview, before) if one is not None), "nmsd")
    options = lines(drawn, colours, "round n", axis_name(metric))
    options["xAxis"]["max"] = rounds
    if metric == "accuracy":
        options["yAxis"]["max"] = 100
    options["legend"]["data"] = [line.name for line in reversed(drawn)]
    return options


def line_of(name: str, played: Played, colour: str, **look: Any) -> Line:
    """A curve of a training in the unit of its picture."""
    return Line(name, played.rounds, [shown_value(played.metric, value) for value in played.curve], colour, **look)


def network(drawn: Network, colours: Theme, chosen: str | None = None) -> Options:
    """Servers on their graph, clients around them in the colour and symbol of their cluster."""
    nodes: list[Options] = []
    for client, place, q, x, y, epsilon in drawn.clients:
        spent = "" if epsilon is None else f"<br/>spent ε = {epsilon:.3g}"
        where = html.escape(drawn.servers[place].name)
        nodes.append(
            {
                "name": client,
                "x": x,
                "y": y,
                "symbol": cluster_symbol(q),
                "symbolSize": 9,
                "category": q,
                "itemStyle": {"color": cluster_colour(q, colours)},
                "label": {"show": False},
                "tip": f"<b>{html.escape(client)}</b><br/>{html.escape(drawn.clusters[q])}, at {where}{spent}",
            }
        )
    for server in drawn.servers:
        held = "".join(
            f"<br/>{html.escape(name)}: ‖w‖ = {norm:.3g}" + ("" if error is None else f", error {error:.1f} dB")
            for name, norm, error in server.models[:8]
        )
        about = f"{len(server.clients)} clients, {len(server.neighbours)} neighbours"
        nodes.append(
            {
                "name": server.name,
                "x": server.x,
                "y": server.y,
                "symbol": "circle",
                "symbolSize": 26 if server.name == chosen else 20,
                "itemStyle": {
                    "color": colours.ink,
                    "borderColor": VERMILION if server.name == chosen else colours.surface,
                    "borderWidth": 3 if server.name == chosen else 2,
                },
                "label": {"show": True, "position": "inside", "color": colours.surface, "fontSize": 10,
                          "fontWeight": "bold", "formatter": _short(server.name)},
                "tip": f"<b>{html.escape(server.name)}</b><br/>{about}{held}",
            }
        )  # fmt: skip
    names = [server.name for server in drawn.servers]
    base = frame(colours, "", "")
    return {
        "animation": False,
        "textStyle": base["textStyle"],
        "tooltip": {
            **base["tooltip"],
            "trigger": "item",
            ":formatter": "p => p.data && p.data.tip ? p.data.tip : ''",
        },
        "legend": {
            **base["legend"],
            "itemWidth": 12,
            "itemHeight": 12,
            "left": "center",
            "data": [
                {"name": name, "icon": cluster_symbol(q), "itemStyle": {"color": cluster_colour(q, colours)}}
                for q, name in enumerate(drawn.clusters)
            ],
        },
        "series": [
            {
                "type": "graph",
                "layout": "none",
                "preserveAspect": "contain",
                "roam": True,
                "scaleLimit": {"min": 0.7, "max": 6},
                "top": 52,
                "bottom": 26,
                "left": 26,
                "right": 26,
                "cursor": "pointer",
                "data": nodes,
                "links": [{"source": names[a], "target": names[b]} for a, b in drawn.edges],
                "lineStyle": {"color": colours.faint, "width": 1.4, "opacity": 0.7},
                "categories": [
                    {"name": name, "itemStyle": {"color": cluster_colour(q, colours)}}
                    for q, name in enumerate(drawn.clusters)
                ],
                "emphasis": {"focus": "none"},
            }
        ],
    }


def _short(name: str) -> str:
    head, _, tail = name.rpartition("-")
    return tail if head and tail.isdigit() else name[:3]


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
    """The next number with one figure that halves well.

    >>> _round_up(0.55), _round_up(3.2)
    (0.6, 4.0)
    """
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    steps = next((step for step in (1, 2, 4, 6, 8, 10) if step * unit >= value), 10)
    return float(f"{steps * unit:.3g}")


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
