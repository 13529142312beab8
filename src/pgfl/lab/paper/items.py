"""The interface of an item: what it needs to have measured, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pgfl.lab.paper.experiments import Experiment, Measured
from pgfl.lab.paper.judging import band, band_db
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import Look, Series

Lookup = Callable[[Experiment], Measured]


@dataclass(frozen=True)
class Effort:
    """How many Monte Carlo runs, and whether grids are thinned."""

    regression: int = 100
    digits: int = 20
    grid: int = 10
    quick: bool = False
    mnist: str | None = None

    @classmethod
    def of(cls, runs: int | None, quick: bool, mnist: str | None) -> Effort:
        """`runs` for regression curves; digits and maps keep their proportion to it."""
        runs = runs or (4 if quick else cls.regression)
        return cls(runs, max(2, runs // 5), max(2, runs // 10), quick, mnist)

    def thinned(self, values: tuple[float, ...], keep: Iterable[float]) -> tuple[float, ...]:
        """All values of a grid; in a quick run only some of them."""
        return tuple(value for value in values if value in set(keep)) if self.quick else values


class Item(Protocol):
    """A figure or a theorem."""

    @property
    def name(self) -> str:
        """As the command line knows it."""
        ...

    @property
    def title(self) -> str:
        """One line."""
        ...

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """What must be measured, with how many runs."""
        ...

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Picture, claims and notes."""
        ...


def nmsd_curve(name: str, found: Measured, look: Look) -> Series:
    """NMSD in dB against the round."""
    return Series(name, found["round"][0].astype(float), *band_db(found["nmsd"]), look)


def accuracy_curve(name: str, found: Measured, look: Look) -> Series:
    """Accuracy in per cent against the round."""
    return Series(name, found["round"][0].astype(float), *band(100.0 * found["accuracy"]), look)


def spent(found: Measured) -> str:
    """The ε that a curve really spends, for its legend; the worst client of all runs."""
    epsilon = float(np.max(found["epsilon"]))
    return "" if np.isinf(epsilon) else rf", $\varepsilon$ = {epsilon_text(epsilon)}"


def epsilon_text(epsilon: float) -> str:
    """ε with two digits, never in powers of ten."""
    return f"{epsilon:.2g}" if epsilon < 100 else f"{epsilon:.0f}"
