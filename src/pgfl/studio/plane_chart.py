"""The models of the clusters in a plane as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgfl.studio.charts import Options, frame
from pgfl.studio.palette import Theme, cluster_colour, cluster_symbol
from pgfl.studio.played import Plane


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
