"""Fig. 4: NMSD after 200 rounds against a fixed τ, with client scheduling and privacy."""

from __future__ import annotations

from pgfl.lab.paper.conditions import KINDS, PRINTED, TAU, Kind
from pgfl.lab.paper.experiments import Experiment, Trial
from pgfl.lab.paper.figures import EVEN_MARK, EVEN_NOTE, final, maps_and_curves, noise_and_privacy, points_against
from pgfl.lab.paper.figures import ROUNDS_AGAINST_A_SETTING as ROUNDS
from pgfl.lab.paper.items import Effort, Lookup
from pgfl.lab.paper.judging import claim, difference_db, judged_on, worst
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import RED

TAUS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8)
QUICK_TAUS = (0.0, 0.2, 0.4, 0.8)
INSIDE = (0.1, 0.5)


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
            panels.append(points_against(kind.title, r"$\tau$", found, RED, marks=(EVEN_MARK,)))
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
        notes = [f"The point τ = {TAU:g} is round {ROUNDS} of the same runs as in Fig. 3.", EVEN_NOTE]
        return Outcome(self.name, self.title, panels, claims, notes, maps)


FIGURE = Figure4()
