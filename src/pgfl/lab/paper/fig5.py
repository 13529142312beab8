"""Fig. 5: learning curves with client scheduling and privacy, for clusters that differ more."""

from __future__ import annotations

from pgfl.lab.paper.conditions import DECREASING, DIFFERENT, KINDS, TAU, Kind
from pgfl.lab.paper.experiments import Experiment, Trial
from pgfl.lab.paper.figures import (
    LOOKS,
    NMSD,
    ROUND,
    TAU_FIXED,
    TAU_ZERO,
    at_round,
    final,
    maps_and_curves,
    noise_and_privacy,
)
from pgfl.lab.paper.items import Effort, Lookup, nmsd_curve, spent
from pgfl.lab.paper.judging import claim, difference_db, judged_on
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import Lines

START = 30  # the round at which "the start" is compared
SAME_DB = 0.5  # "the same"


class Figure5:
    """Clusters that differ more: γ ~ U(−0.5, 0.5)."""

    name = "fig5"
    title = "Learning curves with scheduling and privacy, dissimilar clusters (γ within ±0.5)"

    @staticmethod
    def trials(kind: Kind) -> dict[str, Trial]:
        """Null, fixed and decreasing τ."""
        return {
            TAU_ZERO: kind.pgfl(0.0, gamma=DIFFERENT),
            TAU_FIXED: kind.pgfl(TAU, gamma=DIFFERENT),
            "decreasing": kind.pgfl(DECREASING, gamma=DIFFERENT),
        }

    def grid(self, effort: Effort, kind: Kind) -> Grid:
        """Observation noise × φ⁽⁰⁾; a cell holds null and fixed τ."""
        return noise_and_privacy(effort, kind, (0.0, TAU), gamma=DIFFERENT)

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Both kinds, and their maps."""
        curves = [trial for kind in KINDS for trial in self.trials(kind).values()]
        return maps_and_curves(effort, [self.grid(effort, kind) for kind in KINDS], curves)

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Four claims for each kind; two of them with a map."""
        panels, claims, maps = [], [], []
        for kind in KINDS:
            worse = self.grid(effort, kind).heat(
                rf"$\tau = 0.4$ against $\tau = 0$, round 300 [dB]; {kind.name}", "dB", measured,
                lambda zero, fixed: difference_db(final(fixed), final(zero)), good=1,
            )  # fmt: skip
            quicker = self.grid(effort, kind).heat(
                rf"$\tau = 0.4$ against $\tau = 0$, round {START} [dB]; {kind.name}", "dB", measured,
                lambda zero, fixed: difference_db(at_round(fixed, START), at_round(zero, START)), digits=2,
            )  # fmt: skip
            maps += [worse, quicker]
            zero, fixed, decreasing = (measured(trial) for trial in self.trials(kind).values())
            shown = {TAU_ZERO: zero, TAU_FIXED: fixed, r"PGFL, $\tau = 0.4 \times 0.98^n$": decreasing}
            looks = (LOOKS[TAU_ZERO], LOOKS[TAU_FIXED], LOOKS["decreasing"])
            series = [
                nmsd_curve(name + spent(one), one, look) for (name, one), look in zip(shown.items(), looks, strict=True)
            ]
            panels.append(Lines(kind.title, ROUND, NMSD, series))
            degraded = difference_db(final(fixed), final(zero))
            start = difference_db(at_round(fixed, START), at_round(zero, START))
            as_fast = difference_db(at_round(decreasing, START), at_round(fixed, START))
            as_well = difference_db(final(decreasing), final(zero))
            claims += [
                judged_on(
                    claim(f"fig5.degrades.{kind.name}", f"τ = 0.4 degrades the steady state ({kind.title})",
                          "NMSD of τ = 0.4 relative to τ = 0 at round 300", degraded, "dB", degraded.above()),
                    worse, "fig5-map"),
                judged_on(
                    claim(f"fig5.start.{kind.name}", f"τ = 0.4 speeds the start ({kind.title})",
                          f"NMSD of τ = 0.4 relative to τ = 0 at round {START}", start, "dB", start.below()),
                    quicker, "fig5-map"),
                claim(f"fig5.as-fast.{kind.name}", f"0.4 × 0.98ⁿ starts as fast as 0.4 ({kind.title})",
                      f"NMSD of 0.4 × 0.98ⁿ relative to τ = 0.4 at round {START}; as fast is up to {SAME_DB:g} dB",
                      as_fast, "dB", as_fast.below(SAME_DB), SAME_DB),
                claim(f"fig5.as-well.{kind.name}", f"0.4 × 0.98ⁿ ends as well as τ = 0 ({kind.title})",
                      f"NMSD of 0.4 × 0.98ⁿ relative to τ = 0 at round 300; as well is up to {SAME_DB:g} dB",
                      as_well, "dB", as_well.below(SAME_DB), SAME_DB),
            ]  # fmt: skip
        return Outcome(self.name, self.title, panels, claims, maps=maps)


FIGURE = Figure5()
