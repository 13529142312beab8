"""A claim of the paper, what was measured about it, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

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
    """A claim judged in the chosen setting alone, by its interval beside a limit."""
    verdict: Verdict = "holds" if holds else "does not hold"
    decided = holds or not found.low <= limit <= found.high
    return Claim(key, text, measured, found.value, found.low, found.high, unit, found.runs, verdict, decided)


def with_region(judged: Claim, region: str, *, everywhere: bool, anywhere: bool, map: str) -> Claim:
    """The claim with what a map around the chosen setting says: everywhere, nowhere, or where."""
    holds_here = judged.verdict == "holds"
    verdict: Verdict
    if everywhere and holds_here:
        verdict, where = "holds", None
    elif not anywhere and not holds_here:
        verdict, where = "does not hold", None
    else:
        verdict, where = "holds where …", region
    return Claim(**{**asdict(judged), "verdict": verdict, "where": where, "map": map})
