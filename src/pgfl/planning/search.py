"""The settings that a plan chooses, and the search for them in theory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.schedules import Decaying
from pgfl.arrays import Floats
from pgfl.federation.graphs import Mixing
from pgfl.objectives import Bounds, Huber, Logistic, Softmax
from pgfl.planning.facts import Facts, sketched
from pgfl.planning.moments import Candidates, Foreseen, Moments
from pgfl.planning.twin import twin

LAM = 0.001
MIXING: Mixing = "clients"


@dataclass(frozen=True)
class Settings:
    """What a plan chooses; `tau_decay` is per round, `x_norm` a length to which rows are clipped."""

    rho: float
    zeta: float
    releases: int
    tau: float
    tau_decay: float = 1.0
    kappa: float | None = None  # regression only
    x_norm: float | None = None  # None: that of the facts
    full_records: int = 1
    labels: int = 2  # of a classification

    @property
    def rounds(self) -> int:
        """Everyone takes part in every round, so there is one for every release."""
        return self.releases

    @property
    def algorithm(self) -> PGFL:
        """PGFL with linearised steps."""
        tau = self.tau if self.tau_decay == 1.0 or self.tau == 0.0 else Decaying(self.tau, self.tau_decay)
        return PGFL(self.rho, tau, MIXING, "gradient", self.full_records)

    @property
    def objective(self) -> Huber | Logistic | Softmax:
        """Huber, logistic or softmax regression."""
        if self.kappa is not None:
            return Huber(LAM, kappa=self.kappa)
        return Logistic(LAM) if self.labels == 2 else Softmax(LAM, classes=self.labels)


TABLE_SEEDS, TABLE_JUDGING_SEEDS = tuple(range(1, 7)), tuple(range(11, 59))  # its twins differ more from each other
FEW_TABLE_SEEDS, FEW_TABLE_JUDGING_SEEDS = TABLE_SEEDS[:3], TABLE_JUDGING_SEEDS[:12]
POPULATION = 96
FEWER = 64  # for a table, of which more twins are looked at
GENERATIONS = 10
WARM_GENERATIONS = 6  # from settings for other facts, which are a good start
WARM_TABLE_GENERATIONS = 4
HARDLY = 1e-4  # less decay of τ per round is none
BEST = 0.2  # the share of a population from which the next one is drawn
WIDER = 1.3  # than the best ones, so that a population does not close in too early
NARROWEST = 0.03
MOST_RELEASES = 600
MOST_TABLE_RELEASES = 300
MOST_TAU = 0.65
SHY_OF_BOUND = 1.1  # times the ρ below which steps may overshoot: training rows are known up to rounding
SHY_OF_SWAPPING = 0.9  # of the τ above which clusters would weigh each other more than themselves
MOMENTS_KEPT = 256  # a few kilobytes each
PRICE_OF_ROUNDS = 0.02  # twice the rounds must gain 0.06 dB: on a network they take twice the time
LEAST_KAPPA = 0.8  # times the residuals' standard deviation that is expected without privacy
WIDTHS = (
    0.8,
    0.7,
    0.8,
    0.2,
    1.0,
    0.5,
)  # of the first population: ρ, 1 − ζ, releases, 1 − decay of τ and κ as logarithms
WARM = 0.5  # of these widths
CLIPPING_PAYS = 0.15  # of the logarithm of what is lost
CLIPPED_AT = 0.9  # times a typical row's length, so that most rows of a table have the same one


@dataclass(frozen=True)
class Point:
    """Settings as coordinates: logarithms but for τ."""

    at: Floats

    @classmethod
    def of(cls, settings: Settings) -> Point:
        """Return where the settings are."""
        kappa = 1.0 if settings.kappa is None else settings.kappa
        small = [max(1.0 - value, 1e-4) for value in (settings.zeta, settings.tau_decay)]
        logs = np.log([settings.rho, small[0], settings.releases, 1.0, small[1], kappa])
        return cls(logs + np.array([0.0, 0.0, 0.0, settings.tau, 0.0, 0.0]))

    @staticmethod
    def candidates(points: Floats, facts: Facts, x_norm: float) -> Candidates:
        """Points as settings, within their limits.

        Residuals beyond κ do not bend the loss, so a κ much below those that remain leaves too few records to learn
        from; `Moments` knows their number only before that. It would not gain anything either: Δ falls with κ, and so
        does the step.
        """
        rho, zeta, releases, tau, decay, kappa = points.T
        bounded = np.maximum(np.exp(kappa), LEAST_KAPPA * facts.label_scale * math.sqrt(1.0 - facts.expected))
        return Candidates(
            np.maximum(np.exp(rho), steady_rho(facts, x_norm)),
            1.0 - np.minimum(np.exp(zeta), 0.6),
            np.clip(np.round(np.exp(releases)), 1, MOST_RELEASES if facts.rows is None else MOST_TABLE_RELEASES),
            np.clip(tau, 0.0, min(MOST_TAU, SHY_OF_SWAPPING * (facts.clusters - 1) / facts.clusters)),
            1.0 - np.minimum(np.exp(decay), 0.3),
            bounded,
        )


def clipped_to(facts: Facts) -> float:
    """Return the length to which rows are clipped, as a config states it: a plan of that config has the same one."""
    return facts.x_norm if facts.rows is None else min(facts.x_norm, _digits(CLIPPED_AT * facts.rows.typical_length))


def steady_rho(facts: Facts, x_norm: float) -> float:
    """Return the least ρ with which no step overshoots, whatever a table's rows of such a length are like.

    A step leaves 1 − c/ρ of an error along a direction of curvature c, which of rows of length B is at most 2B² for
    Huber's loss, B²/4 for two labels and B²/2 for more, times what a client weighs. A step that overshoots is held back
    on twins, but not on rows that nearly all point in one direction.
    """
    if facts.rows is None:
        return 0.0
    return 0.5 * float(facts.loss.smoothness(Bounds(x_norm=x_norm)) or 0.0) * facts.largest_weight * SHY_OF_BOUND


def best_foreseen(facts: Facts, seeds: Sequence[int], start: Settings | None = None) -> Settings:
    """The settings that theory finds best on federations like these twins, in a search from `start` if there is one.

    Rows of a table are clipped to most rows' length where that saves much noise: real ones tell more by their length
    than those of twins.
    """
    if start is not None:
        return _best_of_length(facts, seeds, start, start.x_norm or facts.x_norm)[1]
    lost, whole = _best_of_length(facts, seeds, None, facts.x_norm)
    if (shorter := clipped_to(facts)) == facts.x_norm:
        return whole
    less_lost, clipped = _best_of_length(facts, seeds, None, shorter)
    return clipped if less_lost < lost - CLIPPING_PAYS else whole


def foreseen_on(facts: Facts, settings: Settings, seeds: Sequence[int]) -> list[Foreseen]:
    """Return what theory expects of settings, twin by twin."""
    length = settings.x_norm or facts.x_norm
    one = Point.candidates(Point.of(settings).at[None, :], facts, length)
    return [moments_of(facts, seed, length).foresee(one) for seed in seeds]


def moments_of(facts: Facts, seed: int, x_norm: float) -> Moments:
    """Return what theory knows of a twin; what does not depend on ε is computed once."""
    return _moments(replace(facts, epsilon=1.0), seed, x_norm).at(facts.epsilon)


@lru_cache(maxsize=MOMENTS_KEPT)
def _moments(facts: Facts, seed: int, x_norm: float) -> Moments:
    return Moments(facts, twin(sketched(facts), seed), x_norm)


def _best_of_length(
    facts: Facts, seeds: Sequence[int], start: Settings | None, x_norm: float
) -> tuple[float, Settings]:
    """Return how little is lost, and with which settings."""
    moments = [moments_of(facts, seed, x_norm) for seed in seeds]
    rng = np.random.default_rng(0)
    middle = Point.of(start or _anywhere(facts)).at
    spread = np.diag((np.array(WIDTHS) * (WARM if start else 1.0)) ** 2)
    best, least = middle, math.inf
    warm = WARM_GENERATIONS if facts.rows is None else WARM_TABLE_GENERATIONS
    for _ in range(warm if start else GENERATIONS):
        points = rng.multivariate_normal(middle, spread, POPULATION if facts.rows is None else FEWER, method="cholesky")
        points[0] = best
        tried = Point.candidates(points, facts, x_norm)
        scores = np.mean([moment.regrets(tried) for moment in moments], axis=0)
        scores += PRICE_OF_ROUNDS * np.log(tried.releases)
        order = np.argsort(scores, kind="stable")[: int(BEST * len(points))]
        if scores[order[0]] < least:
            best, least = points[order[0]], float(scores[order[0]])
        middle = points[order].mean(axis=0)
        spread = WIDER**2 * np.cov(points[order].T) + NARROWEST**2 * np.eye(len(middle))
    one = Point.candidates(best[None, :], facts, x_norm)
    tau, decay = round(float(one.tau[0]), 3), float(one.tau_decay[0])
    return least, Settings(
        _digits(float(one.rho[0]), up=True),
        round(float(one.zeta[0]), 6),
        int(one.releases[0]),
        tau,
        round(decay, 5) if tau and decay < 1.0 - HARDLY else 1.0,
        _digits(float(one.kappa[0])) if facts.task == "regression" else None,
        None if facts.rows is None or x_norm >= facts.x_norm else _digits(x_norm),
        facts.records[1],
        facts.labels,
    )


def _digits(value: float, up: bool = False) -> float:
    """Return a number to four digits, rounded up where less would not do."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{(math.ceil(value / unit) if up else round(value / unit)) * unit:.4g}")


def _anywhere(facts: Facts) -> Settings:
    """Return where a search begins that knows nothing: steps that lead about as far as the model is."""
    length = (facts.typical_length if facts.rows is None else facts.rows.typical_length) ** 2
    weight = facts.largest_weight if facts.rows is not None else 1.0
    if facts.task == "classification":
        return Settings(0.1 * length * weight, 0.95, 30, 0.3, 0.99)
    return Settings(20.0 * length / facts.columns * weight, 0.98, 100, 0.3, 0.995, 0.15 * facts.label_scale)
