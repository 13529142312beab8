"""Fig. 2: learning curves with client scheduling, without privacy."""

from __future__ import annotations

from collections.abc import Mapping

from pgfl.algorithms.algorithms import FedAvg
from pgfl.lab.paper.conditions import PRINTED, SCHEDULED, TAU, everyone
from pgfl.lab.paper.experiments import Experiment, Trial
from pgfl.lab.paper.fig1 import Figure1
from pgfl.lab.paper.figures import LEVEL_DB, LOOKS, NMSD, ROUND, TAU_FIXED, TAU_ZERO, final, slower
from pgfl.lab.paper.items import Effort, Lookup, nmsd_curve
from pgfl.lab.paper.judging import claim, difference_db, judged_on
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import Lines


class Figure2:
    """3 of 15 clients take part."""

    name = "fig2"
    title = "Learning curves with client scheduling, no privacy"

    scheduled: Mapping[str, Trial] = {
        TAU_ZERO: PRINTED.pgfl(0.0, private=False),
        TAU_FIXED: PRINTED.pgfl(TAU, private=False),
        "FedAvg": PRINTED.federated_averaging(private=False),
    }

    def grid(self, effort: Effort) -> Grid:
        """Observation noise × FedAvg's step; a cell holds FedAvg with and without scheduling."""

        def cell(noise: float, step: float) -> list[Experiment]:
            fedavg = FedAvg(step, PRINTED.fedavg.local_steps)
            full = everyone(fedavg, observation_noise=noise)
            return [Trial(full.data, fedavg, full.objective, SCHEDULED), full]

        return Grid(
            "observation noise (sd)",
            "FedAvg's step",
            effort.thinned((0.1, 0.7, 1.0, 1.6), (0.1, 1.0)),
            effort.thinned((0.005, 0.01, 0.02), (0.01,)),
            cell,
        )

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """This figure's curves, and those of Fig. 1."""
        trials: list[Experiment] = [*self.scheduled.values(), *Figure1.graph.values()]
        return self.grid(effort).experiments(effort.grid) | dict.fromkeys(trials, effort.regression)

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Slower, higher, and FedAvg."""
        found = {name: measured(trial) for name, trial in self.scheduled.items()}
        full = {name: measured(trial) for name, trial in Figure1.graph.items()}
        names = (TAU_ZERO, TAU_FIXED)
        delay = min((slower(found[name], full[name], 2) for name in names), key=lambda one: one.low)
        loss = min((difference_db(final(found[name]), final(full[name]), 2) for name in names), key=lambda one: one.low)
        fedavg = difference_db(final(found["FedAvg"]), final(full["FedAvg"]))
        heat = self.grid(effort).heat(
            "FedAvg, scheduled against all clients, round 300 [dB]", "dB", measured,
            lambda scheduled, everyone: difference_db(final(scheduled), final(everyone)), digits=2,
        )  # fmt: skip
        claims = [
            claim("fig2.slower", "with scheduling PGFL is slower than in Fig. 1",
                  f"rounds to {LEVEL_DB:g} dB, Fig. 2 minus Fig. 1, the lesser of both τ", delay, "rounds",
                  delay.above()),
            claim("fig2.higher", "with scheduling PGFL ends higher than in Fig. 1",
                  "NMSD of Fig. 2 relative to Fig. 1 at round 300, the lesser of both τ", loss, "dB", loss.above()),
            judged_on(
                claim("fig2.fedavg", "FedAvg does better than in Fig. 1",
                      "NMSD of FedAvg in Fig. 2 relative to Fig. 1 at round 300", fedavg, "dB", fedavg.below()),
                heat, "fig2-map"),
        ]  # fmt: skip
        panel = Lines("", ROUND, NMSD, [nmsd_curve(name, one, LOOKS[name]) for name, one in found.items()])
        return Outcome(self.name, self.title, [panel], claims, maps=[heat])


FIGURE = Figure2()
