"""The privacy of a simulation: every client's sensitivity, the plan that accounts for it, and the noise."""

from __future__ import annotations

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
    from pgfl.simulate.training_options import TrainingOptions


def constrained(objectives: Objectives, privacy: Privacy | None) -> Objectives:
    """The objectives with the constraints that their guarantee needs."""
    if privacy is None:
        return objectives
    if isinstance(objectives, Objective):
        return privacy.constrained(objectives)
    return {name: privacy.constrained(objective) for name, objective in objectives.items()}


def calibrated(
    layout: Layout, algorithm: Algorithm, objectives: Objectives, privacy: Privacy, options: TrainingOptions
) -> tuple[Plan, NoiseSource]:
    """The plan of all clients, and the source of the noise."""
    from pgfl.privacy.noise import SecureNoise, SeededNoise

    federation = layout.runs[0].federation
    compiled = options.engine == "numba"
    normals = ServerNormals(layout, options.participants, options.seed, options.dtype, compiled)
    secure = privacy.noise_for(federation) == "secure"
    noise = SecureNoise(layout.model_length) if secure else SeededNoise(normals)
    plan = privacy.plan(noise.widen(_sensitivities(layout, algorithm, objectives, privacy, options)), options.rounds)
    noise.check(plan.least_sigma)
    return plan, noise


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
