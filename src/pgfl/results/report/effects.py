"""How a column matters: its curve in every cluster's model, where columns became curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import Floats
from pgfl.drawing.plots import cluster_colour, curves_svg
from pgfl.federation.columns import NumberColumn
from pgfl.results.report.curves import MOST_CURVES
from pgfl.results.report.pictures import Picture
from pgfl.results.result import Result

if TYPE_CHECKING:
    import polars

POINTS, MOST_COLUMNS = 121, 24


def effects(result: Result) -> list[Picture]:
    """Return one picture per column that is a curve, those that matter most first."""
    found = [(name, *_effect(result, name)) for name in curved_columns(result)]
    found = [one for one in found if np.isfinite(one[2]).any()]
    found.sort(key=lambda one: -float(np.nanmax(np.ptp(one[2], axis=1))))
    classified = set(result.tasks) == {"classification"}
    words = (
        "How far this column moves the log-odds of the second label, over its declared bounds"
        if classified
        else "How far this column moves the prediction, over its declared bounds"
    )
    unit = "log-odds" if classified else "" if result.encoding is None else result.encoding.target.name
    pictures = []
    for name, places, heights in found[:MOST_COLUMNS]:
        curves = [
            (cluster, cluster_colour(index), places, height)
            for index, (cluster, height) in enumerate(zip(result.cluster_ids, heights, strict=False))
        ]
        svg = curves_svg("effect", unit, curves, x_label=name)
        if svg is not None:
            pictures.append(Picture(f"Effect of {name}", svg, f"{words}; zero is its mean over them."))
    return pictures


def curved_columns(result: Result) -> tuple[str, ...]:
    """Return the columns whose numbers became curves that can be drawn one by one."""
    encoding = result.encoding
    if encoding is None or encoding.is_plain or not encoding.is_additive or result.classes:
        return ()
    return tuple(
        column.name
        for column, group in zip(encoding.columns, encoding.groups, strict=False)
        if isinstance(column, NumberColumn) and column.bounds is not None and group.size > len(column.feature_names)
    )


def listed_coefficients(result: Result) -> polars.DataFrame:
    """Return the table of coefficients without those of curves, which are drawn: single points of one say little."""
    import polars

    table, drawn = result.coefficients(), curved_columns(result)
    at_point = polars.col("reference").is_not_null() & polars.col("feature").str.split("=").list.first().is_in(drawn)
    return table.filter(~at_point.fill_null(value=False)) if drawn else table


def drawn_features(result: Result) -> set[str]:
    """Return the names of the features that are drawn as curves."""
    names, encoding = curved_columns(result), result.encoding
    groups = () if encoding is None else encoding.groups
    return {feature for group in groups if group.name in names for feature in group.names}


def _effect(result: Result, name: str) -> tuple[Floats, Floats]:
    """Return numbers between a column's bounds, and what each cluster's model adds for them in the target's unit."""
    encoding = result.encoding
    assert encoding is not None
    column = next(column for column in encoding.columns if column.name == name)
    assert isinstance(column, NumberColumn) and column.bounds is not None
    places = np.linspace(*column.bounds, POINTS)
    where, features = encoding.of_number(name, np.linspace(-1.0, 1.0, POINTS))
    clusters = result.cluster_ids[:MOST_CURVES]
    models = np.array([result.cluster(cluster)[where] for cluster in clusters], dtype=np.float64)
    return places, models @ features.T * encoding.target.unit
