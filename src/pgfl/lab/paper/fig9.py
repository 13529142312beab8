"""Fig. 9: accuracy on triplets of digits against τ."""

from __future__ import annotations

import numpy as np

from pgfl.lab.paper.conditions import ROUNDS_DIGITS, TAU, digits
from pgfl.lab.paper.experiments import Experiment, Measured, Trial
from pgfl.lab.paper.figures import ACCURACY, EVEN_MARK, EVEN_NOTE, GUARANTEE, LEVELS, PHI, cell_runs, gain, points
from pgfl.lab.paper.items import Effort, Lookup, spent
from pgfl.lab.paper.judging import band, claim, judged_on
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import BLUE, RED, Lines, Look, Series

TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
COARSE_TAUS = (0.0, 0.2, 0.4, 0.6, 0.9)
MEDIUM_TO_LARGE = (0.2, 0.4, 0.6)
VERY_LARGE = (0.8, 0.9)


class Figure9:
    """Accuracy after 100 rounds against τ, on the triplets."""

    name = "fig9"
    title = "Accuracy after 100 rounds against τ, triplets, with scheduling and privacy"

    def trials(self, effort: Effort, phi0: float) -> dict[float, Trial]:
        """A trial for every τ."""
        fine = TAUS if phi0 == min(LEVELS.values()) else COARSE_TAUS
        taus = effort.thinned(fine, (0.0, 0.4, 0.9))
        return {tau: digits("triplets", tau, effort.mnist, phi0=phi0) for tau in taus}

    def grid(self, effort: Effort, taus: tuple[float, ...]) -> Grid:
        """φ⁽⁰⁾ × τ; a cell holds τ, τ = 0.4 and τ = 0."""

        def cell(phi0: float, tau: float) -> list[Experiment]:
            return [digits("triplets", one, effort.mnist, phi0=phi0) for one in (tau, TAU, 0.0)]

        levels = effort.thinned((0.001, 0.003, 0.03, 0.3), (0.003,))
        return Grid(PHI, r"$\tau$", levels, effort.thinned(taus, (0.2, 0.9)), cell)

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Both levels of noise, and the map."""
        curves: dict[Experiment, int] = {
            trial: effort.digits for phi0 in LEVELS.values() for trial in self.trials(effort, phi0).values()
        }
        wanted = curves
        for taus in (MEDIUM_TO_LARGE, VERY_LARGE):
            wanted = self.grid(effort, taus).experiments(cell_runs(effort)) | wanted
        return wanted

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Medium and large τ improve, very large degrade."""
        panels, claims = [], []
        improves = self.grid(effort, MEDIUM_TO_LARGE).heat(
            r"gain on $\tau = 0$ [points]", "points", measured, lambda tau, fixed, zero: gain(tau, zero), good=1
        )
        degrades = self.grid(effort, VERY_LARGE).heat(
            r"gain on $\tau = 0.4$ [points]", "points", measured, lambda tau, fixed, zero: gain(tau, fixed), digits=2
        )
        for (level, phi0), colour in zip(LEVELS.items(), (RED, BLUE), strict=True):
            found = {tau: measured(trial) for tau, trial in self.trials(effort, phi0).items()}
            panels.append(_against_tau(rf"{level}, {PHI} = {phi0:g}", found, colour))
            medium = [tau for tau in MEDIUM_TO_LARGE if tau in found]
            least = min((gain(found[tau], found[0.0], len(medium)) for tau in medium), key=lambda one: one.low)
            largest = max(found)
            lost = gain(found[largest], found[TAU])
            beside = gain(found[largest], found[0.0])
            claims += [
                judged_on(claim(f"fig9.improve.{level.split()[0]}", f"medium and large τ improve accuracy ({level})",
                      f"accuracy minus that of τ = 0 after 100 rounds, the least of τ = {', '.join(map(str, medium))}",
                      least, "points", least.above()), improves, "fig9-map"),
                judged_on(claim(f"fig9.degrade.{level.split()[0]}", f"a very large τ degrades accuracy ({level})",
                      f"accuracy of τ = {largest:g} minus that of τ = 0.4 (minus that of τ = 0: {beside.value:+.1f})",
                      lost, "points", lost.below()), degrades, "fig9-map"),
            ]  # fmt: skip
        return Outcome(self.name, self.title, panels, claims, [GUARANTEE, EVEN_NOTE], [improves, degrades])


def _against_tau(title: str, found: dict[float, Measured], colour: str) -> Lines:
    mean, low, high = (np.array([band(points(one)[:, None])[i][0] for one in found.values()]) for i in range(3))
    epsilon = spent(next(iter(found.values()))).removeprefix(", ")
    series = Series(epsilon, np.array(list(found)), mean, low, high, Look(colour, "-", "o"))
    return Lines(
        title,
        r"$\tau$",
        f"{ACCURACY} after {ROUNDS_DIGITS} rounds",
        [series],
        marks=(EVEN_MARK,),
        error_bars=True,
    )


FIGURE = Figure9()
