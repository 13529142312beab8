"""Fig. 6: NMSD after 200 rounds against the privacy parameter φ⁽⁰⁾."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from pgfl.lab.paper.conditions import KINDS, TAU, Kind
from pgfl.lab.paper.experiments import Experiment, Trial
from pgfl.lab.paper.figures import ROUNDS_AGAINST_A_SETTING as ROUNDS
from pgfl.lab.paper.figures import final, points_against
from pgfl.lab.paper.items import Effort, Lookup
from pgfl.lab.paper.judging import claim, difference_db
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import BLUE


class Figure6:
    """NMSD after 200 rounds against φ⁽⁰⁾."""

    name = "fig6"
    title = "The price of privacy: NMSD after 200 rounds against φ⁽⁰⁾"

    levels: Mapping[str, tuple[float, ...]] = {
        "printed": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0),
        "guaranteed": (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0),
    }

    def trials(self, effort: Effort, kind: Kind) -> dict[float, Trial]:
        """A trial for every φ⁽⁰⁾, at τ = 0.4."""
        levels = effort.thinned(self.levels[kind.name], (1e-3, 1e-1, 1.0))
        return {
            phi0: replace(kind, privacy=replace(kind.privacy, phi0=phi0)).pgfl(TAU, rounds=ROUNDS) for phi0 in levels
        }

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Both kinds."""
        return {trial: effort.regression for kind in KINDS for trial in self.trials(effort, kind).values()}

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """NMSD falls as φ⁽⁰⁾ grows."""
        panels, claims = [], []
        for kind in KINDS:
            found = {phi0: measured(trial) for phi0, trial in self.trials(effort, kind).items()}
            panels.append(points_against(kind.title, r"$\phi^{(0)}$", found, BLUE, log=True))
            levels = list(found)
            steps = [difference_db(final(found[b]), final(found[a]), len(levels) - 1) for a, b in pairwise(levels)]
            total = difference_db(final(found[levels[-1]]), final(found[levels[0]]))
            claims.append(
                claim(f"fig6.falls.{kind.name}", f"NMSD after {ROUNDS} rounds falls as φ⁽⁰⁾ grows ({kind.title})",
                      f"NMSD at φ⁽⁰⁾ = {levels[-1]:g} relative to {levels[0]:g}; between neighbours of the grid it "
                      f"rises nowhere by more than {max(0.0, max(one.value for one in steps)):.2f} dB",
                      total, "dB", total.below() and not any(one.above() for one in steps))
            )  # fmt: skip
        notes = ["The figures along panel (b) are the ε that the worst client has spent after 200 rounds, at δ = 1e-5."]
        return Outcome(self.name, self.title, panels, claims, notes)


FIGURE = Figure6()
