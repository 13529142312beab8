"""Fig. 3: learning curves with client scheduling and privacy."""

from __future__ import annotations

from dataclasses import replace

from pgfl.lab.paper.conditions import KINDS, PRINTED, TAU, Kind
from pgfl.lab.paper.experiments import Experiment, Trial
from pgfl.lab.paper.figures import LEVEL_DB, LOOKS, NMSD, ROUND, TAU_FIXED, TAU_ZERO, final, slower
from pgfl.lab.paper.items import Effort, Lookup, nmsd_curve, spent
from pgfl.lab.paper.judging import claim, difference_db, judged_on, worst
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import Lines

NEARLY_DB = 1.0  # "nearly identical"


class Figure3:
    """Scheduling and privacy; FedAvg is perturbed too."""

    name = "fig3"
    title = "Learning curves with client scheduling and privacy"

    @staticmethod
    def trials(kind: Kind, private: bool) -> dict[str, Trial]:
        """PGFL with both τ, and FedAvg."""
        return {
            TAU_ZERO: kind.pgfl(0.0, private=private),
            TAU_FIXED: kind.pgfl(TAU, private=private),
            "FedAvg": kind.federated_averaging(private=private),
        }

    def grid(self, effort: Effort, kind: Kind) -> Grid:
        """φ⁽⁰⁾ × ρ; a cell holds τ = 0.4 with privacy and without."""

        def cell(phi0: float, rho: float) -> list[Experiment]:
            return [_at(kind, rho, phi0), _at(kind, rho, None)]

        if kind is PRINTED:
            levels = effort.thinned((1e-3, 1e-2, 3e-2, 1e-1), (1e-2, 1e-1))
            return Grid(r"$\phi^{(0)}$", r"$\rho$", levels, effort.thinned((3.0, 5.0, 10.0), (5.0,)), cell)
        levels = effort.thinned((0.01, 0.1, 1.0, 10.0, 100.0), (0.1, 100.0))
        return Grid(r"$\phi^{(0)}$", r"$\rho$", levels, effort.thinned((10.0, 30.0), (30.0,)), cell)

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """With and without privacy, both kinds."""
        wanted: dict[Experiment, int] = {}
        for kind in KINDS:
            wanted |= self.grid(effort, kind).experiments(max(2, effort.grid // 2))
        for kind in KINDS:
            for private in (True, False):
                wanted |= dict.fromkeys(self.trials(kind, private).values(), effort.regression)
        return wanted

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Slower, and nearly the same NMSD in the end; for the noise as printed and for the true guarantee."""
        panels, claims, maps = [], [], []
        for kind in KINDS:
            found = {name: measured(trial) for name, trial in self.trials(kind, True).items()}
            clean = {name: measured(trial) for name, trial in self.trials(kind, False).items()}
            panels.append(
                Lines(kind.title, ROUND, NMSD,
                      [nmsd_curve(name + spent(one), one, LOOKS[name]) for name, one in found.items()])
            )  # fmt: skip
            heat = self.grid(effort, kind).heat(
                rf"$\tau = 0.4$: loss by privacy at round 300 [dB]; {kind.name}", "dB", measured,
                lambda private, free: difference_db(final(private), final(free)), limit=NEARLY_DB,
            )  # fmt: skip
            maps.append(heat)
            delay = min((slower(found[name], clean[name], 3) for name in found), key=lambda one: one.low)
            loss = worst([difference_db(final(found[name]), final(clean[name]), 2) for name in (TAU_ZERO, TAU_FIXED)])
            claims += [
                claim(f"fig3.slower.{kind.name}", f"privacy makes all algorithms slower ({kind.title})",
                      f"rounds to {LEVEL_DB:g} dB, with privacy minus without, the least of three algorithms",
                      delay, "rounds", delay.above()),
                judged_on(
                    claim(f"fig3.nearly-same.{kind.name}",
                          f"NMSD after 300 rounds is nearly that without privacy ({kind.title})",
                          f"NMSD with privacy relative to without, the worse of both τ; nearly is {NEARLY_DB:g} dB",
                          loss, "dB", loss.below(NEARLY_DB), NEARLY_DB),
                    heat, "fig3-map"),
            ]  # fmt: skip
        notes = [
            "Panel (a) adds the noise of the paper's formula to its ridge regression. The gradient of that loss is "
            "unbounded, so no ε belongs to these curves. Panel (b) is the same network with a Huber loss and rows of "
            "norm √60, for which the guarantee is true; ε is what the worst client has spent after 300 rounds, at "
            "δ = 1e-5. FedAvg's local steps reach half as far in (a), so its noise is half as large, and it averages "
            "over three times as many clients: under noise that outweighs its bias. "
            "With 2 to 9 records a client no small ε leaves anything to learn: compare the figure beyond the paper."
        ]
        return Outcome(self.name, self.title, panels, claims, notes, maps)


def _at(kind: Kind, rho: float, phi0: float | None) -> Trial:
    """τ = 0.4 of a kind at another ρ and noise."""
    moved = replace(kind, rho=rho, privacy=replace(kind.privacy, phi0=phi0 or 1.0))
    return moved.pgfl(TAU, private=phi0 is not None)


FIGURE = Figure3()
