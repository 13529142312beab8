"""Maps: a statistic on a grid of two settings, which shows how far a claim holds around the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pgfl.lab.paper.experiments import Experiment, Measured
from pgfl.lab.paper.items import Lookup
from pgfl.lab.paper.judging import Interval
from pgfl.lab.paper.plots import Heat

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
