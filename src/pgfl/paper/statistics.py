"""Intervals of paired differences, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from pgfl.array_types import Floats
from pgfl.core.metrics import decibels

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over runs with its t interval."""

    value: float
    low: float
    high: float
    runs: int

    def below(self, limit: float = 0.0) -> bool:
        """All of it lies below the limit."""
        return self.high < limit

    def above(self, limit: float = 0.0) -> bool:
        """All of it lies above the limit."""
        return self.low > limit


def interval(values: ArrayLike, among: int = 1) -> Interval:
    """The mean of independent runs with its 95 % t interval; `among` intervals that must hold at once share the 5 %.

    >>> interval([1.0, 2.0, 3.0])
    Interval(value=2.0, low=-0.484..., high=4.484..., runs=3)
    """
    sample = np.asarray(values, dtype=float)
    mean, half = float(sample.mean()), np.inf
    if len(sample) > 1:
        half = float(_quantile(len(sample), among) * sample.std(ddof=1) / np.sqrt(len(sample)))
    return Interval(mean, mean - half, mean + half, len(sample))


def difference_db(a: Floats, b: Floats, among: int = 1) -> Interval:
    """a relative to b in dB, run by run; below 0 a is the smaller."""
    return interval(decibels(a) - decibels(b), among)


def band(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean over runs and its 95 % band, point by point."""
    mean = curves.mean(axis=0)
    if len(curves) < 2:
        return mean, mean, mean
    half = _quantile(len(curves), 1) * curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
    return mean, mean - half, mean + half


def band_db(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """The band of NMSD in dB: of the linear mean, as the paper averages."""
    mean, low, high = band(curves)
    half = 10.0 / np.log(10.0) * (high - low) / 2.0 / mean
    return decibels(mean), decibels(mean) - half, decibels(mean) + half


def rounds_to(curves: Floats, level_db: float) -> Floats:
    """The first recorded round at which each run is at or below the level; one past the last where it never is."""
    reached = decibels(curves) <= level_db
    return np.asarray(np.where(reached.any(axis=1), reached.argmax(axis=1), curves.shape[1]), dtype=float)


def worst(intervals: Sequence[Interval]) -> Interval:
    """The one that is least below 0: if it holds, all do."""
    return max(intervals, key=lambda one: one.high)


def _quantile(runs: int, among: int) -> float:
    return float(stdtrit(runs - 1, 1.0 - (1.0 - LEVEL) / (2.0 * among)))
