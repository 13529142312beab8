"""The judging of a claim: what the paper says, what was measured, the verdict, and where on a map it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from pgfl.array_types import Bools
from pgfl.paper.plots import Heat, words
from pgfl.paper.statistics import Interval

Verdict = Literal["holds", "does not hold", "holds where …"]


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper with its number, interval and verdict.

    A claim that the interval neither supports nor contradicts does not hold, and is not `decided`. `where` completes
    "holds where …"; `map` names the CSV in which the region can be seen.
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
            return f"holds where {self.where}"
        return self.verdict if self.decided else f"{self.verdict} (not decided by {self.runs} runs)"


def claim(key: str, text: str, measured: str, found: Interval, unit: str, holds: bool, limit: float = 0.0) -> Claim:
    """A claim judged in the chosen setting alone, by its interval and a limit."""
    verdict: Verdict = "holds" if holds else "does not hold"
    decided = holds or not found.low <= limit <= found.high
    return Claim(key, text, measured, found.value, found.low, found.high, unit, found.runs, verdict, decided)


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
