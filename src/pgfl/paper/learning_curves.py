"""Figs. 1, 2, 3 and 5: NMSD against the round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pgfl.audit.confidence import rate_lower, rate_upper
from pgfl.core.algorithms import PGFL, FedAvg
from pgfl.paper import conditions as settings
from pgfl.paper.claims import Claim, claim
from pgfl.paper.conditions import DECREASING, DIFFERENT, KINDS, PRINTED, TAU, Kind, everyone
from pgfl.paper.experiments import Experiment, Measured, Ranks, Trial
from pgfl.paper.items import Effort, Lookup, nmsd_curve, spent
from pgfl.paper.maps import Grid, judged_on
from pgfl.paper.outcome import Outcome
from pgfl.paper.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Lines, Look, Series
from pgfl.paper.statistics import Floats, Interval, difference_db, interval, rounds_to, worst

LEVEL_DB = -10.0  # convergence speed is the number of rounds until this NMSD
NEARLY_DB = 1.0  # "nearly identical"
POOR_DB = 3.0  # "notably poor": at least a factor of two
START = 30  # the round at which "the start" is compared
SAME_DB = 0.5  # "the same"

TAU_ZERO, TAU_FIXED = r"PGFL, $\tau = 0$", r"PGFL, $\tau = 0.4$"
LOOKS = {
    TAU_ZERO: Look(BLUE, "-", "o"),
    TAU_FIXED: Look(RED, "-", "s"),
    "FedAvg": Look(GREEN, "--", "^"),
    "decreasing": Look(PURPLE, "-.", "d"),
    rf"{TAU_ZERO}, $\mathcal{{E}} = \emptyset$": Look(GREY, ":", "o"),
    rf"{TAU_FIXED}, $\mathcal{{E}} = \emptyset$": Look(ORANGE, ":", "s"),
}
ROUND, NMSD = "round $n$", "NMSD [dB]"


def final(found: Measured) -> Floats:
    """NMSD at the last round, run by run."""
    return np.asarray(found["nmsd"][:, -1])


def at_round(found: Measured, round: int) -> Floats:
    """NMSD at a round, run by run."""
    return np.asarray(found["nmsd"][:, round])


def slower(a: Measured, b: Measured, among: int = 1) -> Interval:
    """How many rounds more a needs to come down to `LEVEL_DB`; a run that never does counts as just past the end."""
    return interval(rounds_to(a["nmsd"], LEVEL_DB) - rounds_to(b["nmsd"], LEVEL_DB), among)


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
    ranks = Ranks(PRINTED.data)

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
            return [Trial(full.data, fedavg, full.objective, settings.SCHEDULED), full]

        return Grid(
            "observation noise (sd)",
            "FedAvg's step",
            effort.thinned((0.1, 0.7, 1.0, 1.6), (0.1, 1.0)),
            effort.thinned((0.005, 0.01, 0.02), (0.01,)),
            cell,
        )

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """This figure's curves and Fig. 1's beside them."""
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


def noise_and_privacy(effort: Effort, kind: Kind, taus: Sequence[float], **changes: Any) -> Grid:
    """A map around a kind's setting, observation noise × φ⁽⁰⁾; a cell holds a trial for every τ."""

    def cell(noise: float, phi0: float) -> list[Experiment]:
        moved = replace(kind, privacy=replace(kind.privacy, phi0=phi0))
        return [moved.pgfl(tau, observation_noise=noise, **changes) for tau in taus]

    if kind is PRINTED:
        noises = effort.thinned((0.1, 0.4, 0.7, 1.0, 1.3), (0.1, 1.0))
        phis = effort.thinned((0.003, 0.03, 0.3), (0.03,))
    else:
        noises = effort.thinned((0.1, 1.0), (1.0,))
        phis = effort.thinned((0.01, 0.1, 1.0, 10.0, 100.0), (0.1, 100.0))
    return Grid("observation noise (sd)", r"$\phi^{(0)}$", noises, phis, cell)


def maps_and_curves(effort: Effort, maps: Sequence[Grid], curves: Sequence[Experiment]) -> dict[Experiment, int]:
    """How often each is run; what is in both is run as often as a curve."""
    wanted: dict[Experiment, int] = {}
    for grid in maps:
        wanted |= grid.experiments(effort.grid)
    return wanted | dict.fromkeys(curves, effort.regression)


def _at(kind: Kind, rho: float, phi0: float | None) -> Trial:
    """τ = 0.4 of a kind at another ρ and noise."""
    moved = replace(kind, rho=rho, privacy=replace(kind.privacy, phi0=phi0 or 1.0))
    return moved.pgfl(TAU, private=phi0 is not None)


FIGURES = (Figure1(), Figure2(), Figure3(), Figure5())
