"""How far a claim holds around the chosen setting: a statistic on a grid of two settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pgfl.paper.claims import Claim, with_region
from pgfl.paper.experiments import Experiment, Measured
from pgfl.paper.items import Lookup
from pgfl.paper.plots import Heat, words
from pgfl.paper.statistics import Interval

Cell = Callable[[float, float], Sequence[Experiment]]


@dataclass(frozen=True)
class Grid:
    """Two settings, and the experiments of a cell."""

    x_name: str
    y_name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    cell: Cell

    def experiments(self, runs: int) -> dict[Experiment, int]:
        """All cells'."""
        return {one: runs for y in self.y for x in self.x for one in self.cell(x, y)}

    def heat(
        self,
        title: str,
        unit: str,
        measured: Lookup,
        statistic: Callable[..., Interval],
        *,
        digits: int = 1,
        good: int = -1,
        limit: float = 0.0,
    ) -> Heat:
        """The statistic of every cell; the claim holds where its interval lies on the good side of the limit."""
        found = [[statistic(*_paired([measured(one) for one in self.cell(x, y)])) for x in self.x] for y in self.y]
        value, low, high = (
            np.array([[getattr(one, name) for one in row] for row in found]) for name in ("value", "low", "high")
        )
        return Heat(title, self.x_name, self.y_name, self.x, self.y, value, low, high, unit, digits, good, limit)


def _paired(found: Sequence[Measured]) -> list[Measured]:
    """As many runs of each as all have: an experiment that a figure shares may have more."""
    runs = min(len(one["round"]) for one in found)
    return [{name: values[:runs] for name, values in one.items()} for one in found]


def judged_on(claim: Claim, heat: Heat, file: str) -> Claim:
    """The claim with the region of the map in which it holds."""
    holds = heat.holds
    return with_region(claim, region(heat), everywhere=bool(holds.all()), anywhere=bool(holds.any()), map=f"{file}.csv")


def region(heat: Heat) -> str:
    """In words, for which x the claim holds at which y; y alone where it holds at every x."""
    holds = heat.holds
    if not holds.any():
        return "nowhere else on the map"
    x_name, y_name = words(heat.x_label), words(heat.y_label)
    spans = [_span(x_name, heat.x, row) if row.any() else "" for row in holds]
    said = []
    for span in dict.fromkeys(filter(None, spans)):
        rows = np.array([one == span for one in spans])
        if rows.all():
            said.append(span)
        else:
            all_of_x = bool(holds[rows].all())
            said.append(_span(y_name, heat.y, rows) + ("" if all_of_x else f": {span}"))
    return "; ".join(said)


def _span(name: str, values: Sequence[float], holds: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
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
