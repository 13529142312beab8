"""`report.html`: one page that needs nothing but itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgfl.array_types import AnyFloats
from pgfl.results.report.figures import LABELS, NOISE, SPENDING, figure, guarantee, short
from pgfl.results.report.network_picture import legend, picture
from pgfl.results.report.panels import EVERYONE, INK, Curve, Panel, cluster_colour, panels
from pgfl.results.report.rendering import rendered, trusted
from pgfl.results.result import Result

MOST_CLUSTER_ROWS = 30
SEEDED = "The noise of this run was seeded: good for a simulation, not for real data."


def page(result: Result) -> str:
    """The whole page as HTML; it shows only what may be shown to anyone."""
    from pgfl.config import to_toml

    summary = result.summary()
    return rendered(
        "page.html.jinja",
        title=summary["name"],
        style=trusted("page.css"),
        script=trusted("page.js"),
        subtitle=_subtitle(summary),
        notices=[*result.warnings, *([SEEDED] if result.noise == "seeded" else [])],
        outcome=_outcome(result),
        notes=result.notes,
        network=picture(result),
        legend=legend(result),
        privacy=_privacy(result) if result.private else None,
        config=None if result.config is None else to_toml(result.config),
        panels=[_panel(panel) for panel in panels(result)],
    )


def _subtitle(summary: dict[str, Any]) -> list[str]:
    clusters = summary["clusters"] if isinstance(summary["clusters"], int) else len(summary["clusters"])
    return [
        _counted(summary["clients"], "client"),
        _counted(summary["servers"], "server"),
        _counted(clusters, "cluster"),
        f"d = {summary['dimension']}",
        _counted(summary["rounds"], "round"),
        *([_counted(summary["runs"], "run")] if summary["runs"] > 1 else []),
        f"{summary['seconds']:.2f} s",
        f"pgfl {summary['version']}",
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _outcome(result: Result) -> dict[str, Any]:
    """The final figures of all clients and of each cluster, then those of the whole network."""
    final = {name: float(result.curve(name)[:, -1].mean()) for name in result.metrics}
    columns = [name for name in LABELS if name in final]
    rows = [_outcome_row(EVERYONE, "currentColor", {name: final[name] for name in columns})]
    for index, cluster in enumerate(result.cluster_ids[:MOST_CLUSTER_ROWS]):
        values = {name: final.get(f"{name}_{cluster}", np.nan) for name in columns}
        if np.isfinite(list(values.values())).any():
            rows.append(_outcome_row(cluster, cluster_colour(index), values))
    others = [name for name in ("primal_residual", "dual_residual", "disagreement", "distance") if name in final]
    return {
        "columns": [LABELS[name] for name in columns],
        "rows": rows,
        "others": [(name.replace("_", " "), f"{final[name]:.4g}") for name in others],
    }


def _outcome_row(name: str, colour: str, values: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "colour": colour, "figures": [figure(metric, value) for metric, value in values.items()]}


def _privacy(result: Result) -> dict[str, Any]:
    spending = result.spending()
    return {
        "guarantee": guarantee(result.guarantee) if result.guarantee else None,
        "noise": NOISE.get(result.noise or "", "none"),
        "spending": [
            (label, short(spent["worst"]), short(spent["median"]))
            for name, label in SPENDING.items()
            if (spent := spending.get(name))
        ],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "unit": panel.unit,
        "named": panel.named,
        "x": panel.x.tolist(),
        "curves": [_curve(curve) for curve in panel.curves],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    bands = {"low": curve.low, "high": curve.high} if curve.low is not None and curve.high is not None else {}
    colour = "var(--ink)" if curve.colour == INK else curve.colour
    return {"name": curve.name, "colour": colour, "y": _numbers(curve.y)} | {
        name: _numbers(band) for name, band in bands.items()
    }


def _numbers(values: AnyFloats) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
