"""How a result and a comparison of results show themselves in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgfl.core.measures import MEASURES
from pgfl.drawing.card import Drawn, Row, card, counted
from pgfl.drawing.colours import INK, cluster_colour
from pgfl.drawing.plot_svg import curves_svg
from pgfl.results.report.axes import common
from pgfl.results.report.figures import LABELS, figure, guarantee, short
from pgfl.results.report.network_picture import picture
from pgfl.results.report.panels import EVERYONE, MOST_CURVES, curves_of
from pgfl.results.result import Result

if TYPE_CHECKING:
    from pgfl.results.comparison import Comparison

SHOWN = ("nmsd", *MEASURES, "objective")
FIGURES = 3


def summary_line(result: Result) -> str:
    """A result in half a sentence."""
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
    """The metrics of learning at the end, averaged over the runs; the most important first."""
    return {name: float(result.curve(name)[:, -1].mean()) for name in SHOWN if name in result.metrics}


def result_card(result: Result) -> str:
    """The verdict, what was measured, what was spent, the network and the most important curves."""
    words = [f"{summary_line(result)}."]
    if result.verdict is not None:
        words.append(result.verdict.text)
    if result.guarantee:
        words.append(guarantee(result.guarantee))
    shown = list(final_figures(result))[:FIGURES]
    rows = [_figures_row(result, EVERYONE, "currentColor", shown, "")]
    for index, cluster in enumerate(result.cluster_ids):
        rows.append(_figures_row(result, cluster, cluster_colour(index), shown, f"_{cluster}"))
    told = [row for row in rows if set(row.figures) != {"–"}] if shown else []
    columns = [LABELS[name] for name in shown]
    return card("Result", words=words, columns=columns, rows=told, pictures=_pictures(result))


def comparison_card(compared: Comparison) -> str:
    """The figures of the results side by side, and their most important curves over each other."""
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
    for panel, _ in list(curves_of(result).values())[:1]:
        curves = [
            (curve.name, "currentColor" if curve.colour == INK else curve.colour, panel.x, curve.y)
            for curve in panel.curves
        ]
        if svg := curves_svg(panel.title, panel.unit, curves):
            keys = [(colour, name) for name, colour, _, _ in curves]
            found.append(Drawn(svg, keys, max(len(result.cluster_ids) - MOST_CURVES, 0)))
    return found
