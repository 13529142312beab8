"""Fig. 1: learning curves when all clients take part, without privacy; observability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pgfl.algorithms.algorithms import PGFL
from pgfl.lab.audit.statistics import rate_lower, rate_upper
from pgfl.lab.paper.conditions import PRINTED, TAU, everyone
from pgfl.lab.paper.experiments import Experiment, FeatureRanks, Measured, Trial
from pgfl.lab.paper.figures import LEVEL_DB, LOOKS, NMSD, ROUND, TAU_FIXED, TAU_ZERO, final, slower
from pgfl.lab.paper.items import Effort, Lookup, nmsd_curve
from pgfl.lab.paper.judging import Claim, Interval, claim, difference_db, judged_on
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import BLUE, GREEN, RED, Lines, Look, Series

POOR_DB = 3.0  # "notably poor": at least a factor of two


class Figure1:
    """All clients take part, no privacy."""

    name = "fig1"
    title = "Learning curves, all clients taking part, no privacy"

    graph: Mapping[str, Trial] = {
        TAU_ZERO: everyone(PGFL(PRINTED.rho, 0.0)),
        TAU_FIXED: everyone(PGFL(PRINTED.rho, TAU)),
        "FedAvg": everyone(PRINTED.fedavg),
    }
    isolated: Mapping[str, Trial] = {
        rf"{name}, $\mathcal{{E}} = \emptyset$": everyone(PGFL(PRINTED.rho, tau), graph="none")
        for name, tau in ((TAU_ZERO, 0.0), (TAU_FIXED, TAU))
    }
    ranks = FeatureRanks(PRINTED.data)

    def grid(self, effort: Effort) -> Grid:
        """Observation noise × ρ; a cell holds τ = 0, τ = 0.4 and FedAvg."""

        def cell(noise: float, rho: float) -> list[Experiment]:
            return [
                everyone(algorithm, observation_noise=noise)
                for algorithm in (PGFL(rho, 0.0), PGFL(rho, TAU), PRINTED.fedavg)
            ]

        return Grid(
            "observation noise (sd)",
            r"$\rho$",
            effort.thinned((0.1, 0.4, 0.7, 1.0, 1.3, 1.6), (0.1, 1.0, 1.6)),
            effort.thinned((2.0, 3.0, 5.0, 10.0, 20.0), (5.0, 10.0)),
            cell,
        )

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Curves, ranks, and the map."""
        trials: list[Experiment] = [*self.graph.values(), *self.isolated.values(), self.ranks]
        return self.grid(effort).experiments(effort.grid) | dict.fromkeys(trials, effort.regression)

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Five claims and the map of three of them."""
        found = {name: measured(trial) for name, trial in (*self.graph.items(), *self.isolated.items())}
        series = [nmsd_curve(name, one, LOOKS[name]) for name, one in found.items()]
        panel = Lines("learning curves", ROUND, NMSD, series, bound_y=(None, 11.0))
        grid = self.grid(effort)
        beats = grid.heat(
            r"PGFL, $\tau = 0.4$, against FedAvg, round 300 [dB]", "dB", measured,
            lambda zero, fixed, fedavg: difference_db(final(fixed), final(fedavg)),
        )  # fmt: skip
        beats_alone = grid.heat(
            r"PGFL, $\tau = 0$, against FedAvg, round 300 [dB]", "dB", measured,
            lambda zero, fixed, fedavg: difference_db(final(zero), final(fedavg)),
        )  # fmt: skip
        faster = grid.heat(
            rf"$\tau = 0.4$ against $\tau = 0$, rounds to {LEVEL_DB:g} dB".replace("-", "−"), "rounds", measured,
            lambda zero, fixed, fedavg: slower(fixed, zero),
        )  # fmt: skip
        better = grid.heat(
            r"$\tau = 0.4$ against $\tau = 0$, round 300 [dB]", "dB", measured,
            lambda zero, fixed, fedavg: difference_db(final(fixed), final(zero)),
        )  # fmt: skip
        claims = [
            judged_on(self._beats_fedavg(found, TAU_FIXED), beats, "fig1-map"),
            judged_on(self._beats_fedavg(found, TAU_ZERO), beats_alone, "fig1-map"),
            judged_on(self._faster(found), faster, "fig1-map"),
            judged_on(self._better(found), better, "fig1-map"),
            self._poor(found),
            self._observable(measured(self.ranks)),
        ]
        notes = [
            "With E = ∅ every server trains alone. τ = 0.4 still gains there, because the clusters of one server learn "
            "from each other, but stays far above the curves with the graph."
        ]
        return Outcome(
            self.name,
            self.title,
            [panel, _rank_panel(measured(self.ranks))],
            claims,
            notes,
            [beats, beats_alone, faster, better],
        )

    def _beats_fedavg(self, found: dict[str, Measured], name: str) -> Claim:
        gain = difference_db(final(found[name]), final(found["FedAvg"]))
        tau = "0.4" if name == TAU_FIXED else "0"
        return claim(
            f"fig1.pgfl-beats-fedavg.tau-{tau}",
            f"PGFL beats FedAvg (τ = {tau})",
            f"NMSD of PGFL with τ = {tau} relative to FedAvg at round 300",
            gain,
            "dB",
            gain.below(),
        )

    def _faster(self, found: dict[str, Measured]) -> Claim:
        gain = slower(found[TAU_FIXED], found[TAU_ZERO])
        return claim(
            "fig1.faster",
            "τ = 0.4 converges faster than τ = 0",
            f"rounds to {LEVEL_DB:g} dB, τ = 0.4 minus τ = 0",
            gain,
            "rounds",
            gain.below(),
        )

    def _better(self, found: dict[str, Measured]) -> Claim:
        gain = difference_db(final(found[TAU_FIXED]), final(found[TAU_ZERO]))
        return claim(
            "fig1.steady-state",
            "τ = 0.4 has the better steady state",
            "NMSD of τ = 0.4 relative to τ = 0 at round 300",
            gain,
            "dB",
            gain.below(),
        )

    def _poor(self, found: dict[str, Measured]) -> Claim:
        losses = [
            difference_db(final(found[alone]), final(found[joined]), 2)
            for alone, joined in zip(self.isolated, (TAU_ZERO, TAU_FIXED), strict=True)
        ]
        least = min(losses, key=lambda one: one.low)
        return claim(
            "fig1.isolated",
            "without inter-server communication (E = ∅, both τ) NMSD stays poor",
            f"NMSD with E = ∅ relative to the graph's at round 300, the lesser of both τ; poor is {POOR_DB:g} dB more",
            least,
            "dB",
            least.above(POOR_DB),
            POOR_DB,
        )

    def _observable(self, ranks: Measured) -> Claim:
        d = int(ranks["dimension"][0])
        as_said = (ranks["cluster"] == d) & (ranks["client"] < d) & (ranks["server"] < d)
        count, yes = len(as_said), int(as_said.sum())
        judged = claim(
            "fig1.observability",
            "each cluster is observable globally, but not at any client or server",
            f"share of networks in which it is so; of d = {d}, ranks are {ranks['cluster'].min()} or more for a "
            f"cluster, {ranks['client'].max()} or less at a client, {ranks['server'].max()} or less for a cluster at a "
            "server",
            Interval(float(as_said.mean()), rate_lower(yes, count, 0.025), rate_upper(yes, count, 0.025), count),
            "",
            yes == count,
            1.0,
        )
        if not 0 < yes < count:
            return replace(judged, decided=True)
        where = f"no server has {d} records of one cluster: in {yes} of {count} networks"
        return replace(judged, verdict="holds where …", where=where, map="fig1.csv")


def _rank_panel(ranks: Measured) -> Lines:
    """The ranks of every network, in the order of the largest at a server."""
    order = np.argsort(ranks["server"], kind="stable")
    networks = np.arange(1.0, len(order) + 1.0)
    shown = (
        ("a cluster, all servers (least)", "cluster", Look(BLUE)),
        ("a cluster at a server (largest)", "server", Look(RED)),
        ("a client (largest)", "client", Look(GREEN, "--")),
    )
    series = [Series(name, networks, ranks[key][order].astype(float), look=look) for name, key, look in shown]
    return Lines(rf"observability: rank out of $d = {ranks['dimension'][0]}$", "network", "rank", series)


FIGURE = Figure1()
