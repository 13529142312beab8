"""`tau = "auto"`: the mean curvature of the losses, which tells how far from a model its optimum is, given a gradient.

Without privacy it is that of a sample of the clients' data. With privacy it follows from public facts: rows drawn
uniformly from the ball of radius `x_norm`. It need not be exact (docs/explanations/who-learns-from-whom.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.schedules import Adaptive
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.objectives import Bounds, Objective
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives, objective_of
from pgfl.simulate.rho import Facts, curved_rows, exact_mean, largest_bend, sampled_clients

BOUNDED_SLOPE = 0.5  # how much of its largest curvature a loss of bounded slope has along the way: a choice, measured
MOST_COMPARED = 64  # clusters: weights are a matrix between all of them, at every server


def with_curvature(
    algorithm: Algorithm,
    objectives: Objectives,
    federation: Federation,
    options: TrainingOptions,
    communicator: Communicator,
) -> Algorithm:
    """Return the algorithm with the curvature that `tau = "auto"` needs; on several processes, all call this."""
    tau = algorithm.tau
    if not isinstance(tau, Adaptive) or tau.curvature is not None:
        return algorithm
    clusters = len(federation.cluster_ids)
    if clusters > MOST_COMPARED:
        raise ConfigError(
            f'algorithm.tau = "auto" compares every two clusters, up to {MOST_COMPARED} of them; there are {clusters}. '
            "A cluster of a single client has no two halves to compare either: group clients, or give tau a number."
        )
    found = mean_curvature(algorithm, objectives, federation, options, communicator)
    return replace(algorithm, tau=Adaptive(found, options.privacy is not None))  # type: ignore[type-var]


def _usual_bend(objective: Objective) -> float:
    """Return the curvature of the loss per squared length of a row; a loss of bounded slope has it near 0 only."""
    bounded = objective.gradient_bound(Bounds(x_norm=1.0)) is not None
    return (BOUNDED_SLOPE if bounded else 1.0) * largest_bend(objective, "tau")


def mean_curvature(
    algorithm: Algorithm,
    objectives: Objectives,
    federation: Federation,
    options: TrainingOptions,
    communicator: Communicator,
) -> float:
    """Return the curvature of a client's loss per coordinate, averaged over clusters and scaled as its step is."""
    facts, privacy = Facts.of(federation, communicator), options.privacy
    if privacy is not None:
        if privacy.x_norm is None:
            raise ConfigError(
                'algorithm.tau = "auto" follows from privacy.x_norm under privacy; state it, or give tau a number.'
            )
        square = privacy.x_norm**2 / (federation.dimension + 2)
    else:
        sample = sampled_clients(federation, communicator)
        owned = [objective_of(objectives, federation.cluster_ids[q]) for q in federation.client_cluster[sample]]
        rows = (curved_rows(federation, int(k), one) for k, one in zip(sample, owned, strict=True))
        means = np.array([float(np.mean(np.square(each))) for each in rows])
        square = exact_mean(means, max(int(communicator.sum([len(sample)])[0]), 1), communicator)
    chosen = [objective_of(objectives, federation.cluster_ids[q]) for q in facts.clusters]
    found = [_usual_bend(one) * square + facts.ridge(one) for one in chosen]
    full = algorithm.client_rule.full_records
    taken, clients = communicator.sum([int(np.minimum(federation.counts, full).sum()), federation.size]).tolist()
    return max(float(np.mean(found)), float(np.finfo(float).tiny)) * float(taken) / (full * float(clients))
