"""Figs. 4 and 6: NMSD after 200 rounds against τ, and against the privacy parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from pgfl.paper.claims import claim
from pgfl.paper.conditions import KINDS, PRINTED, TAU, Kind
from pgfl.paper.experiments import Experiment, Measured, Trial
from pgfl.paper.items import Effort, Lookup, epsilon_text
from pgfl.paper.learning_curves import NMSD, final, maps_and_curves, noise_and_privacy
from pgfl.paper.maps import Grid, judged_on
from pgfl.paper.outcome import Outcome
from pgfl.paper.plots import BLUE, RED, Lines, Look, Series
from pgfl.paper.statistics import band_db, difference_db, worst

ROUNDS = 200
TAUS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8)
QUICK_TAUS = (0.0, 0.2, 0.4, 0.8)
INSIDE = (0.1, 0.5)
SWAP = 2.0 / 3.0


class Figure4:
    """NMSD after 200 rounds against a fixed τ, with scheduling and privacy."""

    name = "fig4"
    title = "NMSD after 200 rounds against τ, with scheduling and privacy"

    def taus(self, effort: Effort, kind: Kind) -> tuple[float, ...]:
        """The grid of τ; every other one where a run is slow."""
        fine = effort.thinned(TAUS, QUICK_TAUS)
        return fine if kind is PRINTED else tuple(t for t in fine if t in (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8))

    def trials(self, effort: Effort, kind: Kind) -> dict[float, Trial]:
        """A trial for every τ."""
        return {tau: kind.pgfl(tau, rounds=ROUNDS) for tau in self.taus(effort, kind)}

    def grid(self, effort: Effort, kind: Kind) -> Grid:
        """Observation noise × φ⁽⁰⁾; a cell holds τ = 0, both ends of the paper's interval, 0.4 and 0.8."""
        return noise_and_privacy(effort, kind, (0.0, 0.15, 0.45, TAU, 0.8), rounds=ROUNDS)

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Both kinds, and the map."""
        curves = [trial for kind in KINDS for trial in self.trials(effort, kind).values()]
        return maps_and_curves(effort, [self.grid(effort, kind) for kind in KINDS], curves)

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Every τ in (0.1, 0.5) beats 0; too large a τ is worse."""
        panels, claims, maps = [], [], []
        for kind in KINDS:
            gains = self.grid(effort, kind).heat(
                rf"$\tau \in \{{0.15, 0.45\}}$, the worse, against $\tau = 0$ [dB]; {kind.name}", "dB", measured,
                lambda zero, low, high, *_: worst([difference_db(final(one), final(zero), 2) for one in (low, high)]),
            )  # fmt: skip
            losses = self.grid(effort, kind).heat(
                rf"$\tau = 0.8$ against $\tau = 0.4$ [dB]; {kind.name}", "dB", measured,
                lambda zero, low, high, fixed, large: difference_db(final(large), final(fixed)), good=1, digits=2,
            )  # fmt: skip
            maps += [gains, losses]
            found = {tau: measured(trial) for tau, trial in self.trials(effort, kind).items()}
            panels.append(_points(kind.title, r"$\tau$", found, RED, marks=((SWAP, "clusters swap"),)))
            inside = [tau for tau in found if INSIDE[0] < tau < INSIDE[1]]
            gain = worst([difference_db(final(found[tau]), final(found[0.0]), len(inside)) for tau in inside])
            largest = max(found)
            loss = difference_db(final(found[largest]), final(found[TAU]))
            beside = difference_db(final(found[largest]), final(found[0.0]))
            best = min(found, key=lambda tau: float(final(found[tau]).mean()))
            inside_claim = claim(
                f"fig4.inside.{kind.name}", f"every τ in (0.1, 0.5) beats τ = 0 ({kind.title})",
                f"NMSD relative to τ = 0 after {ROUNDS} rounds, the worst of τ = {', '.join(f'{t:g}' for t in inside)} "
                f"(the best τ is {best:g})",
                gain, "dB", gain.below(),
            )  # fmt: skip
            claims += [
                judged_on(inside_claim, gains, "fig4-map"),
                judged_on(
                    claim(f"fig4.too-large.{kind.name}", f"too large a τ is worse ({kind.title})",
                          f"NMSD of τ = {largest:g} relative to τ = 0.4 after {ROUNDS} rounds (relative to τ = 0: "
                          f"{beside.value:+.2f} dB)", loss, "dB", loss.above()),
                    losses, "fig4-map"),
            ]  # fmt: skip
        notes = [f"The point τ = {TAU:g} is round {ROUNDS} of the same runs as in Fig. 3."]
        return Outcome(self.name, self.title, panels, claims, notes, maps)


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
            panels.append(_points(kind.title, r"$\phi^{(0)}$", found, BLUE, log=True))
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


def _points(
    title: str, x_label: str, found: dict[float, Measured], colour: str, *, log: bool = False,
    marks: tuple[tuple[float, str], ...] = (),
) -> Lines:  # fmt: skip
    """The last round's NMSD against a setting, with the ε of each point where there is one and it differs."""
    y, low, high = np.array([band_db(final(one)[:, None]) for one in found.values()])[:, :, 0].T
    epsilons = [float(one["epsilon"].max()) for one in found.values()]
    same = max(epsilons) - min(epsilons) < 1e-6 * max(epsilons) if np.isfinite(epsilons).all() else False
    told = not same and bool(np.isfinite(epsilons).all())
    labels = tuple(rf"$\varepsilon$ = {epsilon_text(one)}" for one in epsilons) if told else ()
    name = rf"$\varepsilon$ = {epsilon_text(max(epsilons))}" if same else ""
    series = Series(name, np.array(list(found)), y, low, high, Look(colour, "-", "o"))
    return Lines(
        title,
        x_label,
        f"{NMSD} after {ROUNDS} rounds",
        [series],
        log_x=log,
        marks=marks,
        point_labels=labels,
        error_bars=True,
    )


FIGURES = (Figure4(), Figure6())
