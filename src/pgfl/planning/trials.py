"""Settings on trial: what they achieve on twins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.algorithms import PGFL
from pgfl.core.federation import Federation
from pgfl.core.metrics import deviation
from pgfl.core.training_defaults import Library
from pgfl.errors import Diverged
from pgfl.objectives import Huber, Logistic
from pgfl.planning.facts import Facts
from pgfl.planning.settings import LAM, MIXING, Settings
from pgfl.planning.twin import twin
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result
from pgfl.simulate.engine_choice import failure, installed
from pgfl.simulate.training import train

USELESS = 1e6
LIMIT_TAUS = (0.0, 0.01, 0.03, 0.1, 0.3)


def errors(facts: Facts, settings: Settings, seeds: Sequence[int]) -> Floats:
    """What is to be made small, one number per twin: the NMSD or, of predictions, what they miss.

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


def _engine() -> Library:
    return "numba" if installed() and failure() is None else "numpy"
