"""The judging of a claim: intervals of paired differences, maps of where it holds, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from pgfl.arrays import Bools, Floats
from pgfl.lab.paper.plots import Heat, words
from pgfl.metrics import decibels

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


Verdict = Literal["holds", "does not hold", "holds where …"]
Standing = Literal["holds", "holds at the drawn setting", "not at the drawn setting", "does not hold"]


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper with its number, interval and verdict.

    A claim that the interval neither supports nor contradicts does not hold, and is not `decided`. `where` completes
    "holds where …"; `map` names the CSV in which the region can be seen. `here` says whether the claim holds at the
    setting of the figure, whatever the map shows around it.
    """

    key: str
    claim: str
    measured: str
    value: float
    low: float
    high: float
    unit: str
    runs: int
    verdict: Verdict
    decided: bool = True
    here: bool = True
    where: str | None = None
    map: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The claim with numbers that JSON has."""
        return {
            key: (value if not isinstance(value, float) or np.isfinite(value) else None)
            for key, value in asdict(self).items()
        }

    @property
    def sentence(self) -> str:
        """The verdict as a reader sees it."""
        if self.verdict == "holds where …":
            here = "holds at the drawn setting, and around it" if self.here else "not at the drawn setting; holds"
            return f"{here} where {self.where}"
        return self.verdict if self.decided else f"{self.verdict} (not decided by {self.runs} runs)"


def standing(verdict: str, here: bool) -> Standing:
    """Return what a verdict comes to at the setting of the figure.

    >>> standing("holds where …", here=False)
    'not at the drawn setting'
    """
    if verdict == "holds where …":
        return "holds at the drawn setting" if here else "not at the drawn setting"
    return "holds" if verdict == "holds" else "does not hold"


def claim(key: str, text: str, measured: str, found: Interval, unit: str, holds: bool, limit: float = 0.0) -> Claim:
    """A claim judged in the chosen setting alone, by its interval and a limit."""
    verdict: Verdict = "holds" if holds else "does not hold"
    decided = holds or not found.low <= limit <= found.high
    return Claim(key, text, measured, found.value, found.low, found.high, unit, found.runs, verdict, decided, holds)


def with_region(judged: Claim, region: str, *, everywhere: bool, anywhere: bool, map: str) -> Claim:
    """The claim qualified by a map around the chosen setting: it holds everywhere, nowhere, or in a region."""
    holds_here = judged.verdict == "holds"
    verdict: Verdict
    if everywhere and holds_here:
        verdict, where = "holds", None
    elif not anywhere and not holds_here:
        verdict, where = "does not hold", None
    else:
        verdict, where = "holds where …", region
    return Claim(**{**asdict(judged), "verdict": verdict, "where": where, "map": map})


def judged_on(claim: Claim, heat: Heat, file: str) -> Claim:
    """The claim with the region of the map in which it holds."""
    holds = heat.holds
    return with_region(claim, region(heat), everywhere=bool(holds.all()), anywhere=bool(holds.any()), map=f"{file}.csv")


def region(heat: Heat) -> str:
    """The region in words: for which x the claim holds at which y; y alone where it holds at every x."""
    holds = heat.holds
    if not holds.any():
        return "nowhere else on the map"
    x_name, y_name = words(heat.x_label), words(heat.y_label)
    spans = [_span(x_name, heat.x, row) if row.any() else "" for row in holds]
    parts = []
    for span in dict.fromkeys(filter(None, spans)):
        rows = np.array([one == span for one in spans])
        if rows.all():
            parts.append(span)
        else:
            all_of_x = bool(holds[rows].all())
            parts.append(_span(y_name, heat.y, rows) + ("" if all_of_x else f": {span}"))
    return "; ".join(parts)


def _span(name: str, values: Sequence[float], holds: Bools) -> str:
    """The values at which it holds, as an end, an interval or a list."""
    kept = [value for value, yes in zip(values, holds, strict=True) if yes]
    if len(kept) == len(values):
        return f"all {name} from {values[0]:g} to {values[-1]:g}"
    first, last = int(np.argmax(holds)), len(values) - 1 - int(np.argmax(holds[::-1]))
    if last - first + 1 == len(kept) > 1:
        if last == len(values) - 1:
            return f"{name} ≥ {kept[0]:g}"
        return f"{name} ≤ {kept[-1]:g}" if first == 0 else f"{name} from {kept[0]:g} to {kept[-1]:g}"
    return f"{name} = " + ", ".join(f"{value:g}" for value in kept)
