"""Make a plan: settings for some twins, judged on others, and what would change with other data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.schedules import Library
from pgfl.arrays import Floats
from pgfl.config import Config
from pgfl.errors import ConfigError, Diverged
from pgfl.federation.federation import Federation
from pgfl.metrics import deviation
from pgfl.objectives import Huber, Logistic
from pgfl.planning.facts import Facts, facts_of
from pgfl.planning.forecast import Plan, configured, forecast
from pgfl.planning.search import LAM, MIXING, Settings, best_foreseen
from pgfl.planning.twin import twin
from pgfl.privacy.request import Privacy
from pgfl.privacy.trust import Level
from pgfl.results.result import Result
from pgfl.simulate.engines import engine_kind
from pgfl.simulate.training import train

USELESS = 1e6
LIMIT_TAUS = (0.0, 0.01, 0.03, 0.1, 0.3)


def errors(facts: Facts, settings: Settings, seeds: Sequence[int]) -> Floats:
    """Return what is to be made small, one number per twin: the NMSD or, of predictions, what they miss.

    Of a table 1 − R², as a real run will measure it; of two labels the share of wrong ones.
    """
    metric = _metric(facts)
    try:
        result = train(
            lambda run: twin(facts, seeds[run]),
            settings.algorithm,
            settings.objective,
            rounds=settings.rounds,
            privacy=privacy_for(facts, settings),
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


def privacy_for(facts: Facts, settings: Settings) -> Privacy:
    """Return the privacy of a training with these settings, with noise that can be repeated."""
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
    """Return the error of the same algorithm if nobody added noise, with the best of a few τ."""
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
    return "nmsd" if facts.uses_nmsd else "r2" if facts.task == "regression" else "accuracy"


def _received_nmsd(result: Result, made: Federation) -> float:
    """The NMSD of the models that clients receive, as with privacy; their own come after a step on their own data."""
    models, truth = result.models[0], made.truth
    assert truth is not None
    place = {pair: row for row, pair in enumerate(zip(models.pair_server, models.pair_cluster, strict=True))}
    rows = [place[pair] for pair in zip(made.client_server, made.client_cluster, strict=True)]
    return float(deviation(models.servers[rows], truth[made.client_cluster]).mean())


def _engine() -> Library:
    compiled = engine_kind("numba")
    return "numba" if compiled.installed() and compiled.failure() is None else "numpy"


SEEDS, JUDGING_SEEDS = (1, 2), (11, 12, 13, 14, 15, 16)
TABLE_SEEDS, TABLE_JUDGING_SEEDS = tuple(range(1, 7)), tuple(range(11, 75))  # its twins differ more from each other
FEW_SEEDS, FEW_JUDGING_SEEDS = SEEDS[:1], JUDGING_SEEDS[:3]
FEW_TABLE_SEEDS, FEW_TABLE_JUDGING_SEEDS = TABLE_SEEDS[:3], TABLE_JUDGING_SEEDS[:24]
LEVELS = (0.25, 1.0, 4.0, 16.0)
TRUSTS: tuple[Level, ...] = ("local", "masked", "site")  # the weaker the assumption, the earlier
Progress = Callable[[int, int, str], None]


def plan(source: Config | Facts, *, progress: Progress | None = None, **facts: Any) -> Plan:
    """Plan a private training from public facts: no record is read and nothing is spent.

    `source` is a config, of whose table only the columns' names and who is where are read, or `Facts`. Facts that a
    config does not state can be given by name: `expected`, `label_mean`, `label_scale`, `epsilon`, `trust`, and
    `spread`, the standard deviation of a typical number that is scaled from its bounds to [−1, 1].
    """
    stated = facts_of(source, **facts) if isinstance(source, Config) else replace(source, **facts)
    small = stated.planned
    _check_trust(small)
    points = {(trust, level): replace(small, trust=trust, epsilon=level) for trust in TRUSTS for level in LEVELS}
    points = {key: other for key, other in points.items() if possible(other)}
    variants = {name: other for name, other in _variants(small).items() if possible(other)}
    work, done = 1 + len(points) + len(variants), 0

    def tell(what: str) -> None:
        nonlocal done
        done = min(done + 1, work)
        if progress:
            progress(done, work, what)

    settings = full_search(small)
    predicted, known = forecast(evaluate_on_twins(small, settings), small), {small: settings}
    tell("settings")

    def nearest(other: Facts) -> Settings:
        """Return the settings that were found for the facts whose noise is most alike."""
        return known[
            min(known, key=lambda one: abs(math.log(one.equivalent_local_epsilon / other.equivalent_local_epsilon)))
        ]

    curves: dict[Level, dict[float, float]] = {}
    chosen: dict[float, tuple[Level, float]] = {}
    instead: dict[tuple[Level, float], Level] = {}
    for (trust, level), other in points.items():
        if other == small:
            reached = predicted.value
        else:
            known[other] = best = quick_search(other, nearest(other))
            reached = typical(other, best)
        weaker = chosen.get(level)
        if weaker is None or _better(small, reached, weaker[1]):
            chosen[level] = (trust, reached)
        else:  # who trusts more can still do what needs less trust
            instead[trust, level] = weaker[0]
        curves.setdefault(trust, {})[level] = chosen[level][1]
        tell(f"trust = {trust}, epsilon = {level:g}")
    helps, here = {}, typical(small, settings)
    for name, other in variants.items():
        reached = typical(other, quick_search(other, settings))
        helps[name] = (-1.0 if small.uses_nmsd else 1.0) * (reached - here)
        tell(name)
    limit = limit_beside(curves, small, shown(small, np.array([without_privacy(small, JUDGING_SEEDS[0])]))[0])
    made = configured(source, stated, settings) if isinstance(source, Config) else None
    return Plan(stated, settings, predicted, limit, curves, helps, instead, made)


def full_search(facts: Facts) -> Settings:
    """Return the settings of which theory expects most, on a few twins."""
    return best_foreseen(facts, SEEDS if facts.rows is None else TABLE_SEEDS)


def quick_search(facts: Facts, start: Settings) -> Settings:
    """Good settings for other facts than those of `start`, in a shorter search on fewer twins."""
    return best_foreseen(facts, FEW_SEEDS if facts.rows is None else FEW_TABLE_SEEDS, start)


def possible(facts: Facts) -> bool:
    """Return whether the clients of a cluster at a server are enough for the trust, on average."""
    return facts.trusted.takes_part(facts.per_pair)


def evaluate_on_twins(facts: Facts, settings: Settings, seeds: Sequence[int] | None = None) -> Floats:
    """Return what the settings reach on twins that the search has not seen, one number per twin."""
    usual = JUDGING_SEEDS if facts.rows is None else TABLE_JUDGING_SEEDS
    return shown(facts, errors(facts, settings, seeds or usual))


def typical(facts: Facts, settings: Settings) -> float:
    """Return what the settings reach on a few of these twins: the mean, or of tables, which differ more, the median."""
    if facts.rows is None:
        return float(evaluate_on_twins(facts, settings, FEW_JUDGING_SEEDS).mean())
    return float(np.median(evaluate_on_twins(facts, settings, FEW_TABLE_JUDGING_SEEDS)))


def limit_beside(curves: Mapping[Level, Mapping[float, float]], facts: Facts, found: float) -> float:
    """What is reached without privacy: what was found, or what is reached in spite of noise, if that is better."""
    best = min if facts.uses_nmsd else max
    return best(float(found), *(reached for curve in curves.values() for reached in curve.values()))


def shown(facts: Facts, found: Floats) -> Floats:
    """Errors in the unit that a plan shows: NMSD in dB, else R² or accuracy in per cent."""
    return np.asarray(10.0 * np.log10(found) if facts.uses_nmsd else 100.0 * (1.0 - found))


def _better(facts: Facts, one: float, other: float) -> bool:
    return one < other if facts.uses_nmsd else one > other


def _check_trust(facts: Facts) -> None:
    """Refuse a trust that the clients of a cluster at a server are too few for."""
    if (complaint := facts.trusted.complaint(facts.per_pair)) is not None:
        raise ConfigError(
            f'With privacy.trust = "{facts.trust}" nobody could ever contribute, because {complaint}; lower '
            "privacy.contributors or privacy.colluders, or choose another trust."
        )


def _variants(facts: Facts) -> dict[str, Facts]:
    changed = {
        **{f'trust = "{trust}"': replace(facts, trust=trust) for trust in TRUSTS if trust != facts.trust},
        "twice the records per client": facts.with_more_records(2),
        "twice the clients": facts.with_more_clients(2),
        f"ε = {2 * facts.epsilon:g}": replace(facts, epsilon=2.0 * facts.epsilon),
    }
    if facts.columns > 1:
        changed["half the columns"] = facts.with_half_the_columns
    if facts.with_tighter_bounds != facts:
        changed["bounds that hold nearly all records and no more"] = facts.with_tighter_bounds
    return changed
