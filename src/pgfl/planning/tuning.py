"""The search for settings on a twin: a guess from theory, then changes that are kept if they help."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from pgfl.core.algorithms import PGFL
from pgfl.core.federation import Federation
from pgfl.core.metrics import deviation
from pgfl.core.schedules import Decaying
from pgfl.core.theory import steady_decay
from pgfl.core.training_defaults import Library
from pgfl.errors import Diverged
from pgfl.objectives import Huber, Logistic
from pgfl.planning.facts import Facts
from pgfl.planning.twin import twin
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result
from pgfl.simulate.training import train

QUIET = 10  # rounds after the last release, in which servers go on averaging
MOST_RELEASES = 600
LAM = 0.001
SIGN_SLOPE = math.sqrt(8.0 / math.pi)  # of E|2 sign(r)| x for a normal residual: how fast a far model comes nearer
WITHIN_KAPPA = 0.3  # the share of residuals that bend Huber's loss on the way
MUCH = 2.0  # the ε of local noise above which a training ends near the optimum
USELESS = 1e6
LIMIT_TAUS = (0.0, 0.01, 0.03, 0.1, 0.3)

Score = Callable[["Settings"], float]


@dataclass(frozen=True)
class Settings:
    """What a plan chooses; `tau_decay` is per round."""

    rho: float
    zeta: float
    releases: int
    tau: float
    tau_decay: float = 1.0
    kappa: float | None = None  # regression only

    @property
    def rounds(self) -> int:
        """All rounds, the quiet ones included."""
        return self.releases + QUIET

    @property
    def algorithm(self) -> PGFL:
        """PGFL with linearised steps."""
        tau = self.tau if self.tau_decay == 1.0 or self.tau == 0.0 else Decaying(self.tau, self.tau_decay)
        return PGFL(self.rho, tau, "metropolis", "gradient")

    @property
    def objective(self) -> Huber | Logistic:
        """Huber regression or logistic regression."""
        return Logistic(LAM) if self.kappa is None else Huber(LAM, kappa=self.kappa)


def first_guess(facts: Facts) -> Settings:
    """Steps that lead as far as the model is, in as many releases as ε can feed; ζ is the contraction of a round."""
    unit = facts.x_norm**2 / facts.columns
    tau = 0.4 * min(1.0, MUCH / facts.as_if_local) if facts.clusters > 1 else 0.0  # with less noise bias matters more
    if facts.task == "classification":
        return Settings(0.3 * facts.x_norm**2, 0.9, 10, tau)
    releases = int(np.clip(120.0 * facts.as_if_local**0.9, 10, 450))
    much = facts.as_if_local > MUCH  # then steps may lead further than the model is, and end within κ of it
    kappa = (0.1 if much else 0.15) * facts.label_scale
    rho = (0.7 if much else 1.0) * SIGN_SLOPE * releases * kappa * unit / facts.label_scale
    bend = min(2.0 * WITHIN_KAPPA * unit, 0.5 * rho)
    return Settings(rho, steady_decay(bend, rho), releases, tau, 0.993 if much else 1.0, kappa)


def error(facts: Facts, settings: Settings, seed: int) -> float:
    """What is to be made small: the NMSD, or the share of test samples that are classified wrongly."""
    privacy = Privacy(
        epsilon=facts.epsilon,
        delta=facts.delta,
        zeta=settings.zeta,
        max_releases=settings.releases,
        index="release",
        x_norm=facts.x_norm,
        noise="seeded",
        trust=facts.trust,
        contributors=facts.contributors,
        colluders=facts.colluders,
        dropouts=facts.dropouts,
    )
    metric = "nmsd" if facts.task == "regression" else "accuracy"
    try:
        result = train(
            twin(facts, seed),
            settings.algorithm,
            settings.objective,
            rounds=settings.rounds,
            privacy=privacy,
            seed=seed,
            metrics=(metric,),
            record_every=settings.rounds,
            engine=_engine(),
            threads=1,
        )
    except Diverged:
        return USELESS
    found = float(result.history[metric][-1])
    return found if metric == "nmsd" else 1.0 - found


def without_privacy(facts: Facts, seed: int) -> float:
    """The error of the same algorithm if nobody added noise, with the best of a few τ."""
    rho = 2.0 * (2.0 if facts.task == "regression" else 0.25) * facts.x_norm**2 / facts.columns
    kappa = None if facts.task == "classification" else facts.label_scale
    metric = "nmsd" if facts.task == "regression" else "accuracy"
    objective = Logistic(LAM) if kappa is None else Huber(LAM, kappa=kappa)
    made, found = twin(facts, seed), []
    for tau in LIMIT_TAUS if facts.clusters > 1 else (0.0,):
        algorithm = PGFL(rho, tau, "metropolis", "gradient")
        result = train(made, algorithm, objective, rounds=150, metrics=(metric,), record_every=150, engine=_engine())
        found.append(_received_nmsd(result, made) if metric == "nmsd" else 1.0 - float(result.history[metric][-1]))
    return min(found)


def _received_nmsd(result: Result, made: Federation) -> float:
    """The NMSD of the models that clients receive, as with privacy; their own come after a step on their own data."""
    models, truth = result.models[0], made.truth
    assert truth is not None
    place = {pair: row for row, pair in enumerate(zip(models.pair_server, models.pair_cluster, strict=True))}
    rows = [place[pair] for pair in zip(made.client_server, made.client_cluster, strict=True)]
    return float(deviation(models.servers[rows], truth[made.client_cluster]).mean())


def tuned(score: Score, starts: Sequence[Settings], tries: int) -> Settings:
    """The best settings that so many tries find, beginning with the better one of the starts."""
    rng = np.random.default_rng(0)
    scores = [score(start) for start in starts]
    least = min(scores)
    best, width = starts[scores.index(least)], 0.5
    for _ in range(tries - len(starts)):
        candidate = varied(best, rng, width)
        found = score(candidate)
        if found < least:
            best, least = candidate, found
        else:
            width = max(0.15, 0.97 * width)
    return best


def varied(settings: Settings, rng: np.random.Generator, width: float) -> Settings:
    """Settings nearby: some of them changed, all at a scale of `width`."""

    def moved(value: float, often: float = 0.6) -> float:
        return value * math.exp(width * rng.standard_normal()) if rng.random() < often else value

    releases = int(np.clip(round(moved(float(settings.releases))), 1, MOST_RELEASES))
    rho = moved(settings.rho) * (releases / settings.releases if rng.random() < 0.7 else 1.0)
    kappa = None if settings.kappa is None else moved(settings.kappa)
    if settings.kappa is not None and kappa is not None and rng.random() < 0.7:
        rho *= kappa / settings.kappa  # while residuals are beyond κ, steps are as long as before
    tau = settings.tau and float(np.clip(settings.tau + 0.3 * width * rng.standard_normal(), 0.0, 0.6))
    decay = 1.0 if rng.random() < 0.2 else 1.0 - min(0.2, moved(1.0 - settings.tau_decay + 0.001))
    zeta = 1.0 - min(0.6, moved(1.0 - settings.zeta))
    return replace(settings, rho=rho, zeta=zeta, releases=releases, tau=tau, tau_decay=decay, kappa=kappa)


def _engine() -> Library:
    return "numba" if find_spec("numba") else "numpy"
