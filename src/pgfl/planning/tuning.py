"""Settings on trial: what they achieve on twins, and changes that are kept if they help."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.algorithms import PGFL
from pgfl.core.federation import Federation
from pgfl.core.metrics import deviation
from pgfl.core.training_defaults import Library
from pgfl.errors import Diverged
from pgfl.objectives import Huber, Logistic
from pgfl.planning.facts import Facts
from pgfl.planning.search import MOST_RELEASES, MOST_TAU
from pgfl.planning.settings import LAM, MIXING, Settings
from pgfl.planning.twin import twin
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result
from pgfl.simulate.training import train

SHORTEST = 0.3  # of the largest possible row: no shorter `x_norm` is tried
USELESS = 1e6
WORTH_A_SECOND_LOOK = 1.2  # times the least error on the first twin: more is not tried on the others
FIRST_WIDTH, LEAST_WIDTH, NARROWER = 0.35, 0.12, 0.95
LIMIT_TAUS = (0.0, 0.01, 0.03, 0.1, 0.3)

Score = Callable[[Settings], float]


def error(facts: Facts, settings: Settings, seed: int) -> float:
    """What is to be made small, on one twin; see `errors`."""
    return float(errors(facts, settings, [seed])[0])


def errors(facts: Facts, settings: Settings, seeds: Sequence[int]) -> Floats:
    """What is to be made small, on several twins: the NMSD or, of predictions, the variance or labels that are missed.

    Of a table 1 − R², as a real run will measure it; of two labels the share of wrong ones.
    """
    metric = _metric(facts)
    try:
        result = train(
            lambda run: twin(facts, seeds[run]),
            settings.algorithm,
            settings.objective,
            rounds=settings.rounds,
            privacy=asked(facts, settings),
            seed=seeds[0],
            runs=len(seeds),
            metrics=(metric,),
            record_every=settings.rounds,
            engine=_engine(),
        )
    except Diverged:
        return np.full(len(seeds), USELESS)
    found = result.history[metric].reshape(len(seeds), -1)[:, -1]
    return np.asarray(found if metric == "nmsd" else 1.0 - found, dtype=float)


def asked(facts: Facts, settings: Settings) -> Privacy:
    """The privacy of a training with these settings, with noise that can be repeated."""
    return Privacy(
        epsilon=facts.epsilon,
        delta=facts.delta,
        zeta=settings.zeta,
        max_releases=settings.releases,
        index="release",
        x_norm=settings.x_norm or facts.x_norm,
        noise="seeded",
        trust=facts.trust,
        contributors=facts.contributors,
        colluders=facts.colluders,
        dropouts=facts.dropouts,
    )


def without_privacy(facts: Facts, seed: int) -> float:
    """The error of the same algorithm if nobody added noise, with the best of a few τ."""
    rho = 2.0 * (2.0 if facts.task == "regression" else 0.25) * facts.typical_length**2
    rho /= facts.columns if facts.rows is None else 1.0  # of a table, one direction may have most of the curvature
    kappa = None if facts.task == "classification" else facts.label_scale
    metric = _metric(facts)
    objective = Logistic(LAM) if kappa is None else Huber(LAM, kappa=kappa)
    made, found, rounds = twin(facts, seed), [], 150 if facts.rows is None else 600
    for tau in LIMIT_TAUS if facts.clusters > 1 else (0.0,):
        algorithm = PGFL(rho, tau, MIXING, "gradient", facts.records[1])
        result = train(
            made, algorithm, objective, rounds=rounds, metrics=(metric,), record_every=rounds, engine=_engine()
        )
        found.append(_received_nmsd(result, made) if metric == "nmsd" else 1.0 - float(result.history[metric][-1]))
    return min(found)


def _metric(facts: Facts) -> str:
    return "nmsd" if facts.by_truth else "r2" if facts.task == "regression" else "accuracy"


def _received_nmsd(result: Result, made: Federation) -> float:
    """The NMSD of the models that clients receive, as with privacy; their own come after a step on their own data."""
    models, truth = result.models[0], made.truth
    assert truth is not None
    place = {pair: row for row, pair in enumerate(zip(models.pair_server, models.pair_cluster, strict=True))}
    rows = [place[pair] for pair in zip(made.client_server, made.client_cluster, strict=True)]
    return float(deviation(models.servers[rows], truth[made.client_cluster]).mean())


class Trials:
    """Scores settings on a few twins; what is poor on the first of them is not tried on the others."""

    def __init__(self, facts: Facts, seeds: Sequence[int], tried: Callable[[], None] = lambda: None) -> None:
        self._facts, self._seeds, self._tried, self._least = facts, list(seeds), tried, math.inf

    def __call__(self, settings: Settings) -> float:
        """The mean error; infinite where the first twin is enough to see that others did better."""
        first = error(self._facts, settings, self._seeds[0])
        self._tried()
        if first > WORTH_A_SECOND_LOOK * self._least:
            return math.inf
        self._least = min(self._least, first)
        others = self._seeds[1:]
        return float(np.mean([first, *errors(self._facts, settings, others)])) if others else first


def tuned(score: Score, start: Settings, tries: int, within: float | None = None) -> Settings:
    """The best settings that so many tries find, the first of them with the start.

    `within` is the largest possible norm of a row, where the length that rows are clipped to is tried as well.
    """
    rng = np.random.default_rng(0)
    best, least, width = start, score(start), FIRST_WIDTH
    for _ in range(tries - 1):
        candidate = varied(best, rng, width, within)
        found = score(candidate)
        if found < least:
            best, least = candidate, found
        else:
            width = max(LEAST_WIDTH, NARROWER * width)
    return best


def varied(settings: Settings, rng: np.random.Generator, width: float, within: float | None = None) -> Settings:
    """Settings nearby: some of them changed, all at a scale of `width`."""

    def moved(value: float, often: float = 0.6) -> float:
        return value * math.exp(width * rng.standard_normal()) if rng.random() < often else value

    releases = int(np.clip(round(moved(float(settings.releases))), 1, MOST_RELEASES))
    rho = moved(settings.rho) * (releases / settings.releases if rng.random() < 0.7 else 1.0)
    kappa = None if settings.kappa is None else moved(settings.kappa)
    if settings.kappa is not None and kappa is not None and rng.random() < 0.7:
        rho *= kappa / settings.kappa  # while residuals are beyond κ, steps are as long as before
    tau = settings.tau and float(np.clip(settings.tau + 0.3 * width * rng.standard_normal(), 0.0, MOST_TAU))
    decay = 1.0 - min(0.2, moved(1.0 - settings.tau_decay))
    zeta = 1.0 - min(0.6, moved(1.0 - settings.zeta))
    x_norm = settings.x_norm
    if x_norm is not None and within is not None:
        x_norm = float(np.clip(moved(x_norm, 0.3), SHORTEST * within, within))
    return replace(
        settings, rho=rho, zeta=zeta, releases=releases, tau=tau, tau_decay=decay, kappa=kappa, x_norm=x_norm
    )


def _engine() -> Library:
    return "numba" if find_spec("numba") else "numpy"
