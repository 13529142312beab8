"""Bounds that a column's name suggests, and bounds that its records suggest where nothing is private.

The first look at the name alone, so that nothing depends on a record; a person still has to confirm them.
"""

from __future__ import annotations

import re

import numpy as np

from pgfl.arrays import AnyFloats

USUAL: dict[tuple[str, ...], tuple[float, float]] = {
    ("age",): (0, 110),
    ("bmi",): (10, 70),
    ("height", "cm"): (40, 230),
    ("weight", "kg"): (0, 250),
    ("systolic",): (50, 260),
    ("sbp",): (50, 260),
    ("diastolic",): (30, 160),
    ("dbp",): (30, 160),
    ("heart", "rate"): (20, 250),
    ("pulse",): (20, 250),
    ("percent",): (0, 100),
    ("percentage",): (0, 100),
    ("pct",): (0, 100),
    ("fraction",): (0, 1),
    ("probability",): (0, 1),
    ("month",): (1, 12),
    ("hour",): (0, 24),
    ("latitude",): (-90, 90),
    ("longitude",): (-180, 180),
}
_UNITS = {"years", "yrs", "y", "at", "in", "of", "the"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
TAIL, LEAST_VALUES = 0.01, 50


def usual_bounds(name: str) -> tuple[float, float] | None:
    """Return the bounds that a column's name suggests, None if it does not suggest any.

    >>> usual_bounds("age"), usual_bounds("AgeYears"), usual_bounds("height_cm"), usual_bounds("income_pct")
    ((0, 110), (0, 110), (40, 230), (0, 100))
    >>> usual_bounds("income"), usual_bounds("mileage"), usual_bounds("age_diff"), usual_bounds("height")
    (None, None, None, None)
    """
    words = [word.lower() for word in _WORD.findall(name)]
    known = tuple(word for word in words if word not in _UNITS)
    if known in USUAL:
        return USUAL[known]
    unit = USUAL.get(known[-1:]) if known[-1:] in (("percent",), ("percentage",), ("pct",)) else None
    return unit


def robust_bounds(values: AnyFloats) -> tuple[float, float]:
    """Return the extremes of some values or, if they lie far out, where 98 of 100 values and as much on each side lie.

    >>> robust_bounds(np.append(np.arange(25.0).repeat(40), 61_370.0))
    (0.0, 48.0)
    >>> robust_bounds(np.array([0.0, 24.0, 61_370.0]))  # too few to call any of them far out
    (0.0, 61370.0)
    """
    known = values[np.isfinite(values)]
    low, high = float(known.min()), float(known.max())
    if len(known) < LEAST_VALUES:
        return low, high
    first, last = (float(value) for value in np.quantile(known, [TAIL, 1.0 - TAIL]))
    width = last - first
    return (low, high) if width == 0.0 else (max(low, first - width), min(high, last + width))
