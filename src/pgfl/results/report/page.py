"""`report.html`: one page that needs nothing but itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgfl.array_types import AnyFloats
from pgfl.drawing.card import counted
from pgfl.drawing.colours import INK, cluster_colour
from pgfl.drawing.page_templates import Templates
from pgfl.results.measured import Figure
from pgfl.results.report.figures import LABELS, NOISE, SPENDING, figure, guarantee, short
from pgfl.results.report.held_out_pictures import pictures
from pgfl.results.report.network_picture import legend, picture
from pgfl.results.report.panels import EVERYONE, Curve, Panel, panels
from pgfl.results.result import Result

MOST_CLUSTER_ROWS = 30
MOST_COEFFICIENTS, MOST_COEFFICIENT_COLUMNS = 20, 8
OUTCOME = ("nmsd", "objective")
TEMPLATES = Templates("pgfl.results.report")
SEEDED = "The noise of this run was seeded: good for a simulation, not for real data."


def page(result: Result) -> str:
    """The whole page as HTML; it shows only what may be shown to anyone."""
    from pgfl.config import to_toml

    summary = result.summary()
    return TEMPLATES.rendered(
        "page.html.jinja",
        title=summary["name"],
        style=TEMPLATES.trusted("page.css"),
        script=TEMPLATES.trusted("page.js"),
        subtitle=_subtitle(summary),
        notices=[*result.warnings, *([SEEDED] if result.noise == "seeded" else [])],
        verdict=result.verdict,
        measures=_measures(result),
        pictures=pictures(result),
        coefficients=_coefficients(result),
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
        counted(summary["clients"], "client"),
        counted(summary["servers"], "server"),
        counted(clusters, "cluster"),
        f"d = {summary['dimension']}",
        *([f"ρ = {summary['rho']:g}"] if summary.get("rho") else []),
        counted(summary["rounds"], "round"),
        *([counted(summary["runs"], "run")] if summary["runs"] > 1 else []),
        f"{summary['seconds']:.2f} s",
        f"pgfl {summary['version']}",
    ]


def _outcome(result: Result) -> dict[str, Any]:
    """The final figures of all clients and of each cluster, then those of the whole network."""
    final = {name: float(result.curve(name)[:, -1].mean()) for name in result.metrics}
    columns = [name for name in OUTCOME if name in final]
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


def _measures(result: Result) -> dict[str, Any] | None:
    """What was measured on held-out rows beside trivial baselines: all clients, clusters, worst and median client."""
    if not result.measures:
        return None
    names = [each.name for each in result.measures]
    clusters = dict.fromkeys(cluster for each in result.measures for cluster in each.clusters)
    rows: list[tuple[str, str, list[Figure | None]]]
    rows = [(EVERYONE, "currentColor", [each.whole for each in result.measures])]
    colours = {cluster: cluster_colour(index) for index, cluster in enumerate(result.cluster_ids)}
    for cluster in list(clusters)[:MOST_CLUSTER_ROWS] if len(clusters) > 1 else ():
        rows.append((cluster, colours[cluster], [each.clusters.get(cluster) for each in result.measures]))
    rows.append(("worst client", "none", [each.worst for each in result.measures]))
    rows.append(("median client", "none", [each.median for each in result.measures]))
    return {
        "columns": [LABELS[name] for name in names],
        "rows": [
            {
                "name": name,
                "colour": colour,
                "figures": [
                    ("–", "") if shown is None else (figure(metric, shown.value), figure(metric, shown.baseline))
                    for metric, shown in zip(names, row, strict=True)
                ],
            }
            for name, colour, row in rows
        ],
        "worst": [(LABELS[each.name], each.worst_client) for each in result.measures if each.worst_client is not None],
    }


def _coefficients(result: Result) -> dict[str, Any] | None:
    """The largest coefficients of every cluster's model by name, where the features have names."""
    names = result.feature_names
    if names is None or result.dimension % len(names):
        return None
    classes = result.dimension // len(names)
    declared = result.encoding.target.labels if result.encoding else None
    known = declared if declared and len(declared) == classes else [f"class {label}" for label in range(classes)]
    labels = [f"{name}, {label}" if classes > 1 else name for label in known for name in names]
    clusters = result.cluster_ids[:MOST_COEFFICIENT_COLUMNS]
    models = np.array([result.cluster(cluster) for cluster in clusters])
    size = np.nan_to_num(np.abs(models)).max(axis=0)
    kept = np.argsort(-size, kind="stable")[:MOST_COEFFICIENTS]
    largest = float(size.max()) or 1.0
    return {
        "clusters": [(name, cluster_colour(index)) for index, name in enumerate(clusters)],
        "rows": [
            (labels[at], [(f"{value:.3g}", f"{abs(value) / largest:.2f}") for value in models[:, at].tolist()])
            for at in kept.tolist()
        ],
        "hidden": len(labels) - len(kept),
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
