"""Probabilities that mean something: what was predicted beside what was observed, and what mends the difference.

A calibration is a line through margins, slope · margin + offset, fitted to held-out rows whose labels are known:
cluster by cluster where there are enough. Without privacy only: it is an exact function of these rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import UsageError

LEAST_ROWS, LEAST_OF_A_LABEL = 50, 10  # held-out rows, of a cluster or of all together
STRENGTH = 1.0  # of the pull towards slope 1 and offset 0, in rows: few rows say little
STEPS = 50
Line = tuple[float, float]
"""A slope and an offset."""


@dataclass(frozen=True)
class Calibration:
    """A slope and an offset for every cluster, and the mean probability of the second label beside its share."""

    lines: Mapping[str, Line]
    rows: int
    predicted: float
    observed: float

    @property
    def sentence(self) -> str:
        """What was found, for people."""
        slopes = [slope for slope, _ in self.lines.values()]
        spread = f"{slopes[0]:.2f}" if len(set(slopes)) == 1 else f"{min(slopes):.2f} to {max(slopes):.2f}"
        return (
            f"Probabilities: {100 * self.predicted:.1f} % predicted and {100 * self.observed:.1f} % observed on "
            f"{self.rows} held-out rows; calibration slope {spread} (1 is calibrated, less is too sure)."
        )

    def to_json(self) -> dict[str, Any]:
        """Ready for `summary.json`."""
        lines = {name: list(line) for name, line in self.lines.items()}
        return {"lines": lines, "rows": self.rows, "predicted": self.predicted, "observed": self.observed}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Calibration:
        """As `to_json` wrote it."""
        return cls(lines_of(page), page["rows"], page["predicted"], page["observed"])


def lines_of(page: Mapping[str, Any]) -> dict[str, Line]:
    """Return the lines of a calibration in `summary.json`."""
    return {name: (float(slope), float(offset)) for name, (slope, offset) in page["lines"].items()}


def calibrate(margins: Mapping[str, Floats], labels: Mapping[str, Floats]) -> Calibration | None:
    """Return the calibration of clusters with held-out rows; None where all of them together are too few.

    >>> from scipy.special import expit
    >>> rng = np.random.default_rng(0)
    >>> true = rng.normal(size=4000)
    >>> found = calibrate({"all": 2.0 * true}, {"all": (rng.random(4000) < expit(true)) * 1.0})
    >>> abs(found.lines["all"][0] - 0.5) < 0.05  # margins twice too large are halved
    True
    """
    known = [name for name in margins if len(labels[name])]
    if not known:
        return None
    together = np.concatenate([margins[name] for name in known]), np.concatenate([labels[name] for name in known])
    if not _enough(together[1]) or not np.isfinite(together[0]).all():
        return None
    whole = line(*together)
    lines = {name: line(margins[name], labels[name]) if _enough(labels[name]) else whole for name in known}
    return Calibration(lines, len(together[1]), float(_chance(together[0]).mean()), float(together[1].mean()))


def _chance(margins: Floats) -> Floats:
    from scipy.special import expit  # a client on a network calibrates nothing, and does without its ten megabytes

    return np.asarray(expit(margins))


def line(margins: Floats, labels: Floats) -> Line:
    """Return the slope and offset that fit labels of 0 and 1 best, pulled a little towards 1 and 0."""
    design = np.column_stack([margins, np.ones(len(margins))]).astype(np.float64)
    start = np.array([1.0, 0.0])
    found = start
    for _ in range(STEPS):
        chance = _chance(design @ found)
        gradient = design.T @ (chance - labels) + STRENGTH * (found - start)
        bend = (chance * (1.0 - chance))[:, None] * design
        step = np.linalg.solve(design.T @ bend + STRENGTH * np.eye(2), gradient)
        found = found - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return float(found[0]), float(found[1])


def least_margin(costs: tuple[float, float]) -> float:
    """Return the margin above which the second label costs less, for the costs of a miss and of a false alarm.

    >>> least_margin((9.0, 1.0)) == -math.log(9.0)  # a probability of 0.1
    True
    """
    try:
        miss, false_alarm = (float(cost) for cost in costs)
    except (TypeError, ValueError):
        raise UsageError(f"costs are two numbers above 0, of a miss and of a false alarm; got {costs!r}.") from None
    if not (0.0 < miss < math.inf and 0.0 < false_alarm < math.inf):
        raise UsageError(f"costs are two numbers above 0, of a miss and of a false alarm; got {costs!r}.")
    return math.log(false_alarm / miss)


def _enough(labels: Floats) -> bool:
    positive = int(np.count_nonzero(labels > 0.5))
    return len(labels) >= LEAST_ROWS and min(positive, len(labels) - positive) >= LEAST_OF_A_LABEL
