"""Pictures of a result: its network, and held-out rows by prediction, residual and client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pgfl.arrays import AnyFloats
from pgfl.drawing.networks import DrawnNetwork, network_svg
from pgfl.drawing.plots import (
    BOTTOM,
    LEFT,
    MOST_COLOURS,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Dot,
    Path,
    Tick,
    cluster_colour,
    plot_svg,
)
from pgfl.metrics import OF_CLASSES
from pgfl.results.report.curves import MOST_CURVES
from pgfl.results.report.figures import LABELS, figure
from pgfl.results.result import Columns, Result
from pgfl.results.weights import mean_weights, sentence

if TYPE_CHECKING:
    from markupsafe import Markup


class Legend(NamedTuple):
    """The colours of the first clusters, and how many more there are."""

    keys: list[tuple[str, str]]
    more: int


def network_drawing(result: Result) -> DrawnNetwork | None:
    """Return the network of run 0, ready to be drawn, where it was kept."""
    network = result.models[0].network
    if network is None:
        return None
    return DrawnNetwork(
        result.server_ids,
        network.edges,
        result.client_ids,
        result.cluster_ids,
        network.client_server,
        network.client_cluster,
    )


def picture(result: Result) -> Markup | None:
    """Return an inline SVG of run 0, or None where there is too much to see."""
    network = network_drawing(result)
    return None if network is None else network_svg(network)


def legend(result: Result) -> Legend:
    """Return which colour is which cluster."""
    shown = result.cluster_ids[:MOST_COLOURS]
    return Legend([(cluster_colour(q), name) for q, name in enumerate(shown)], len(result.cluster_ids) - len(shown))


SQUARE, STRIP, MOST_DOTS = 420, 28, 2_000
COMPARED = ("mae", "accuracy")  # of one client; its R² on a handful of rows can be any negative number
Line = tuple[float, float, float, float]


class Picture(NamedTuple):
    """A titled plot, and a sentence that explains it."""

    title: str
    svg: Markup
    words: str


def pictures(result: Result) -> list[Picture]:
    """Return everything that can be drawn of who belongs and learns where, and of a result's held-out rows."""
    drawn = (membership(result), learned(result), *_regression(result), _calibration(result), _fairness(result))
    return [picture for picture in drawn if picture]


BAR, MOST_BARS, BAR_WIDTH = 120, 400, 14.0


def membership(result: Result) -> Picture | None:
    """Return who belongs to which cluster, where clusters were found: a bar per client, a colour per cluster."""
    table = result.clusters
    if table is None or len(result.cluster_ids) < 2:
        return None
    from markupsafe import Markup

    chances = np.array([table[f"p_{name}"] for name in result.cluster_ids], dtype=float).T
    own = np.array([result.cluster_ids.index(name) for name in table["cluster"].tolist()])
    order = np.lexsort((-chances[np.arange(len(own)), own], own))
    more, order = len(order) - MOST_BARS, order[:MOST_BARS]
    width = min((WIDTH - LEFT - RIGHT) / len(order), BAR_WIDTH)
    size = (LEFT + RIGHT + width * len(order), BAR + 20)
    parts = [Markup('<svg viewBox="0 0 {:.0f} {}" width="{:.0f}" role="img">').format(*size, size[0])]
    bar = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>')
    for place, client in enumerate(order.tolist()):
        named = ", ".join(
            f"{name} {chance:.0%}".replace("%", " %")
            for name, chance in zip(result.cluster_ids, chances[client], strict=True)
            if chance >= LEAST_NAMED
        )
        parts.append(Markup("<g><title>{}: {}</title>").format(table["client"][client], named))
        top = 0.0
        for q in np.argsort(-chances[client]).tolist():
            height = BAR * float(chances[client, q])
            if height >= 0.5:
                parts.append(bar.format(LEFT + width * place, top, 0.9 * width, height, cluster_colour(q)))
            top += height
        parts.append(Markup("</g>"))
    words = "Each bar is a client; its colours say how probable each cluster is. One colour alone is certain."
    words += f" {more} more clients are in clusters.csv." if more > 0 else ""
    return Picture("Who belongs to whom", Markup("").join([*parts, Markup("</svg>")]), words)


LEAST_NAMED = 0.005
CELL, MOST_CELLS = 56, 12


def learned(result: Result) -> Picture | None:
    """Return who learned from whom: a row per cluster, and in it a square for everyone that it learned from."""
    if result.weights is None or len(result.cluster_ids) < 2:
        return None
    from markupsafe import Markup

    names = list(result.cluster_ids[:MOST_CELLS])
    weights, size = mean_weights(result.weights, result.cluster_ids), CELL * len(names)
    parts = [
        Markup('<svg viewBox="0 0 {} {}" width="{}" role="img">').format(size + 130, size + 30, min(size + 130, WIDTH))
    ]
    label = Markup('<text x="{}" y="{}" text-anchor="{}" font-size="11" fill="currentColor">{}</text>')
    for row, name in enumerate(names):
        middle = CELL * row + CELL / 2
        parts += [
            label.format(118, middle + 4, "end", name[:16]),
            label.format(130 + middle, size + 18, "middle", name[:8]),
        ]
        for column, other in enumerate(names):
            weight = float(weights[row, column])
            parts.append(
                Markup(
                    '<rect x="{}" y="{}" width="{}" height="{}" fill="{}" fill-opacity="{:.2f}" stroke="currentColor" '
                    'stroke-opacity="0.2"><title>{} learns {:.0%} of its model from {}</title></rect>'
                ).format(
                    130 + CELL * column,
                    CELL * row,
                    CELL,
                    CELL,
                    cluster_colour(column),
                    min(max(weight, 0.0), 1.0),
                    name,
                    weight,
                    other,
                )
            )
            parts.append(label.format(130 + CELL * column + CELL / 2, middle + 4, "middle", f"{weight:.0%}"))
    more = len(result.cluster_ids) - len(names)
    words = (
        "Each row is a cluster's model; its squares say how much of it came from whose data. "
        f"{sentence(result.weights, result.cluster_ids)}"
    )
    words += f" {more} more clusters are in weights.csv." if more > 0 else ""
    return Picture("Who learned from whom", Markup("").join([*parts, Markup("</svg>")]), words)


def _classified(result: Result) -> set[str]:
    return {cluster for each in result.measures if each.name in OF_CLASSES for cluster in each.clusters}


def _regression(result: Result) -> list[Picture]:
    """Observed over predicted targets, and what is left over."""
    if result.held_out is None:
        return []
    chosen = ~np.isin(result.held_out["cluster"], list(_classified(result)))
    values = np.concatenate([result.held_out[name][chosen] for name in ("predicted", "observed")])
    if not np.isfinite(values).all() or not len(values):
        return []
    across, up = Axis.around(values, LEFT, WIDTH - RIGHT), Axis.around(values, SQUARE - BOTTOM, TOP)
    dot = "One dot is the mean of many held-out rows" if result.private else "One dot is one held-out row"
    table = {name: column[chosen] for name, column in result.held_out.items()}
    svg = _square(result, table, table["observed"], (across, up), ("predicted", "observed"), _equal(across, up))
    left_over = table["observed"] - table["predicted"]
    predicted = Axis.around(table["predicted"], LEFT, WIDTH - RIGHT)
    height = Axis.around(np.append(left_over, 0.0), SQUARE - BOTTOM, TOP)
    zero = (LEFT, height(0.0), WIDTH - RIGHT, height(0.0))
    below = _square(result, table, left_over, (predicted, height), ("predicted", "observed − predicted"), zero)
    return [
        Picture("Predicted and observed", svg, f"{dot}; predictions on the dashed line are exact."),
        Picture("Errors of predictions", below, "Structure around the dashed line indicates a poor fit."),
    ]


def _calibration(result: Result) -> Picture | None:
    if result.held_out is None:
        return None
    chosen = np.isin(result.held_out["cluster"], list(_classified(result)))
    if not chosen.any():
        return None
    across, up = Axis(0.0, 1.0, LEFT, WIDTH - RIGHT), Axis(0.0, 1.0, SQUARE - BOTTOM, TOP)
    table = {name: column[chosen] for name, column in result.held_out.items()}
    labels = ("predicted probability", "observed share")
    svg = _square(result, table, table["observed"], (across, up), labels, _equal(across, up), joined=True)
    return Picture("Calibration", svg, "Dots on the dashed line are calibrated; larger dots stand for more rows.")


def _equal(across: Axis, up: Axis) -> Line:
    """Return the line on which both axes have the same value."""
    low, high = max(across.low, up.low), min(across.high, up.high)
    return across(low), up(low), across(high), up(high)


def _square(
    result: Result,
    table: Columns,
    heights: AnyFloats,
    axes: tuple[Axis, Axis],
    labels: tuple[str, str],
    guide: Line,
    *,
    joined: bool = False,
) -> Markup:
    """Heights over predictions, one colour per cluster, with a dashed line."""
    (across, up), (x_label, y_label) = axes, labels
    most = table["rows"].max()
    dots, paths = [], []
    for index, cluster in enumerate(result.cluster_ids[:MOST_CURVES]):
        mine = np.flatnonzero(table["cluster"] == cluster)
        mine = mine[np.argsort(table["predicted"][mine], kind="stable")]
        points = [(across(table["predicted"][row]), up(heights[row]), int(table["rows"][row])) for row in mine]
        for row, (x, y, rows) in zip(mine[:MOST_DOTS], points, strict=False):
            size = 2.4 if most == 1 else 3.0 + 4.0 * (rows / most) ** 0.5
            values = f"predicted {table['predicted'][row]:.4g}, observed {table['observed'][row]:.4g}"
            title = f"{cluster}: {values}" + (f" ({rows} rows)" if rows > 1 else "")
            dots.append(Dot(f"{x}", f"{y}", f"{size:.1f}", title, cluster_colour(index)))
        if joined:
            paths.append(Path(" ".join(f"{x},{y}" for x, y, _ in points), cluster_colour(index), cluster))
    return plot_svg(
        label=f"{y_label} over {x_label}",
        height=SQUARE,
        x_ticks=across.ticks(),
        y_ticks=up.ticks(),
        lines=[guide],
        paths=paths,
        dots=dots,
        x_label=x_label,
        y_label=y_label,
    )


def _fairness(result: Result) -> Picture | None:
    """Return a strip of dots per cluster: every client's own figure, and the baseline of all."""
    table = result.client_measures
    if table is None or not result.measures:
        return None
    suited = [each for each in result.measures if each.name in COMPARED and each.name in table]
    first = suited[0] if suited else result.measures[0]
    values, factor = table[first.name], 100.0 if first.name == "accuracy" else 1.0
    shown = np.flatnonzero(np.isfinite(values))[:MOST_DOTS]
    if not len(shown):
        return None
    clusters = [q for q in result.cluster_ids if (table["cluster"][shown] == q).any()][:MOST_CURVES]
    height = TOP + BOTTOM + STRIP * len(clusters)
    across = Axis.around(factor * np.append(values[shown], first.whole.baseline), LEFT + 60, WIDTH - RIGHT)
    row = {cluster: TOP + STRIP * (place + 0.5) for place, cluster in enumerate(clusters)}
    dots = [
        Dot(
            f"{across(factor * values[client])}",
            f"{row[cluster]}",
            "5",
            f"{table['client'][client]}: {figure(first.name, values[client])}",
            cluster_colour(list(result.cluster_ids).index(cluster)),
        )
        for client in shown.tolist()
        if (cluster := str(table["cluster"][client])) in row
    ]
    baseline = across(factor * first.whole.baseline)
    svg = plot_svg(
        label="Clients compared",
        height=height,
        left=LEFT + 60,
        x_ticks=across.ticks(),
        y_ticks=[Tick(at, cluster) for cluster, at in row.items()],
        lines=[(baseline, TOP, baseline, height - BOTTOM)],
        dots=dots,
        x_label=LABELS[first.name] + (", %" if factor > 1 else ""),
    )
    return Picture("Clients compared", svg, "One dot is one client on its own held-out rows; dashed is the baseline.")
