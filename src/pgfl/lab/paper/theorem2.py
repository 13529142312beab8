"""Theorem II and its corollary: how far inter-cluster learning moves the models, compared with the bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.schedules import Tau
from pgfl.algorithms.theory import cluster_objective, maximum_cluster_distance, theorem_two_bound
from pgfl.federation.federation import Federation
from pgfl.lab.paper.conditions import DECREASING, PRINTED
from pgfl.lab.paper.experiments import ENGINE, Experiment, Measured, RegressionData
from pgfl.lab.paper.items import Effort, Lookup
from pgfl.lab.paper.judging import Claim, Interval, band, claim, interval, judged_on
from pgfl.lab.paper.maps import Grid
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.plots import BLUE, GREEN, PURPLE, RED, Heat, Lines, Look, Series
from pgfl.metrics import squared_norm
from pgfl.objectives import Ridge
from pgfl.privacy.request import Privacy
from pgfl.simulate.training import train

LOOKED_AT = (1, 2, 5, 10, 20, 50, 100, 200)
ONCE = 50
RHOS = (1.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Once:
    """τ⁽ⁿ⁾ is 0 except in one round: the corollary."""

    round: int
    value: float

    def __call__(self, round: int) -> float:
        """τ⁽ⁿ⁾."""
        return self.value if round == self.round else 0.0


@dataclass(frozen=True)
class Drift:
    """‖w̄_{q,s} − w_{q,s}‖² of runs that share everything but τ, noise included, relative to the bound's η."""

    tau: Tau
    rho: float
    rounds: tuple[int, ...] = LOOKED_AT
    privacy: Privacy | None = None

    @property
    def cost(self) -> float:
        """Two trainings for every round that is looked at."""
        return 8e-4 * sum(self.rounds)

    def run(self, seed: int, runs: int) -> Measured:
        """At every round looked at, the drift over η: the mean over (q, s), and the largest; and the bound over η."""
        data, objective = RegressionData(), cast("Ridge", PRINTED.objective)

        def federation(run: int) -> Federation:
            return data.federation(seed, run)

        eta = np.array([_eta(federation(run), objective) for run in range(runs)])
        mean, largest = np.empty((runs, len(self.rounds))), np.empty((runs, len(self.rounds)))
        for at, rounds in enumerate(self.rounds):
            with_tau, without = (
                train(
                    federation,
                    PGFL(self.rho, tau),
                    objective,
                    rounds=rounds,
                    privacy=self.privacy,
                    seed=seed,
                    runs=runs,
                    metrics=(),
                    engine=ENGINE,
                ).models
                for tau in (self.tau, 0.0)
            )
            for run in range(runs):
                both = with_tau[run].present & without[run].present
                drift = squared_norm(with_tau[run].servers[both] - without[run].servers[both])
                mean[run, at], largest[run, at] = drift.mean() / eta[run], drift.max() / eta[run]
        bound = theorem_two_bound(self.tau, max(self.rounds), 1.0)[list(self.rounds)]
        return {
            "round": np.tile(self.rounds, (runs, 1)),
            "drift": mean,
            "largest": largest,
            "bound": np.tile(bound, (runs, 1)),
        }


def _eta(federation: Federation, objective: Ridge) -> float:
    optima = [cluster_objective(federation, objective, q).minimiser() for q in range(len(federation.cluster_ids))]
    return maximum_cluster_distance(optima)


def ratio(found: Measured, among: int = 1) -> Interval:
    """The drift in units of the bound at the round where it comes nearest to it, or passes it by most."""
    shares = found["drift"] / np.where(found["bound"] > 0, found["bound"], np.inf)
    return interval(shares[:, int(shares.mean(axis=0).argmax())], among)


class TheoremTwo:
    """The bound over τ sequences and ρ, without and with noise."""

    name = "theorem2"
    title = "Theorem II: the drift by inter-cluster learning, beside its bound"

    sequences: Mapping[str, Tau] = {
        r"$\tau = 0.1$": 0.1,
        r"$\tau = 0.4$": 0.4,
        r"$\tau = 0.4 \times 0.98^n$": DECREASING,
        r"$\tau = 0.4$, round 50 only": Once(ONCE, 0.4),
    }
    looks = (Look(BLUE, "-", "o"), Look(RED, "-", "s"), Look(PURPLE, "-", "d"), Look(GREEN, "-", "^"))
    noise = PRINTED.privacy

    def drifts(self, effort: Effort, noise: Privacy | None) -> dict[str, Drift]:
        """At ρ = 5; the corollary's sequence is looked at in its round only."""
        looked_at = (1, 10, 100) if effort.quick else LOOKED_AT
        return {
            name: Drift(tau, PRINTED.rho, (ONCE,) if isinstance(tau, Once) else looked_at, noise)
            for name, tau in self.sequences.items()
        }

    def grid(self, effort: Effort, noise: Privacy | None) -> Grid:
        """ρ × τ at rounds 10, 50 and 200."""
        looked_at = (10, 50) if effort.quick else (1, 10, 50, 200)
        taus = effort.thinned((0.05, 0.1, 0.2, 0.4, 0.6), (0.1, 0.4))
        rhos = effort.thinned(RHOS, (5.0, 30.0))
        return Grid(r"$\rho$", r"$\tau$", rhos, taus, lambda rho, tau: [Drift(tau, rho, looked_at, noise)])

    def single(self, effort: Effort, noise: Privacy | None) -> Grid:
        """ρ × the one round in which τ = 0.4."""
        rhos, rounds = effort.thinned(RHOS, (5.0, 30.0)), effort.thinned((1.0, 10.0, 50.0, 200.0), (10.0, 50.0))

        def cell(rho: float, round: float) -> list[Experiment]:
            return [Drift(Once(int(round), 0.4), rho, (int(round),), noise)]

        return Grid(r"$\rho$", "the one round", rhos, rounds, cell)

    def experiments(self, effort: Effort) -> dict[Experiment, int]:
        """Curves and maps, without and with noise."""
        wanted: dict[Experiment, int] = {}
        for noise in (None, self.noise):
            wanted |= self.single(effort, noise).experiments(max(2, effort.grid // 2))
            wanted |= self.grid(effort, noise).experiments(max(2, effort.grid // 2))
            wanted |= dict.fromkeys(self.drifts(effort, noise).values(), effort.grid)
        return wanted

    def outcome(self, effort: Effort, measured: Lookup) -> Outcome:
        """Drift and bound against the round; verdicts with their maps."""
        panels: list[Lines] = []
        claims: list[Claim] = []
        maps: list[Heat] = []
        for noise, how in ((None, "no noise"), (self.noise, "noise as printed")):
            found = {name: measured(one) for name, one in self.drifts(effort, noise).items()}
            panels.append(_panel(how, found, self.looks))
            heat = self.grid(effort, noise).heat(
                rf"drift over bound, {how}", "units of the bound", measured, ratio, digits=2, limit=1.0
            )
            alone = self.single(effort, noise).heat(
                rf"one round of $\tau = 0.4$, {how}", "units of the bound", measured, ratio, digits=2, limit=1.0
            )
            maps += [heat, alone]
            lasting = {name: one for name, one in found.items() if one["round"].shape[1] > 1}
            fullest = max((ratio(one, len(lasting)) for one in lasting.values()), key=lambda one: one.high)
            once = ratio(next(one for one in found.values() if one["round"].shape[1] == 1))
            key = "noise" if noise else "no-noise"
            claims += [
                judged_on(
                    claim(f"theorem2.bound.{key}", f"E‖w̄ − w‖² ≤ η(1 − Π(1 − τ⁽ʲ⁾)) in all rounds ({how})",
                          "drift in units of the bound, averaged over servers and clusters, at its worst round of the "
                          "worst sequence", fullest, "× bound", fullest.below(1.0), 1.0),
                    heat, "theorem2-map"),
                judged_on(
                    claim(f"theorem2.corollary.{key}", f"one round of inter-cluster learning moves at most τη ({how})",
                          f"drift in units of τη after τ = 0.4 in round {ONCE} only", once, "× bound", once.below(1.0),
                          1.0),
                    alone, "theorem2-map"),
            ]  # fmt: skip
        notes = [
            "Both runs share data, participants and noise, so that only inter-cluster learning tells them apart; η is "
            "computed from the exact cluster optima. The proof needs ‖ŵ_q − ŵ_r‖² ≤ η in every round, which is true "
            "near the optima, and false while models still differ by more than their optima do: on the way there, at a "
            "small ρ, and as long as the noise is large, because the noise of two clusters is independent and makes "
            "their models differ by its own variance."
        ]
        return Outcome(self.name, self.title, panels, claims, notes, maps)


def _panel(how: str, found: dict[str, Measured], looks: tuple[Look, ...]) -> Lines:
    series = []
    for (name, one), look in zip(found.items(), looks, strict=True):
        x = one["round"][0].astype(float)
        mean, low, high = band(one["drift"])
        series.append(Series(name, x, mean, low, high, look))
        series.append(
            Series("", x, one["bound"][0], None, None, Look(look.colour, ":", look.marker if len(x) == 1 else ""))
        )
    label = r"$\Vert \bar{w} - w \Vert^2 / \eta$  (bound dotted)"
    return Lines(how, "round $n$", label, series, log_x=True, log_y=True, error_bars=True)


THEOREM = TheoremTwo()
