"""Labels of a made-up table: from margins of mean 0 and variance 1, as predictable as a user expects."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from pgfl.array_types import Floats
from pgfl.planning.facts import Facts
from pgfl.planning.row_shapes import FURTHEST, LOW_MIDDLE, LOW_MIDDLES_VARY, MIDDLE, MIDDLES_VARY, skewed

LABELS_VARY = 0.2  # the deviation of the logarithm of a target's deviation
MOST_OF_ONE_LABEL = 0.75
LEAST_SHARE, MOST_SHARE = 1e-4, 0.999
LOGISTIC_VARIANCE = math.pi**2 / 3.0
FLATTEST, STEEPEST = 1e-3, 200.0  # slopes of logistic models that hardly know anything, and that hardly err

Labels = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Labels of margins whose clusters' labels are moved by so many of their deviations."""


def numbers(facts: Facts, typical: Floats, moved: Floats, rng: np.random.Generator) -> Labels:
    """Numbers within their bounds, of which margins like the typical ones explain as much as is expected.

    Those of clusters are `moved`; the stated deviation is that of all of them together.
    """
    middle, varies = (LOW_MIDDLE, LOW_MIDDLES_VARY) if facts.target_from_zero else (MIDDLE, MIDDLES_VARY)
    guessed = float(np.clip(middle + varies * rng.standard_normal(), -FURTHEST, FURTHEST))
    mean = guessed if facts.label_mean is None else facts.label_mean
    deviation = facts.label_scale * (1.0 if facts.label_stated else math.exp(LABELS_VARY * rng.standard_normal()))
    deviation /= math.sqrt(1.0 + float(moved.var()))

    def labelled(margins: Floats, moved: Floats | float, normal: Floats, share: float) -> Floats:
        around = math.sqrt(share) * margins + math.sqrt(1.0 - share) * skewed(normal, mean, deviation)
        return np.clip(mean + deviation * (around + moved), -1.0, 1.0)

    normal = rng.standard_normal(len(typical))

    def beyond(share: float) -> float:
        return float(np.corrcoef(typical, labelled(typical, 0.0, normal, share))[0, 1]) ** 2 - facts.expected

    share = _zero(beyond, LEAST_SHARE, MOST_SHARE)
    return lambda margins, moved, rng: labelled(margins, moved, rng.standard_normal(len(margins)), share)


def two_labels(facts: Facts, typical: Floats, rng: np.random.Generator) -> Labels:
    """Labels of a logistic model that is right as often as is expected, of margins like the typical ones."""
    guessed = _share_of_ones(facts.expected, rng)
    positive = guessed if facts.label_mean is None else facts.label_mean
    furthest = float(np.abs(typical).max())

    def threshold(slope: float) -> float:
        reach = 10.0 + slope * furthest
        return _zero(lambda at: float(expit(slope * typical + at).mean()) - positive, -reach, reach)

    def beyond(slope: float) -> float:
        chances = expit(slope * typical + threshold(slope))
        return float(np.maximum(chances, 1.0 - chances).mean()) - facts.expected

    slope = _zero(beyond, FLATTEST, STEEPEST)
    at, deviation = threshold(slope), math.sqrt(slope**2 + LOGISTIC_VARIANCE)

    def labelled(margins: Floats, moved: Floats, rng: np.random.Generator) -> Floats:
        return (rng.random(len(margins)) < expit(slope * margins + deviation * moved + at)).astype(float)

    return labelled


def _zero(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is 0; the nearer end where that is outside."""
    if rising(low) >= 0.0:
        return low
    return high if rising(high) <= 0.0 else float(brentq(rising, low, high, xtol=1e-6))


def _share_of_ones(expected: float, rng: np.random.Generator) -> float:
    """A guess of how often the label is 1: rarely enough that a model can be better than the more frequent label."""
    most = min(MOST_OF_ONE_LABEL, max(0.5, expected - 0.05))
    return float(rng.uniform(1.0 - most, most))
