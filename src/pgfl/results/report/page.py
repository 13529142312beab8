"""`report.html`, one self-contained page, and the cards that notebooks show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.arrays import AnyFloats
from pgfl.drawing.pages import Drawn, Row, Templates, card, counted
from pgfl.drawing.plots import INK, cluster_colour, curves_svg
from pgfl.metrics import MEASURES
from pgfl.results.coefficients import NAMES_OF_COLUMNS, cell_text
from pgfl.results.measures import Figure
from pgfl.results.report.curves import EVERYONE, MOST_CURVES, Curve, Panel, common, curves_of, panels
from pgfl.results.report.effects import drawn_features, effects, listed_coefficients
from pgfl.results.report.figures import LABELS, figure, short, spent
from pgfl.results.report.pictures import legend, membership, picture, pictures
from pgfl.results.result import Result

if TYPE_CHECKING:
    from pgfl.results.comparison import Comparison


MOST_CLUSTER_ROWS = 30
MOST_COEFFICIENTS, MOST_COEFFICIENT_COLUMNS = 20, 8
MOST_TERMS = 200
OUTCOME = ("nmsd", "objective")
TEMPLATES = Templates("pgfl.results.report")
SEEDED = "The noise of this run was seeded: good for a simulation, not for real data."


def page(result: Result) -> str:
    """Return the whole page as HTML; it shows only what may be shown to anyone."""
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
        pictures=[*pictures(result), *effects(result)],
        coefficients=_coefficients(result),
        units=_in_units(result),
        outcome=_outcome(result),
        worth=_worth(result),
        notes=[note for note in result.notes if result.alternatives is None or note != result.alternatives.sentence],
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
    """Return the final figures of all clients and of each cluster, then those of the whole network."""
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


def _worth(result: Result) -> dict[str, Any] | None:
    """Return what simpler ways to split the same records reach on the same held-out rows: for all, and by cluster."""
    found = result.alternatives
    if found is None:
        return None
    clusters = list(found.clusters)[:MOST_COEFFICIENT_COLUMNS] if len(found.clusters) > 1 else []
    columns = [found.whole, *(found.clusters[name] for name in clusters)]
    best = [max(column.values()) for column in columns]
    return {
        "measure": LABELS[found.measure],
        "columns": [EVERYONE, *clusters],
        "rows": [
            (way, [(figure(found.measure, one[way]), one[way] == top) for one, top in zip(columns, best, strict=True)])
            for way in found.whole
        ],
        "sentence": found.sentence,
    }


def _coefficients(result: Result) -> dict[str, Any] | None:
    """Return the largest coefficients of every cluster's model by name, where the features have names."""
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
    if drawn := drawn_features(result):  # a curve says more than a bar per point
        listed = np.array([name not in drawn for name in names])
        labels, models, size = (
            [label for label, own in zip(labels, listed, strict=True) if own],
            models[:, listed],
            size[listed],
        )
        if not labels:
            return None
    kept = np.argsort(-size, kind="stable")[:MOST_COEFFICIENTS]
    largest = float(size.max()) or 1.0
    return {
        "clusters": [(name, cluster_colour(index)) for index, name in enumerate(clusters)],
        "rows": [
            (
                labels[at],
                [(f"{value:.3g}", f"{abs(value) / largest:.2f}", value < 0) for value in models[:, at].tolist()],
            )
            for at in kept.tolist()
        ],
        "hidden": len(labels) - len(kept),
    }


def _in_units(result: Result) -> dict[str, Any] | None:
    """Return coefficients in the table's units with their intervals, where standard errors are known."""
    if result.fits is None:
        return None
    table = listed_coefficients(result)
    shown = table.head(MOST_TERMS)
    return {
        "columns": ["effect", *(NAMES_OF_COLUMNS.get(name, name) for name in table.columns)],
        "rows": [
            (_sign(row["low"], row["high"]), [cell_text(cell) for cell in row.values()])
            for row in shown.iter_rows(named=True)
        ],
        "hidden": len(table) - len(shown),
        "note": result.fits_note,
    }


def _sign(low: float | None, high: float | None) -> tuple[str, str]:
    """Return whether an interval says that a coefficient raises or lowers the prediction, in a word, and its class."""
    if low is None or high is None:
        return "–", ""
    return ("raises", "up") if low > 0 else ("lowers", "down") if high < 0 else ("unclear", "")


def _outcome_row(name: str, colour: str, values: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "colour": colour, "figures": [figure(metric, value) for metric, value in values.items()]}


def _privacy(result: Result) -> dict[str, Any]:
    return {"card": result.privacy_card, "spending": spent(result)}


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "note": panel.note,
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


SHOWN = ("nmsd", *MEASURES.built_in, "objective")
FIGURES = 3


def summary_line(result: Result) -> str:
    """Return a result in half a sentence."""
    parts = [
        f"{counted(len(result.client_ids), 'client')} at {counted(len(result.server_ids), 'server')} in "
        f"{counted(len(result.cluster_ids), 'cluster')}",
        counted(int(result.rounds[-1]), "round") + (f" × {len(result.models)} runs" if len(result.models) > 1 else ""),
        *(f"{LABELS[name]} {figure(name, value)}" for name, value in list(final_figures(result).items())[:1]),
    ]
    if epsilon := result.spending().get("epsilon"):
        parts.append(f"ε ≤ {short(epsilon['worst'])}")
    return ", ".join([*parts, *([] if result.verdict is None else [result.verdict.kind])])


def final_figures(result: Result) -> dict[str, float]:
    """Return the metrics of learning at the end, averaged over the runs; the most important first."""
    return {name: float(result.curve(name)[:, -1].mean()) for name in SHOWN if name in result.metrics}


def result_card(result: Result) -> str:
    """Return the verdict, what was measured, what was spent, the network and the most important curves."""
    words = [f"{summary_line(result)}."]
    if result.verdict is not None:
        words.append(result.verdict.text)
    if (promise := result.privacy_card) is not None:
        words.append(f"{promise.headline}. {' '.join(promise.meaning.split())}")
    shown = list(final_figures(result))[:FIGURES]
    rows = [_figures_row(result, EVERYONE, "currentColor", shown, "")]
    for index, cluster in enumerate(result.cluster_ids):
        rows.append(_figures_row(result, cluster, cluster_colour(index), shown, f"_{cluster}"))
    told = [row for row in rows if set(row.figures) != {"–"}] if shown else []
    columns = [LABELS[name] for name in shown]
    return card("Result", words=words, columns=columns, rows=told, pictures=_pictures(result))


def comparison_card(compared: Comparison) -> str:
    """Return the figures of the results side by side, and their most important curves over each other."""
    rows = [Row(label, values) for label, values in compared.figures.items()]
    rows += [Row(key, values) for key, values in compared.differences.items()]
    known = [curves_of(result) for result in compared.results]
    pictures = []
    if metrics := common(known):
        curves = [
            (name, cluster_colour(number), panel.x, curve.y)
            for number, (name, (panel, curve)) in enumerate(
                zip(compared.names, (one[metrics[0]] for one in known), strict=True)
            )
        ]
        panel, _ = known[0][metrics[0]]
        if svg := curves_svg(panel.title, panel.unit, curves):
            pictures.append(Drawn(svg, [(colour, name) for name, colour, _, _ in curves]))
    return card("Comparison", columns=compared.names, rows=rows, pictures=pictures)


def _figures_row(result: Result, name: str, colour: str, shown: list[str], ending: str) -> Row:
    values = (
        result.curve(f"{metric}{ending}")[:, -1].mean() if f"{metric}{ending}" in result.metrics else np.nan
        for metric in shown
    )
    figures = [figure(metric, float(value)) for metric, value in zip(shown, values, strict=True)]
    return Row(name, figures, colour)


def _pictures(result: Result) -> list[Drawn]:
    found = []
    if svg := picture(result):
        found.append(Drawn(svg))
    if drawn := membership(result):
        keys, more = legend(result)
        found.append(Drawn(drawn.svg, keys, more))
    for panel, _ in list(curves_of(result).values())[:1]:
        curves = [
            (curve.name, "currentColor" if curve.colour == INK else curve.colour, panel.x, curve.y)
            for curve in panel.curves
        ]
        if svg := curves_svg(panel.title, panel.unit, curves):
            keys = [(colour, name) for name, colour, _, _ in curves]
            found.append(Drawn(svg, keys, max(len(result.cluster_ids) - MOST_CURVES, 0)))
    return found
