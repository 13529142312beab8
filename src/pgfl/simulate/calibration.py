"""The privacy of a simulation: every client's sensitivity, the plan that accounts for it, and the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgfl.array_types import Floats
from pgfl.core import equations as eq
from pgfl.core.algorithms import Algorithm
from pgfl.objectives import Objective
from pgfl.objectives.solving import tolerance_for
from pgfl.privacy.request import Privacy
from pgfl.simulate.draws import ServerNormals
from pgfl.simulate.flat_layout import Layout
from pgfl.simulate.problems import Objectives, objective_of

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Plan
    from pgfl.privacy.noise import NoiseSource
    from pgfl.privacy.shared_noise import PairNoise
    from pgfl.simulate.training_options import TrainingOptions


def constrained(objectives: Objectives, privacy: Privacy | None) -> Objectives:
    """The objectives with the constraints that their guarantee needs."""
    if privacy is None:
        return objectives
    if isinstance(objectives, Objective):
        return privacy.constrained(objectives)
    return {name: privacy.constrained(objective) for name, objective in objectives.items()}


@dataclass(frozen=True)
class Calibrated:
    """The plan of all clients, and the source of the noise: of each client's, or of each pair's."""

    plan: Plan
    noise: NoiseSource | None = None
    pair_noise: PairNoise | None = None


def calibrated(
    layout: Layout, algorithm: Algorithm, objectives: Objectives, privacy: Privacy, options: TrainingOptions
) -> Calibrated:
    """What a private training of this layout needs."""
    from pgfl.privacy.noise import SecureNoise, SeededNoise

    trust = privacy.trusted
    trust.check(algorithm)
    deltas = _sensitivities(layout, algorithm, objectives, privacy, options)
    secure = privacy.noise_for(layout.runs[0].federation) == "secure"
    if trust.aggregates:
        return _of_pairs(layout, privacy, options, deltas, secure)
    compiled = options.engine == "numba"
    normals = ServerNormals(layout, options.participants, options.seed, options.dtype, compiled=compiled)
    noise = SecureNoise(layout.model_length) if secure else SeededNoise(normals)
    plan = privacy.plan(noise.widen(deltas), options.rounds)
    noise.check(plan.least_sigma)
    return Calibrated(plan, noise)


def _of_pairs(layout: Layout, privacy: Privacy, options: TrainingOptions, deltas: Floats, secure: bool) -> Calibrated:
    """Where the clients of a pair share their noise."""
    from pgfl.privacy import lattice
    from pgfl.privacy.shared_noise import LatticePairNoise, SeededPairNoise, SharedNoise

    trust, most = privacy.trusted, None if options.participants == "all" else options.participants
    shared = SharedNoise(trust, layout.client_pair, most, layout.model_length if secure else 0)
    noise: PairNoise
    if secure:
        noise, deltas = LatticePairNoise(trust, shared.least_share), lattice.widened(deltas, layout.model_length)
    else:
        drawn_for, compiled = layout.pair_server, options.engine == "numba"
        noise = SeededPairNoise(trust, ServerNormals(layout, "all", options.seed, options.dtype, drawn_for, compiled))
    plan = privacy.plan(deltas, options.rounds, shared)
    noise.check(plan.least_sigma)
    return Calibrated(plan, pair_noise=noise)


def _sensitivities(
    layout: Layout, algorithm: Algorithm, objectives: Objectives, privacy: Privacy, options: TrainingOptions
) -> Floats:
    deltas = np.empty(layout.clients)
    for run in layout.runs:
        cluster = run.federation.client_cluster[run.order]
        for q in np.unique(cluster):
            objective = objective_of(objectives, run.federation.cluster_ids[q])
            chosen = np.flatnonzero(cluster == q) + run.clients.start
            modulus = eq.strong_convexity(algorithm.rho, objective.lam, layout.server_clients[chosen])
            tolerance = tolerance_for(objective, options.dtype, np)
            deltas[chosen] = privacy.sensitivity(objective, algorithm, layout.counts[chosen], modulus, tolerance)
    return deltas
